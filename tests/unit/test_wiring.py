"""Sessions with their folders, signals, and what a pipeline file is before it runs."""

import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft import wiring
from weft.frontends.pipelines.states import PROJECTION
from weft.graph.projection import GRAPHS
from weft.model.errors import (
    CapacityError,
    DefinitionError,
    ForbiddenError,
    InputLimitError,
    MissingExtraError,
    NotFoundError,
    PipelineError,
    ProgramError,
    RunCancelledError,
    TaskError,
    UsageError,
)
from weft.runtime import waiting
from weft.store.folders import shm_root
from weft.wiring import Session, load_pipeline
from weft.wiring import session as sessions
from weft.wiring.concrete import FRONTENDS, projection_of

DEADLINE_S = 180.0


def until_cancelled(ctx: Any, inputs: object) -> None:
    while not ctx.cancelled():
        time.sleep(0.001)


def rows(session: Session) -> list[Path]:
    """The folders of a session under shared memory and in the folder for temporary files."""
    import tempfile

    mine = f"{session.name}-{os.getpid()}-*"
    user = f"weft-{os.getuid()}"
    return [*(shm_root() / user).glob(mine), *(Path(tempfile.gettempdir()) / user / "runs").glob(mine)]


def squares() -> weft.Graph:
    graph = weft.Graph("squares")
    graph.add(sum, weft.gather(graph.map(abs, range(-9, 1))), name="total")
    return graph


def big(at: int) -> bytes:
    return bytes(50_000)


class TestSession:
    @pytest.mark.parametrize("backend", ["threads", "processes"])
    def test_runs_a_graph(self, backend):
        with Session(backend, workers=2) as session:
            assert session.run(squares()).value("total") == 45

    def test_leaves_nothing(self):
        with Session(workers=1, name="leaves-nothing") as session:
            assert len(rows(session)) == 2
        assert rows(session) == []
        session.close()

    def test_that_is_not_closed_is_closed_at_exit(self, tmp_path):
        code = "import weft; s = weft.Session(workers=1, name='forgotten'); print(s.name)"
        import subprocess
        import sys

        env = os.environ | {"PYTHONPATH": str(Path(weft.__file__).parents[1]), "TMPDIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=180)
        assert not list(tmp_path.rglob("forgotten*"))
        assert not list((shm_root() / f"weft-{os.getuid()}").glob("forgotten*"))

    def test_spills_where_it_is_told(self, tmp_path):
        (tmp_path / "runs" / "mine").mkdir(parents=True)
        with Session(workers=1, spill=tmp_path):
            assert list((tmp_path / f"weft-{os.getuid()}" / "runs").iterdir())
        assert not list((tmp_path / f"weft-{os.getuid()}" / "runs").iterdir())
        assert (tmp_path / "runs" / "mine").is_dir(), "what is not ours is never swept"

    def test_memory_is_a_bound_in_bytes_or_words(self):
        with Session(workers=1, memory="64MiB") as session:
            assert session.store.memory.budget == 64 << 20
        with Session(workers=1, memory=1 << 20) as session:
            assert session.store.memory.budget == 1 << 20

    def test_what_goes_to_disk_first_is_a_name_or_a_function(self):
        asked = []

        def key(info):
            asked.append((info.vertex, info.next_use < 0))
            return info.used

        for eviction in ("furthest", "lru", key):
            graph = weft.Graph("g")
            total = graph.add(b"".join, weft.gather(graph.map(big, range(10), name="big")), n=1).keep()
            with Session(workers=1, memory=200_000, eviction=eviction) as session:
                assert len(session.run(graph).value(total)) == 500_000
                assert session.store.stats().spilled > 0
        assert ("big", True) in asked
        assert ("join", True) not in asked, "nobody reads a result"

    def test_an_executor_can_be_handed_in(self):
        from weft.backends.threads import Threads
        from weft.store.blocks import BlockManager

        with Session(Threads(1, BlockManager(1 << 20))) as session:
            assert session.run(squares()).value("total") == 45

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            ({"backend": "thread"}, "threads, processes"),
            ({"backend": 3}, "backend is 3; it must be one of threads, processes, ray, simulator, or an executor"),
            ({"backend": None}, "backend is None"),
            ({"workers": 0}, "workers is 0"),
            ({"workers": True}, "workers is True"),
            ({"workers": 2.5}, "workers is 2.5"),
            ({"workers": "x"}, "workers is 'x'; it must be a whole number from 1 to 999999"),
            ({"workers": 10**9}, "workers is 1000000000"),
            ({"memory": "much"}, "memory is 'much'"),
            ({"memory": "512"}, "memory is '512'; it must be a number of bytes with a unit"),
            ({"stream_window": " 8 "}, "write 8MiB, or 8B"),
            ({"memory": -1}, "memory is -1"),
            ({"memory": [1]}, "memory is [1]; it must be a number of bytes"),
            ({"memory": "999999PiB"}, "memory is '999999PiB'; it must be less than 8 EiB"),
            ({"memory": 10**30}, "less than 8 EiB"),
            ({"eviction": "oldest"}, "furthest, largest, lru"),
            ({"eviction": 3}, "furthest, largest, lru"),
            ({"name": "a b"}, "'a b'"),
            ({"name": "../x"}, "'../x'"),
            ({"name": 3}, "3 cannot name a session"),
            ({"spill": "/proc/none"}, "/proc/none"),
            ({"spill": 3}, "spill is 3; it must be the path of a folder"),
            ({"spill": ""}, "spill is ''"),
            ({"spill": b"x"}, "spill is b'x'"),
            ({"grace_s": -1}, "grace_s is -1; it must be a number of seconds from 0 on"),
            ({"grace_s": "x"}, "grace_s is 'x'"),
            ({"grace_s": None}, "grace_s is None"),
            ({"grace_s": float("nan")}, "grace_s is nan"),
            ({"grace_s": True}, "grace_s is True"),
            ({"frozen_s": -1}, "frozen_s is -1; it must be a number of seconds from 0 on"),
            ({"backups": "x"}, "backups is 'x'; it must be True, False or a mapping of parameters"),
            ({"exclusion": 3}, "exclusion is 3; it must be True, False or a mapping of parameters"),
            ({"backups": {"most": 1.5}}, "most of backups is 1.5; it must be a whole number"),
            ({"backups": {"times": float("nan")}}, "times of backups is nan; it must be a number"),
            ({"exclusion": {"avoid_s": "1"}}, "avoid_s of exclusion is '1'; it must be a number"),
            ({"durable": ""}, "durable is ''; it must be True, False or the path of a state folder"),
            ({"durable": 3}, "durable is 3"),
            ({"durable": "~nobody-of-this-name/x"}, "There is no such user"),
            ({"gpus": -1}, "gpus is -1; it must be a whole number from 0"),
            ({"gpus": "x"}, "gpus is 'x'"),
            ({"gpu_type": 3}, "gpu_type is 3; it must be text"),
            ({"history": ""}, "history is ''"),
            ({"history": 3}, "history is 3"),
        ],
    )
    def test_wrong_arguments_are_named(self, wrong, told):
        threads = threading.active_count()
        with pytest.raises(UsageError) as caught:
            Session(**wrong)
        assert told in str(caught.value)
        assert threading.active_count() == threads

    def test_a_long_wrong_argument_is_cut(self):
        with pytest.raises(UsageError) as caught:
            Session(workers="x" * 10_000)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 200

    def test_a_folder_may_begin_with_that_of_a_user(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        with Session(workers=1, durable="~/kept", spill="~"):
            pass
        with Session(workers=1, history=Path("~/known")):
            pass
        assert sorted(path.name for path in tmp_path.iterdir() if path.name in ("kept", "known", "~")) == ["known"]

    def test_waiting_for_ever_is_allowed(self):
        with Session(workers=1, grace_s=float("inf")) as session:
            assert session.run(squares(), timeout_s=float("inf")).value("total") == 45

    @pytest.mark.parametrize("wrong", [None, "x", {}, 3])
    def test_what_is_no_graph_is_refused(self, wrong):
        with Session(workers=1) as session:
            for call in (session.run, session.submit):
                with pytest.raises(UsageError, match=f"takes a graph, and was given {wrong!r}"):
                    call(wrong)

    def test_a_function_instead_of_a_graph_is_told_how_to_call_it(self):
        with Session(workers=1) as session, pytest.raises(UsageError, match=r"weft\.remote\.spawn\(f, args=\(x,\)\)"):
            session.submit(abs)  # type: ignore[arg-type]

    def test_a_node_instead_of_its_graph_is_told_so(self):
        with Session(workers=1) as session, pytest.raises(UsageError, match="graph that the node belongs to"):
            session.run(weft.Graph("g").add(abs, items=[1]))  # type: ignore[arg-type]

    def test_wrong_arguments_of_a_run_are_named(self):
        graph, nan = squares(), float("nan")
        wrong: dict[str, list[Callable[[], object]]] = {}
        with Session(workers=1) as session:
            run: Any = session.submit(graph)
            results, some = run.result(), session
            wrong["timeout_s is nan; it must be a number of seconds from 0 on"] = [
                lambda: session.run(graph, timeout_s=nan),
                lambda: run.wait(nan),
                lambda: run.result(nan),
            ]
            wrong["timeout_s is 'x'"] = [lambda: some.run(graph, timeout_s="x"), lambda: run.wait("x")]  # type: ignore[arg-type]
            wrong["timeout_s is -1"] = [lambda: some.run(graph, timeout_s=-1)]
            wrong["progress is 'x'"] = [lambda: some.run(graph, progress="x")]  # type: ignore[arg-type]
            wrong["listeners is 3; it must be a list of functions"] = [lambda: some.submit(graph, listeners=3)]  # type: ignore[arg-type]
            wrong["subject is 3; it must be text"] = [lambda: run.story(3)]
            wrong["reason is 3"] = [lambda: run.cancel(3)]
            wrong["by a node or a vertex id, not by 3"] = [lambda: results[3], lambda: results.value(3)]
            wrong["not by []"] = [lambda: results[[]]]
            wrong["nothing of 3 to resume"] = [lambda: some.resume(3)]  # type: ignore[arg-type]
            for told, calls in wrong.items():
                for call in calls:
                    with pytest.raises(UsageError, match=re.escape(told)):
                        call()
            with pytest.raises(NotFoundError, match=r"squares has no vertex 'totle'\nDid you mean total\?"):
                results["totle"]

    def test_a_story_is_told_of_a_node(self):
        graph = weft.Graph("g")
        node = graph.add(abs, items=[-1])
        with Session(workers=1) as session:
            run = session.submit(graph)
            run.wait()
            assert run.story(node) == run.story("abs")

    def test_threads_that_cannot_be_started_are_not_left_behind(self, monkeypatch):
        begin, left, refused = threading.Thread.start, [3], threading.Event()

        def start(thread: threading.Thread) -> None:
            if thread.name.startswith("weft-worker"):
                if not left[0]:
                    refused.set()
                    raise RuntimeError("can't start new thread")
                left[0] -= 1
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        before = threading.active_count()
        graph = weft.Graph("g")
        graph.map(lambda item: refused.wait(DEADLINE_S), range(5))
        with Session(workers=5) as session, pytest.raises(CapacityError, match="only 3 of 5 threads could be started"):
            session.submit(graph).result(DEADLINE_S)
        assert threading.active_count() == before

    def test_threads_start_as_they_are_needed(self):
        def workers() -> int:
            return sum(thread.name.startswith("weft-worker") for thread in threading.enumerate())

        others = workers()
        graph = weft.Graph("g")
        graph.map(abs, range(3))
        with Session(workers=2_000) as session:
            assert workers() == others
            for _ in range(5):
                session.run(graph)
            assert workers() - others <= 15
            meeting = threading.Barrier(40)
            together = weft.Graph("together")
            together.map(lambda item: meeting.wait(DEADLINE_S), range(40))
            session.run(together)
            assert workers() - others >= 40
        assert workers() == others

    def test_a_missing_package_is_named(self, monkeypatch):
        def needs_ray(*_: object) -> None:
            raise ModuleNotFoundError("No module named 'ray'", name="ray")

        monkeypatch.setitem(wiring.BACKENDS, "ray", needs_ray)
        with pytest.raises(MissingExtraError, match=r"needs ray.*\n.*weft\[ray\]"):
            Session("ray")

    def test_a_failed_task_raises(self):
        graph = weft.Graph("bad")
        graph.map(int, ["1", "x"])
        with Session(workers=1) as session, pytest.raises(TaskError, match="invalid literal"):
            session.run(graph)

    def test_a_run_that_takes_too_long_is_cancelled(self):
        stop = threading.Event()
        graph = weft.Graph("slow")
        graph.add(stop.wait)
        with Session(workers=1, grace_s=0.01) as session:
            with pytest.raises(TimeoutError, match=r"slow did not end within 0\.01 s"):
                session.run(graph, timeout_s=0.01)
            stop.set()


def fails(_: object) -> None:
    raise ValueError("no")


class TestLookingBack:
    """What a run tells of itself when it did not go well."""

    def test_a_story_of_something_that_is_not_there(self):
        with Session(workers=1) as session:
            run = session.submit(squares())
            run.wait()
            with pytest.raises(NotFoundError, match=r"squares has no vertex 'totl'") as found:
                run.story("totl")
            assert found.value.hint == "Did you mean total?"
            with pytest.raises(NotFoundError) as found:
                run.story("zzzz[3]")
            assert found.value.hint == "It has: abs, total"
            assert run.story("total")
            assert run.story("abs[3]")
            assert run.story("")

    def test_the_values_of_a_failed_run(self):
        graph = weft.Graph("failing")
        first = graph.add(abs, items=[-1], name="first").keep()
        graph.add(fails, first, name="last")
        with Session(workers=1) as session:
            run = session.submit(graph)
            run.wait()
            with pytest.raises(NotFoundError, match=r"last\[0\] has no value: failing failed"):
                run.results()["last"]

    def test_the_values_of_a_cancelled_run(self):
        graph = weft.Graph("long")
        first = graph.add(abs, items=[-1], name="first").keep()
        graph.task(until_cancelled, weft.after(first), name="last")
        with Session(workers=1) as session:
            run = session.submit(graph)
            end = time.monotonic() + DEADLINE_S
            while not any(row.id == "last" and row.executing for row in run.view().vertices):
                assert time.monotonic() < end
                time.sleep(0.001)
            assert run.results()["first"] == [1]
            with pytest.raises(NotFoundError, match="no value yet"):
                run.results()["last"]
            run.cancel("enough")
            run.wait()
            with pytest.raises(NotFoundError, match="long was cancelled, and a cancelled run keeps none"):
                run.results()["first"]


class TestSignals:
    def run(self, signals: int) -> str:
        """Run a task that goes on until it is cancelled; send SIGINT once it has started."""
        started = threading.Event()
        ended: list[str] = []

        def body(ctx, inputs):
            started.set()
            until_cancelled(ctx, inputs)
            ended.append("cancelled")

        def interrupt() -> None:
            started.wait(DEADLINE_S)
            for _ in range(signals):
                os.kill(os.getpid(), signal.SIGINT)

        graph = weft.Graph("long")
        graph.task(body)
        before = signal.getsignal(signal.SIGINT)
        with Session(workers=1) as session:
            sender = threading.Thread(target=interrupt)
            sender.start()
            with pytest.raises(KeyboardInterrupt):
                session.run(graph)
            sender.join()
            assert signal.getsignal(signal.SIGINT) is before
        return "".join(ended)

    def test_the_first_ctrl_c_cancels_and_waits(self):
        assert self.run(1) == "cancelled"

    def test_so_does_one_that_comes_before_anybody_waits(self, monkeypatch):
        submit = Session.submit

        def submit_and_interrupt(self: Session, *args: Any, **options: Any) -> Any:
            run = submit(self, *args, **options)
            signal.raise_signal(signal.SIGINT)
            return run

        monkeypatch.setattr(Session, "submit", submit_and_interrupt)
        graph = weft.Graph("long")
        graph.task(until_cancelled)
        with Session(workers=1) as session, pytest.raises(KeyboardInterrupt):
            session.run(graph)

    def test_a_later_one_leaves(self):
        self.run(2)

    def test_a_signal_that_is_ignored_stays_ignored(self):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with waiting.recorded_signals(signal.SIGINT) as signals:
                os.kill(os.getpid(), signal.SIGINT)
                assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert not signals.numbers
        finally:
            signal.signal(signal.SIGINT, before)

    def test_another_thread_may_run_graphs(self):
        found: list[int] = []

        def work() -> None:
            with Session(workers=1) as session:
                found.append(session.run(squares()).value("total"))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(DEADLINE_S)
        assert found == [45]

    def test_a_cancelled_run_says_so(self):
        graph = weft.Graph("long")
        graph.task(until_cancelled)
        with Session(workers=1) as session:
            run = session.submit(graph)
            run.cancel("enough")
            with pytest.raises(RunCancelledError, match="enough"):
                run.result(DEADLINE_S)


PIPELINE = """
name: greet
entry_points:
  hello:
    command: echo {{who}} {{times}}
    parameters: {who: world, times: 2}
  again:
    command: echo again
    deps: hello
"""


class TestLoad:
    def file(self, tmp_path: Path, text: str | bytes = PIPELINE) -> str:
        path = tmp_path / "run.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def test_a_file_is_read_checked_and_compiled(self, tmp_path):
        loaded = load_pipeline(self.file(tmp_path), overrides={"who": "you"})
        assert loaded.pipeline_name == "greet"
        assert loaded.steps == ["hello", "again"]
        assert loaded.warnings == []
        assert loaded.graph.vertices["hello"].program.params["command"] == "echo you 2"

    def test_nothing_is_written(self, tmp_path):
        load_pipeline(self.file(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]

    def test_another_name_can_be_given(self, tmp_path):
        assert load_pipeline(self.file(tmp_path), name="tuesday").pipeline_name == "tuesday"
        with pytest.raises(UsageError, match="two words"):
            load_pipeline(self.file(tmp_path), name="two words")

    def test_a_mistake_has_its_place(self, tmp_path):
        file = self.file(tmp_path, PIPELINE.replace("command: echo again", "comand: echo again"))
        with pytest.raises(PipelineError, match=r"did you mean `command`\?") as caught:
            load_pipeline(file)
        assert str(caught.value).startswith(f"{file}:8:5: entry_points.again.comand: unknown key")

    @pytest.mark.parametrize("key", ["wh", "again.who", "hello.who.x"])
    def test_an_unknown_parameter_is_refused(self, tmp_path, key):
        with pytest.raises(UsageError, match=key):
            load_pipeline(self.file(tmp_path), overrides={key: "1"})

    def test_files_that_cannot_be_read_are_told_apart(self, tmp_path):
        with pytest.raises(NotFoundError, match="no file"):
            load_pipeline(str(tmp_path / "none.yaml"))
        with pytest.raises(ForbiddenError, match="is a folder without files of training jobs"):
            load_pipeline(str(tmp_path))
        with pytest.raises(DefinitionError, match=r"UTF-8 text \(byte 6\)"):
            load_pipeline(self.file(tmp_path, b"name: \xff"))
        with pytest.raises(InputLimitError):
            load_pipeline(self.file(tmp_path, b"#" * (2 << 20)))

    def test_an_image_is_a_warning(self, tmp_path):
        loaded = load_pipeline(self.file(tmp_path, PIPELINE + "docker_env: python:3.12\n"))
        assert len(loaded.warnings) == 1

    def test_file_systems_come_from_the_project(self, tmp_path):
        (tmp_path / "data").mkdir()
        (tmp_path / "weft.toml").write_text('[fs]\nppl = "data"\n')
        file = self.file(tmp_path, PIPELINE + "fs_options: {main_fs: {name: ppl}}\n")
        assert load_pipeline(file).root == tmp_path / "data"

    @pytest.mark.parametrize(
        ("toml", "told"),
        [
            ('fs = "data"', "fs must be a table"),
            ('fs = {ppl = "none"}', "fs.ppl"),
            ("fs = {ppl = 3}", "fs.ppl"),
            ("fs", "TOML"),
        ],
    )
    def test_wrong_file_systems_are_named(self, tmp_path, toml, told):
        (tmp_path / "weft.toml").write_text(toml)
        with pytest.raises(UsageError, match=r"weft\.toml") as caught:
            load_pipeline(self.file(tmp_path))
        assert told in str(caught.value)


class TestProgress:
    def test_a_run_that_takes_long_is_shown(self, monkeypatch):
        shown: list[str] = []
        seen = threading.Event()

        class Bars:
            def update(self, view):
                shown.append(view.state)
                seen.set()

            def __enter__(self):
                return self

            def __exit__(self, *_):
                shown.append("closed")

        monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
        monkeypatch.setattr(waiting, "bars", lambda name: Bars())
        graph = weft.Graph("slow")
        graph.add(seen.wait)
        with Session(workers=1) as session:
            session.run(graph)
        assert shown[0] == "running"
        assert shown[-1] == "closed"

    def test_unless_it_is_not_wanted(self, monkeypatch):
        monkeypatch.setattr(sessions, "picture", None)
        with Session(workers=1) as session:
            assert session.run(squares(), progress=False).value("total") == 45


@pytest.mark.parametrize(
    ("values", "n", "text"),
    [
        ([1, 2, 3], 2, "more values than n, which is 2"),
        ([1], 2, "fewer values than n, which is 2"),
        (1, 2, "values is 1; it must be"),
        ([1], "1", "n is '1'; it must be a whole number"),
    ],
)
def test_wrong_values_are_not_put(values, n, text):
    with weft.Session(workers=1) as session, pytest.raises(UsageError, match=text):
        session.put(values, n)


def summed(values):
    return float(np.sum(values["x"]))


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("n", [10, 100_000])
def test_later_changes_of_what_was_put_are_not_seen(backend, n):
    g = weft.Graph("given")
    g.add(summed, weft.one_to_one(g.add(dict, name="numbers")), name="sum")
    numbers = np.zeros(n)
    with weft.Session(backend, workers=1) as session:
        kept = session.put([{"x": numbers}], 1)
        numbers[0] = 7
        assert session.submit(g.finish(), given={"numbers": kept}).result().value("sum") == 0


def test_kept_values_as_params_of_another_process_are_told_where_they_belong():
    with weft.Session("processes", workers=1) as session:
        kept = session.put([{"x": np.zeros(2)}], 1)
        with pytest.raises(ProgramError, match=r"given=\{'vertex': kept\}\); .* as params: kept\[0\]"):
            session.map(summed, [1], params={"kept": kept}).results()


def test_what_cannot_or_need_not_be_copied_is_put_itself():
    lock, numbers = threading.Lock(), np.zeros(10)
    with weft.Session(workers=1) as session:
        assert session.put([lock], 1)[0] is lock
        assert session.put([numbers], 1, copy=False)[0] is numbers
        assert session.put([numbers], 1)[0] is not numbers


def test_only_what_was_kept_can_be_given():
    g = weft.Graph("given")
    g.map(abs, [1], name="numbers")
    with weft.Session(workers=1) as session, pytest.raises(UsageError, match=r"the value given for 'numbers' is \[1\]"):
        session.submit(g, given={"numbers": [1]})  # type: ignore[dict-item]


def test_a_pipeline_is_read_from_standard_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = b"name: piped\nentry_points: {a: {command: echo}}\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    loaded = load_pipeline("-", user="me")
    assert (loaded.pipeline_name, loaded.root) == ("piped", tmp_path)


@pytest.mark.parametrize("path", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_a_stream_is_no_file_of_a_project(path):
    with pytest.raises(UsageError, match="is in no folder") as told:
        load_pipeline(path, user="me")
    assert "Write - in its place" in told.value.hint


def test_a_named_pipe_is_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "p.yaml")
    with pytest.raises(UsageError, match="is no regular file") as told:
        load_pipeline(str(tmp_path / "p.yaml"), user="me")
    assert "weft run - <" in told.value.hint


def test_a_mount_path_that_an_earlier_step_may_make_is_not_refused(tmp_path):
    mounted = {"command": "echo", "extra_fs": [{"name": "e", "mount_path": str(tmp_path / "missing")}]}
    file = tmp_path / "run.yaml"
    around = wiring.Surroundings(file_systems={"e": str(tmp_path)})

    def hopeless(steps: dict[str, Any], last: dict[str, Any]) -> list[str]:
        file.write_text(json.dumps({"name": "p", "entry_points": steps, "post_process": last}))
        return [error.hint for _, error in load_pipeline(str(file), user="me", around=around).preview.hopeless]

    assert hopeless({"a": {}, "b": {**mounted, "deps": "a"}}, {"z": mounted}) == []
    assert hopeless({"a": {}, "b": mounted}, {}) == [
        f"Make it ({tmp_path} lies where steps may write): mkdir -p {tmp_path}/missing"
    ]


def test_front_ends_have_words_of_their_own_or_those_of_graphs():
    assert projection_of("pipelines") is PROJECTION
    assert projection_of("pipelines").frontend == "pipelines"
    assert projection_of("graph") is projection_of("one that has none") is GRAPHS


def test_every_front_end_that_is_registered_has_its_own_name():
    assert {name: projection_of(name).frontend for name in FRONTENDS} == {name: name for name in FRONTENDS}
