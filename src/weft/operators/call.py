"""A command as the body of a task.

The command runs under a guardian (`weft/worker/guardian.py`), a process of its own: no process of the command outlives
the step, and the step does not outlive Weft.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import resource
import select
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from weft.graph.task import pass_gate, prepares
from weft.model.errors import (
    DefinitionError,
    DiskFullError,
    InternalError,
    OutOfMemoryError,
    ProgramError,
    RunCancelledError,
    TaskError,
)
from weft.model.failures import SIGNALLED, Failure, kind_of_exit
from weft.model.ids import task_name
from weft.model.masking import whole_word_ends, without_secrets
from weft.model.patterns import late_pattern
from weft.model.records import as_dict
from weft.model.wording import LAST_LINES
from weft.operators.guardians import COMMON_POOL, SILENCE_S

if TYPE_CHECKING:
    from weft.graph.task import CommitBarrier, TaskContext
    from weft.operators.guardians import GuardianPool
    from weft.operators.mounts import MountNamespace
    from weft.operators.network import Sandbox
    from weft.store.opened import OpenedFiles

TAIL_LINES = 20
TAIL_BYTES = 64 * 1024
MIB = 1 << 20


class StopCommand(Protocol):
    """Ends a command."""

    def __call__(self, grace_s: float | None = None) -> None:
        """End it; `grace_s` replaces the seconds between SIGTERM and SIGKILL. Later calls do nothing."""
        ...


START = b"+"
"""The message to a guardian that holds a prepared command until the start."""

OOM_COUNTERS = ("/proc/vmstat", "/sys/fs/cgroup/memory.events")
"""Files in which Linux counts the processes that it killed for lack of memory, in a line `oom_kill N`."""

_refused: list[str] = []
"""The reason why this system makes no mount namespaces, kept from the first refusal."""
LONGEST_TEXT = 32 * resource.getpagesize() - 1
"""The most bytes of one argument or variable of a new process on Linux, without the terminating NUL."""
_JOIN = 'IFS=; _weft=$*; unset IFS; set --; eval "$_weft"'
"""The script of the shell that gets a long command in pieces."""

_ESCAPE = late_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class CommandSpec(Struct, frozen=True, kw_only=True):
    """A command: `sh -c text`, or `argv` if given, with `env` as the whole environment except for PATH.

    PATH begins with the folders `programs` and that of this Python, so that `python` and the tools beside it are the
    same. Output and errors are appended to `log`; the first `log_head_bytes` and last `log_tail_bytes` of each run
    stay.
    """

    text: str = ""
    argv: Sequence[str] = ()
    env: Mapping[str, str]
    cwd: Path
    log: Path
    programs: Sequence[str] = ()
    grace_s: float = 3.0
    """Seconds between SIGTERM and SIGKILL."""
    after_s: float | None = None
    """The same for what is left of a command that has ended by itself; None: as long."""
    timeout_s: float | None = None
    record: Path | None = None
    """A file with the process ids (see `weft.worker.group`) from just before the start until all have ended."""
    log_head_bytes: int = 32 * MIB
    log_tail_bytes: int = 32 * MIB
    prefix: Sequence[str] = ()
    """The words in front of the command that start it elsewhere, such as in a container; empty for this machine."""
    end: Sequence[str] = ()
    """A command line that asks the command to end in place of SIGTERM, such as that of a container engine."""
    undo: Sequence[str] = ()
    """A command line that removes a container or the like if the command did not end by itself."""
    view: MountNamespace | None = None
    """The view of the file system for the command; None for that of this process."""
    sandbox: Sandbox | None = None
    """The namespaces of a replica; None for those of this process."""
    name: str = "command"
    """The name of the command in messages."""
    masked: Sequence[str] = ()
    """Texts that the log shows as `***`, by the rule of `weft.model.masking`."""
    timed: bool = False
    """Whether a file `LOG.times` beside the log tells when each line arrived (see `weft.runs.times`)."""
    apart: bool = False
    """Whether errors have a pipe of their own, so that a timed log tells them from output, but not in exact order."""
    function: str = ""
    """A function, as `module.name`, that is called with the words of `argv` in place of a program, and returns the exit
    code. Its process is a fork from a `LoadedPool`, of an interpreter with the path and the options of that."""
    traced: bool = False
    """Whether the result tells which files were opened, by the paths without `view`. On Linux."""
    looks: int = 0
    """What a traced command tells of files that it only looks at: see `weft.operators.looking`."""


class CommandResult(Struct, frozen=True, kw_only=True):
    """The result of a command."""

    exit_code: int | None
    """The exit code; None if a signal ended the command."""
    signal: int | None
    """The signal that ended the command; None if it returned."""
    cause: str
    """The cause of the end: `exit` (by itself), `timeout`, `cancelled`, or `signal` (to its guardian)."""
    wall_s: float
    cpu_s: float
    """The seconds of processor time of all its processes."""
    memory: int
    """The most bytes of memory that one of its processes held."""
    log_bytes: int
    """The bytes of its output."""
    dropped_bytes: int
    """The bytes of the output that the log does not hold."""
    log_start: int
    """The offset of the output in the log, in bytes."""
    log_error: str = ""
    """The cause of lost output, such as a full disk; "" if none was lost."""
    unmounted: str = ""
    """Why the command ran without its optional view; "" if it had the view, or needed none."""
    out_of_memory: bool = False
    """Whether the command, or a process that it speaks for, was killed while the kernel killed for lack of memory."""
    shell_only: tuple[str, ...] = ()
    """Variables too long for an environment: only the command's own shell has them."""
    killed: int = 0
    """How many processes still ran after the end of the command, and were ended, without those that they had started;
    0 if that is not known.
    """
    opened: OpenedFiles | None = None
    """What a traced command opened; None if that is not known."""

    @property
    def status(self) -> int:
        """The exit status as a shell reports it: the exit code, or 128 plus the signal."""
        return SIGNALLED + self.signal if self.signal is not None else self.exit_code or 0

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself and returned 0."""
        return self.cause == "exit" and self.exit_code == 0


@prepares
def run_command(ctx: TaskContext, inputs: object) -> dict[str, Any]:
    """Run a command as a task (style TASK) and return its `CommandResult` as a dictionary.

    Parameters: `command` (text for sh) or `argv` (the words of a program), `cwd`, `log`, and optionally `env`, `name`
    and the further fields of `CommandSpec`. With a parallelism above 1, `log` and `record` get the task's index in
    front of their suffix. The inputs only order the tasks. TaskError: the command fails, times out or cannot start
    (OutOfMemoryError if it was killed for lack of memory). RunCancelledError: the task is cancelled. ProgramError:
    invalid parameters.
    """
    spec = _spec(ctx)
    task = task_name(ctx.vertex, ctx.index)
    if ctx.cancelled():
        raise RunCancelledError(f"step {spec.name} was cancelled before it started")
    result = run_guarded(spec, on_cancel=ctx.on_cancel, gate=ctx.gate)
    if result.cause == "cancelled":
        raise RunCancelledError(f"step {spec.name} was cancelled")
    if not result.ok:
        raise failure_of(spec, result, task)
    return as_dict(result)


def run_guarded(
    spec: CommandSpec,
    *,
    on_started: Callable[[int, str], None] | None = None,
    on_cancel: Callable[[StopCommand], object] | None = None,
    gate: CommitBarrier | None = None,
    pool: GuardianPool = COMMON_POOL,
) -> CommandResult:
    """Run a command under a guardian and wait until all its processes have ended.

    `on_started` gets pid and start time of the command (a `weft.worker.group.ProcessId`). `on_cancel` gets a function
    that ends the command; any thread may call it at any time, later calls do nothing. The command is
    prepared before the commit barrier `gate` and starts behind it. Any exit code is a result. TaskError: the command
    cannot start, or was killed with its guardian. DefinitionError: a text that no system accepts. RunCancelledError:
    the gate cannot be passed. InternalError: the guardian fails. The guardian comes from `pool`.
    """
    if _refused and spec.view is not None and spec.view.optional:
        return replace(
            run_guarded(replace(spec, view=None), on_started=on_started, on_cancel=on_cancel, gate=gate, pool=pool),
            unmounted=_refused[0],
        )
    frame, started = _guard(spec, on_started, on_cancel, gate, pool)
    if frame.get("failed", ("",))[0] == "namespace" and spec.view is not None and spec.view.optional:
        _refused.append(why_not_mounted(frame["failed"][1]))
        return run_guarded(spec, on_started=on_started, on_cancel=on_cancel, gate=gate, pool=pool)
    if "exit" not in frame:
        raise _not_run(spec, frame, started)
    if frame["left"]:
        raise InternalError(
            f"{frame['left']} processes of step {spec.name} cannot be ended",
            hint="They hang in the kernel or run as another user: end them by hand.",
        )
    return _result(spec, frame)


def _guard(
    spec: CommandSpec,
    on_started: Callable[[int, str], None] | None,
    on_cancel: Callable[[StopCommand], object] | None,
    gate: CommitBarrier | None,
    pool: GuardianPool,
) -> tuple[dict[str, Any], tuple[int, str] | None]:
    """Have a guardian run a command. Return its last report, and pid and start time of the command if it started."""
    waits = gate is not None and not gate.is_open
    message = marshal.dumps({**_message(spec), "waits": waits})
    if not os.path.isdir(spec.log.parent):
        with contextlib.suppress(OSError):  # the guardian reports what is wrong with the folder
            spec.log.parent.mkdir(parents=True, exist_ok=True)
    ours = pool.start()
    lock = threading.Lock()
    stopped = ended = False
    started: tuple[int, str] | None = None

    def stop(grace_s: float | None = None) -> None:
        nonlocal stopped
        with lock, contextlib.suppress(OSError):
            if not ended and not stopped:  # after the end the guardian may have another command
                stopped = True
                if grace_s is not None and started is not None:  # before, it would be taken for `START`
                    ours.sendall(repr(grace_s).encode())
                ours.shutdown(socket.SHUT_WR)

    frame: dict[str, Any] | None = None
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the guardian failed: read its report
            ours.sendall(len(message).to_bytes(4, "big") + message)
        if on_cancel is not None:
            on_cancel(stop)
        if waits:
            pass_gate(gate)
            with lock, contextlib.suppress(OSError):  # stopped meanwhile, or the guardian failed and will report it
                ours.sendall(START)
        frame = _receive(ours, pool)
        if "pid" in frame:
            started = frame["pid"], frame["start"]
            if on_started is not None:
                on_started(*started)
            frame = _receive(ours, pool, frame["guardian"])
    finally:
        if frame is None or "again" not in frame:
            stop()  # ends the command after an early return
        while frame is None or "pid" in frame:  # until all its processes have ended, or the guardian has
            frame = _receive(ours, pool, None if frame is None else frame["guardian"])
        with lock:
            ended = True
        if frame.get("again") and not stopped:
            pool.take_back(ours)
        else:
            ours.close()
    return frame, started


def _result(spec: CommandSpec, frame: Mapping[str, Any]) -> CommandResult:
    code = frame["exit"]
    return CommandResult(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        cause={"owner": "cancelled"}.get(frame["why"], frame["why"]),
        wall_s=frame["wall_s"],
        cpu_s=frame["cpu_s"],
        memory=frame["memory"],
        log_bytes=frame["log_bytes"],
        dropped_bytes=frame["dropped"],
        log_start=frame["log_start"],
        log_error=os.strerror(frame["log_errno"]) if frame["log_errno"] else "",
        out_of_memory=frame["oom"],
        shell_only=tuple(_too_long(spec.env)),
        killed=frame["killed"],
        opened=_opened(frame["opened"]),
    )


def _opened(said: tuple[Sequence[Sequence[bytes]], Mapping[bytes, bytes]] | None) -> OpenedFiles | None:
    if said is None:
        return None
    from weft.store.opened import OpenedFiles  # only traced commands need it

    kinds, looked = said
    told: list[Any] = [tuple(map(os.fsdecode, paths)) for paths in kinds]
    told.append({os.fsdecode(path): seen.decode() for path, seen in looked.items()})
    return OpenedFiles(**dict(zip(OpenedFiles.__struct_fields__, told, strict=False)))


def last_lines(log: Path, *, start: int = 0, count: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log from byte `start` on, without colours and control characters.

    Reads at most 64 KiB; of a line with carriage returns only its last state stays. Empty if there is no log.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(start, size - TAIL_BYTES)
            file.seek(begin)
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    if begin > start:
        lines = lines[1:] or lines  # the first line is cut
    if lines[-1] == "":
        lines.pop()
    return [_printable(line) for line in lines[-count:]]


def _printable(line: str) -> str:
    line = _ESCAPE.sub("", line).rstrip("\r").rpartition("\r")[2]
    return "".join(char for char in line if char == "\t" or char.isprintable())


# ------------------------------------------------------------------------------------------------------------ inside


def _spec(ctx: TaskContext) -> CommandSpec:
    params = dict(ctx.params)
    known = set(CommandSpec.__struct_fields__) - {"text"} | {"command"}
    try:
        if unknown := sorted(params.keys() - known):
            raise TypeError(f"unknown fields: {', '.join(unknown)}")
        if "argv" not in params:
            params["text"] = params.pop("command")
        params.setdefault("env", {})
        params.setdefault("name", ctx.vertex)
        for key in ("cwd", "log", "record"):
            if params.get(key) is not None:
                path = Path(params[key])
                many = key != "cwd" and ctx.parallelism > 1
                params[key] = path.with_name(f"{path.stem}.{ctx.index}{path.suffix}") if many else path
        return CommandSpec(**params)
    except (KeyError, TypeError) as error:
        raise ProgramError(
            f"the parameters of command step {ctx.vertex} are invalid: {error}",
            hint="Give command or argv, cwd and log.",
        ) from error


_encoded = lru_cache(1024)(os.fsencode)
"""The encoded environment that most steps share."""


def _message(spec: CommandSpec) -> dict[str, Any]:
    """Return the guardian's specification (`guard` there lists the fields)."""
    env = {**spec.env}
    own = str(Path(sys.executable).parent)  # not resolved: in a virtual environment it is a link to another folder
    env["PATH"] = os.pathsep.join((*spec.programs, own, env.get("PATH") or os.defpath))
    cwd, log = str(spec.cwd), str(spec.log)
    if "\0" in "".join((spec.text, *spec.argv, *spec.prefix, cwd, log, *env, *env.values())):
        raise _holds_nul(spec, env)
    if "" in env or "=" in "".join(env):
        name = next(name for name in env if not name or "=" in name)
        raise DefinitionError(f"step {spec.name} has an environment variable named {name!r}")
    long = {name: env.pop(name) for name in _too_long(env)}
    blank = spec.function or (spec.prefix and not (spec.argv or spec.text.strip()))
    argv = [*spec.prefix, *(spec.argv or (() if blank else _argv(spec.text, long)))]
    return {
        "argv": [os.fsencode(word) for word in argv],
        "end": [os.fsencode(word) for word in spec.end],
        "undo": [os.fsencode(word) for word in spec.undo],
        "function": spec.function,
        "env": {_encoded(name): _encoded(value) for name, value in env.items()},
        "cwd": os.fsencode(spec.cwd.absolute()),
        "oom_counters": [os.fsencode(path) for path in OOM_COUNTERS],
        "view": None if spec.view is None else spec.view.encoded(),
        "sandbox": None if spec.sandbox is None else spec.sandbox.encoded(),
        "log": os.fsencode(spec.log.absolute()),
        "record": None if spec.record is None else os.fsencode(spec.record.absolute()),
        "grace_s": spec.grace_s,
        "after_s": spec.after_s,
        "timeout_s": spec.timeout_s,
        "masked": [(os.fsencode(text), *whole_word_ends(text)) for text in spec.masked],
        "head": spec.log_head_bytes,
        "tail": spec.log_tail_bytes,
        "timed": spec.timed,
        "apart": spec.apart,
        "traced": spec.traced,
        "looks": spec.looks,
    }


def _too_long(env: Mapping[str, str]) -> list[str]:
    if sum(map(len, env.values())) + sum(map(len, env)) <= LONGEST_TEXT // 4:  # characters, of at most four bytes
        return []
    return [
        name
        for name, value in env.items()
        if len(name) + len(value) > LONGEST_TEXT // 4 and len(os.fsencode(f"{name}={value}")) > LONGEST_TEXT
    ]


def _argv(text: str, variables: Mapping[str, str]) -> list[str]:
    """Return the words that start a shell with a command, and with variables too long for an environment."""
    named = [f"{name}={shlex.quote(value)}\n" for name, value in variables.items() if name.isidentifier()]
    text = "".join([*named, text])
    if len(os.fsencode(text)) <= LONGEST_TEXT:
        return ["sh", "-c", text]
    piece = LONGEST_TEXT // 4  # characters, of at most four bytes
    return ["sh", "-c", _JOIN, "sh", *(text[at : at + piece] for at in range(0, len(text), piece))]


def _holds_nul(spec: CommandSpec, env: Mapping[str, str]) -> DefinitionError:
    """Return the error for a specification with a NUL character in a text."""
    texts = [
        *(("command", word) for word in (spec.text, *spec.argv, *spec.prefix)),
        ("cwd", str(spec.cwd)),
        ("log", str(spec.log)),
        *((f"environment variable {name!r}", name + value) for name, value in env.items()),
    ]
    what = next(what for what, text in texts if "\0" in text)
    return DefinitionError(f"{what} of step {spec.name} holds a NUL character")


def _receive(control: socket.socket, pool: GuardianPool, guardian: int | None = None) -> dict[str, Any]:
    """Read one frame from a guardian of a pool; empty if it has ended. `guardian` is its pid, if known; a silent one is
    continued.
    """
    ready = select.poll()
    ready.register(control, select.POLLIN)
    while not ready.poll(1000 * SILENCE_S):
        if guardian is None:
            pool.go_on()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(guardian, signal.SIGCONT)
    try:
        head = control.recv(4, socket.MSG_WAITALL)
        length = int.from_bytes(head, "big")
        data = control.recv(length, socket.MSG_WAITALL) if len(head) == 4 else b""
    except ConnectionResetError:
        return {}
    frame: dict[str, Any] = marshal.loads(data) if data and len(data) == length else {}
    return frame


def _not_run(
    spec: CommandSpec, frame: dict[str, Any], started: tuple[int, str] | None
) -> TaskError | DiskFullError | InternalError | RunCancelledError:
    if "failed" in frame:
        stage, number = frame["failed"]
        if stage == "stopped":
            return RunCancelledError(f"step {spec.name} was cancelled before it started")
        error = _not_started(spec, stage, number)
        error.message = without_secrets(error.message, spec.masked)
        error.hint = without_secrets(error.hint, spec.masked)
        return error
    if started is not None:
        # Only the guardian was killed: its command has not been waited for, so the pid is still the command's.
        with contextlib.suppress(OSError):
            os.killpg(started[0], signal.SIGKILL)
        if spec.undo:
            import subprocess  # only what was killed in its container needs it

            with contextlib.suppress(OSError):
                subprocess.run(spec.undo, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if "broken" not in frame:
            return TaskError(
                f"step {spec.name} was ended by signal 9 (SIGKILL): something killed its guardian",
                status=SIGNALLED + signal.SIGKILL,
                hint=f"The kernel does so for lack of memory (dmesg tells). The whole log: {spec.log}",
            )
    why = frame.get("broken") or "it was killed"
    return InternalError(f"the guardian of step {spec.name} failed: {why}", hint="Run the step again.")


def _not_started(spec: CommandSpec, stage: str, number: int) -> TaskError | DiskFullError:
    why = os.strerror(number)
    if stage == "namespace":
        message = f"step {spec.name} cannot start: it needs folders at its mount paths, and {why_not_mounted(number)}"
        hint = "Make the mount paths lead to their folders, such as by links, or run on another system."
        return TaskError(message, task=spec.name, hint=hint)
    what, _, path = stage.partition(" ")
    if what == "isolation":
        message = f"step {spec.name} cannot start in namespaces of its own: {path}: {why}"
        return TaskError(message, task=spec.name, hint="Run it with isolation ports, which needs no namespaces.")
    if path:
        message = f"step {spec.name} cannot start: {path} cannot be {'read' if what == 'source' else 'mounted'}: {why}"
        return TaskError(message, task=spec.name, hint="Check the permissions of the folders above it.")
    place = {"cwd": spec.cwd, "log": spec.log, "record": spec.record}.get(stage)
    program = spec.function or (spec.argv[0] if spec.argv else "sh")
    what = {"cwd": "its working folder", "log": "its log", "record": "its process record"}.get(stage, program)
    message = f"step {spec.name} cannot start: {what}{f' {place}' if place else ''}: {why}"
    hint = {
        "cwd": "Create the folder, or name another one.",
        "log": "See that the folder of the log can be written.",
        "record": "See that the folder of the record can be written.",
    }.get(
        stage, f"See that {program} is on the PATH, and that command and environment are not too long for the system."
    )
    if number == errno.ENOENT and what == program and "/" not in program and (searched := spec.env.get("PATH")):
        message = f"step {spec.name} cannot start: {program} is in no folder of its PATH, {searched[:200]}"
        hint = f"Correct its name, install it, or add its folder to PATH; {os.defpath} has the commands of the system."
    if number in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(message, hint="Free space on this disk.")
    if number == errno.E2BIG:
        size = len(spec.text) + sum(len(name) + len(value) for name, value in spec.env.items())
        cause = f"its command and environment are too long for the system, {size:,} characters: {why}"
        hint = "Let an earlier step write a long list to a file, and read the file; `ulimit -s` sets the limit."
        return TaskError(f"step {spec.name} cannot start: {cause}", task=spec.name, hint=hint)
    return TaskError(message, task=spec.name, hint=hint)


def why_not_mounted(number: int) -> str:
    """Return why the system shows a command no other folders than its own, from the error number."""
    why = {
        errno.ENOSYS: "only Linux has mount namespaces",
        errno.ENOSPC: "this system allows its users no more namespaces (user.max_user_namespaces)",
    }
    return why.get(number) or f"this system does not allow user namespaces ({os.strerror(number)})"


def failure_of(spec: CommandSpec, result: CommandResult, task: str) -> TaskError:
    """Return the error of a command that has failed, with the last lines of its log; `task` is the name of its task."""
    if result.cause == "timeout":
        how = f"was ended after its timeout of {spec.timeout_s:g} s"
    elif result.cause == "signal":
        how = "was ended because its guardian got a signal to stop"
    elif result.signal is not None:
        how = f"was ended by signal {result.signal} ({_signal_name(result.signal)})"
    else:
        how = f"ended with exit code {result.exit_code}{explained(result.exit_code)}"
    kind = kind_of_exit(result.exit_code, result.signal, out_of_memory=result.out_of_memory)
    if kind is Failure.MEMORY:
        how += ", probably for lack of memory: the kernel killed a process for that meanwhile"
    lines = last_lines(spec.log, start=result.log_start)
    tail = "\n".join((LAST_LINES, *(f"  {line}" for line in lines))) if lines else "It printed nothing."
    lost = f"\nIts log is not complete: {result.log_error}." if result.log_error else ""
    error = OutOfMemoryError if kind is Failure.MEMORY else TaskError
    return error(
        f"step {spec.name} {how}.{lost}\n{tail}",
        task=task,
        status=TIMED_OUT if result.cause == "timeout" else result.status,
        traceback_text="\n".join(lines),
        hint=f"The whole log: {spec.log}",
    )


TIMED_OUT: Final = 124
"""The exit status of a command that was ended by its timeout, as the program `timeout` reports it."""
_SHELL_CODES: Final = {126: "a program cannot be executed", 127: "a program was not found"}


def explained(code: int | None) -> str:
    """Return what an exit code above 125 means by the rules of shells, in brackets; "" for others."""
    if code is None or code <= SIGNALLED or code > SIGNALLED + 64:
        return f" ({_SHELL_CODES[code]})" if code in _SHELL_CODES else ""
    return f" (signal {code - SIGNALLED}, {_signal_name(code - SIGNALLED)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"
