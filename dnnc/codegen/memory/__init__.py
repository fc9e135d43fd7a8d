"""Tensors and tiles in global, shared and L2 memory."""
