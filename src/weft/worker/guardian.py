"""The guardian: a small process between Weft and a user's command, which ends the command with its owner.

Starting an interpreter takes longer than most commands, so an owner starts one guardian pool: `python -I -S` on `main`,
in a session of its own, with one end of a socket pair as standard input. Its arguments are the folder of Weft,
modules of it that most commands will need, and the pid of the owner. The pool forks each guardian in advance; an idle
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
`contextlib` nor `pathlib`, and of Weft its own parts alone: `process_table`, `bounded_log`, `command_start` and
`command_watch`, in a package `weft` whose `__init__` is not executed. Paths, arguments and environment travel as bytes.

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

from weft.worker.bounded_log import BOTH, STDERR, STDOUT, MaskedLog
from weft.worker.command_start import IGNORED, STOPPING, StartError, get_ready, start
from weft.worker.command_watch import KILLING_S, NOWHERE, CommandWatch, OomKillCounter
from weft.worker.process_table import LINUX, OWNER_S, OwnerProcess, ProcessRow, boot_id, family, look_up, send_signal

TYPE_CHECKING = False  # `typing` costs as much as all other imports together
if TYPE_CHECKING:
    import signal
    import socket
    from typing import Any, NoReturn
else:
    import _signal as signal  # the C modules, without their enums
    import _socket as socket

PR_SET_CHILD_SUBREAPER = 36
UNDOING_S = 20.0
"""Seconds that the undo command may take."""
BUSY = b"+"
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit statuses of a killed command or of a shell around one; the cause may be a lack of memory."""
RECORDED = b"WEFT_RECORD"
"""The environment variable of commands with the path of their record; descendants that escape keep it."""


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


def _load_prctl() -> Any:
    """Return the system call that makes a process a subreaper, None where it does not exist."""
    if not LINUX:
        return None
    import ctypes

    return ctypes.CDLL(None).prctl


def become_subreaper(prctl: Any) -> bool:
    """Make this process the subreaper of its descendants; False if the system cannot."""
    return prctl is not None and bool(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


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
            from weft.worker import tracing  # few owners need it

            self._filtered_threads[looks] = tracing.FilteredThread(IGNORED, looks)
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
        command, opened = start(spec, program, write_ends[0], write_ends[-1], post.filtered_thread)
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
    from weft.worker import sandbox

    sandbox.main(*words)
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
