"""The start of a command by its guardian: as a program, in namespaces of its own, or as a function in a fork.

This module is part of the guardian, so it imports no more than that does (see `weft.worker.guardian`).
"""

from __future__ import annotations

import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable
    from typing import Any
else:
    import _signal as signal  # the C modules, without their enums
    import _socket as socket

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that ask a guardian to end its command."""
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a command must not inherit that."""


class StartError(Exception):
    """The command was not started: `stage` is log, record, stopped, cwd, exec, or a stage of `weft.worker.mounting`."""

    def __init__(self, stage: str, number: int) -> None:
        super().__init__(stage)
        self.stage, self.errno = stage, number


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


def start(
    spec: dict[str, Any], program: bytes, output: int, errors: int, filtered_thread: Callable[[int], Any]
) -> tuple[int, Any]:
    """Start a prepared command in a session of its own; StartError: it cannot be started.

    Return its pid, and the `tracing.CallListener` of a command whose opened files are asked for, else None. That is
    started by the `tracing.FilteredThread` for its `looks`.
    """
    if spec["view"] or spec["sandbox"]:
        return start_by_fork(spec, program, output, errors)
    if spec["function"]:
        return call_in_fork(spec, output, errors), None
    argv, env = spec["argv"], spec["env"]
    if spec["traced"] and (thread := filtered_thread(spec["looks"])).listener >= 0:
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
    if spec["traced"]:  # few owners need these modules
        from weft.worker import tracing

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
            copies, made, binds, holder, held = spec["view"] or ((), (), (), 0, ())
            if holder:  # named by this /proc, which the sandbox replaces
                holder = os.open(f"/proc/{holder}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            if spec["sandbox"]:  # all would pay for the imports
                from weft.worker import sandbox

                sandbox.enter(spec["sandbox"], guardian, pids_end)
            os.setsid()
            for number in IGNORED:
                signal.signal(number, signal.SIG_DFL)
            if spec["view"]:
                from weft.worker import mounting

                mounting.enter(copies, made, binds, held, holder=holder, separate=not spec["sandbox"])
            stage = b"cwd"
            os.chdir(spec["cwd"])
            stage = b"exec"
            if spec["traced"]:
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
    if spec["traced"]:
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
