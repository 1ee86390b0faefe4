"""Options of the whole process."""

from weft.frontends.tensors.arrays.stubs import namespace

__getattr__, __dir__, __all__ = namespace(__name__)
