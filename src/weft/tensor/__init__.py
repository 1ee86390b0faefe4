"""NumPy that spreads over workers: lazy arrays in chunks, under the Python array API standard.

    import weft.tensor as wt

    x = wt.ones((100_000, 1_000), chunk_size=10_000)
    print((x * 2 - 1).sum(axis=0).fetch())

The namespace is that of version 2025.12 of the standard; `docs/tensors.md` tells what is more. Its names are those that
the registry has for it (`weft.frontends.tensors.arrays.registry`), each loaded when it is first used.
"""

from weft.frontends.tensors.arrays import runners as _runners
from weft.frontends.tensors.arrays import stubs as _stubs

_open_default = _stubs.Definition("weft.tensor.sessions", "open_default")
_runners.install(lambda: _stubs.load(_open_default)())  # the engine is loaded at the first computation
__getattr__, __dir__, __all__ = _stubs.namespace(__name__)
