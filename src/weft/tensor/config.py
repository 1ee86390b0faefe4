"""Options that hold for the whole process."""

from weft.frontends.tensors.arrays.options import option_context, options

__all__ = ["option_context", "options"]
