"""Private memory for the bytes of chunks that are read from disk or from other nodes."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Final

_OWN_PAGES: Final = 64 * 1024
_HUGE: Final = 4 << 20
"""The bytes from which huge pages are asked for: the first touch of small ones takes longer than the copy itself."""


def private_pages(nbytes: int) -> memoryview:
    """Return private, writable memory whose content is not defined."""
    if nbytes < _OWN_PAGES:
        return memoryview(bytearray(nbytes))
    # Pages of its own instead of a large bytearray, which would be filled with zeros twice.
    pages = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(pages)
