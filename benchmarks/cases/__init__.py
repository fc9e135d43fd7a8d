"""Cases that are timed: by family, in lists, and drawn by seed."""
