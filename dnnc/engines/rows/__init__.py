"""Reductions whose results flow on: engines rows and grid."""
