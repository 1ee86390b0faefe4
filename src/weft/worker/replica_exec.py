"""Runs commands in another replica of the same machine: what `kubectl exec` is to the pods of a cluster.

A replica that others may enter runs under `serve`: it listens to a Unix socket of its name in a folder of the job, and
runs its own command beside, or none. `enter` is the program that others call as `ssh` or `rsh`: it sends a command line
and its standard streams to that socket, and ends with the exit status of the command. The command is a child of the
replica: it has the replica's sandbox, environment and working folder, and ends with the replica. A command whose caller
has gone is ended. `hosts` names the replicas that serve now.

The program is started by its path, like the guardian, and uses the standard library only. A caller sends one byte with
three descriptors, 4 bytes with a length, big endian, and the command line; the answer is the exit status as text.
"""

from __future__ import annotations

import array
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False  # `typing` takes longer than the program
if TYPE_CHECKING:
    from typing import NoReturn

PROGRAM = "import sys; sys.path.append(sys.argv[1]); import replica_exec; replica_exec.main()"
SUFFIX = ".sock"
STREAMS = 3
LONGEST_LINE = 16 << 20
"""The most bytes of a command line that a replica accepts."""
HELLO_S = 10.0
"""Seconds in which a caller has to send its command line."""
APPEARING_S = 10.0
"""Seconds that a caller waits for a replica that starts at the same time."""
GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL for a command whose caller has gone."""
UNREACHABLE = 255
"""The exit status of a caller that reaches no replica, as that of ssh."""
WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
"""Options of ssh with a value."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def words(mode: str, *arguments: str) -> list[str]:
    """Return the command line of this program: mode "serve", "enter" or "hosts" with its arguments.

    serve FOLDER NAME [COMMAND ...], enter FOLDER [OPTION ...] HOST COMMAND ..., hosts FOLDER SLOTS.
    """
    return [sys.executable, "-I", "-S", "-c", PROGRAM, os.path.dirname(os.path.abspath(__file__)), mode, *arguments]


def main() -> None:
    """Run this program."""
    _, _, mode, folder, *rest = sys.argv
    if mode == "serve":
        serve(folder, rest[0], rest[1:])
    os.chdir(folder)  # its path may be longer than the address of a socket
    if mode == "enter":
        sys.exit(enter(rest))
    os.write(1, "".join(f"{name}:{rest[0]}\n" for name in serving()).encode())


# ------------------------------------------------------------------------------------------------------------ replica


class Children:
    """The children of this process; `wake` is readable after the end of one and after a signal to end."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.ended: dict[int, int] = {}
        self.wake, woken = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *ENDING):
            signal.signal(number, lambda *_: None)

    def is_ending(self) -> bool:
        """Whether a signal to end has come since the last call; takes note of ended children."""
        try:
            numbers = os.read(self.wake, 4096)
        except BlockingIOError:
            numbers = b""
        self._reap()
        return any(number in ENDING for number in numbers)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.running.discard(pid)
            self.ended[pid] = exit_status(status)


def exit_status(status: int) -> int:
    """Return the status of an ended process as a shell tells it: 128 plus the signal that ended it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def serve(folder: str, name: str, command: list[str]) -> NoReturn:
    """Serve the socket of a replica; end with its command, or after SIGTERM when no command is left."""
    children = Children()
    environment = initial_environment()
    listener = listen(folder, name)
    own = spawn([os.fsencode(word) for word in command], environment, (0, 1, 2)) if command else 0
    children.running |= {own} - {0}
    poll = select.poll()
    for fd in (listener.fileno(), children.wake):
        poll.register(fd, select.POLLIN)
    ending = 0
    while own not in children.ended and (not ending or children.running):
        ready = [fd for fd, _ in poll.poll()]
        if children.is_ending() and not ending:
            ending = 128 + signal.SIGTERM
            listener.close()
            for pid in children.running:
                send(pid, signal.SIGTERM)
        elif listener.fileno() in ready and not ending:
            caller, _ = listener.accept()
            pid = os.fork()
            if pid == 0:
                listener.close()
                attend(caller, environment)
            caller.close()
            children.running.add(pid)
        if ending and listener.fileno() < 0:
            poll = select.poll()
            poll.register(children.wake, select.POLLIN)
    for pid in children.running:
        send(pid, signal.SIGTERM)
    os._exit(children.ended.get(own, ending))


def listen(folder: str, name: str) -> socket.socket:
    """Return the socket of a replica. Its folder may have a longer path than an address can hold."""
    here = os.open(".", os.O_RDONLY)
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(folder)
        new = f".{name}.{os.getpid()}"
        if os.path.lexists(new):
            os.unlink(new)
        listener.bind(new)
        os.chmod(new, 0o600)
        listener.listen(128)
        os.replace(new, name + SUFFIX)  # callers find the socket when it accepts
    finally:
        os.fchdir(here)
        os.close(here)
    return listener


def initial_environment() -> dict[bytes, bytes]:
    """Return the environment with which this process was started; the interpreter may add to its own."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = [entry.partition(b"=") for entry in file.read().split(b"\0") if entry]
    except OSError:
        return dict(os.environb)
    return {name: value for name, _, value in entries}


def spawn(command: list[bytes], environment: dict[bytes, bytes], streams: tuple[int, ...]) -> int:
    """Start a command in a session of its own; one that cannot be started ends with status 127, as in a shell."""
    actions = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(streams)]
    try:
        return os.posix_spawnp(
            command[0],
            command,
            environment,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, *ENDING),
        )
    except OSError as error:
        os.write(2, b"[weft] %s: %s\n" % (command[0], os.strerror(error.errno or 0).encode()))
        os._exit(127)


def send(pid: int, number: int) -> None:
    """Send a signal to a process and to its group."""
    for call in (os.killpg, os.kill):
        try:  # noqa: SIM105 - importing contextlib costs start-up time
            call(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def attend(caller: socket.socket, environment: dict[bytes, bytes]) -> NoReturn:
    """Run the command of one caller, in a forked process."""
    children = Children()
    try:
        streams, line = receive(caller)
    except (OSError, EOFError):
        os._exit(0)  # `serving` only looks whether the replica accepts
    command = spawn([b"/bin/sh", b"-c", line], environment, streams)
    for fd in streams:
        os.close(fd)
    caller.settimeout(None)
    poll = select.poll()
    for fd in (caller.fileno(), children.wake):
        poll.register(fd, select.POLLIN)
    kill_at = None
    while command not in children.ended:
        wait_ms = None if kill_at is None else max(0, int((kill_at - time.monotonic()) * 1000) + 1)
        ready = [fd for fd, _ in poll.poll(wait_ms)]
        ending = children.is_ending()
        if caller.fileno() in ready:  # it sends no more: it has gone
            poll.unregister(caller.fileno())
            ending = True
        if ending and kill_at is None:
            kill_at = time.monotonic() + GRACE_S
            send(command, signal.SIGTERM)
        elif kill_at is not None and time.monotonic() >= kill_at:
            send(command, signal.SIGKILL)
            kill_at += GRACE_S
    try:  # noqa: SIM105
        caller.sendall(b"%d" % children.ended[command])
    except OSError:
        pass  # the caller has gone
    os._exit(0)


def receive(caller: socket.socket) -> tuple[tuple[int, ...], bytes]:
    """Return the streams and the command line of a caller. EOFError: it sends none; OSError: it does not in time."""
    caller.settimeout(HELLO_S)
    fds = array.array("i")
    byte, reports, _, _ = caller.recvmsg(1, socket.CMSG_SPACE(STREAMS * fds.itemsize))
    for level, kind, data in reports:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    length = int.from_bytes(read_exactly(caller, 4), "big")
    if not byte or len(fds) != STREAMS or length > LONGEST_LINE:
        raise EOFError
    for fd in fds:
        os.set_inheritable(fd, False)
    return tuple(fds), read_exactly(caller, length)


def read_exactly(source: socket.socket, size: int) -> bytes:
    """Read `size` bytes. EOFError: the other end has closed the socket."""
    data = bytearray()
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


# ------------------------------------------------------------------------------------------------------------- caller


def enter(arguments: list[str]) -> int:
    """Run a command in a replica and return its exit status. Options of ssh before the host have no effect."""
    host, command = parse(arguments)
    if not host or not command:
        return complain("a host and a command are missing")
    name = host.partition(".")[0]
    replica = connect(name)
    if replica is None:
        known = ", ".join(serving()) or "none"
        return complain(f"no replica {name} runs; those that can be entered: {known}")
    line = b" ".join(os.fsencode(word) for word in command)
    streams = array.array("i", range(STREAMS))
    with replica:
        try:
            replica.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
            replica.sendall(len(line).to_bytes(4, "big") + line)
            answer = replica.recv(16)
        except OSError:  # it has ended
            answer = b""
    return int(answer) if answer else complain(f"the replica {name} has ended")


def parse(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the host and the words of the command; leading options are left out."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-":
        at += 2 if len(arguments[at]) == 2 and arguments[at][1] in WITH_VALUE else 1
    host = arguments[at].rpartition("@")[2] if at < len(arguments) else ""
    return host, arguments[at + 1 :]


def connect(name: str) -> socket.socket | None:
    """Return a connection to a replica; None: it does not appear in time."""
    give_up_at = time.monotonic() + APPEARING_S
    while time.monotonic() < give_up_at:
        found = reach(name + SUFFIX)
        if found is not None:
            return found
        time.sleep(0.02)
    return None


def reach(path: str) -> socket.socket | None:
    """Return a connection to a socket of this folder; None: none accepts there."""
    if "/" in path:
        return None
    other = socket.socket(socket.AF_UNIX)
    try:
        other.connect(path)
    except OSError:
        other.close()
        return None
    return other


def serving() -> list[str]:
    """Return the names of the replicas that can be entered, in order."""
    found = []
    for entry in sorted(os.listdir(".")):
        other = reach(entry) if entry.endswith(SUFFIX) else None
        if other is not None:
            other.close()
            found.append(entry.removesuffix(SUFFIX))
    return found


def complain(message: str) -> int:
    """Write a message and return the exit status of a caller without a replica."""
    os.write(2, f"[weft] {message}\n".encode(errors="surrogateescape"))
    return UNREACHABLE
