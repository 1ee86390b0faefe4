"""What the C library can do and Python cannot: mappings without descriptors, holes in files, the allocator's wishes.

Loading `ctypes` takes as long as ten modules of Weft, and most runs of steps and jobs do nothing of this: callers
import this module where they need it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from typing import Any, Final

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap = _libc.mmap, _libc.munmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_fallocate = getattr(_libc, "fallocate", None) if sys.platform == "linux" else None
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

CAN_PUNCH: Final = _fallocate is not None
"""Whether this system can free the middle of a file."""
_PUNCH_HOLE_KEEP_SIZE: Final = 0x03
_GLIBC: Final = hasattr(_libc, "malloc_trim")
_M_MMAP_THRESHOLD: Final = -3
_MAPPED_FROM: Final = 256 << 10


def pages(fd: int, nbytes: int) -> Any:
    """Map a file and return an object with the buffer protocol that unmaps it when it dies. OSError: not possible.

    Not `mmap.mmap`: before Python 3.13 that one keeps a descriptor open as long as the mapping lives.
    """
    address = _mmap(None, nbytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    found = (ctypes.c_ubyte * nbytes).from_address(address)
    # At exit the process frees its mappings, while arrays may still view them.
    weakref.finalize(found, _munmap, address, nbytes).atexit = False
    return found


def punch_hole(fd: int, offset: int, nbytes: int) -> bool:
    """Free the pages of a range of an open file, which keeps its size. Return False if not possible."""
    return _fallocate is not None and bool(_fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, offset, nbytes) == 0)


def flush_file_system(folder: int) -> None:
    """Make the whole file system of an open folder durable. OSError: not possible."""
    if not hasattr(_libc, "syncfs"):  # not Linux
        os.sync()
    elif _libc.syncfs(folder):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def give_back() -> None:
    """Have the allocator return freed memory to the system, where it can."""
    if _GLIBC:
        _libc.malloc_trim(0)


def map_large_blocks() -> None:
    """Have the allocator return each large block to the system when it is freed, for the rest of the process.

    By itself it raises the size from which it does so, up to 32 MiB: chunks then lie in heaps, whose free parts may be
    too short for the next chunk, so that a process holds much more than its values.
    """
    if _GLIBC:
        _libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
