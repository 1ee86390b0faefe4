"""The watch of a command by its guardian, from its start to the end of its last process.

This module is part of the guardian, so it imports no more than that does (see `weft.worker.guardian`).
"""

from __future__ import annotations

import os
import select
import time

from weft.worker.command_start import STOPPING
from weft.worker.process_table import (
    CHUNK_BYTES,
    LINUX,
    OWNER_S,
    OwnerProcess,
    ProcessRow,
    children,
    family,
    read_whole_file,
    send_signal,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any

    from weft.worker.bounded_log import BoundedLog
else:
    import _signal as signal  # the C module, without its enums

LOOKING_S = 0.25
"""Seconds between two searches for orphans while a tree ends."""
SETTLING_S = 0.2
"""The seconds in which processes end that end with their command, such as `tee` behind it."""
KILLING_S = 5.0
"""Seconds that SIGKILL may take before the guardian gives up on a process that hangs in the kernel."""
GUARDIAN_MAIN = b"from weft.worker import guardian; guardian.main()"
"""The end of the program of all guardians (`weft.operators.guardians`), by which the process table shows them."""
STOPPED = b"\n[weft] process %d was stopped by signal %d, and waits for kill -CONT %d\n"
RSS_BYTES = 1024 if LINUX else 1
"""The bytes of a unit of `ru_maxrss`."""
NOWHERE = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
"""The standard streams of a command whose output nobody reads."""


class CommandWatch:
    """Waits for one command and then for the end of all its descendants.

    `why` is empty while the command runs, then the cause of its end: "exit", "timeout", "owner" or "signal".
    """

    def __init__(
        self,
        spec: dict[str, Any],
        log: BoundedLog,
        *,
        control: int,
        owner: OwnerProcess,
        wake: int,
        outputs: dict[int, int],
    ) -> None:
        self.opened: Any = None
        self.grace_s: float = spec["grace_s"]
        self.after_s: float | None = spec["after_s"]
        self.timeout_s: float | None = spec["timeout_s"]
        self.end: list[bytes] = spec["end"]
        self.env: dict[bytes, bytes] = spec["env"]
        self.log, self.control, self.owner, self.wake, self.outputs = log, control, owner, wake, outputs
        self.begun = time.monotonic()
        self.why = ""
        self.command = 0
        self.exit: int | None = None
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.memory = 0
        self.left = 0
        self.killed = 0
        self.behind: set[int] = set()
        self.reaped = False
        self.asked: set[tuple[int, str]] = set()
        self.poll = select.poll()
        for fd in (control, wake, *outputs, owner.handle):
            if fd >= 0:
                self.poll.register(fd, select.POLLIN)

    def run(self, command: int, opened: Any) -> None:
        """Return when no process of the command is left, or only processes that cannot be ended; `left` is their
        number. `opened` is as for `start`. `killed` counts what the command has left running and did not end by itself,
        without what that had started.
        """
        self.command, self.opened = command, opened
        if opened is not None:
            self.poll.register(opened.listener, select.POLLIN)
        kill_at = give_up_at = look_at = 0.0
        while self._reap():
            now = time.monotonic()
            if not self.why and self.exit is not None:
                self.why = "exit"
            elif not self.why and self.timeout_s is not None and now >= self.begun + self.timeout_s:
                self.why = "timeout"
            wait_s = OWNER_S if self.owner.handle < 0 else 3600.0
            if not self.why:
                if self.timeout_s is not None:
                    wait_s = min(wait_s, self.begun + self.timeout_s - now)
            elif self.why == "exit" and self.after_s is None and now < self.begun + self.wall_s + SETTLING_S:
                wait_s = self.begun + self.wall_s + SETTLING_S - now
            elif not kill_at:
                if self.why == "exit" and self.after_s is None:
                    self.behind = {row.pid for row in children(os.getpid()) if row.alive}
                grace_s = self.grace_s if self.after_s is None or self.why != "exit" else self.after_s
                kill_at, give_up_at = now + grace_s, now + grace_s + KILLING_S
                if not self.end:
                    if grace_s > 0 or self.why != "exit":  # what the command has left may not even begin to end
                        self._ask_to_end(family(os.getpid()))
                elif self.why != "exit":
                    self._ask_elsewhere()
                continue
            elif now < kill_at and self.end:
                wait_s = kill_at - now
            elif now < kill_at:
                # Processes started during the search have received no signal. An orphan among them never will;
                # a child may be part of an orderly shutdown and is left alone.
                if self.reaped or now >= look_at:
                    self.reaped, look_at = False, now + LOOKING_S
                    self._ask_to_end([row for row in family(os.getpid()) if row.parent == os.getpid()])
                wait_s = min(kill_at, look_at) - now
            elif now < give_up_at:
                self._kill()
                wait_s = 0.02
            else:
                self.left = len(family(os.getpid()))
                return
            self._wait(wait_s)

    def kill_group(self) -> None:
        """Without a subreaper, kill the remaining members of the command's group."""
        try:  # noqa: SIM105 - importing contextlib costs start-up time
            os.killpg(self.command, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def drain(self) -> None:
        """Read and close the pipes; an escaped process that holds one open is not waited for."""
        for fd, stream in self.outputs.items():
            os.set_blocking(fd, False)
            try:
                while data := os.read(fd, CHUNK_BYTES):
                    self.log.write(data, stream)
            except BlockingIOError:
                pass
            os.close(fd)

    def _reap(self) -> bool:
        """Wait for all ended children; False if no child is left. A stopped child is told in the log."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if os.WIFSTOPPED(status):
                self.log.write(STOPPED % (pid, os.WSTOPSIG(status), pid))
                continue
            self.reaped = True
            self.cpu_s += used.ru_utime + used.ru_stime
            self.memory = max(self.memory, used.ru_maxrss * RSS_BYTES)
            if pid in self.behind and status:
                self.killed += 1
            if pid == self.command:
                self.exit = os.waitstatus_to_exitcode(status)
                self.wall_s = time.monotonic() - self.begun

    def _wait(self, wait_s: float) -> None:
        for fd, what in self.poll.poll(max(0, int(wait_s * 1000) + 1)):
            if self.opened is not None and fd == self.opened.listener:
                if what & select.POLLIN:
                    self.opened.take_some()
                else:  # no process with the filter is left
                    self.poll.unregister(fd)
            elif fd in self.outputs:
                data = os.read(fd, CHUNK_BYTES)
                self.log.write(data, self.outputs[fd])
                if not data:
                    self.poll.unregister(fd)
            elif fd == self.wake:
                if any(number in STOPPING for number in os.read(fd, 4096)):
                    self.why = self.why or "signal"
            elif fd == self.owner.handle or not self._more(fd):
                self.poll.unregister(fd)
                self.why = self.why or "owner"
        if self.owner.is_gone():
            self.why = self.why or "owner"

    def _more(self, control: int) -> bool:
        """Take a grace period from the owner; False: the owner asks for the end, or has ended."""
        try:
            text = os.read(control, 4096)
        except ConnectionResetError:
            return False
        if text:
            self.grace_s = float(text)
        return bool(text)

    def _ask_to_end(self, rows: list[ProcessRow]) -> None:
        """Send SIGTERM to processes, parents first, once to each.

        Guardians of another owner, and what is below them, are left to that owner, which gets the signal itself: a run
        that the command has begun would fail if its steps ended before it was cancelled.
        """
        others: set[int] = set()
        for row in rows:
            if row.parent in others or self._has_another_owner(row.pid):
                others.add(row.pid)
            elif row.alive and (row.pid, row.start) not in self.asked:
                self.asked.add((row.pid, row.start))
                send_signal(row, signal.SIGTERM)

    def _has_another_owner(self, pid: int) -> bool:
        """Whether a process is a guardian that another process than the owner of this one has started."""
        if not LINUX or pid == self.command:
            return False
        try:
            own, words = (read_whole_file(f"/proc/{one}/cmdline") for one in ("self", pid))
        except OSError:
            return False
        return GUARDIAN_MAIN in words and words != own

    def _ask_elsewhere(self) -> None:
        """Start the command that asks this one to end; its end is waited for like that of all children."""
        try:
            os.posix_spawnp(self.end[0], self.end, self.env, file_actions=NOWHERE)
        except OSError as error:
            self.log.write(b"\n[weft] %s: %s\n" % (self.end[0], os.strerror(error.errno or 0).encode()))

    def _kill(self) -> None:
        for row in family(os.getpid()):
            send_signal(row, signal.SIGKILL)


class OomKillCounter:
    """Tells whether the kernel has killed a process for lack of memory, by its counters, read at most once a second.

    `paths` are files with a line `oom_kill N`. Without a readable file no kill is ever seen.
    """

    FRESH_S = 1.0
    """Reading the counters takes 0.1 ms, a good part of a short command."""

    def __init__(self, paths: list[bytes]) -> None:
        self.paths = paths
        self._count = 0
        self._at = -self.FRESH_S

    def begin(self) -> None:
        """Record the current count for later comparisons, unless the last record is fresh."""
        now = time.monotonic()
        if now >= self._at + self.FRESH_S:
            self._count, self._at = self._read(), now

    def has_killed(self) -> bool:
        """Whether the kernel has killed a process since `begin`."""
        before, self._count, self._at = self._count, self._read(), time.monotonic()
        return self._count > before

    def _read(self) -> int:
        count = 0
        for path in self.paths:
            try:
                data = b"\n" + read_whole_file(path)
            except OSError:
                continue
            at = data.find(b"\noom_kill ")
            if at >= 0:
                count += int(data[at + 10 :].split(None, 1)[0])
        return count
