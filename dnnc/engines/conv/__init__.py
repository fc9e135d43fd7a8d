"""Convolutions: engines conv_*."""
