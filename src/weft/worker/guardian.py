"""The guardian: a small process between Weft and a user's command, which ends the command with its owner.

Starting an interpreter takes longer than most commands, so an owner starts one guardian pool: `python -I -S` on `main`,
in a session of its own, with one end of a socket pair as standard input. Its arguments are the folder of this module,
modules there that most commands will need, and the pid of the owner. The pool forks each guardian in advance; an idle
guardian takes the next control socket that arrives through the socket pair. The pool ends with its owner. Busy
guardians do not depend on the pool.

A guardian has a session of its own and runs one command at a time:

1. It receives one frame with the specification (`guard` lists its fields) and becomes the subreaper of the command:
orphans of the command become children of the guardian, even from another session. It writes its record before it checks
that the owner is alive. Without an owner it starts nothing, because the next owner may have read the records. 2. With
`waits` in the specification it prepares the command and starts it after one more byte. 3. It starts the command in a
session of its own, with its output piped to the log (`BoundedLog`), and sends one frame `{"pid", "start", "guardian"}`,
the last its own pid, or `{"failed": (stage, errno)}` if the command could not be started. 4. It ends the whole process
tree (SIGTERM, after `grace_s` SIGKILL, until no child is left) after the exit of the command, a timeout, a SIGTERM,
SIGINT or SIGHUP, or the end of the control socket. The owner half-closes the socket to stop the command, and may
write another `grace_s` as text before; the system closes it when the owner dies. A forked process may hold a copy of
the owner's end, so the guardian also watches the owner itself. 5. It sends one frame with the result. `again` in this
frame offers to take the next command through the same socket, which saves a fork; it requires that no process of the
command is left and that nothing stopped the command. The guardian ends when the owner closes the socket or ends;
without `again` it ends at once.

A pool of an interpreter that has loaded more (`weft.operators.guardians.LoadedPool`) can start functions: a fork of the
guardian calls one in place of 3.

In place of a specification, a guardian may get a frame `{"action": words}`. It then runs this action of
`weft.worker.sandbox`, which talks through the control socket, and ends with it: a fork takes 1 ms where a new
interpreter takes 25.

A frame is a length of 4 bytes, big endian, and a `marshal` of a dictionary: both ends are the same interpreter, and
`json` would double the start-up time. For the same reason this module imports neither `signal`, `socket`, `typing`,
`contextlib` nor `pathlib`, and nothing of Weft. Paths, arguments and environment travel as bytes.

Without a subreaper (other systems than Linux) a process that leaves both its parent and its group escapes, and a
process that leaves its parent only is killed without a grace period.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import resource  # noqa: F401 - `os.wait4` would import it in each guardian
import select
import sys
import time
import warnings  # noqa: F401 - `os.execvpe` would import it in each child

TYPE_CHECKING = False  # `typing` costs as much as all other imports together
if TYPE_CHECKING:
    import signal
    import socket
    from typing import Any, NoReturn
else:
    import _signal as signal  # the C modules, without their enums
    import _socket as socket

LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
CHUNK_BYTES = 1 << 20
LOOKING_S = 0.25
"""Seconds between two searches for orphans while a tree ends."""
OWNER_S = 1.0
"""Seconds between two checks of the owner, on systems that do not report its end."""
SETTLING_S = 0.2
"""The seconds in which processes end that end with their command, such as `tee` behind it."""
KILLING_S = 5.0
"""Seconds that SIGKILL may take before the guardian gives up on a process that hangs in the kernel."""
UNDOING_S = 20.0
"""Seconds that the undo command may take."""
STOPPED = b"\n[weft] process %d was stopped by signal %d, and waits for kill -CONT %d\n"
RSS_BYTES = 1024 if LINUX else 1
"""The bytes of a unit of `ru_maxrss`."""
BUSY = b"+"
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit statuses of a killed command or of a shell around one; the cause may be a lack of memory."""
NOWHERE = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
"""The standard streams of a command whose output nobody reads."""
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a command must not inherit that."""
BOTH, STDOUT, STDERR = 0, 1, 2
"""The streams of a log: that of a command with one pipe for both, or one of two pipes."""


# ------------------------------------------------------------------------------------------------------- processes


class ProcessRow:
    """One row of the process table. `start` is the start time; pid and start time identify one process for ever."""

    __slots__ = ("alive", "group", "parent", "pid", "session", "start")

    def __init__(self, pid: int, parent: int, group: int, session: int, start: str, *, alive: bool) -> None:
        self.pid, self.parent, self.group, self.session = pid, parent, group, session
        self.start, self.alive = start, alive


RECORDED = b"WEFT_RECORD"
"""The environment variable of commands with the path of their record; descendants that escape keep it."""

_boot: list[str] = []


def boot_id() -> str:
    """Return the id of this boot ("" if unknown); start times count from the boot."""
    if not _boot:
        try:
            _boot.append(_read_file("/proc/sys/kernel/random/boot_id").strip().decode())
        except OSError:
            _boot.append("")
    return _boot[0]


def look_up(pid: int) -> ProcessRow | None:
    """Return the process with this pid, zombies included, or None."""
    if not LINUX:
        return _ps(["-p", str(pid)]).get(pid)
    try:
        line = _read_file(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The program name, in brackets, may contain blanks and brackets; field 3 (state) follows the last bracket.
    fields = line[line.rindex(b")") + 2 :].split()
    # A process whose first thread has ended looks like a zombie but continues in its other threads.
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    start = f"{int(fields[19])}@{boot_id()}"
    return ProcessRow(pid, int(fields[1]), int(fields[2]), int(fields[3]), start, alive=alive)


def _read_file(path: str) -> bytes:
    """Return the content of a small kernel file, with fewer calls than `open` makes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def _read_whole_file(path: str | bytes) -> bytes:
    """Return the content of a kernel file of any size."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while more := os.read(fd, CHUNK_BYTES):
            data += more
        return data
    finally:
        os.close(fd)


def process_table() -> dict[int, ProcessRow]:
    """Return all processes by pid."""
    if not LINUX:
        return _ps(["-ax"])
    found = (look_up(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def _ps(selection: list[str]) -> dict[int, ProcessRow]:
    """Return the table of `ps`, for systems without /proc. Start times are whole seconds; the group replaces the
    session.
    """
    import subprocess

    command = ["ps", *selection, "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    env = {"PATH": "/bin:/usr/bin", "LC_ALL": "C", "TZ": "UTC"}
    answer = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    table = {}
    for line in answer.stdout.splitlines():
        pid, parent, group, state, *start = line.split()
        alive = not state.startswith("Z")
        table[int(pid)] = ProcessRow(int(pid), int(parent), int(group), int(group), " ".join(start), alive=alive)
    return table


def descendants(table: dict[int, ProcessRow], root: int) -> list[ProcessRow]:
    """Return all descendants of `root`, parents first."""
    children: dict[int, list[ProcessRow]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(root, ()))
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


def family(root: int) -> list[ProcessRow]:
    """Return all descendants of a process, parents first.

    Where the kernel lists the children of each process, the others are not looked at: a machine may run hundreds.
    """
    if not LINUX or not os.path.exists("/proc/thread-self/children"):
        return descendants(process_table(), root)
    found = children(root)
    for process in found:
        found.extend(children(process.pid))
    return found


def children(parent: int) -> list[ProcessRow]:
    """Return the children of all threads of a process, for systems that list them; none if it has ended."""
    try:
        threads = os.listdir(f"/proc/{parent}/task")
    except OSError:
        return []
    found: list[ProcessRow] = []
    for thread in threads:
        try:
            pids = _read_whole_file(f"/proc/{parent}/task/{thread}/children").split()
        except OSError:
            continue  # it has just ended, and another has adopted its children
        found.extend(row for pid in pids if (row := look_up(int(pid))) is not None)
    return found


def send_signal(process: ProcessRow, number: int) -> None:
    """Send a signal to this process; nothing happens if it has ended, even if its pid is in use again."""
    try:
        handle = os.pidfd_open(process.pid) if LINUX else -1
    except OSError as error:
        if error.errno == errno.ESRCH:
            return
        handle = -1  # an old kernel, or a sandbox that forbids it
    try:
        now = look_up(process.pid)
        if now is None or now.start != process.start:
            return
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has just ended, or runs as another user: the wait for its end decides
    finally:
        if handle >= 0:
            os.close(handle)


class OwnerProcess:
    """The owner of the guardian; `handle` becomes readable at its end, -1 on systems without such handles.

    It is made while the owner is the parent of this process, and stays valid in forked processes.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self.handle = os.pidfd_open(pid) if LINUX else -1
        except OSError:
            self.handle = -1  # an old kernel, or a sandbox that forbids it
        row = look_up(pid) if self.handle < 0 else None
        self._start = row.start if row is not None else ""
        self._look_at = 0.0
        if os.getppid() != pid:  # the owner had ended before, and the pid may belong to another process
            raise EOFError

    def is_gone(self) -> bool:
        """Whether the owner has ended; without a handle the answer is at most `OWNER_S` old."""
        now = time.monotonic()
        if self.handle >= 0 or now < self._look_at:
            return False
        self._look_at = now + OWNER_S
        row = look_up(self.pid)
        return row is None or not row.alive or row.start != self._start

    def has_left(self, control: int) -> bool:
        """Whether the owner has ended or has closed its end of `control`."""
        poll = select.poll()
        for fd in (control, self.handle):
            if fd >= 0:
                poll.register(fd, select.POLLIN if fd == self.handle else 0)
        # The owner half-closes its socket to stop a command; some systems report that as a hang-up.
        ended = [fd for fd, what in poll.poll(0) if fd == self.handle or (LINUX and what & select.POLLHUP)]
        return bool(ended) or self.is_gone()


# ------------------------------------------------------------------------------------------------------------- log


class TimesFile:
    """The file `LOG.times`, which tells when the bytes of a log arrived and from which stream.

    A record has 16 bytes: an offset in the log, and the microseconds since 1970 times 4 plus the stream, both as whole
    numbers of 8 bytes in the order of this machine. It holds for all bytes from its offset to that of the next record.
    There is at most one record for each read, and none for a read that begins no line or follows within `APART_US`.
    Records precede their bytes, so that who has read the bytes finds the record. An error only loses times.
    """

    RECORD_BYTES = 16
    APART_US = 1000

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.fd = -1
        self.end = 0
        self.last_us = 0
        self.stream = -1
        self.unended = [False, False, False]

    def add(self, at: int, data: bytes, stream: int) -> None:
        """Tell that `data` of a stream has arrived, and begins at offset `at`."""
        begins = not self.unended[stream] or b"\n" in data[:-1]
        self.unended[stream] = not data.endswith(b"\n")
        now_us = time.time_ns() // 1000
        if stream != self.stream or (begins and not 0 <= now_us - self.last_us < self.APART_US):
            try:
                if self.fd < 0:
                    self._open(fresh=at == 0)
                self._write(self.record(at, now_us, stream))
                self.last_us, self.stream = now_us, stream
            except OSError:
                pass

    @staticmethod
    def record(at: int, time_us: int, stream: int) -> bytes:
        """Return the bytes of a record."""
        return at.to_bytes(8, sys.byteorder) + (time_us << 2 | stream).to_bytes(8, sys.byteorder)

    def cut(self, note: int, source: int, to: int) -> bytes:
        """Empty the file, and return its records for a log whose bytes from `source` on move to `to`.

        Of the bytes before, those up to `note` stay. No reader finds records of another state of the log meanwhile.
        """
        head, tail, before = bytearray(), bytearray(), 0
        try:
            if self.fd >= 0:
                records = memoryview(os.pread(self.fd, self.end, 0)).cast("Q")
                for index in range(0, len(records), 2):
                    at, mark = records[index], records[index + 1]
                    if at <= source:
                        before = mark
                    if at < note:
                        head += records[index : index + 2]
                    elif at > source:
                        tail += (at - source + to).to_bytes(8, sys.byteorder) + mark.to_bytes(8, sys.byteorder)
                os.ftruncate(self.fd, 0)
                self.end = 0
        except OSError:
            return b""
        noted = self.record(note, before >> 2, BOTH)
        return bytes(head + noted + self.record(to, before >> 2, before & 3) + tail) if before else b""

    def put_back(self, records: bytes) -> None:
        """Write the records that `cut` returned."""
        try:
            if records:
                self._write(records)
        except OSError:
            pass

    def close(self) -> None:
        """Close the file, if there is one."""
        if self.fd >= 0:
            os.close(self.fd)

    def _open(self, *, fresh: bool) -> None:
        how = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_TRUNC if fresh else 0)
        self.fd = os.open(self.path, how, 0o666)
        size = os.lseek(self.fd, 0, os.SEEK_END)
        self.end = size - size % self.RECORD_BYTES  # a record that a killed guardian began is written over

    def _write(self, records: bytes) -> None:
        if os.pwrite(self.fd, records, self.end) == len(records):
            self.end += len(records)


class BoundedLog:
    """Appends at most the first `head` and the last `tail` bytes of its input to a file.

    A growing file holds up to twice `tail` after the head, always in order; one line between head and tail tells the
    number of dropped bytes. One thread writes. A full disk drops bytes and never stops the command. With `timed` the
    file `LOG.times` beside it tells the times (see `TimesFile`).
    """

    NOTE = b"\n[weft] %20d bytes of output were dropped here\n"
    NOTE_BYTES = len(NOTE % 0)

    def __init__(self, path: bytes, head: int, tail: int, *, timed: bool = False) -> None:
        self.times = TimesFile(path + b".times") if timed else None
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.start = self.end = os.lseek(self.fd, 0, os.SEEK_END)
        self.note = self.body = self.start + head
        self.tail = max(tail, 4096)
        self.taken = self.dropped = self.errno = 0

    def write(self, data: bytes, stream: int = BOTH) -> None:
        """Append `data` of a stream; never raises."""
        self.taken += len(data)
        try:
            if self.times is not None and data:
                self.times.add(self.end, data, stream)
            self.end = self._put(data, self.end)
            if self.end - self.body > 2 * self.tail:
                self._shrink()
        except OSError as error:
            self.errno = error.errno or errno.EIO

    def close(self) -> None:
        """Bring the file to its final size and close it; `dropped` is final then."""
        try:
            if self.end - self.body > self.tail + self.NOTE_BYTES:
                self._shrink()
        except OSError as error:
            self.errno = error.errno or errno.EIO
        noted = self.NOTE_BYTES if self.body > self.note else 0
        self.dropped = self.taken - (self.end - self.start - noted)
        os.close(self.fd)
        if self.times is not None:
            self.times.close()

    def _put(self, data: bytes, at: int) -> int:
        view = memoryview(data)
        while view:
            done = os.pwrite(self.fd, view, at)
            at += done
            view = view[done:]
        return at

    def _shrink(self) -> None:
        """Move the last `tail` bytes, from the start of a line, behind the note."""
        source = self.end - self.tail
        source += os.pread(self.fd, 4096, source).find(b"\n") + 1
        self.dropped += source - self.body
        times = self.times.cut(self.note, source, self.note + self.NOTE_BYTES) if self.times is not None else b""
        self._put(self.NOTE % self.dropped, self.note)
        self.body = at = self.note + self.NOTE_BYTES
        while source < self.end:  # the body lies in front of its source, so no unread byte is overwritten
            block = os.pread(self.fd, min(CHUNK_BYTES, self.end - source), source)
            source += len(block)
            at = self._put(block, at)
        os.ftruncate(self.fd, at)
        self.end = at
        if self.times is not None:
            self.times.put_back(times)


class MaskedLog(BoundedLog):
    """A log that shows `***` in place of secrets, wherever its input is cut.

    A secret is its bytes, and whether a letter, digit or `_` in front of it, and one behind it, make another word of it
    (`weft.model.masking` decides that). What may be the beginning of one waits for the bytes after it.
    """

    MASK = b"***"
    WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")

    def __init__(
        self, path: bytes, head: int, tail: int, secrets: list[tuple[bytes, bool, bool]], *, timed: bool = False
    ) -> None:
        super().__init__(path, head, tail, timed=timed)
        self.secrets = secrets
        self.before = [b"", b"", b""]
        self.waiting = [b"", b"", b""]

    def write(self, data: bytes, stream: int = BOTH) -> None:
        """Append `data` of a stream; never raises."""
        super().write(self._masked(data, stream, last=False) if self.secrets else data, stream)

    def close(self) -> None:
        """Write the rest, and close the file."""
        for stream in (BOTH, STDOUT, STDERR):
            super().write(self._masked(b"", stream, last=True), stream)
        super().close()

    def _masked(self, data: bytes, stream: int, *, last: bool) -> bytes:
        """Return what the log shows of the waiting bytes and `data`, up to those that wait now; none of the `last`."""
        at = len(self.before[stream])
        data = self.before[stream] + self.waiting[stream] + data
        waits = len(data) if last else self._waits(data, at)
        places = [self._find(secret, data, at) for secret in self.secrets]
        shown = []
        while True:
            place, size = min(
                ((place, -len(secret[0])) for place, secret in zip(places, self.secrets, strict=True)),
                default=(len(data), 0),
            )
            if place >= waits:
                break
            shown += [data[at:place], self.MASK]
            at = place - size
            waits = waits if at <= waits else self._waits(data, at)
            for index, secret in enumerate(self.secrets):
                if places[index] < at:
                    places[index] = self._find(secret, data, at)
        self.before[stream], self.waiting[stream] = data[max(0, waits - 1) : waits], data[waits:]
        return b"".join((*shown, data[at:waits]))

    def _find(self, secret: tuple[bytes, bool, bool], data: bytes, at: int) -> int:
        """Return the first place of a secret from `at` on; the length of the data if there is none."""
        text, _, behind = secret
        place = data.find(text, at)
        while place >= 0:
            end = place + len(text)
            if not self._joins(secret, data, place) and not (behind and end < len(data) and data[end] in self.WORD):
                return place
            place = data.find(text, place + 1)
        return len(data)

    def _waits(self, data: bytes, at: int) -> int:
        """Return the first place from `at` on where the data may end in a secret, or in the beginning of one."""
        return min(self._begins(secret, data, at) for secret in self.secrets)

    def _begins(self, secret: tuple[bytes, bool, bool], data: bytes, at: int) -> int:
        text, _, behind = secret
        place = data.find(text[:1], max(at, len(data) - len(text) + (not behind)))
        while place >= 0 and (not text.startswith(data[place:]) or self._joins(secret, data, place)):
            place = data.find(text[:1], place + 1)
        return len(data) if place < 0 else place

    def _joins(self, secret: tuple[bytes, bool, bool], data: bytes, place: int) -> bool:
        """Whether a secret at a place only ends another word."""
        return secret[1] and place > 0 and data[place - 1] in self.WORD


# ---------------------------------------------------------------------------------------------------------- control


def receive(control: int) -> dict[str, Any]:
    """Read one frame; EOFError: the owner is gone."""
    length = int.from_bytes(_read_exactly(control, 4), "big")
    frame: dict[str, Any] = marshal.loads(_read_exactly(control, length))
    return frame


def _read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(fd, size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def send(control: int, frame: dict[str, Any]) -> None:
    """Write one frame; a missing owner is no error."""
    data = marshal.dumps(frame)
    try:
        os.write(control, len(data).to_bytes(4, "big") + data)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ECONNRESET):
            raise


# ---------------------------------------------------------------------------------------------------------- command


class StartError(Exception):
    """The command was not started: `stage` is log, record, stopped, cwd, exec, or a stage of `weft.worker.mounting`."""

    def __init__(self, stage: str, number: int) -> None:
        super().__init__(stage)
        self.stage, self.errno = stage, number


def _load_prctl() -> Any:
    """Return the system call that makes a process a subreaper, None where it does not exist."""
    if not LINUX:
        return None
    import ctypes

    return ctypes.CDLL(None).prctl


def become_subreaper(prctl: Any) -> bool:
    """Make this process the subreaper of its descendants; False if the system cannot."""
    return prctl is not None and bool(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def get_ready(spec: dict[str, Any]) -> bytes:
    """Change to the working folder and return the path of the program; StartError: the folder cannot be entered.

    With a mount namespace, both are unknown before the mounts exist. A function has no program.
    """
    argv, env = spec["argv"], spec["env"]
    if spec["view"] or spec["sandbox"]:
        return bytes(argv[0])
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise StartError("cwd", error.errno or 0) from None
    return b"" if spec["function"] else find(argv[0], env)


def start(spec: dict[str, Any], program: bytes, output: int, errors: int, post: GuardianState) -> tuple[int, Any]:
    """Start a prepared command in a session of its own; StartError: it cannot be started.

    Return its pid, and the `tracing.CallListener` of a command whose opened files are asked for, else None.
    """
    if spec["view"] or spec["sandbox"]:
        return start_by_fork(spec, program, output, errors)
    if spec["function"]:
        return call_in_fork(spec, output, errors), None
    argv, env = spec["argv"], spec["env"]
    if spec["traced"] and (thread := post.filtered_thread(spec["looks"])).listener >= 0:
        started: tuple[int, Any] = thread.start(program, argv, env, output, errors, spec["cwd"])
        return started
    # `posix_spawn` and no fork: copying an interpreter takes longer than starting a shell.
    pid = os.posix_spawn(
        program,
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, errors, 2),
        ],
        setsid=True,
        setsigdef=IGNORED,
    )
    return pid, None


def find(program: bytes, env: dict[bytes, bytes]) -> bytes:
    """Return the path of a program as `execvp` finds it; an unknown name is returned unchanged."""
    if b"/" not in program:
        for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
            path = folder + b"/" + program if folder else program
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                return path
    return program


def start_by_fork(spec: dict[str, Any], program: bytes, output: int, errors: int) -> tuple[int, Any]:
    """Start a command in namespaces of its own, which requires a fork of this process; see `start`.

    With a sandbox the fork ends at once, and two forks of it become children of this process: the command, and a
    process that ends with this one.
    """
    tracing = __import__("tracing") if spec["traced"] else None  # few owners need these modules
    channel, channel_end = socket.socketpair()
    report, report_end = os.pipe()
    pids, pids_end = os.pipe()
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        stage = b"exec"
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(errors, 2)
            *mounts, holder, held = spec["view"] or (0, ())
            if holder:  # named by this /proc, which the sandbox replaces
                holder = os.open(f"/proc/{holder}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            if spec["sandbox"]:  # all would pay for the imports
                __import__("sandbox").enter(spec["sandbox"], guardian, pids_end)
            os.setsid()
            for number in IGNORED:
                signal.signal(number, signal.SIG_DFL)
            if spec["view"]:
                __import__("mounting").enter(*mounts, held, holder=holder, separate=not spec["sandbox"])
            stage = b"cwd"
            os.chdir(spec["cwd"])
            stage = b"exec"
            if tracing is not None:
                tracing.install(channel_end, spec["looks"])
            os.execvpe(program, spec["argv"], spec["env"])
        except OSError as error:
            os.write(report_end, b"%d %s" % (error.errno or 0, getattr(error, "stage", stage)))
        finally:
            os._exit(127)
    os.close(report_end)
    os.close(pids_end)
    channel_end.close()
    opened = None
    if tracing is not None:
        opened = tracing.receive(channel, spec["cwd"], spec["looks"], spec["view"][2] if spec["view"] else ())
    channel.close()
    if opened is not None:
        opened.serve_until(report)  # the execution of the command waits for this too
    answer = os.read(report, select.PIPE_BUF)  # ends without data when exec closes the other end
    started = os.read(pids, 8)
    os.close(report)
    os.close(pids)
    first, command = (int.from_bytes(started[at : at + 4], sys.byteorder) for at in (0, 4)) if started else (0, pid)
    if started:
        os.waitpid(pid, 0)
    if answer:
        if opened is not None:
            opened.close()
        os.waitpid(command, 0)  # first: process 1 of a namespace ends after all others are reaped
        if first:
            os.kill(first, signal.SIGKILL)
            os.waitpid(first, 0)
        code, _, place = answer.partition(b" ")
        raise StartError(os.fsdecode(place), int(code))
    return command, opened


def call_in_fork(spec: dict[str, Any], output: int, errors: int) -> int:
    """Start a function as the command, in a fork that has loaded what this process has, and return its pid.

    What the function returns is the exit code.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *STOPPING):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        close_all_but_standard()
        os.environ.clear()
        os.environb.update(spec["env"])
        module, _, name = spec["function"].rpartition(".")
        code = getattr(__import__(module, fromlist=(name,)), name)(*map(os.fsdecode, spec["argv"]))
    except BaseException:  # noqa: BLE001 - into the log, as the interpreter does
        __import__("traceback").print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # all is written, and others wait: the clean-up of the interpreter takes some 50 ms


def close_all_but_standard() -> None:
    """Close the descriptors that the execution of a program would close: the ends of sockets that others wait for."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            try:  # noqa: SIM105 - importing contextlib costs start-up time
                os.close(int(name))
            except OSError:
                pass  # that of the list


class ProcessRecord:
    """A file that names the guardian and then the command: one line `pid start_time` each.

    Each line is one write; `weft.worker.group` reads them.
    """

    def __init__(self, path: bytes, row: ProcessRow | None) -> None:
        self.path = path
        new = path + b".new"
        self._fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._add(row)
        os.replace(new, path)

    def _add(self, row: ProcessRow | None) -> None:
        if row is not None:
            os.write(self._fd, f"{row.pid} {row.start}\n".encode())

    def add_command(self, row: ProcessRow | None) -> None:
        """Add the command; on a full disk the record has only the guardian, which ends its command."""
        try:  # noqa: SIM105 - importing contextlib costs start-up time
            self._add(row)
        except OSError:
            pass

    def remove(self) -> None:
        """Remove the file: no process is left."""
        os.close(self._fd)
        try:  # noqa: SIM105
            os.unlink(self.path)
        except OSError:
            pass


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
        for row in rows:
            if row.alive and (row.pid, row.start) not in self.asked:
                self.asked.add((row.pid, row.start))
                send_signal(row, signal.SIGTERM)

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
                data = b"\n" + _read_whole_file(path)
            except OSError:
                continue
            at = data.find(b"\noom_kill ")
            if at >= 0:
                count += int(data[at + 10 :].split(None, 1)[0])
        return count


class GuardianState:
    """Everything that a guardian prepares in advance: a pipe for signals and its own process row.

    `adopts` says whether orphans of its tree become its children. `prctl` is the result of `_load_prctl`.
    """

    def __init__(self, prctl: Any) -> None:
        self.wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *STOPPING):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.adopts = become_subreaper(prctl)
        self.row = look_up(os.getpid())
        self.kills = OomKillCounter([])
        self._folder = self._real_folder = b""
        self._filtered_threads: dict[int, Any] = {}

    def filtered_thread(self, looks: int) -> Any:
        """Return the `tracing.FilteredThread` that starts traced commands; made for the first one that `looks` so."""
        if looks not in self._filtered_threads:
            self._filtered_threads[looks] = __import__("tracing").FilteredThread(IGNORED, looks)  # few owners need it
        return self._filtered_threads[looks]

    def count_kills(self, paths: list[bytes]) -> None:
        """Start to watch for kills for lack of memory, by the counters in `paths`."""
        if self.kills.paths != paths:
            self.kills = OomKillCounter(paths)
        self.kills.begin()

    def real_path(self, path: bytes) -> bytes:
        """Return the path of a record without links; the records of a run lie in one folder."""
        folder, name = os.path.split(path)
        if folder != self._folder:
            self._folder, self._real_folder = folder, os.path.realpath(folder)
        return self._real_folder + b"/" + name

    def wait_for_start(self, control: int, owner: OwnerProcess) -> bool:
        """Wait until the command may start; False if it never may. EOFError: the owner is gone."""
        while control not in wait_for((control, self.wake), owner):
            if any(number in STOPPING for number in os.read(self.wake, 4096)):
                return False
        return bool(os.read(control, 1))

    def wait_for_more(self, control: int, owner: OwnerProcess) -> bool:
        """Wait for the next command outside of any folder; False after a signal to stop or without an owner."""
        os.chdir("/")
        while control not in wait_for((control, self.wake), owner):
            if any(number in STOPPING for number in os.read(self.wake, 4096)):
                return False
        return True


def guard(control: int, owner: OwnerProcess, post: GuardianState) -> dict[str, Any]:
    """Run one command from its first frame to the end of its tree and return the last frame.

    Fields of the specification: `argv`, `function` (that of a module which a fork of this process calls with `argv` in
    place of a program, or empty), `env`, `cwd`, `waits` (start only after one more byte), `view` (the arguments
    of `weft.worker.mounting.enter`, or None), `sandbox` (that of `weft.worker.sandbox.enter`, or None), `end` (a
    command line that asks the command to end in place of SIGTERM, or empty), `undo` (one to run if the command did not
    end by itself, or empty), `oom_counters` (the paths of `OomKillCounter`), `log`, `masked` (the secrets of
    `MaskedLog`), `record` (a path or None), `grace_s`, `after_s` (that after the exit of the command, or None),
    `timeout_s` (or None), `head` and `tail` (bytes of the log to keep), `timed` (whether the log has a `TimesFile`),
    `apart` (whether standard error has a pipe of its own), `traced` (whether the last frame tells in `opened` what
    `tracing.CallListener.report` returns), `looks` (what that tells of files that are only looked at).
    EOFError: the owner is gone or has no more commands; no command was started.
    """
    spec = receive(control)
    if "action" in spec:
        act(control, spec["action"])
    record: ProcessRecord | None = None
    stage = "log"
    try:
        log = MaskedLog(spec["log"], spec["head"], spec["tail"], spec["masked"], timed=spec["timed"])
        stage = "record"
        if owner.has_left(control):  # the file may already belong to the next owner
            raise EOFError
        if spec["record"] is not None:
            record = ProcessRecord(spec["record"], post.row)
            spec["env"][RECORDED] = post.real_path(spec["record"])
            if owner.has_left(control):
                raise EOFError
        outputs, write_ends = open_pipes(spec["apart"])
        stage = "exec"
        program = get_ready(spec)
        if spec["waits"] and not post.wait_for_start(control, owner):
            raise StartError("stopped", 0)
        watch = CommandWatch(spec, log, control=control, owner=owner, wake=post.wake, outputs=outputs)
        command, opened = start(spec, program, write_ends[0], write_ends[-1], post)
    except EOFError:
        if record is not None:
            record.remove()
        raise
    except (StartError, OSError) as error:
        if record is not None:
            record.remove()
        return {"failed": (getattr(error, "stage", stage), error.errno or 0)}
    for write_end in write_ends:
        os.close(write_end)
    row = look_up(command)
    if record is not None:
        record.add_command(row)
    send(control, {"pid": command, "start": row.start if row else "", "guardian": os.getpid()})
    post.count_kills(spec["oom_counters"])  # not before: it takes as long as some commands

    watch.run(command, opened)
    if spec["undo"] and (watch.why != "exit" or watch.exit is None or watch.exit < 0):
        undo(spec["undo"], spec["env"])
    if not post.adopts:
        watch.kill_group()
    watch.drain()
    log.close()
    if record is not None and not watch.left:
        record.remove()
    if opened is not None:
        opened.close()
    why = watch.why or "exit"
    return {
        "again": post.adopts and not watch.left and why in ("exit", "timeout"),
        "exit": watch.exit,
        "oom": why == "exit" and watch.exit in KILLED and post.kills.has_killed(),
        "why": why,
        "wall_s": watch.wall_s,
        "cpu_s": watch.cpu_s,
        "memory": watch.memory,
        "left": watch.left,
        "killed": watch.killed,
        "log_start": log.start,
        "log_bytes": log.taken,
        "dropped": log.dropped,
        "log_errno": log.errno,
        "opened": None if opened is None else opened.report(),
    }


def act(control: int, words: tuple[str, ...]) -> NoReturn:
    """Run an action of `weft.worker.sandbox` in this process, with its input and output at the control socket."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, *STOPPING):
        signal.signal(number, signal.SIG_DFL)
    for fd in (0, 1):
        os.dup2(control, fd)
    __import__("sandbox").main(*words)
    os._exit(0)


def open_pipes(apart: bool) -> tuple[dict[int, int], list[int]]:
    """Return the streams of the pipes of a command by their read ends, and the write ends, that of stderr last.

    One pipe for both streams keeps their order, which two cannot.
    """
    ends = [os.pipe() for _ in range(2 if apart else 1)]
    streams = (STDOUT, STDERR) if apart else (BOTH,)
    return dict(zip((end for end, _ in ends), streams, strict=True)), [end for _, end in ends]


def undo(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Run the undo command of a command and wait for its end, up to `UNDOING_S`."""
    try:
        pid = os.posix_spawnp(argv[0], argv, env, file_actions=NOWHERE)
    except OSError:
        return
    give_up_at = time.monotonic() + UNDOING_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() >= give_up_at:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.02)


def kill_all() -> None:
    """Kill all children at once: the last resort of a guardian that is about to fail."""
    give_up_at = time.monotonic() + KILLING_S
    while time.monotonic() < give_up_at:
        for process in family(os.getpid()):
            send_signal(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def stand_by(pool_socket: socket.socket, owner: OwnerProcess, prctl: Any) -> int:
    """Fork an idle guardian that waits at the socket pair, and return a pipe; OSError: the fork fails.

    The guardian writes `BUSY` to the pipe when it has a command; it writes nothing if it ends idle.
    """
    report, report_end = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(report)
        os.close(report_end)
        raise
    if pid == 0:
        os.close(report)
        os.setsid()  # a Ctrl-C at the terminal is handled by the owner, which then stops its guardians in order
        post = GuardianState(prctl)
        try:
            control = attend(pool_socket, owner)
        except EOFError:
            os._exit(0)
        try:  # noqa: SIM105 - importing contextlib costs start-up time
            os.write(report_end, BUSY)
        except BrokenPipeError:
            pass  # the pool was killed: this guardian continues without it
        os.close(report_end)
        serve(control, owner, post)
    os.close(report_end)
    return report


def serve(control: int, owner: OwnerProcess, post: GuardianState) -> NoReturn:
    """Guard the commands that arrive through one socket, in a forked process."""
    os.dup2(control, 0)  # replaces the socket pair, which belongs to idle guardians only
    os.close(control)
    try:
        again = True
        while again:
            frame = guard(0, owner, post)
            send(0, frame)
            again = frame.get("again", False) and post.wait_for_more(0, owner)
    except EOFError:
        pass
    except BaseException as error:  # noqa: BLE001
        kill_all()
        send(0, {"broken": f"{type(error).__name__}: {error}"})
    os._exit(0)  # there is nothing to finalise, and the owner waits


# ------------------------------------------------------------------------------------------------------- guardian pool


def main() -> None:
    """Run the guardian pool: keep one idle guardian for the next control socket."""
    try:
        owner = OwnerProcess(int(sys.argv[-1]))
        prctl = _load_prctl()
        boot_id()  # and everything else that each guardian would have to find out again
        for module in sys.argv[2:-1]:
            try:  # noqa: SIM105
                __import__(module)
            except Exception:  # noqa: BLE001 - what needs it imports it again, and says so
                pass
        gc.freeze()  # what is loaded stays: a collection in a fork would copy its pages
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for guardians: their sockets report their end
        pool_socket = socket.socket(fileno=0)
        while True:
            try:
                other = stand_by(pool_socket, owner, prctl)
            except OSError as error:
                control = attend(pool_socket, owner)
                send(control, {"broken": f"it cannot be started: {error.strerror}"})
                os.close(control)
                continue
            wait_for((other,), owner)
            busy = os.read(other, len(BUSY))
            os.close(other)
            if not busy:  # the owner has closed the socket pair, or a kill has
                wait_for((0,), owner)
                if not pool_socket.recv(1, socket.MSG_PEEK):
                    break
    except EOFError:
        pass
    os._exit(0)


def wait_for(fds: tuple[int, ...], owner: OwnerProcess) -> list[int]:
    """Return the readable descriptors of `fds`, at least one; EOFError: the owner is gone."""
    poll = select.poll()
    for one in (*fds, owner.handle):
        if one >= 0:
            poll.register(one, select.POLLIN)
    while not owner.is_gone():
        ready = [one for one, _ in poll.poll(int(OWNER_S * 1000) if owner.handle < 0 else None)]
        if owner.handle in ready:
            break
        if ready:
            return ready
    raise EOFError


def attend(pool_socket: socket.socket, owner: OwnerProcess) -> int:
    """Wait for the next control socket; EOFError: none will come."""
    wait_for((0,), owner)
    return take(pool_socket)


def take(pool_socket: socket.socket) -> int:
    """Return the next control socket; EOFError: none will come."""
    data, report, _, _ = pool_socket.recvmsg(1, socket.CMSG_SPACE(4))
    if not data:
        raise EOFError
    control = int.from_bytes(report[0][2][:4], sys.byteorder)
    os.set_inheritable(control, False)
    return control
