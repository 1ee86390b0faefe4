# Written by `python -m weft.tensor.stubs` from the registry.
# fmt: off
from weft.frontends.tensors.arrays.options import option_context, options
__all__ = [
    "option_context", "options",
]
