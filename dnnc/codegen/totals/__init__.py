"""Totals of threads, blocks, clusters and grids."""
