# Written by `python -m weft.tensor.stubs` from the registry.
# fmt: off
from weft.frontends.tensors.arrays.windows import sliding_window_view
__all__ = [
    "sliding_window_view",
]
