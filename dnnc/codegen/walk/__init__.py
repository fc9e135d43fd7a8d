"""Walks: regions of linalg operations applied to fragments of an iteration."""
