"""Small helpers under the names that Mars and NumPy have for them."""

from weft.tensor.lib import index_tricks, stride_tricks

__all__ = ["index_tricks", "stride_tricks"]
