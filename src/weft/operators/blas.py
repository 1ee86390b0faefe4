"""Threads of BLAS: a library that starts one for each core, in each of our workers, has as many again as there are.

While chunks are computed side by side, each of them is given its share of the cores. The number is one for the whole
process, so it is put back as soon as nothing is computed any more. Worker processes are told with each program.
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
    return _loaded("scipy.linalg" in sys.modules)  # it brings another BLAS than NumPy's, and may come later


@cache
def _loaded(scipy: bool) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


_own: tuple[int, Any] = (0, None)
"""How many threads this process was told to use for its share, 0 if nobody has, and which libraries were told."""


def use(threads: int) -> None:
    """Have BLAS use so many threads in this process from now on. For worker processes, which compute one at a time."""
    global _own
    libraries = _libraries()
    if (threads, libraries) != _own:
        libraries.limit(limits=threads)
        _own = threads, libraries


def share(workers: int) -> int:
    """Return how many cores each of so many computations has that run side by side."""
    return max(1, (os.cpu_count() or 1) // max(1, workers))


_lock = threading.Lock()
_sharing = 0
_limit: Any = None


@contextmanager
def shared_by(workers: int) -> Iterator[None]:
    """Divide the cores between so many computations that run side by side; nothing is changed for one alone."""
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
