"""Ranks the ways to run a graph: partitions, engines, knobs.  It knows no kernel."""
