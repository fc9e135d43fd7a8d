"""Operations of arrays, outside graphs, which cudnn-frontend calls experimental."""

from . import ops

__all__ = ["ops"]
