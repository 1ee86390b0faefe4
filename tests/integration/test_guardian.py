"""Commands under their guardian, with real processes: what they see, and that nothing of them is left."""

import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.started import start
from weft.backends.heartbeats import is_stopped
from weft.model.errors import InternalError, OutOfMemoryError, RunCancelledError, TaskError
from weft.operators import call, guardians
from weft.operators.call import CommandResult, CommandSpec, run_command, run_guarded
from weft.operators.guardians import GUARDIAN, GuardianPool, LoadedPool, close_guardian_pool
from weft.runtime.loop import TickBarrier
from weft.worker import guardian
from weft.worker.bounded_log import BoundedLog
from weft.worker.command_watch import GUARDIAN_MAIN
from weft.worker.group import ProcessId, end_group, end_recorded, is_alive, process_id, read_record
from weft.worker.process_table import ProcessRow, _ps, descendants, look_up, process_table, send_signal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

DEADLINE_S = 180.0
SOURCE = Path(guardian.__file__).parents[2]
MARKS = itertools.count()


def wait_until(condition: Callable[[], Any], *, what: str = "the condition") -> Any:
    """Return the first true value of `condition`."""
    give_up_at = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < give_up_at, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.005)
    return value


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture
def mark():
    """An argument for `sleep` that no other process has; what still runs with it afterwards is ended."""
    mark = f"1000.{os.getpid()}{next(MARKS):04}"
    yield mark
    for process in running(mark):
        kill(process)


def running(mark: str) -> list[ProcessId]:
    """The processes that sleep for `mark`."""
    found = []
    for row in process_table().values():
        try:
            words = Path(f"/proc/{row.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(ProcessId(row.pid, row.start))
    return found


def row_of(pid: int) -> ProcessRow:
    row = look_up(pid)
    assert row is not None
    return row


def identity_of(pid: int) -> ProcessId:
    return ProcessId(pid, row_of(pid).start)


def kill(process: ProcessId) -> None:
    row = look_up(process.pid)
    if row is not None and row.start == process.start_time:
        send_signal(row, signal.SIGKILL)


class Owner:
    """A process that owns a command, for tests that kill it."""

    CODE = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from weft.operators import call, guardians\n"
        "def started(pid, start_time):\n"
        "    if sys.argv[3] == 'copy' and os.fork() == 0:\n"
        "        signal.pause()\n"
        "folder = Path(sys.argv[1])\n"
        "places = {'cwd': folder, 'log': folder / 'log', 'record': folder / 'record'}\n"
        "spec = call.CommandSpec(text=sys.argv[2], env={}, grace_s=0.2, **places)\n"
        "guardians.GUARDIAN = sys.argv[4]\n"
        "call.run_guarded(spec, on_started=started)\n"
        "while sys.argv[3] == 'idle':\n"
        "    signal.pause()\n"
    )

    def __init__(self, folder: Path, text: str, *, kind: str = "plain", ways: str = GUARDIAN) -> None:
        """`kind` is "copy" for one that leaves a copy of itself, "idle" for one that stays after its command."""
        self.copy: ProcessId | None = None
        self.record = folder / "record"
        command = [sys.executable, "-c", self.CODE, str(folder), text, kind, ways]
        self.process = start(command, env=os.environ | {"PYTHONPATH": str(SOURCE)})

    def wait_for_copy(self) -> ProcessId:
        """Return the process that holds a copy of all that the owner has open."""
        pool = row_of(read_record(self.record)[0].pid).parent
        children = wait_until(lambda: (rows := child_rows(self.process.pid))[1:] and rows)
        (self.copy,) = [ProcessId(row.pid, row.start) for row in children if row.pid != pool]
        return self.copy

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.kill()
        if self.copy is not None:
            kill(self.copy)


@pytest.fixture
def own(tmp_path):
    """Starts owners, which end with the test."""
    with contextlib.ExitStack() as stack:

        def start(text, **options):
            owner = Owner(tmp_path, text, **options)
            stack.callback(owner.end)
            return owner

        yield start


@pytest.fixture
def spec(tmp_path):
    """Makes specifications with a folder of their own."""

    def make(text, **options):
        return CommandSpec(**{"text": text, "env": {}, "cwd": tmp_path, "log": tmp_path / "log", **options})

    return make


@pytest.fixture(autouse=True)
def nothing_is_left(few_objects):
    """No test may leave a child, a zombie or an open file behind; the collector closes none of tests before."""
    close_guardian_pool()  # of tests before
    fds = sorted(os.listdir("/proc/self/fd"))
    children = {row.pid for row in descendants(process_table(), os.getpid())}
    yield
    close_guardian_pool()
    assert sorted(os.listdir("/proc/self/fd")) == fds
    assert {row.pid for row in descendants(process_table(), os.getpid())} <= children


@pytest.fixture
def other_guardians(monkeypatch):
    """Has guardians begin with other code than theirs."""

    def begin_with(code, module="guardian"):
        close_guardian_pool()
        first = f"from weft.worker import {module}; {code}; from weft.worker import guardian;"
        monkeypatch.setattr(guardians, "GUARDIAN", GUARDIAN.replace("from weft.worker import guardian;", first))

    yield begin_with
    close_guardian_pool()


class Running:
    """A command that runs in a thread of its own."""

    def __init__(self, spec: CommandSpec) -> None:
        self.cancels: list[Callable[[], None]] = []
        self.ids: list[ProcessId] = []
        self.pool = ThreadPoolExecutor(1)
        self.future = self.pool.submit(
            run_guarded, spec, on_started=lambda *args: self.ids.append(ProcessId(*args)), on_cancel=self.cancels.append
        )
        wait_until(lambda: self.ids or self.future.done(), what="the start")

    def cancel(self) -> None:
        self.cancels[0]()

    def result(self) -> CommandResult:
        with self.pool:
            return self.future.result(DEADLINE_S)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
class TestStopped:
    """Something stops a guardian, its pool or a command."""

    @pytest.mark.parametrize("way", ["ends", "is cancelled", "times out"])
    def test_a_stopped_guardian_continues(self, spec, tmp_path, monkeypatch, way):
        monkeypatch.setattr(call, "SILENCE_S", 0.1)
        go = tmp_path / "go"
        record = tmp_path / "record"
        text = f"while [ ! -e {go} ]; do sleep 0.02; done; echo out"
        run = Running(spec(text, record=record, timeout_s=0.5 if way == "times out" else None))
        (guard, command) = read_record(record)

        def stopped() -> bool:
            """Stop it, also again: the owner may have continued it before anyone has seen that."""
            if not run.future.done():
                os.kill(guard.pid, signal.SIGSTOP)
            return is_stopped(guard.pid) or run.future.done()

        wait_until(stopped, what="the stop")
        if way == "ends":
            go.touch()
        elif way == "is cancelled":
            run.cancel()
        result = run.result()
        assert result.cause == {"ends": "exit", "is cancelled": "cancelled", "times out": "timeout"}[way]
        assert not is_alive(command)

    def test_a_stopped_pool_continues(self, spec, monkeypatch):
        monkeypatch.setattr(call, "SILENCE_S", 0.1)
        close_guardian_pool()
        for _ in range(3):
            assert run_guarded(spec("exit 3")).exit_code == 3
            pool = guardians.COMMON_POOL._process
            os.kill(pool.pid, signal.SIGSTOP)
            while guardians.COMMON_POOL._idle:
                guardians.COMMON_POOL._idle.pop().close()  # so that the next command needs another guardian

    def test_the_end_of_a_stopped_pool_does_not_wait(self, spec):
        assert run_guarded(spec("exit 3")).exit_code == 3
        pool = guardians.COMMON_POOL._process
        os.kill(pool.pid, signal.SIGSTOP)
        close_guardian_pool()
        assert pool.returncode is not None

    def test_a_stopped_command_is_told_in_its_log(self, spec, tmp_path):
        run = Running(spec("kill -STOP $$; echo out", log=tmp_path / "log"))
        line = wait_until(lambda: "was stopped by signal 19" in text_of(tmp_path / "log"), what="the line")
        assert line
        os.kill(run.ids[0].pid, signal.SIGCONT)
        assert run.result().exit_code == 0
        assert f"waits for kill -CONT {run.ids[0].pid}\n" in text_of(tmp_path / "log")


class TestGate:
    def test_a_command_is_ready_before_the_gate_and_starts_behind_it(self, spec, tmp_path):
        gate = TickBarrier()
        record = tmp_path / "record"
        run = spec("echo out > made", record=record, cwd=tmp_path)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(run_guarded, run, gate=gate)
            wait_until(record.exists, what="the guardian")
            (line,) = record.read_text().splitlines()
            assert not descendants(process_table(), int(line.split()[0]))
            assert not (tmp_path / "made").exists()
            gate.open(passable=True)
            assert future.result(DEADLINE_S).ok
        assert (tmp_path / "made").read_text() == "out\n"
        assert not record.exists()

    @pytest.mark.parametrize("gated", [True, False])
    def test_programs_are_looked_for_from_the_folder_of_the_command(self, spec, tmp_path, gated):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "weft-test-tool").write_text("#!/bin/sh\necho found\n")
        (tmp_path / "bin" / "weft-test-tool").chmod(0o755)
        gate = TickBarrier()
        with ThreadPoolExecutor(1) as pool:
            run = spec("", argv=["weft-test-tool"], env={"PATH": "bin:/usr/bin:/bin"})
            future = pool.submit(run_guarded, run, gate=gate if gated else None)
            gate.open(passable=True)
            assert future.result(DEADLINE_S).ok
        assert (tmp_path / "log").read_text() == "found\n"

    def test_one_that_is_open_is_passed(self, spec):
        gate = TickBarrier()
        gate.open(passable=True)
        assert run_guarded(spec("true"), gate=gate).ok

    def test_nothing_starts_at_one_that_is_not_to_be_passed(self, spec, tmp_path):
        gate = TickBarrier()
        gate.open(passable=False)
        record = tmp_path / "record"
        with pytest.raises(RunCancelledError, match="cannot be made durable"):
            run_guarded(spec("echo out > made", record=record, cwd=tmp_path), gate=gate)
        assert not record.exists()
        assert not (tmp_path / "made").exists()

    def test_what_cannot_start_is_told_all_the_same(self, spec, tmp_path):
        gate = TickBarrier()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(run_guarded, spec("true", record=tmp_path / "no" / "record"), gate=gate)
            gate.open(passable=True)
            with pytest.raises(TaskError, match="its process record"):
                future.result(DEADLINE_S)

    def test_a_signal_to_the_guardian_ends_the_waiting(self, spec, tmp_path):
        gate = TickBarrier()
        record = tmp_path / "record"
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(run_guarded, spec("echo out > made", record=record, cwd=tmp_path), gate=gate)
            line = wait_until(lambda: text_of(record), what="the guardian")
            os.kill(int(line.split()[0]), signal.SIGTERM)
            wait_until(lambda: not record.exists(), what="its end")
            gate.open(passable=True)
            with pytest.raises(RunCancelledError):
                future.result(DEADLINE_S)
        assert not (tmp_path / "made").exists()

    def test_nothing_starts_when_the_owner_ends_while_it_waits(self, tmp_path):
        record = tmp_path / "record"
        code = (
            "import sys; from pathlib import Path; from weft.operators.call import *\n"
            "from weft.runtime.loop import TickBarrier\n"
            "folder = Path(sys.argv[1])\n"
            "run_guarded(CommandSpec(text='echo out > made', env={}, cwd=folder, log=folder / 'log', "
            "record=folder / 'record'), gate=TickBarrier())\n"
        )
        owner = start([sys.executable, "-c", code, str(tmp_path)])
        line = wait_until(lambda: text_of(record), what="the guardian")
        row = look_up(int(line.split()[0]))
        owner.kill()
        owner.wait()
        wait_until(lambda: not record.exists(), what="the guardian's end")
        wait_until(lambda: row is None or (now := look_up(row.pid)) is None or now.start != row.start)
        assert not (tmp_path / "made").exists()


class TestCommand:
    @pytest.mark.parametrize("code", [0, 1, 3, 255])
    def test_exit_code(self, spec, code):
        result = run_guarded(spec(f"exit {code}"))
        assert (result.exit_code, result.signal, result.cause, result.ok) == (code, None, "exit", code == 0)

    def test_signal(self, spec):
        result = run_guarded(spec("kill -KILL $$"))
        assert (result.exit_code, result.signal, result.cause, result.ok) == (None, signal.SIGKILL, "exit", False)

    @pytest.mark.parametrize("how", ["kill -KILL $$", "sh -c 'kill -KILL $$'; exit $?"])
    def test_a_kill_is_for_memory_if_the_kernel_has_counted_one(self, spec, tmp_path, monkeypatch, how):
        """The command counts in the place of the kernel, whose counter no test can move."""
        counter = tmp_path / "vmstat"
        counter.write_text("pgfault 12\noom_kill 3\noom_kill_x 1\n")
        monkeypatch.setattr(call, "OOM_COUNTERS", (str(tmp_path / "missing"), str(counter)))
        assert not run_guarded(spec(how)).out_of_memory
        assert not run_guarded(spec("echo oom_kill 4 > vmstat; exit 1")).out_of_memory
        os.mkfifo(tmp_path / "read")  # the guardian reads it after the counter, once the command writes it
        monkeypatch.setattr(call, "OOM_COUNTERS", (str(counter), str(tmp_path / "read")))
        result = run_guarded(spec(f"echo > read; rm read; echo oom_kill 6 > vmstat; {how}"))
        assert result.out_of_memory
        assert (result.signal, result.exit_code) in ((signal.SIGKILL, None), (None, 137))
        assert not run_guarded(spec(how)).out_of_memory  # an older one is no reason

    def test_environment_is_what_was_given(self, spec, monkeypatch):
        monkeypatch.setenv("OF_THE_OWNER", "1")
        run = spec('env -0; printf %s "$PATH"', env={"A": "two\nlines", "PATH": "/usr/bin:/bin"})
        run_guarded(run)
        *pairs, path = run.log.read_bytes().split(b"\0")
        env = dict(pair.split(b"=", 1) for pair in pairs)
        assert env.keys() - {b"PWD", b"OLDPWD", b"SHLVL", b"_"} == {b"A", b"PATH"}  # those are of sh
        assert env[b"A"] == b"two\nlines"
        assert path.decode() == f"{Path(sys.executable).parent}:/usr/bin:/bin"

    def test_python_is_this_one(self, spec):
        run = spec("python -c 'import sys; print(sys.executable)'")
        run_guarded(run)
        assert Path(run.log.read_text().strip()).parent == Path(sys.executable).parent

    def test_folder(self, spec, tmp_path):
        folder = tmp_path / "a folder; with $(odd) 'characters'"
        folder.mkdir()
        run = spec("pwd", cwd=folder)
        run_guarded(run)
        assert run.log.read_text() == f"{folder}\n"

    def test_input_is_empty_and_signals_are_as_a_shell_gives_them(self, spec):
        run = spec("cat; yes | head -n 1; grep -E '^Sig(Blk|Ign)' /proc/self/status")
        run_guarded(run)
        line, _, blocked, _, ignored = run.log.read_text().split()
        of_the_c_library = 1 << 31 | 1 << 32  # signals 32 and 33, which nobody else can set
        own = [signal.SIGINT, signal.SIGQUIT]  # a shell has what it puts into the background ignore these
        of_the_shell = sum(1 << (one - 1) for one in own if signal.getsignal(one) is signal.SIG_IGN)
        assert line == "y"
        assert int(blocked, 16) & ~of_the_c_library == 0
        assert int(ignored, 16) & ~(of_the_c_library | of_the_shell) == 0

    def test_long_commands_run_as_short_ones(self, spec):
        text = "ä" * 200_000
        given = spec(f"x='{text}'; echo \"${{#x}} $# [$0]\"; for a in b c; do echo $a; done; exit 7")
        result = run_guarded(given)
        assert result.exit_code == 7
        lines = given.log.read_text().split("\n")
        assert lines[0].endswith(" 0 [sh]")
        assert int(lines[0].split()[0]) in (200_000, 400_000), "shells count characters or bytes"
        assert lines[1:3] == ["b", "c"]

    def test_variables_that_no_environment_holds_are_there_for_the_shell(self, spec):
        paths = ",".join(f"/some/where/it's {n}" for n in range(20_000))
        text = 'echo "$LIST" | tr , "\\n" | wc -l; env | grep -c "^LIST="; echo "$SHORT"'
        given = spec(text, env={"PATH": os.defpath, "SHORT": "s", "LIST": paths})
        result = run_guarded(given)
        assert result.shell_only == ("LIST",)
        assert given.log.read_text().split() == ["20000", "0", "s"]

    def test_has_no_file_of_ours(self, spec):
        run = spec("ls /proc/self/fd")
        run_guarded(run)
        assert run.log.read_text().split() == ["0", "1", "2", "3"]  # 3 is the folder that ls reads

    def test_log_holds_output_and_errors_and_is_appended_to(self, spec, tmp_path):
        run = spec("echo out; echo err >&2", log=tmp_path / "new" / "folder" / "log")
        first = run_guarded(run)
        second = run_guarded(run)
        assert run.log.read_text() == "out\nerr\n" * 2
        assert (first.log_start, second.log_start, second.log_bytes, second.dropped_bytes) == (0, 8, 8, 0)

    def test_names_are_never_interpreted(self, spec, tmp_path):
        odd = "$(touch pwned); `touch pwned` && touch pwned 'x"
        run = spec("echo fine", log=tmp_path / odd, record=tmp_path / f"{odd}.record", name=odd, env={"ODD": odd})
        assert run_guarded(run).ok
        assert [path.name for path in tmp_path.iterdir()] == [odd]

    def test_many_at_once(self, spec, tmp_path):
        with ThreadPoolExecutor(8) as pool:
            results = pool.map(run_guarded, [spec(f"exit {n}", log=tmp_path / str(n)) for n in range(24)])
        assert [result.exit_code for result in results] == list(range(24))


class TestStart:
    def failure(self, run: CommandSpec) -> str:
        with pytest.raises(TaskError) as caught:
            run_guarded(run)
        return str(caught.value)

    def test_missing_folder_is_named(self, spec, tmp_path):
        told = self.failure(spec("true", cwd=tmp_path / "none", name="train"))
        assert "train" in told
        assert str(tmp_path / "none") in told
        assert os.strerror(errno.ENOENT) in told

    def test_log_that_cannot_be_opened_is_named(self, spec, tmp_path):
        (tmp_path / "file").touch()
        assert str(tmp_path / "file" / "log") in self.failure(spec("true", log=tmp_path / "file" / "log"))

    def test_record_that_cannot_be_written_is_named(self, spec, tmp_path):
        assert str(tmp_path / "none" / "record") in self.failure(spec("true", record=tmp_path / "none" / "record"))

    def test_command_that_is_too_long(self, spec, tmp_path):
        said = self.failure(spec("true " + "x" * 20_000_000, record=tmp_path / "record"))
        assert "20,000," in said
        assert os.strerror(errno.E2BIG) in said
        assert not (tmp_path / "record").exists()

    def test_no_sh_on_the_path(self, spec, tmp_path, monkeypatch):
        fake = tmp_path / "python"
        fake.symlink_to(sys.executable)
        monkeypatch.setattr(sys, "executable", str(fake))
        assert "sh" in self.failure(spec("true", env={"PATH": str(tmp_path)}))


class TestLog:
    def test_of_a_loud_command_keeps_both_ends(self, spec):
        cap = 1 << 20
        run = spec("echo old", log_head_bytes=cap, log_tail_bytes=cap)
        run_guarded(run)
        result = run_guarded(replace(run, text="seq 1 8000000"))
        size = run.log.stat().st_size
        assert result.ok
        assert result.log_bytes == sum(9 * 10 ** (n - 1) * (n + 1) for n in range(1, 7)) + 7_000_001 * 8
        assert 2 * cap - 4096 < size < 2 * cap + 4 + 2 * BoundedLog.NOTE_BYTES
        head, _, rest = run.log.read_bytes().partition(b"\n[weft] ")
        note, _, tail = rest.partition(b"\n")
        assert head.startswith(b"old\n1\n2\n3\n")
        assert len(head) == cap + 4
        assert tail.endswith(b"\n7999999\n8000000\n")
        assert tail.partition(b"\n")[0] == b"%d" % (8_000_001 - tail.count(b"\n"))  # the tail starts with a whole line
        assert int(note.split()[0]) == result.dropped_bytes == result.log_bytes - cap - len(tail)

    @pytest.mark.parametrize("size", [0, 1, 9_999, 10_000, 14_096, 14_097, 14_200, 18_192, 18_193, 60_001])
    @pytest.mark.parametrize("step", [1, 997, 100_000])
    def test_keeps_head_and_tail(self, tmp_path, size, step):
        path = tmp_path / "log"
        data = bytes(b"0123456789abcdef"[at % 16] for at in range(size))
        log = BoundedLog(os.fsencode(path), 10_000, 4096)
        for at in range(0, size, step):
            log.write(data[at : at + step])
        log.close()
        kept = path.read_bytes()
        if log.dropped:
            note = BoundedLog.NOTE % log.dropped
            assert kept == data[:10_000] + note + data[10_000 + log.dropped :]
            assert size - log.dropped == 10_000 + 4096
        else:
            assert kept == data
            assert size <= 10_000 + 4096 + BoundedLog.NOTE_BYTES

    def test_on_a_full_disk_does_not_stop_the_command(self, spec):
        result = run_guarded(spec("seq 1 100000 && exit 7", log=Path("/dev/full")))
        assert result.exit_code == 7
        assert result.dropped_bytes == result.log_bytes == 588_895
        assert result.log_error == os.strerror(errno.ENOSPC)


class TestEnd:
    def test_of_what_was_left_in_the_background(self, spec, mark):
        assert run_guarded(spec(f"sleep {mark} & sleep {mark} & exit 4")).exit_code == 4
        assert not running(mark)

    @pytest.mark.parametrize(
        ("text", "killed"),
        [
            ("sleep {mark} & (sleep {mark}; true) & exit 4", 2),
            ("setsid sleep {mark} & while ! pgrep -f -x 'sleep {mark}'; do sleep 0.01; done", 1),
            ("trap '' TERM; sleep {mark} &", 1),
            ("sleep 0.01 & wait", 0),
        ],
    )
    def test_counts_what_still_ran_and_was_ended(self, spec, mark, text, killed):
        result = run_guarded(spec(text.format(mark=mark), grace_s=0.1))
        assert (result.cause, result.killed) == ("exit", killed)
        assert not running(mark)

    def test_waits_a_moment_for_what_ends_with_the_command(self, spec, tmp_path, other_guardians):
        other_guardians("command_watch.SETTLING_S = 3600.0", module="command_watch")
        result = run_guarded(spec("mkfifo f; cat f > kept & exec 9> f; echo all >&9"))
        assert (result.ok, result.killed) == (True, 0)
        assert text_of(tmp_path / "kept") == "all\n"

    def test_by_a_timeout_counts_nothing(self, spec, mark):
        result = run_guarded(spec(f"sleep {mark} & sleep {mark}", timeout_s=0.1))
        assert (result.cause, result.killed) == ("timeout", 0)

    def test_of_what_left_parent_and_session(self, spec, tmp_path, mark):
        (tmp_path / "daemon.py").write_text(
            "import os, pathlib\n"
            "if os.fork(): os._exit(0)\n"
            "os.setsid()\n"
            "if os.fork(): os._exit(0)\n"
            "os.setpgid(0, 0)\n"
            "pathlib.Path('pid').write_text(str(os.getpid()))\n"
            f"os.execvp('sleep', ['sleep', '{mark}'])\n"
        )
        assert run_guarded(spec("python daemon.py; while [ ! -s pid ]; do sleep 0.01; done")).ok
        assert text_of(tmp_path / "pid")
        assert not running(mark)

    def test_of_what_ignores_sigterm(self, spec, mark):
        run = spec(f"(trap '' TERM; sleep {mark}) & exit 5", grace_s=0.1)
        assert run_guarded(run).exit_code == 5
        assert not running(mark)

    def test_of_what_ignores_sigterm_is_at_once_without_a_grace_after_the_exit(self, spec, mark):
        result = run_guarded(spec(f"(trap '' TERM; sleep {mark}) & exit 5", grace_s=3600.0, after_s=0.0))
        assert (result.cause, result.exit_code) == ("exit", 5)
        assert not running(mark)

    def test_by_cancel_lets_the_command_clean_up(self, spec, tmp_path, mark):
        trap = "trap 'sleep 0.1; echo cleaned; exit 9' TERM"
        run = Running(spec(f"{trap}; sleep {mark} & echo ready; while :; do wait; done"))
        wait_until(lambda: "ready" in text_of(tmp_path / "log"))
        run.cancel()
        result = run.result()
        assert (result.cause, result.exit_code, result.ok) == ("cancelled", 9, False)
        assert text_of(tmp_path / "log") == "ready\ncleaned\n"
        assert not running(mark)
        run.cancel()  # too late, and harmless

    def test_by_cancel_kills_after_the_grace(self, spec, tmp_path, mark):
        run = Running(spec(f"trap '' TERM; echo ready; sleep {mark}; sleep {mark}", grace_s=0.2))
        wait_until(lambda: running(mark))
        run.cancel()
        result = run.result()
        assert (result.cause, result.signal) == ("cancelled", signal.SIGKILL)
        assert not running(mark)

    def test_by_cancel_before_the_start(self, spec, mark):
        # The shell may start its child while the guardian looks for whom to tell: that must not take the whole grace.
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(run_guarded, spec(f"sleep {mark}; true", grace_s=100), on_cancel=lambda stop: stop())
            assert run.result(DEADLINE_S).cause == "cancelled"
        assert not running(mark)

    def test_by_cancel_while_it_waits(self, spec, tmp_path, mark):
        gate = TickBarrier()
        record = tmp_path / "record"
        stops: list[Callable[[], None]] = []
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(run_guarded, spec(f"sleep {mark}", record=record), gate=gate, on_cancel=stops.append)
            wait_until(lambda: stops and record.exists(), what="the guardian")
            stops[0]()
            gate.open(passable=True)
            with pytest.raises(RunCancelledError, match="cancelled before it started"):
                run.result(DEADLINE_S)
        assert not running(mark)
        assert not record.exists()

    def test_by_timeout(self, spec, mark):
        result = run_guarded(spec(f"sleep {mark}; sleep {mark}", timeout_s=0.1))
        assert (result.cause, result.signal, result.ok) == ("timeout", signal.SIGTERM, False)
        assert not running(mark)

    def test_by_an_error_of_the_owner(self, spec, mark):
        def fail(*_):
            raise RuntimeError("in the owner")

        with pytest.raises(RuntimeError, match="in the owner"):
            run_guarded(spec(f"sleep {mark}"), on_started=fail)
        assert not running(mark)

    def test_is_not_for_the_keyboard_to_decide(self, spec, mark):
        run = Running(spec(f"sleep {mark}"))
        command = row_of(run.ids[0].pid)
        guard = row_of(command.parent)
        assert len({command.session, guard.session, os.getsid(0)}) == 3
        assert (command.group, guard.group) == (command.pid, guard.pid)
        run.cancel()
        run.result()

    def test_by_a_signal_to_the_guardian(self, spec, mark):
        run = Running(spec(f"sleep {mark}"))
        send_signal(row_of(row_of(run.ids[0].pid).parent), signal.SIGTERM)
        assert run.result().cause == "signal"
        assert not running(mark)

    def test_when_only_the_guardian_is_killed(self, spec, mark):
        run = Running(spec(f"sleep {mark}; true"))
        wait_until(lambda: running(mark))
        send_signal(row_of(row_of(run.ids[0].pid).parent), signal.SIGKILL)
        with pytest.raises(TaskError, match="its guardian") as caught:
            run.result()
        assert caught.value.status == 128 + signal.SIGKILL
        wait_until(lambda: not running(mark))

    def test_when_the_guardian_fails(self, spec, mark, other_guardians):
        other_guardians("guardian.CommandWatch._more = lambda *args: 1 / 0")
        run = Running(spec(f"setsid sleep {mark} & sleep {mark}; true"))
        wait_until(lambda: len(running(mark)) == 2)
        run.cancel()
        with pytest.raises(InternalError, match="ZeroDivisionError"):
            run.result()
        assert not running(mark)


FUNCTIONS = """
import os, random, signal, sys, time

print("loaded")

def shows(*words):
    print(words, os.getcwd() == words[0], os.environ["NAME"], "OTHER" in os.environ, os.getsid(0) == os.getpid())
    print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:4], file=sys.stderr)
    print([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD)] == [signal.SIG_DFL] * 2)
    return 7

def fails():
    raise KeyError("alas")

def draws():
    print(random.random())
    return 0

def waits():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(4))
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", os.environ["MARK"])
    print("begun")
    time.sleep(1000)
"""


class TestLoadedPool:
    """Commands that are functions, in forks of an interpreter that has loaded their module."""

    @pytest.fixture
    def call_of(self, spec, tmp_path):
        (tmp_path / "functions_of_tests.py").write_text(FUNCTIONS)
        path = os.pathsep.join((str(tmp_path), str(SOURCE), *filter(None, sys.path)))
        environment = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "OTHER": "1"}
        pool = LoadedPool(["functions_of_tests"], lambda: environment)

        def make(name, *words, **options):
            options = {"argv": words, "log": tmp_path / "log", "env": {"NAME": "value"}} | options
            return partial(run_guarded, spec("", function=f"functions_of_tests.{name}", **options), pool=pool)

        yield make
        pool.close()

    def test_a_function_has_what_a_program_has(self, call_of, tmp_path):
        result = call_of("shows", str(tmp_path), "b")()
        assert (result.exit_code, result.cause) == (7, "exit")
        seen, fds, handlers = (tmp_path / "log").read_text().splitlines()
        assert seen == f"{(str(tmp_path), 'b')} True value False True", "the module was loaded before"
        assert fds == "[0, 1, 2, 3]"  # the last one is that of the list
        assert handlers == "True"

    def test_each_draws_other_numbers(self, call_of, tmp_path):
        for _ in range(3):
            assert call_of("draws")().ok
        assert len(set((tmp_path / "log").read_text().split())) == 3

    @pytest.mark.parametrize("name", ["fails", "gone"])
    def test_an_error_is_in_the_log(self, call_of, tmp_path, name):
        assert call_of(name)().exit_code == 1
        assert {"fails": "KeyError: 'alas'", "gone": "has no attribute 'gone'"}[name] in (tmp_path / "log").read_text()

    def test_what_ends_it_ends_all_its_processes(self, call_of, tmp_path, mark):
        cancels: list[Callable[[], None]] = []
        run = call_of("waits", env={"MARK": mark}, record=tmp_path / "record")
        with ThreadPoolExecutor(1) as threads:
            future = threads.submit(run, on_cancel=cancels.append)
            wait_until(lambda: "begun" in text_of(tmp_path / "log") and running(mark), what="the function")
            _, process = read_record(tmp_path / "record")
            assert is_alive(process)
            cancels[0]()
            result = future.result(DEADLINE_S)
        assert (result.cause, result.exit_code) == ("cancelled", 4)
        assert not running(mark)
        assert not (tmp_path / "record").exists()

    def test_one_that_cannot_be_loaded_is_told_by_each_function(self, spec, tmp_path):
        pool = LoadedPool(["gone_of_tests"], lambda: {"PYTHONPATH": str(SOURCE)})
        try:
            result = run_guarded(spec("", function="gone_of_tests.main", log=tmp_path / "log"), pool=pool)
        finally:
            pool.close()
        assert result.exit_code == 1
        assert "No module named 'gone_of_tests'" in (tmp_path / "log").read_text()


class TestGuardianPool:
    """The process that guardians are forked from."""

    def pool_of(self, run: "Running") -> ProcessRow:
        return row_of(row_of(row_of(run.ids[0].pid).parent).parent)

    def test_is_one_for_all_commands_and_keeps_no_zombies(self, spec, tmp_path, mark):
        one, two = (Running(spec(f"sleep {mark}", log=tmp_path / name)) for name in "12")
        pool = self.pool_of(one)
        assert pool.pid == self.pool_of(two).pid
        assert pool.parent == os.getpid()
        for run in (one, two):
            run.cancel()
            run.result()
        wait_until(lambda: len(child_rows(pool.pid)) == 1, what="the one that stands by")
        wait_until(lambda: all(row.alive for row in child_rows(pool.pid)))

    def test_is_not_for_the_keyboard_to_decide(self, spec, mark):
        run = Running(spec(f"sleep {mark}"))
        pool = self.pool_of(run)
        assert pool.session == pool.pid
        run.cancel()
        run.result()

    def test_may_die_while_commands_run(self, spec, tmp_path, mark):
        run = Running(spec(f"while [ ! -e gate ]; do sleep 0.01; done; echo {mark}; exit 6"))
        pool = self.pool_of(run)
        send_signal(pool, signal.SIGKILL)
        wait_until(lambda: not is_alive(ProcessId(pool.pid, pool.start)))
        other = Running(spec(f"sleep {mark}", log=tmp_path / "other"))
        assert self.pool_of(other).pid != pool.pid
        other.cancel()
        assert other.result().cause == "cancelled"
        (tmp_path / "gate").touch()
        assert run.result().exit_code == 6
        assert run.result().cause == "exit"

    def test_has_a_guardian_stand_by(self, spec, tmp_path, mark):
        run = Running(spec(f"sleep {mark}"))
        guard = row_of(row_of(run.ids[0].pid).parent)
        (next_one,) = wait_until(lambda: [row for row in child_rows(guard.parent) if row.pid != guard.pid])
        wait_until(lambda: row_of(next_one.pid).session == next_one.pid, what="its session")
        other = Running(spec(f"sleep {mark}", log=tmp_path / "other"))
        assert row_of(other.ids[0].pid).parent == next_one.pid
        for one in (run, other):
            one.cancel()
            one.result()

    def test_has_another_stand_by_when_that_is_killed(self, spec, mark):
        run = Running(spec(f"sleep {mark}"))
        guard = row_of(row_of(run.ids[0].pid).parent)
        (next_one,) = wait_until(lambda: [row for row in child_rows(guard.parent) if row.pid != guard.pid])
        send_signal(next_one, signal.SIGKILL)
        wait_until(lambda: not is_alive(ProcessId(next_one.pid, next_one.start)))
        assert run_guarded(spec("exit 5")).exit_code == 5
        run.cancel()
        run.result()

    def test_may_be_opened_before_there_is_work(self):
        pool = GuardianPool()
        pool.open()
        opened = pool._process
        pool.start().close()
        assert opened is not None
        assert pool._process is opened
        pool.close()
        assert opened.returncode == 0

    def test_has_a_guardian_for_each_command_that_is_expected(self):
        pool = GuardianPool()
        pool.expect_commands(3)
        pool.open()
        assert pool._process is not None
        process = pool._process.pid
        wait_until(lambda: len(child_rows(process)) == 4, what="three, and the one that stands by")
        started = [pool.start() for _ in range(3)]
        assert not pool._idle
        assert len(child_rows(process)) == 4
        for one in started:
            one.close()
        pool.close()

    def test_of_a_fork_is_its_own(self, tmp_path):
        code = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from weft.operators import guardians\n"
            "from weft.operators.call import CommandSpec, run_guarded\n"
            "def parent_of(pid):\n"
            "    return int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1])\n"
            "def check(name):\n"
            "    spec = CommandSpec(text='exit 3', env={}, cwd=Path('/'), log=Path(sys.argv[1], name))\n"
            "    code = run_guarded(spec).exit_code\n"
            "    assert parent_of(guardians.COMMON_POOL._process.pid) == os.getpid()\n"
            "    return code\n"
            "assert check('one') == 3\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    os._exit(check('two'))\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3\n"
            "assert check('three') == 3\n"
        )
        command = [sys.executable, "-W", "error", "-c", code, str(tmp_path)]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(SOURCE)}, check=False)
        assert done.returncode == 0

    def test_without_room_for_a_process_says_so(self, spec, other_guardians):
        other_guardians("guardian.os.fork = lambda: guardian.os.open('', 0)")
        with pytest.raises(InternalError, match="guardian of step command failed: it cannot be started"):
            run_guarded(spec("true"))

    def test_that_cannot_be_started_is_one_error(self, spec, monkeypatch):
        close_guardian_pool()
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(InternalError, match="cannot be started"):
            run_guarded(spec("true"))

    def test_is_started_again_after_it_was_closed(self):
        pool = GuardianPool()
        pool.start().close()
        pool.close()
        pool.start().close()
        pool.close()


class TestGuardian:
    """One guardian serves one command after the other."""

    def of(self, run: CommandSpec) -> ProcessId:
        assert run_guarded(replace(run, text="echo $PPID")).ok
        return identity_of(int(run.log.read_text().split()[-1]))

    def test_takes_the_next_command_and_keeps_nothing_of_the_last(self, spec, tmp_path):
        folder = tmp_path / "folder"
        folder.mkdir()
        first = self.of(spec("", cwd=folder, record=tmp_path / "record"))
        process = Path(f"/proc/{first.pid}")
        wait_until(lambda: os.readlink(process / "cwd") == "/")
        files = sorted(os.listdir(process / "fd"))
        second = run_guarded(spec("sleep 1000", timeout_s=0.1, record=tmp_path / "record"))
        assert second.cause == "timeout"
        assert run_guarded(spec("kill -KILL $$", record=tmp_path / "record")).signal == signal.SIGKILL
        assert self.of(spec("", env={"A": "b"})) == first
        wait_until(lambda: os.readlink(process / "cwd") == "/")
        assert sorted(os.listdir(process / "fd")) == files
        assert not child_rows(first.pid)

    def test_that_was_told_to_stop_takes_no_more(self, spec, tmp_path, mark):
        run = Running(spec(f"echo $PPID; sleep {mark}; true"))
        wait_until(lambda: running(mark))
        stopped = identity_of(int(wait_until(lambda: text_of(tmp_path / "log").split())[0]))
        run.cancel()
        run.result()
        wait_until(lambda: not is_alive(stopped))
        assert self.of(spec("")) != stopped

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_without_work_ends_by_a_signal(self, spec, number):
        guard = self.of(spec(""))
        send_signal(row_of(guard.pid), number)
        wait_until(lambda: not is_alive(guard))
        assert self.of(spec("")) != guard

    def test_without_work_ends_with_its_owner(self, own, tmp_path):
        owner = own("echo $PPID", kind="idle")
        guard = identity_of(int(wait_until(lambda: text_of(tmp_path / "log"))))
        wait_until(lambda: not (tmp_path / "record").exists(), what="the end of the command")
        wait_until(lambda: os.readlink(f"/proc/{guard.pid}/cwd") == "/", what="the wait for the next one")
        owner.kill()
        wait_until(lambda: not is_alive(guard))

    def test_without_work_ends_when_the_guardian_pool_is_closed(self, spec):
        guard = self.of(spec(""))
        close_guardian_pool()
        wait_until(lambda: not is_alive(guard))

    def test_of_many_at_once_are_kept_up_to_a_limit(self, spec, tmp_path, monkeypatch):
        monkeypatch.setattr(guardians, "IDLE", 2)
        wait = "echo $PPID; touch {0}; while [ ! -e gate ]; do sleep 0.01; done"
        with ThreadPoolExecutor(5) as pool:
            runs = [pool.submit(run_guarded, spec(wait.format(n), log=tmp_path / f"{n}.log")) for n in range(5)]
            wait_until(lambda: all((tmp_path / str(n)).exists() for n in range(5)))
            (tmp_path / "gate").touch()
            assert all(run.result(DEADLINE_S).ok for run in runs)
        pids = [int(text_of(tmp_path / f"{n}.log")) for n in range(5)]
        wait_until(lambda: sum(look_up(pid) is not None for pid in pids) == 2)


class TestWithoutSubreaper:
    """The ways that other systems need, tried here as far as they can be."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, other_guardians):
        if shutil.which("ps") is None:
            pytest.skip("needs ps")
        other_guardians("process_table.LINUX = False", module="process_table")
        assert "LINUX" in guardians.GUARDIAN

    def test_background_ends_with_the_command(self, spec, mark):
        assert run_guarded(spec(f"(sleep {mark} &) ; sleep {mark} & exit 4")).exit_code == 4
        wait_until(lambda: not running(mark))

    def test_cancel(self, spec, mark):
        run = Running(spec(f"sleep {mark}; sleep {mark}"))
        wait_until(lambda: running(mark))
        run.cancel()
        assert run.result().cause == "cancelled"
        wait_until(lambda: not running(mark))

    def test_death_of_the_owner_is_seen_by_its_socket(self, own, mark):
        owner = own(f"sleep {mark}; true", ways=guardians.GUARDIAN)
        wait_until(lambda: running(mark))
        owner.kill()
        wait_until(lambda: not running(mark))

    def test_death_of_the_owner_is_seen_without_its_socket(self, own, mark):
        owner = own(f"sleep {mark}; true", kind="copy", ways=guardians.GUARDIAN)
        wait_until(lambda: running(mark))
        copy = owner.wait_for_copy()
        owner.kill()
        wait_until(lambda: not running(mark))
        assert is_alive(copy)


LATE = """
import os, select, signal, socket, sys, time
from weft.worker import guardian

spec, late, ends = eval(sys.argv[1]), sys.argv[2], sys.argv[3]
ours, theirs = socket.socketpair()
guardian.send(ours.fileno(), spec)
pid = os.getpid()
if os.fork():
    signal.pause()
ours.close()
owner = guardian.OwnerProcess(pid)
def end_owner():
    os.kill(pid, signal.SIGKILL)
    select.select([owner.handle], [], [])
if ends == "before it is on record":
    end_owner()
else:
    class Record(guardian.ProcessRecord):
        def __init__(self, path, row):
            super().__init__(path, row)
            end_owner()
    guardian.ProcessRecord = Record
try:
    said = f"{guardian.guard(theirs.fileno(), owner, guardian.GuardianState(None))}\\n"
except EOFError:
    said = "it ended, nothing was started\\n"
with open(late + ".new", "w") as file:
    file.write(said)
os.replace(late + ".new", late)
"""
"""A guardian that comes to its work when its owner has been killed."""


class TestDeathOfTheOwner:
    def test_takes_everything_along(self, own, tmp_path, mark):
        inner = f"sleep {mark} & setsid sleep {mark} & (setsid sh -c 'trap \"\" TERM; sleep {mark}; sleep {mark}' &) &"
        owner = own(f"{inner} sleep {mark}; sleep {mark}")
        wait_until(lambda: len(running(mark)) == 4, what="the whole tree")
        assert len(read_record(tmp_path / "record")) == 2
        owner.kill()
        wait_until(lambda: not running(mark), what="the end of the tree")
        wait_until(lambda: not (tmp_path / "record").exists(), what="the end of the record")

    def test_is_seen_though_a_copy_of_the_socket_is_open_elsewhere(self, own, mark):
        owner = own(f"sleep {mark}", kind="copy")
        wait_until(lambda: running(mark))
        copy = owner.wait_for_copy()
        pool = identity_of(row_of(read_record(owner.record)[0].pid).parent)
        owner.kill()
        wait_until(lambda: not running(mark), what="the end of the command")
        wait_until(lambda: not is_alive(pool), what="the end of the guardian pool")
        assert is_alive(copy)

    def test_with_its_guardian_is_made_good_by_the_next_owner(self, own, tmp_path, mark):
        orphan = f"import os; os.fork() and os._exit(0); os.setpgid(0, 0); os.execvp('sleep', ['sleep', '{mark}'])"
        owner = own(f'sleep {mark} & setsid sleep {mark} & python -c "{orphan}"; sleep {mark}; true')
        wait_until(lambda: len(running(mark)) == 4)
        guard, command = wait_until(lambda: (ids := read_record(tmp_path / "record"))[1:] and ids)
        send_signal(row_of(guard.pid), signal.SIGSTOP)
        owner.kill()
        send_signal(row_of(guard.pid), signal.SIGKILL)
        wait_until(lambda: not is_alive(guard))
        assert is_alive(command)
        assert end_recorded(tmp_path / "record")
        assert not is_alive(command)
        assert not running(mark)
        assert not (tmp_path / "record").exists()

    def test_with_its_guardians_leaves_nothing_that_has_lost_its_parents(self, own, tmp_path, mark):
        stray = f"setsid -f sh -c \"trap '' TERM; sleep {mark}; sleep {mark}\""
        owner = own(f"{stray}; {stray}; sleep {mark}; true")
        wait_until(lambda: len(running(mark)) == 3)
        guard, command = wait_until(lambda: (ids := read_record(tmp_path / "record"))[1:] and ids)
        pool = identity_of(row_of(guard.pid).parent)
        for process in (guard, pool):
            send_signal(row_of(process.pid), signal.SIGSTOP)
        owner.kill()
        for process in (guard, pool, command):
            send_signal(row_of(process.pid), signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, (guard, pool, command))))
        assert len(running(mark)) >= 2, "they have no parent and sessions of their own"
        env = {**os.environ, "WEFT_RECORD": str(tmp_path / "other")}
        other = start(["sleep", mark], env=env)
        try:
            wait_until(lambda: other.pid in [process.pid for process in running(mark)])
            assert end_recorded(tmp_path / "record", grace_s=0.1)
            assert [process.pid for process in running(mark)] == [other.pid]
        finally:
            other.kill()
            other.wait()

    @pytest.mark.parametrize("ends", ["before it is on record", "while it goes on record"])
    def test_starts_nothing_that_the_next_owner_cannot_know_of(self, tmp_path, ends):
        late = tmp_path / "late"
        record, ran = tmp_path / "record", tmp_path / "ran"
        spec: dict[str, Any] = {
            "argv": [b"touch", os.fsencode(ran)],
            "env": {b"PATH": os.environb[b"PATH"]},
            "cwd": b"/",
            "view": None,
            "sandbox": None,
        }
        spec |= {"log": os.fsencode(tmp_path / "log"), "record": os.fsencode(record)}
        spec |= {
            "grace_s": 1.0,
            "after_s": None,
            "timeout_s": None,
            "head": 0,
            "tail": 0,
            "masked": [],
            "timed": False,
            "apart": False,
        }
        owner = start([sys.executable, "-c", LATE, repr(spec), late, ends])
        try:
            assert wait_until(lambda: text_of(late), what="the guardian") == "it ended, nothing was started\n"
        finally:
            owner.kill()
            owner.wait()
        assert not ran.exists()
        assert not record.exists()

    def test_while_the_guardian_still_works(self, own, tmp_path, mark):
        owner = own(f"trap '' TERM; sleep {mark}; sleep {mark}")
        wait_until(lambda: running(mark))
        guard, command = wait_until(lambda: (ids := read_record(tmp_path / "record"))[1:] and ids)
        owner.kill()
        assert end_recorded(tmp_path / "record", grace_s=0.1)
        assert not is_alive(guard)
        assert not is_alive(command)
        assert not running(mark)


class TestProcessId:
    @pytest.fixture
    def sleeper(self, mark):
        process = start(["sleep", mark], start_new_session=True)
        wait_until(lambda: running(mark))
        yield process
        process.kill()
        process.wait()

    def test_names_a_running_process(self, sleeper):
        identity = process_id(sleeper.pid)
        assert identity is not None
        assert is_alive(identity)
        sleeper.kill()
        wait_until(lambda: not is_alive(identity))  # nobody has waited for it yet: a zombie is not alive
        assert process_id(sleeper.pid) is None

    def test_with_another_start_time_is_another_process(self, tmp_path, sleeper):
        identity = identity_of(sleeper.pid)
        other = ProcessId(sleeper.pid, "1" + identity.start_time)
        record = tmp_path / "record"
        record.write_text(f"{other.pid} {other.start_time}\n")
        assert not is_alive(other)
        assert not end_group(other)
        assert not end_recorded(record)
        assert is_alive(identity)
        assert not record.exists()

    def test_of_a_leader_takes_its_group_along(self, mark):
        command = f"(sleep {mark} &); sleep {mark}; true"
        process = start(["sh", "-c", command], process_group=0)
        wait_until(lambda: len(running(mark)) == 2)
        assert end_group(identity_of(process.pid))
        assert not running(mark)
        process.wait()

    def test_signal_reaches_only_the_process_meant(self, sleeper):
        row, other = row_of(sleeper.pid), row_of(sleeper.pid)
        other.start = "1" + row.start
        send_signal(other, signal.SIGKILL)
        send_signal(row, signal.SIGTERM)
        assert sleeper.wait() == -signal.SIGTERM

    def test_never_ends_init_nor_this_process(self):
        assert not end_group(identity_of(os.getpid()))
        assert not end_group(ProcessId(1, row_of(1).start))

    @pytest.mark.parametrize("text", ["-1 5@b\n", "12\n", "x y\n", "12 5@b\n\n"])
    def test_record_of_something_else_is_refused(self, tmp_path, text):
        record = tmp_path / "record"
        record.write_text(text)
        with pytest.raises(InternalError, match="record"):
            end_recorded(record)
        assert record.exists()

    def test_no_record_is_nothing_to_end(self, tmp_path):
        assert not end_recorded(tmp_path / "none")

    @pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
    def test_ps_tells_the_same(self, sleeper):
        told = _ps(["-ax"])[sleeper.pid]
        row = row_of(sleeper.pid)
        assert (told.parent, told.group, told.alive) == (row.parent, row.group, row.alive)
        assert told.start == _ps(["-p", str(sleeper.pid)])[sleeper.pid].start


class TestTask:
    def context(self, tmp_path: Path, command: str, **params: Any) -> Any:
        self.cancels: list[Callable[[], None]] = []
        return SimpleNamespace(
            vertex="train",
            index=0,
            attempt=0,
            parallelism=1,
            params={"command": command, "cwd": str(tmp_path), "log": str(tmp_path / "log"), **params},
            cancelled=lambda: False,
            on_cancel=self.cancels.append,
            gate=None,
        )

    def test_returns_plain_data(self, tmp_path):
        answer = run_command(self.context(tmp_path, "echo hello"), {})
        assert answer["exit_code"] == 0
        assert answer["log_bytes"] == 6

    def test_tells_the_processor_time_and_the_memory_of_its_processes(self, tmp_path):
        work = "python3 -c 'held = b\"x\" * (90 << 20); [n * n for n in range(2_000_000)]'"
        answer = run_command(self.context(tmp_path, f"{work} & wait"), {})
        assert answer["cpu_s"] > 0.02
        assert 90 << 20 < answer["memory"] < 1 << 30

    def test_failure_names_step_code_log_and_last_lines(self, tmp_path):
        (tmp_path / "log").write_text("of an earlier attempt\n")
        command = "seq 1 30; printf '\\033[31mboom\\033[0m\\a\\n'; exit 3"
        with pytest.raises(TaskError) as caught:
            run_command(self.context(tmp_path, command, name="my step"), {})
        error = caught.value
        assert error.task == "train[0]"
        assert error.status == 3
        assert "step my step ended with exit code 3" in error.message
        assert str(tmp_path / "log") in error.hint
        assert error.traceback_text.split("\n") == [*map(str, range(12, 31)), "boom"]
        assert "  boom" in error.message.split("\n")

    @pytest.mark.parametrize(
        ("command", "params", "told", "status"),
        [
            ("kill -KILL $$", {}, "signal 9 (SIGKILL)", 128 + signal.SIGKILL),
            ("sleep 1000", {"timeout_s": 0.1}, "timeout of 0.1 s", 124),
        ],
    )
    def test_failure_says_how_it_ended(self, tmp_path, command, params, told, status):
        with pytest.raises(TaskError, match="It printed nothing") as caught:
            run_command(self.context(tmp_path, command, **params), {})
        assert told in caught.value.message
        assert caught.value.status == status

    def test_a_kill_for_memory_is_an_error_of_its_own(self, tmp_path, monkeypatch):
        (tmp_path / "vmstat").write_text("oom_kill 0\n")
        os.mkfifo(tmp_path / "read")  # the guardian reads it after the counter, once the command writes it
        monkeypatch.setattr(call, "OOM_COUNTERS", (str(tmp_path / "vmstat"), str(tmp_path / "read")))
        with pytest.raises(OutOfMemoryError, match="for lack of memory") as caught:
            run_command(self.context(tmp_path, "echo > read; rm read; echo oom_kill 1 > vmstat; kill -KILL $$"), {})
        assert "signal 9 (SIGKILL)" in caught.value.message

    def test_cancel_is_no_failure(self, tmp_path, mark):
        ctx = self.context(tmp_path, f"sleep {mark}")
        canceller = threading.Thread(target=lambda: wait_until(lambda: running(mark)) and self.cancels[0]())
        canceller.start()
        with pytest.raises(RunCancelledError, match="train"):
            run_command(ctx, {})
        canceller.join()
        assert not running(mark)


def test_all_guardians_are_known_by_their_program():
    for pool in (GuardianPool(), LoadedPool([], dict)):
        assert pool._command()[0][-1].encode().endswith(GUARDIAN_MAIN)


def child_rows(pid: int) -> list[ProcessRow]:
    return [row for row in process_table().values() if row.parent == pid]
