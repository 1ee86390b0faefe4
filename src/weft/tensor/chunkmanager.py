"""The chunk manager for xarray, found through the entry point `xarray.chunkmanagers`."""

from weft.frontends.tensors.chunk_manager import WeftManager

__all__ = ["WeftManager"]
