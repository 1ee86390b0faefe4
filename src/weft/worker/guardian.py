"""The guardian: a small program between Weft and a user's command, so that the command outlives nobody.

It is started as `python -I -S` on `main` in a session of its own, with one end of a socket pair as standard input (the
control socket) and the owner's pid as last argument, and lives exactly as long as one command:

1. It receives one frame, the specification (`guard` lists its fields), and becomes the subreaper of what it starts: a
   process whose parent ends, be it in another session, comes back to the guardian and not to init.
2. It starts the command in a session of its own, with output and errors going through a pipe to the log (`Log`), and
   sends one frame `{"pid", "start"}`, or `{"failed": (stage, errno)}` where nothing could be started.
3. It ends the whole tree (SIGTERM, after `grace_s` SIGKILL, until no child is left) when the command has exited, when
   the time is up, when SIGTERM, SIGINT or SIGHUP tells it to, and when the control socket ends: the owner half-closes
   it to stop the command, the system closes it when the owner dies. A copy of the owner's end in some forked process
   would hide that, so the guardian watches the owner itself as well.
4. It sends one frame with the result and exits.

A frame is a length of 4 bytes, big endian, and a `marshal` of a dictionary: both ends are the same interpreter, and
`json` would double the time to start. For that same reason nothing here imports `signal`, `typing`, `contextlib` or
`pathlib`, and nothing of Weft. Paths, arguments and environment travel as bytes.

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

TYPE_CHECKING = False  # `typing` costs as much as all else here
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal  # without its enums

LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
CHUNK_BYTES = 1 << 20
LOOKING_S = 0.25
"""How often the guardian looks for orphans while a tree ends in order."""
KILLING_S = 5.0
"""How long SIGKILL may take before the guardian gives up on a process that hangs in the kernel."""
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


# ------------------------------------------------------------------------------------------------------- processes


class Process:
    """One row of the table of processes. `start` is its start time: with the pid it names a process for ever."""

    __slots__ = ("alive", "group", "parent", "pid", "session", "start")

    def __init__(self, pid: int, parent: int, group: int, session: int, start: str, *, alive: bool) -> None:
        self.pid, self.parent, self.group, self.session = pid, parent, group, session
        self.start, self.alive = start, alive


_boot: list[str] = []


def boot_id() -> str:
    """Return what tells this boot from others ("" where unknown); start times are ticks since the boot."""
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot.append(file.read().strip())
        except OSError:
            _boot.append("")
    return _boot[0]


def look_up(pid: int) -> Process | None:
    """Return the process with this pid, ended but not yet waited for ones included, or None."""
    if not LINUX:
        return _ps(["-p", str(pid)]).get(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    # The name of the program, in brackets, may itself hold blanks and brackets; field 3 (state) follows the last one.
    fields = line[line.rindex(b")") + 2 :].split()
    # A process whose first thread has ended looks like a zombie and lives on in its other threads.
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    start = f"{int(fields[19])}@{boot_id()}"
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), start, alive=alive)


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
    """The command could not be started: `stage` is log, record, cwd or exec."""

    def __init__(self, stage: str, number: int) -> None:
        super().__init__(stage)
        self.stage, self.errno = stage, number


def become_subreaper() -> bool:
    """Have orphans of this process's tree become its children; False where the system cannot."""
    if not LINUX:
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def start(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes, output: int) -> int:
    """Start a command in a session of its own and return its pid once it runs; StartError if it cannot."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        stage = b"exec"
        try:
            os.setsid()
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec would hand that on
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            stage = b"cwd"
            os.chdir(cwd)
            stage = b"exec"
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            os.write(tell, b"%d %s" % (error.errno or 0, stage))
        finally:
            os._exit(127)
    os.close(tell)
    answer = os.read(told, 64)  # ends without a word when exec closes the other end
    os.close(told)
    if answer:
        os.waitpid(pid, 0)
        code, _, place = answer.partition(b" ")
        raise StartError(place.decode(), int(code))
    return pid


def write_record(path: bytes, pids: list[int]) -> None:
    """Write who runs, a line `pid start_time` each, guardian first, in one step: read by `weft.worker.group`."""
    rows = [process for pid in pids if (process := look_up(pid))]
    text = "".join(f"{row.pid} {row.start}\n" for row in rows)
    new = path + b".new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    os.replace(new, path)


class Watch:
    """Waits for one command and then for the end of all that it left.

    `why` is empty while the command runs, then what made the end begin: "exit", "timeout", "owner" or "signal".
    """

    def __init__(self, spec: dict[str, Any], log: Log, *, control: int, owner: int, wake: int, output: int) -> None:
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
        for fd in (control, wake, output):
            self.poll.register(fd, select.POLLIN)
        self.owner_handle = self._watch_owner()

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
            wait_s = 1.0 if self.owner_handle < 0 else 3600.0
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

    def _watch_owner(self) -> int:
        try:
            handle = os.pidfd_open(self.owner) if LINUX else -1
        except OSError:
            handle = -1
        if os.getppid() != self.owner:
            self.why = "owner"
        elif handle >= 0:
            self.poll.register(handle, select.POLLIN)
        return handle

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
            elif fd == self.owner_handle or not self._more(fd):
                self.poll.unregister(fd)
                self.why = self.why or "owner"
        if os.getppid() != self.owner:
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


def guard(control: int, owner: int) -> dict[str, Any]:
    """Run one command from its first frame to the end of its tree and return the last frame.

    Fields of the specification: `argv`, `env`, `cwd`, `log`, `record` (a file that names guardian and command while
    they live, or None), `grace_s`, `timeout_s` (or None), `head` and `tail` (bytes of the log to keep).
    """
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *STOPPING):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())

    spec = receive(control)
    record: bytes | None = spec["record"]
    stage = "log"
    try:
        log = Log(spec["log"], spec["head"], spec["tail"])
        adopts = become_subreaper()
        stage = "record"
        if record is not None:
            write_record(record, [os.getpid()])
        output, write_end = os.pipe()
        watch = Watch(spec, log, control=control, owner=owner, wake=wake, output=output)
        stage = "exec"
        command = start(spec["argv"], spec["env"], spec["cwd"], write_end)
    except StartError as error:
        remove(record)
        return {"failed": (error.stage, error.errno)}
    except OSError as error:
        remove(record)
        return {"failed": (stage, error.errno or 0)}
    os.close(write_end)
    if record is not None:
        try:  # noqa: SIM105 - importing contextlib costs the start
            write_record(record, [os.getpid(), command])
        except OSError:
            pass  # the guardian alone is on record, and it takes the command along
    row = look_up(command)
    send(control, {"pid": command, "start": row.start if row else ""})

    watch.run(command)
    if not adopts:
        watch.kill_group()
    watch.drain()
    log.close()
    if not watch.left:
        remove(record)
    return {
        "exit": watch.exit,
        "why": watch.why or "exit",
        "wall_s": watch.wall_s,
        "left": watch.left,
        "log_start": log.start,
        "log_bytes": log.taken,
        "dropped": log.dropped,
        "log_errno": log.errno,
    }


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


def remove(path: bytes | None) -> None:
    """Remove a file that may not be there."""
    if path is not None:
        try:  # noqa: SIM105 - importing contextlib costs the start
            os.unlink(path)
        except OSError:
            pass


def main() -> None:
    """Be the guardian; the control socket is standard input."""
    try:
        frame = guard(0, int(sys.argv[-1]))
    except EOFError:
        frame = {}
    except BaseException as error:  # noqa: BLE001
        kill_all()
        frame = {"broken": f"{type(error).__name__}: {error}"}
    if frame:
        send(0, frame)
    os._exit(0)  # nothing to finalise, and the owner waits
