"""Random arrays: generators with a seed, and the functions of one that all share.

The numbers depend on the seed, on the calls made before, and on the chunks where these are named (by `chunk_size`, or
that of the session); not on workers, memory, backend or order. They are not those that `numpy.random` gives for the
same seed.
"""

from weft.frontends.tensors.arrays.stubs import namespace

__getattr__, __dir__, __all__ = namespace(__name__)
