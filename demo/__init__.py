"""A real transformer's feed-forward graphs, compiled ahead of time: `python -m demo`."""
