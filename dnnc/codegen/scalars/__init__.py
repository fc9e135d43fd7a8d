"""Scalar code: operations of one element, and of a fragment's elements."""
