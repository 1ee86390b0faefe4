"""The guardian: a small process between Weft and a user's command, so that the command outlives nobody.

Starting an interpreter for each command would take longer than most commands, so an owner starts one, the guardhouse:
`python -I -S` on `main`, in a session of its own, with one end of a socket pair (the door) as standard input and the
owner's pid as last argument. It forks a guardian before there is work for it, which takes the next control socket that
comes through the door, and then the next one; it ends with its owner. Guardians at work need it no more.

A guardian has a session of its own too, and one command at a time:

1. It receives one frame through its control socket, the specification (`guard` lists its fields), and becomes the
   subreaper of what it starts: a process whose parent ends, be it in another session, comes back to the guardian and
   not to init. It puts itself on record, and only then looks whether the owner is still there: without one it starts
   nothing, for the next owner may have read the records already.
2. Where the specification says that the command `waits`, it has all ready and starts it when it gets one more byte.
3. It starts the command in a session of its own, with output and errors going through a pipe to the log (`Log`), and
   sends one frame `{"pid", "start"}`, or `{"failed": (stage, errno)}` where nothing could be started.
4. It ends the whole tree (SIGTERM, after `grace_s` SIGKILL, until no child is left) when the command has exited, when
   the time is up, when SIGTERM, SIGINT or SIGHUP tells it to, and when the control socket ends: the owner half-closes
   it to stop the command, the system closes it when the owner dies. A copy of the owner's end in some forked process
   would hide that, so the guardian watches the owner itself as well.
5. It sends one frame with the result. Where nothing is left of the command and nobody has told it to stop, `again` in
   this frame says that it takes the next one through the same socket, which saves a fork; it ends when the owner
   closes the socket, or ends. Else it exits at once.

A frame is a length of 4 bytes, big endian, and a `marshal` of a dictionary: both ends are the same interpreter, and
`json` would double the time to start. For that same reason nothing here imports `signal`, `socket`, `typing`,
`contextlib` or `pathlib`, and nothing of Weft. Paths, arguments and environment travel as bytes.

Where there is no subreaper (not Linux) a process that leaves both its parent and its group escapes, and one that leaves
its parent only is killed without a grace.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import sys
import time
import warnings  # noqa: F401 - `os.execvpe` would load it in each child

TYPE_CHECKING = False  # `typing` costs as much as all else here
if TYPE_CHECKING:
    import signal
    import socket
    from typing import Any, NoReturn
else:
    import _signal as signal  # without their enums
    import _socket as socket

LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
CHUNK_BYTES = 1 << 20
LOOKING_S = 0.25
"""How often the guardian looks for orphans while a tree ends in order."""
OWNER_S = 1.0
"""How often it is looked whether the owner lives, where the system does not tell of its end."""
KILLING_S = 5.0
"""How long SIGKILL may take before the guardian gives up on a process that hangs in the kernel."""
UNDOING_S = 20.0
"""How long it may take to undo what a command has begun elsewhere."""
BUSY = b"+"
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""How a command ends, or a shell whose command does, that was killed: perhaps for want of memory."""
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and would hand that on to a command."""


# ------------------------------------------------------------------------------------------------------- processes


class Process:
    """One row of the table of processes. `start` is its start time: with the pid it names a process for ever."""

    __slots__ = ("alive", "group", "parent", "pid", "session", "start")

    def __init__(self, pid: int, parent: int, group: int, session: int, start: str, *, alive: bool) -> None:
        self.pid, self.parent, self.group, self.session = pid, parent, group, session
        self.start, self.alive = start, alive


RECORDED = b"WEFT_RECORD"
"""The variable in the environment of commands that tells which record they are on: it stays with what has left them."""

_boot: list[str] = []


def boot_id() -> str:
    """Return what tells this boot from others ("" where unknown); start times are ticks since the boot."""
    if not _boot:
        try:
            _boot.append(_read_file("/proc/sys/kernel/random/boot_id").strip().decode())
        except OSError:
            _boot.append("")
    return _boot[0]


def look_up(pid: int) -> Process | None:
    """Return the process with this pid, ended but not yet waited for ones included, or None."""
    if not LINUX:
        return _ps(["-p", str(pid)]).get(pid)
    try:
        line = _read_file(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name of the program, in brackets, may itself hold blanks and brackets; field 3 (state) follows the last one.
    fields = line[line.rindex(b")") + 2 :].split()
    # A process whose first thread has ended looks like a zombie and lives on in its other threads.
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    start = f"{int(fields[19])}@{boot_id()}"
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), start, alive=alive)


def _read_file(path: str) -> bytes:
    """Return what a small file of the kernel holds, with fewer calls than `open` makes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def process_table() -> dict[int, Process]:
    """Return all processes by pid."""
    if not LINUX:
        return _ps(["-ax"])
    found = (look_up(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def _ps(selection: list[str]) -> dict[int, Process]:
    """Ask `ps`, for systems without /proc. Its start times are whole seconds; a group stands in for the session."""
    import subprocess

    command = ["ps", *selection, "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    env = {"PATH": "/bin:/usr/bin", "LC_ALL": "C", "TZ": "UTC"}
    answer = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    table = {}
    for line in answer.stdout.splitlines():
        pid, parent, group, state, *start = line.split()
        alive = not state.startswith("Z")
        table[int(pid)] = Process(int(pid), int(parent), int(group), int(group), " ".join(start), alive=alive)
    return table


def descendants(table: dict[int, Process], root: int) -> list[Process]:
    """Return the children of `root`, their children and so on, parents first."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(root, ()))
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


def send_signal(process: Process, number: int) -> None:
    """Send a signal to this very process: nothing happens if it has ended, even if its pid is in use again."""
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
        pass  # ended just now, or runs as somebody else: whoever waits for its end will see
    finally:
        if handle >= 0:
            os.close(handle)


class Owner:
    """The process that all is done for; `handle` becomes readable when it ends, -1 where the system has no such thing.

    Made while the owner is this process's parent, and good in processes that are forked from this one.
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
        if os.getppid() != pid:  # it ended before that, and the pid may be somebody else's
            raise EOFError

    def is_gone(self) -> bool:
        """Tell whether it has ended, at most so late as `OWNER_S`; where there is a handle, that tells."""
        now = time.monotonic()
        if self.handle >= 0 or now < self._look_at:
            return False
        self._look_at = now + OWNER_S
        row = look_up(self.pid)
        return row is None or not row.alive or row.start != self._start

    def has_left(self, control: int) -> bool:
        """Tell whether nobody is there to take over what a guardian would start: it ended, or let go of `control`."""
        poll = select.poll()
        for fd in (control, self.handle):
            if fd >= 0:
                poll.register(fd, select.POLLIN if fd == self.handle else 0)
        # To stop a command the owner closes half of its socket, which is no hang-up, but for systems that say it is.
        ended = [fd for fd, what in poll.poll(0) if fd == self.handle or (LINUX and what & select.POLLHUP)]
        return bool(ended) or self.is_gone()


# ------------------------------------------------------------------------------------------------------------- log


class Log:
    """Appends to a file at most the first `head` and the last `tail` bytes of what it is given.

    While it grows, the file holds up to twice `tail` after the head, always in order; what is dropped is told in one
    line between the two. One writer at a time. A disk without room drops bytes and never stops the command.
    """

    NOTE = b"\n[weft] %20d bytes of output were dropped here\n"
    NOTE_BYTES = len(NOTE % 0)

    def __init__(self, path: bytes, head: int, tail: int) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.start = self.end = os.lseek(self.fd, 0, os.SEEK_END)
        self.note = self.body = self.start + head
        self.tail = max(tail, 4096)
        self.taken = self.dropped = self.errno = 0

    def write(self, data: bytes) -> None:
        """Take `data`; never raises."""
        self.taken += len(data)
        try:
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

    def _put(self, data: bytes, at: int) -> int:
        view = memoryview(data)
        while view:
            done = os.pwrite(self.fd, view, at)
            at += done
            view = view[done:]
        return at

    def _shrink(self) -> None:
        """Move the last `tail` bytes, from the start of a line, to their place behind the note."""
        source = self.end - self.tail
        source += os.pread(self.fd, 4096, source).find(b"\n") + 1
        self.dropped += source - self.body
        self._put(self.NOTE % self.dropped, self.note)
        self.body = at = self.note + self.NOTE_BYTES
        while source < self.end:  # never writes over what is still to be read: the body lies in front of the source
            block = os.pread(self.fd, min(CHUNK_BYTES, self.end - source), source)
            source += len(block)
            at = self._put(block, at)
        os.ftruncate(self.fd, at)
        self.end = at


# ---------------------------------------------------------------------------------------------------------- control


def receive(control: int) -> dict[str, Any]:
    """Read one frame; EOFError if the owner is gone."""
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
    """Write one frame; an owner that is gone is no error."""
    data = marshal.dumps(frame)
    try:
        os.write(control, len(data).to_bytes(4, "big") + data)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ECONNRESET):
            raise


# ---------------------------------------------------------------------------------------------------------- command


class StartError(Exception):
    """The command was not started: `stage` is log, record, stopped, cwd, exec, or what `weft.worker.mounting` says."""

    def __init__(self, stage: str, number: int) -> None:
        super().__init__(stage)
        self.stage, self.errno = stage, number


def _load_prctl() -> Any:
    """Return the system call by which a process becomes a subreaper, None where there is none."""
    if not LINUX:
        return None
    import ctypes

    return ctypes.CDLL(None).prctl


def become_subreaper(prctl: Any) -> bool:
    """Have orphans of this process's tree become its children; False where the system cannot."""
    return prctl is not None and bool(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def get_ready(spec: dict[str, Any]) -> bytes:
    """Go to the folder of a command and return where its program is; StartError if that folder cannot be entered.

    Of one that sees other folders neither can be known before it sees them.
    """
    argv, env = spec["argv"], spec["env"]
    if spec["view"]:
        return bytes(argv[0])
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise StartError("cwd", error.errno or 0) from None
    return find(argv[0], env)


def start(spec: dict[str, Any], program: bytes, output: int) -> int:
    """Start a command that is ready in a session of its own, and return its pid once it runs; StartError: it cannot."""
    if spec["view"]:
        return start_elsewhere(spec, output)
    # Not by a fork: to copy an interpreter, and have the copy do the rest, takes longer than to start a shell.
    argv, env = spec["argv"], spec["env"]
    return os.posix_spawn(
        program,
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
        setsigdef=IGNORED,
    )


def find(program: bytes, env: dict[bytes, bytes]) -> bytes:
    """Return the path of a program as `execvp` would find it; a name that is nowhere stays as it is."""
    if b"/" not in program:
        for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
            path = folder + b"/" + program if folder else program
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                return path
    return program


def start_elsewhere(spec: dict[str, Any], output: int) -> int:
    """Start a command that sees folders of its own, which only a copy of this process can bring about."""
    argv, env, cwd = spec["argv"], spec["env"], spec["cwd"]
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        stage = b"exec"
        try:
            os.setsid()
            for number in IGNORED:
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            __import__("mounting").enter(*spec["view"])  # few commands need it, and all would pay for it
            stage = b"cwd"
            os.chdir(cwd)
            stage = b"exec"
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            os.write(tell, b"%d %s" % (error.errno or 0, getattr(error, "stage", stage)))
        finally:
            os._exit(127)
    os.close(tell)
    answer = os.read(told, select.PIPE_BUF)  # ends without a word when exec closes the other end
    os.close(told)
    if answer:
        os.waitpid(pid, 0)
        code, _, place = answer.partition(b" ")
        raise StartError(os.fsdecode(place), int(code))
    return pid


class Record:
    """Names the guardian in a file, and the command as soon as there is one: a line `pid start_time` each.

    Each line comes with one write; `weft.worker.group` reads them.
    """

    def __init__(self, path: bytes, row: Process | None) -> None:
        self.path = path
        new = path + b".new"
        self._fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._add(row)
        os.replace(new, path)

    def _add(self, row: Process | None) -> None:
        if row is not None:
            os.write(self._fd, f"{row.pid} {row.start}\n".encode())

    def add_command(self, row: Process | None) -> None:
        """Name the command too; without room the guardian alone is on record, and it takes the command along."""
        try:  # noqa: SIM105 - importing contextlib costs the start
            self._add(row)
        except OSError:
            pass

    def remove(self) -> None:
        """Remove the file: nothing runs any more."""
        os.close(self._fd)
        try:  # noqa: SIM105
            os.unlink(self.path)
        except OSError:
            pass


class Watch:
    """Waits for one command and then for the end of all that it left.

    `why` is empty while the command runs, then what made the end begin: "exit", "timeout", "owner" or "signal".
    """

    def __init__(self, spec: dict[str, Any], log: Log, *, control: int, owner: Owner, wake: int, output: int) -> None:
        self.grace_s: float = spec["grace_s"]
        self.timeout_s: float | None = spec["timeout_s"]
        self.log, self.control, self.owner, self.wake, self.output = log, control, owner, wake, output
        self.begun = time.monotonic()
        self.why = ""
        self.command = 0
        self.exit: int | None = None
        self.wall_s = 0.0
        self.left = 0
        self.reaped = False
        self.asked: set[tuple[int, str]] = set()
        self.poll = select.poll()
        for fd in (control, wake, output, owner.handle):
            if fd >= 0:
                self.poll.register(fd, select.POLLIN)

    def run(self, command: int) -> None:
        """Return when no process of the command is left, or none that can be ended; then `left` is their number."""
        self.command = command
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
            elif not kill_at:
                kill_at, give_up_at = now + self.grace_s, now + self.grace_s + KILLING_S
                self._ask_to_end(descendants(process_table(), os.getpid()))
                continue
            elif now < kill_at:
                # What was started while we looked has heard nothing. If its parent has ended too, it never will;
                # if not, it may be what the parent does to end in order, and is left alone.
                if self.reaped or now >= look_at:
                    self.reaped, look_at = False, now + LOOKING_S
                    self._ask_to_end([row for row in process_table().values() if row.parent == os.getpid()])
                wait_s = min(kill_at, look_at) - now
            elif now < give_up_at:
                self._kill()
                wait_s = 0.02
            else:
                self.left = len(descendants(process_table(), os.getpid()))
                return
            self._wait(wait_s)

    def kill_group(self) -> None:
        """End what a missing subreaper has kept from us, as far as it is still in the command's group."""
        try:  # noqa: SIM105 - importing contextlib costs the start
            os.killpg(self.command, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def drain(self) -> None:
        """Take what is still in the pipe; an escaped process that holds it open is not waited for."""
        os.set_blocking(self.output, False)
        while True:
            try:
                data = os.read(self.output, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            self.log.write(data)

    def _reap(self) -> bool:
        """Wait for all that have ended; False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.reaped = True
            if pid == self.command:
                self.exit = os.waitstatus_to_exitcode(status)
                self.wall_s = time.monotonic() - self.begun

    def _wait(self, wait_s: float) -> None:
        for fd, _ in self.poll.poll(max(0, int(wait_s * 1000) + 1)):
            if fd == self.output:
                data = os.read(fd, CHUNK_BYTES)
                self.log.write(data)
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
        try:
            return bool(os.read(control, 4096))
        except ConnectionResetError:
            return False

    def _ask_to_end(self, rows: list[Process]) -> None:
        for row in rows:
            if row.alive and (row.pid, row.start) not in self.asked:
                self.asked.add((row.pid, row.start))
                send_signal(row, signal.SIGTERM)

    def _kill(self) -> None:
        for row in descendants(process_table(), os.getpid()):
            send_signal(row, signal.SIGKILL)


class KillCounter:
    """Tells whether the kernel has killed some process for want of memory: its counters, read at most once a second.

    `paths` are files with a line `oom_kill N`. Where none can be read no kill is ever seen.
    """

    FRESH_S = 1.0
    """Reading the counters takes 0.1 ms, a good part of a short command."""

    def __init__(self, paths: list[bytes]) -> None:
        self.paths = paths
        self._count = 0
        self._at = -self.FRESH_S

    def begin(self) -> None:
        """Take the count that later ones are compared with, unless the last one is fresh."""
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
            data = b"\n"
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                while more := os.read(fd, CHUNK_BYTES):
                    data += more
            except OSError:
                pass
            os.close(fd)
            at = data.find(b"\noom_kill ")
            if at >= 0:
                count += int(data[at + 10 :].split(None, 1)[0])
        return count


class Post:
    """What a guardian has ready before there is work for it: a pipe that signals come through, and its own row.

    `adopts` says whether orphans of its tree come to it. `prctl` is what `_load_prctl` returned.
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
        self.kills = KillCounter([])
        self._folder = self._real_folder = b""

    def count_kills(self, paths: list[bytes]) -> None:
        """Begin to watch for kills for want of memory by the counters in `paths`."""
        if self.kills.paths != paths:
            self.kills = KillCounter(paths)
        self.kills.begin()

    def real_path(self, path: bytes) -> bytes:
        """Return the path of a record without links; the records of a run lie in one folder."""
        folder, name = os.path.split(path)
        if folder != self._folder:
            self._folder, self._real_folder = folder, os.path.realpath(folder)
        return self._real_folder + b"/" + name

    def wait_for_start(self, control: int, owner: Owner) -> bool:
        """Wait until the command may start; False if it never may. EOFError: the owner is gone."""
        while control not in wait_for((control, self.wake), owner):
            if any(number in STOPPING for number in os.read(self.wake, 4096)):
                return False
        return bool(os.read(control, 1))

    def wait_for_more(self, control: int, owner: Owner) -> bool:
        """Wait for the next command, holding no folder; False once there is a signal to stop, or no owner."""
        os.chdir("/")
        while control not in wait_for((control, self.wake), owner):
            if any(number in STOPPING for number in os.read(self.wake, 4096)):
                return False
        return True


def guard(control: int, owner: Owner, post: Post) -> dict[str, Any]:
    """Run one command from its first frame to the end of its tree and return the last frame.

    EOFError: the owner is gone, or has no more commands, and nothing was started.

    Fields of the specification: `argv`, `env`, `cwd`, `waits` (whether it starts only when it is told to), `view` (the
    arguments of `weft.worker.mounting.enter`, or None), `undo` (a command line to run where the command did not end by
    itself, or None), `oom_counters` (the paths of `KillCounter`), `log`, `record` (a file that names guardian and
    command while they live, or None), `grace_s`, `timeout_s` (or None), `head` and `tail` (bytes of the log to keep).
    """
    spec = receive(control)
    record: Record | None = None
    stage = "log"
    try:
        log = Log(spec["log"], spec["head"], spec["tail"])
        stage = "record"
        if owner.has_left(control):  # the file may be that of the next owner by now
            raise EOFError
        if spec["record"] is not None:
            record = Record(spec["record"], post.row)
            spec["env"][RECORDED] = post.real_path(spec["record"])
            if owner.has_left(control):
                raise EOFError
        output, write_end = os.pipe()
        stage = "exec"
        program = get_ready(spec)
        if spec["waits"] and not post.wait_for_start(control, owner):
            raise StartError("stopped", 0)
        watch = Watch(spec, log, control=control, owner=owner, wake=post.wake, output=output)
        command = start(spec, program, write_end)
    except EOFError:
        if record is not None:
            record.remove()
        raise
    except (StartError, OSError) as error:
        if record is not None:
            record.remove()
        return {"failed": (getattr(error, "stage", stage), error.errno or 0)}
    os.close(write_end)
    row = look_up(command)
    if record is not None:
        record.add_command(row)
    send(control, {"pid": command, "start": row.start if row else ""})
    post.count_kills(spec["oom_counters"])  # not before: it takes as long as some commands do

    watch.run(command)
    if spec["undo"] and (watch.why != "exit" or watch.exit is None or watch.exit < 0):
        undo(spec["undo"], spec["env"])
    if not post.adopts:
        watch.kill_group()
    watch.drain()
    os.close(output)
    log.close()
    if record is not None and not watch.left:
        record.remove()
    why = watch.why or "exit"
    return {
        "again": post.adopts and not watch.left and why in ("exit", "timeout"),
        "exit": watch.exit,
        "oom": why == "exit" and watch.exit in KILLED and post.kills.has_killed(),
        "why": why,
        "wall_s": watch.wall_s,
        "left": watch.left,
        "log_start": log.start,
        "log_bytes": log.taken,
        "dropped": log.dropped,
        "log_errno": log.errno,
    }


def undo(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Run what undoes what a command has begun elsewhere, and wait for its end, but not for ever."""
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        pid = os.posix_spawnp(argv[0], argv, env, file_actions=nowhere)
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
    """End all children at once: the last resort of a guardian that is about to fail."""
    give_up_at = time.monotonic() + KILLING_S
    while time.monotonic() < give_up_at:
        for process in descendants(process_table(), os.getpid()):
            send_signal(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def stand_by(door: socket.socket, owner: Owner, prctl: Any) -> int:
    """Fork a guardian that waits for work at the door, and return a pipe; OSError if it cannot be forked.

    What comes through the pipe is `BUSY` once it has work, and then nothing; nothing at all if it ends without any.
    """
    told, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if pid == 0:
        os.close(told)
        os.setsid()  # a Ctrl-C at the terminal is for the owner, who then stops us in order
        post = Post(prctl)
        try:
            control = attend(door, owner)
        except EOFError:
            os._exit(0)
        try:  # noqa: SIM105 - importing contextlib costs the start
            os.write(tell, BUSY)
        except BrokenPipeError:
            pass  # somebody has killed the guardhouse: this one goes on without
        os.close(tell)
        serve(control, owner, post)
    os.close(tell)
    return told


def serve(control: int, owner: Owner, post: Post) -> NoReturn:
    """Be the guardian of the commands that come through one socket, in a process that was forked for them."""
    os.dup2(control, 0)  # over the door, at which guardians without work alone may stand
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
    os._exit(0)  # nothing to finalise, and the owner waits


# ------------------------------------------------------------------------------------------------------- guardhouse


def main() -> None:
    """Be the guardhouse: have a guardian stand by for each control socket that will come through the door."""
    try:
        owner = Owner(int(sys.argv[-1]))
        prctl = _load_prctl()
        boot_id()  # and all else that each guardian would have to find out anew
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for guardians: their sockets tell of their end
        door = socket.socket(fileno=0)
        while True:
            try:
                other = stand_by(door, owner, prctl)
            except OSError as error:
                control = attend(door, owner)
                send(control, {"broken": f"it cannot be started: {error.strerror}"})
                os.close(control)
                continue
            wait_for((other,), owner)
            busy = os.read(other, len(BUSY))
            os.close(other)
            if not busy:  # the owner has closed the door, or somebody has killed it
                wait_for((0,), owner)
                if not door.recv(1, socket.MSG_PEEK):
                    break
    except EOFError:
        pass
    os._exit(0)


def wait_for(fds: tuple[int, ...], owner: Owner) -> list[int]:
    """Return those of `fds` that there is something to read from, at least one; EOFError if the owner is gone."""
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


def attend(door: socket.socket, owner: Owner) -> int:
    """Wait for the next control socket; EOFError if none will come."""
    wait_for((0,), owner)
    return take(door)


def take(door: socket.socket) -> int:
    """Return the control socket that comes next; EOFError if none will."""
    data, told, _, _ = door.recvmsg(1, socket.CMSG_SPACE(4))
    if not data:
        raise EOFError
    control = int.from_bytes(told[0][2][:4], sys.byteorder)
    os.set_inheritable(control, False)
    return control
