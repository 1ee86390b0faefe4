"""Random arrays: generators with a seed, and the functions of one shared generator.

The numbers depend on the seed, on the earlier calls, and on chunks named by the user (by `chunk_size`, or that of the
session); not on workers, memory, backend or order. They differ from those of `numpy.random` for the same seed.
"""

from weft.frontends.tensors.arrays.stubs import namespace

__getattr__, __dir__, __all__ = namespace(__name__)
