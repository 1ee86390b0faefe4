"""The threads of BLAS: each worker gets its share of the cores.

A BLAS library starts one thread for each core, in each worker. While chunks are computed in parallel, each of them gets
its share of the cores. The number applies to the whole process, so it is restored as soon as no chunk is computed.
Worker processes receive the number with each program.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


def _libraries() -> Any:
    return _loaded("scipy.linalg" in sys.modules)  # SciPy loads a BLAS of its own, perhaps later


@cache
def _loaded(scipy: bool) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


_own: tuple[int, Any] = (0, None)
"""The number of threads set as the share of this process, 0 if none is set, and the libraries that were set."""


def use(threads: int) -> None:
    """Set the number of BLAS threads of this process, for worker processes that compute one task at a time."""
    global _own
    libraries = _libraries()
    if (threads, libraries) != _own:
        libraries.limit(limits=threads)
        _own = threads, libraries


def share(workers: int) -> int:
    """Return the number of cores of each of `workers` parallel computations."""
    return max(1, (os.cpu_count() or 1) // max(1, workers))


_lock = threading.Lock()
_sharing = 0
_limit: Any = None


@contextmanager
def shared_by(workers: int) -> Iterator[None]:
    """Divide the cores among parallel computations while the context is open; one computation keeps all cores."""
    global _sharing, _limit
    if workers < 2:
        yield
        return
    with _lock:
        if not _sharing:
            _limit = _libraries().limit(limits=share(workers))
        _sharing += 1
    try:
        yield
    finally:
        with _lock:
            _sharing -= 1
            if not _sharing:
                _limit.restore_original_limits()
                _limit = None
