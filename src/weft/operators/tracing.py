"""Whether this system tells what a command opens: see `weft/worker/tracing.py`."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_ACTIONS: Final = Path("/proc/sys/kernel/seccomp/actions_avail")
"""The actions of the kernel's filters of system calls, by seccomp(2)."""
_MACHINES: Final = frozenset({"x86_64", "aarch64"})


@cache
def can_trace() -> bool:
    """Whether the kernel asks another process before a call goes on. A container may forbid it all the same."""
    with suppress(OSError):
        return os.uname().machine in _MACHINES and "user_notif" in _ACTIONS.read_text(encoding="ascii").split()
    return False
