"""Attention: engines sdpa_*."""
