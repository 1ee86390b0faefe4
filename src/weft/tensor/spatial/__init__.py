"""Distances between points."""

from weft.tensor.spatial import distance

__all__ = ["distance"]
