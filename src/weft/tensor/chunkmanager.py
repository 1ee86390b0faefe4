"""The door for xarray, which finds this manager of chunked arrays through the entry point `xarray.chunkmanagers`."""

from weft.frontends.tensors.chunk_manager import WeftManager

__all__ = ["WeftManager"]
