"""Processes identified by pid and start time, and the end of processes that a killed owner has left behind.

The system reuses pids. A pid with its start time (and the boot) identifies one process for ever, so that a record may
outlive its run without risk to other processes.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.model.errors import InternalError
from weft.worker.guardian import RECORDED
from weft.worker.process_table import LINUX, ProcessRow, descendants, look_up, process_table, send_signal

if TYPE_CHECKING:
    from collections.abc import Sequence

POLL_S = 0.02
KILLING_S = 5.0


class ProcessId(NamedTuple):
    """One process for ever. `start_time` is opaque text: clock ticks and the id of the boot, or the output of `ps`."""

    pid: int
    start_time: str


def process_id(pid: int) -> ProcessId | None:
    """Return the identity of a running process, None if no process has this pid."""
    process = look_up(pid)
    return ProcessId(pid, process.start) if process is not None and process.alive else None


def is_alive(process: ProcessId) -> bool:
    """Whether this process still runs; a zombie does not."""
    return process_id(process.pid) == process


def end_group(leader: ProcessId, grace_s: float = 3.0) -> bool:
    """End a process, its session, its group and all their descendants; return whether there was any.

    SIGTERM first, SIGKILL to the remaining processes after `grace_s` seconds. Nothing is touched unless the leader
    still runs: only the leader distinguishes its group from a later group with the same number. A process that has lost
    both its parent and its session is found only through a live guardian or by its mark (`end_recorded`).
    InternalError: a process cannot be ended.
    """
    return _end([leader], grace_s)


def _end(leaders: Sequence[ProcessId], grace_s: float) -> bool:
    leaders = [one for one in leaders if one.pid > 1 and one.pid != os.getpid() and is_alive(one)]
    if not leaders:
        return False
    members = _members(*leaders)
    for process in members:
        send_signal(process, signal.SIGTERM)
    kill_at = time.monotonic() + grace_s
    give_up_at = kill_at + KILLING_S
    known = {ProcessId(process.pid, process.start): process for process in members}
    while known := {identity: process for identity, process in known.items() if is_alive(identity)}:
        now = time.monotonic()
        if now >= give_up_at:
            pids = ", ".join(str(identity.pid) for identity in known)
            raise InternalError(f"processes {pids} of an earlier run cannot be ended", hint="End them, then try again.")
        # New members are found through members that still run. Leaders go last: one of them may be the
        # subreaper that adopts the others.
        for process in _members(*known):
            known.setdefault(ProcessId(process.pid, process.start), process)
        if now >= kill_at:
            others = [process for identity, process in known.items() if identity not in leaders]
            for process in others or known.values():
                send_signal(process, signal.SIGKILL)
        time.sleep(POLL_S)
    return True


def _members(*roots: ProcessId) -> list[ProcessRow]:
    """Return the live roots, the members of the groups and sessions that they lead, and all descendants."""
    table = process_table()
    leaders = {root.pid for root in roots if root.pid in table and table[root.pid].start == root.start_time}
    found = {pid: row for pid, row in table.items() if pid in leaders or row.group in leaders or row.session in leaders}
    for pid in list(found):
        found.update((row.pid, row) for row in descendants(table, pid))
    return [row for row in found.values() if row.alive and row.pid != os.getpid()]


def read_record(path: Path) -> list[ProcessId]:
    """Return the processes of a guardian's record, the guardian first; none without a record.

    InternalError: the file has other content.
    """
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        pid, _, start_time = line.partition(" ")
        if not pid.isdecimal() or not start_time:
            raise InternalError(
                f"{path} does not name processes: {line[:80]!r}",
                hint="End all processes of the earlier run, then remove the file.",
            )
        found.append(ProcessId(int(pid), start_time))
    return found


def end_recorded(path: Path, grace_s: float = 3.0) -> bool:
    """End all processes that an earlier owner has left running, remove its record, and return whether there were any.

    These are the processes of the record with their descendants, and all processes with the mark of the record.
    """
    ended = [end_group(process, grace_s) for process in read_record(path)]
    ended.append(_end(_marked(path), grace_s))
    path.unlink(missing_ok=True)
    return any(ended)


def _marked(path: Path) -> list[ProcessId]:
    """Return the processes with the mark of a record in their initial environment.

    The result is empty where the environment cannot be read (other systems than Linux). This process and its ancestors
    are left out: a user may type in a shell that a step has left.
    """
    if not LINUX or not path.exists():
        return []
    table = process_table()
    own, above = {os.getpid()}, table.get(os.getpid())
    while above is not None and above.parent not in own:
        own.add(above.parent)
        above = table.get(above.parent)
    mark = RECORDED + b"=" + os.fsencode(os.path.realpath(path))
    found = []
    for row in table.values():
        with suppress(OSError):
            if row.pid not in own and mark in Path(f"/proc/{row.pid}/environ").read_bytes().split(b"\0"):
                found.append(ProcessId(row.pid, row.start))
    return found
