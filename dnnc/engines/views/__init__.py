"""Fusions read in other axes, layouts and types, for engines of every family."""
