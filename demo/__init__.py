"""A real transformer's graphs, compiled ahead of time: `python -m demo`."""
