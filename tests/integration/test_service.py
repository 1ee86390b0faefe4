"""Many runs of one service: pipelines and graphs in one process, on one store and one set of workers."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.integration.places import DEADLINE_S, until
from weft import wiring
from weft.admin.settings import Settings
from weft.model.errors import ConflictError, NotFoundError, RunCancelledError, UsageError
from weft.runs.active import ActiveRun, RunEvents
from weft.runs.graphs import GraphSource
from weft.runs.reading import read_run
from weft.runs.service import RunService
from weft.wiring import load_pipeline
from weft.wiring.concrete import projection_of

COUNT = 10
PIPELINE = """
name: many
entry_points:
  make: {command: "sleep 0.1; echo %(n)s > {{out}}", artifacts: {output: [out]}}
  same: {command: "echo once >> %(folder)s/ran; echo 1 > {{out}}", artifacts: {output: [out]}, cache: {enable: true}}
  last: {command: "cat {{in}} > {{out}}", deps: make, artifacts: {input: {in: "{{make.out}}"}, output: [out]}}
"""
ENDLESS = "name: endless\nentry_points: {first: {command: 'touch %(folder)s/begun; while :; do sleep 0.05; done'}}\n"


def tenfold(value: int) -> int:
    return value * 10


def until_cancelled(ctx, inputs):
    told = threading.Event()
    ctx.on_cancel(told.set)
    assert told.wait(DEADLINE_S)


def graph(number: int) -> weft.Graph:
    made = weft.Graph(f"graph-{number}")
    made.map(tenfold, [number, number + 1], name="tens").keep()
    return made


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunService]:
    with RunService(wiring, Settings(workers=2, state_dir=tmp_path / ".weft")) as found:
        yield found


def submit(service: RunService, folder: Path, name: str, text: str, number: int = 0) -> ActiveRun:
    file = folder / f"{name}.yaml"
    file.write_text(text % {"folder": folder, "n": number})
    return service.submit(load_pipeline(str(file)))


def test_twenty_runs_share_workers_store_and_cache_and_a_cancel_leaves_the_others(service, tmp_path):
    endless = submit(service, tmp_path, "endless", ENDLESS)
    pipelines = [submit(service, tmp_path, f"p{n}", PIPELINE, n) for n in range(COUNT)]
    graphs = [
        service.submit(GraphSource(graph(n), projection_of("graph"), "me", {}, base=tmp_path)) for n in range(COUNT)
    ]
    until((tmp_path / "begun").exists)
    assert len({id(run.run._session) for run in (endless, *pipelines, *graphs)}) == 1
    assert service.cancel(endless.name) == endless.name
    assert isinstance(endless.result().error, RunCancelledError)
    results = [run.result() for run in (*pipelines, *graphs)]
    assert [result.error for result in results] == [None] * 2 * COUNT
    assert {result.state for result in results} == {"succeeded"}
    assert [Path(result.outputs["last.out"]).read_text() for result in results[:COUNT]] == [
        f"{n}\n" for n in range(COUNT)
    ]
    assert [run.run.results()["tens"] for run in graphs] == [[n * 10, n * 10 + 10] for n in range(COUNT)]
    assert (tmp_path / "ran").read_text() == "once\n"  # one run made it, the others took it from the cache
    assert {read_run(result.folder).state for result in results} == {"succeeded"}
    assert len({result.run_id for result in results}) == 2 * COUNT


STEPS = """
name: parts
entry_points:
  each:
    command: "cd %(folder)s; touch begun-{{PF_LOOP_ARGUMENT}}; until test -e go; do sleep 0.02; done"
    loop_argument: [a, b]
  after: {command: "true", deps: each}
  other: {command: "cd %(folder)s; until test -e go; do sleep 0.02; done"}
  done: {command: "true"}
post_process:
  last: {command: 'echo "$WEFT_RUN_ERROR" > %(folder)s/told'}
"""


def test_one_item_of_a_live_run_is_cancelled_and_the_others_go_on(service, tmp_path):
    run = submit(service, tmp_path, "parts", STEPS)
    until(lambda: all((tmp_path / f"begun-{item}").exists() for item in "ab"))
    until(lambda: service.show(run.name).step("done").ended)
    for step, kind, told in (
        ("nix", NotFoundError, "has no step 'nix'"),
        ("each-7", NotFoundError, "has no item 7"),
        ("done", ConflictError, "done of run-000001 has ended already: succeeded"),
        ("each/worker-0", UsageError, "is a replica"),
    ):
        with pytest.raises(kind, match=told):
            service.cancel(f"{run.name}/{step}")
    with pytest.raises(UsageError, match="--force is about a whole run"):
        service.cancel(f"{run.name}/other", force=True)
    assert service.cancel(f"{run.name}/each-1", reason="one is enough") == f"{run.name}/each-1"
    until(lambda: (item := service.show(run.name).step("each").items.get(1)) and item.ended)
    with pytest.raises(ConflictError, match="each-1 of run-000001 has ended already: cancelled"):
        service.cancel(f"{run.name}/each[1]")
    (tmp_path / "go").touch()
    result = run.result()
    assert isinstance(result.error, RunCancelledError)
    assert result.error.message == "each-1 was cancelled: one is enough"
    found = read_run(run.folder)
    each = found.step("each")
    assert {step.name: step.state for step in found.steps} == {
        "each": "cancelled",
        "after": "cancelled",
        "other": "succeeded",
        "done": "succeeded",
        "last": "succeeded",
    }
    assert [(item.state, item.message) for item in (each.items[0], each.items[1])] == [
        ("succeeded", ""),
        ("cancelled", "was cancelled: one is enough"),
    ]
    assert (each.message, found.message) == ("each-1 was cancelled: one is enough",) * 2
    assert found.step("after").message == "each was cancelled"
    assert (tmp_path / "told").read_text() == "step each-1 was cancelled: one is enough\n"
    again = service.resume(run.name)
    assert again.result().state == "succeeded"
    assert {item.state for item in read_run(again.folder).step("each").items.values()} == {"succeeded"}


def test_a_running_step_that_its_user_cancels_is_cancelled_and_a_broken_one_failed(service, tmp_path):
    steps = """
name: ended
failure_options: {strategy: continue}
entry_points:
  ended: {command: "cd %(folder)s; touch begun; sleep 600"}
  broken: {command: "exit 3"}
  inside:
    entry_points:
      part: {command: "cd %(folder)s; touch inside; sleep 600"}
"""
    run = submit(service, tmp_path, "ended", steps)
    until(lambda: (tmp_path / "begun").exists() and (tmp_path / "inside").exists())
    assert service.cancel(f"{run.name}/ended", reason="too slow") == f"{run.name}/ended"
    assert service.cancel(f"{run.name}/inside", reason="no more") == f"{run.name}/inside"
    run.result()
    found = read_run(run.folder)
    assert {step.name: (step.state, step.message.partition("\n")[0]) for step in found.steps} == {
        "ended": ("cancelled", "was cancelled: too slow"),
        "broken": ("failed", "ended with exit code 3."),
        "inside.part": ("cancelled", "was cancelled: no more"),
    }
    assert found.step("ended").ended
    told = service.why(f"{run.name}/ended")
    assert "too slow" in str(told), told


def test_what_waits_for_its_next_attempt_is_cancelled_by_its_user(service, tmp_path):
    steps = """
name: pause
failure_options: {strategy: continue}
entry_points:
  alone: {command: "exit 3", x-weft: {retry: {user: 9, delay_s: 3000, jitter: 0}}}
  each:
    loop_argument: [0, 3]
    command: |
      cd %(folder)s
      test {{PF_LOOP_ARGUMENT}} = 3 || exit 0
      test -e tried && touch again && sleep 3000
      touch tried; exit 3
    x-weft: {retry: {user: 9}}
  after: {command: "true", deps: alone}
"""
    run = submit(service, tmp_path, "pause", steps)
    until(lambda: "is tried again" in service.show(run.name).step("alone").message)
    until(lambda: (tmp_path / "again").exists())
    for step in ("alone", "each-1"):
        service.cancel(f"{run.name}/{step}", reason="enough")
    result = run.result()
    assert isinstance(result.error, RunCancelledError), result.error
    found = read_run(run.folder)
    assert {step.name: (step.state, step.message) for step in found.steps} == {
        "alone": ("cancelled", "was cancelled: enough"),
        "each": ("cancelled", "each-1 was cancelled: enough"),
        "after": ("cancelled", "alone was cancelled"),
    }
    assert (found.step("each").items[1].state, found.step("each").items[1].message) == (
        "cancelled",
        "was cancelled: enough",
    )


def test_all_tasks_of_a_vertex_of_a_live_run_are_cancelled(service, tmp_path):
    made = weft.Graph("slow", on_failure=weft.graph.logical.OnFailure.FAIL_FAST)
    made.task(until_cancelled, name="waits", n=2)
    made.map(tenfold, [1], name="fast").keep()
    run = service.submit(GraphSource(made, projection_of("graph"), "me", {}, base=tmp_path))
    until(lambda: service.show(run.name).step("fast").ended)
    assert service.cancel(f"{run.name}/waits", reason="no more") == f"{run.name}/waits"
    assert run.wait(DEADLINE_S)
    assert run.run.results().finished("fast") == {0: 10}
    assert str(run.result().error).startswith(("waits[0] was cancelled: no more", "waits[1] was cancelled: no more"))
    with pytest.raises(ConflictError, match="has ended already"):
        service.cancel(f"{run.name}/waits")


def test_the_events_of_a_run_end_with_it(service, tmp_path):
    run = submit(service, tmp_path, "one", "name: one\nentry_points: {a: {command: 'true'}}\n")
    told = []
    while (event := run.events.take(DEADLINE_S)) is not None:
        told.append(event)
    assert run.wait(0)
    announced, *records = told
    assert (announced.run_id, announced.steps) == (run.name, ["a"])
    assert [record.state for record in records if record.step == "a"] == ["running", "succeeded"]
    assert (records[-1].step, records[-1].state) == ("", "succeeded")


@pytest.mark.parametrize("force", [False, True])
def test_a_cancel_wins_over_a_suspension(service, tmp_path, force):
    """Also if the master has ordered more since: a finished step lets others begin, which never did."""
    write = "cd %(folder)s; touch {name}; while [ ! -e {go} ]; do sleep 0.02; done"
    steps = {"a": write.format(name="a", go="go"), "b": write.format(name="b", go="never")}
    lines = [f'  {name}: {{command: "{command}"}}' for name, command in steps.items()]
    lines += ["  next: {command: touch %(folder)s/next, deps: a}"]
    lines += ["  kept: {command: touch %(folder)s/kept, deps: a, cache: {enable: true}}"]
    post = "\npost_process:\n  last: {command: echo $WEFT_RUN_ERROR > %(folder)s/last}\n"
    run = submit(service, tmp_path, "slow", "name: slow\nentry_points:\n" + "\n".join(lines) + post)
    until((tmp_path / "a").exists)
    until((tmp_path / "b").exists)
    service.suspend(run.name)
    (tmp_path / "go").touch()
    until(lambda: read_run(run.folder).step("a").state == "succeeded")
    service.cancel(run.name, reason="no more money", force=force)
    assert run.result().state == "terminated"
    found = read_run(run.folder)
    assert (found.state, found.step("b").state) == ("terminated", "terminated")
    assert {found.step(name).state for name in ("next", "kept")} <= {"cancelled", "terminated"}
    assert not (tmp_path / "next").exists()
    assert "no more money" in str(run.result().error)
    assert (tmp_path / "last").exists() is not force
    if not force:
        assert "no more money" in (tmp_path / "last").read_text()


@pytest.mark.parametrize("now", [False, True])
def test_a_suspended_run_goes_on_where_it_was(service, tmp_path, now):
    steps = {"a": "echo a >> ran", "b": "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo b >> ran"}
    steps["c"] = "echo c >> ran"
    lines = [
        f'  {name}: {{command: "cd %(folder)s; {command}", deps: "{deps}"}}'
        for (name, command), deps in zip(steps.items(), ("", "a", "b"), strict=True)
    ]
    post = '\npost_process:\n  last: {command: "echo last >> %(folder)s/ran"}\n'
    run = submit(service, tmp_path, "slow", "name: slow\nentry_points:\n" + "\n".join(lines) + post)
    until((tmp_path / "begun").exists)
    assert service.suspend(run.name, now=now) == run.name
    if now:
        run.wait(DEADLINE_S)
    (tmp_path / "go").touch()
    assert (run.result().state, run.result().error) == ("suspended", None)
    ran = (tmp_path / "ran").read_text().split()
    assert ran == (["a"] if now else ["a", "b"])
    found = read_run(run.folder)
    assert (found.state, found.step("a").state) == ("suspended", "succeeded")
    again = service.resume(run.name)
    assert again.plan is not None
    assert again.plan.recovered is not None
    assert (again.result().state, again.result().error) == ("succeeded", None)
    assert (tmp_path / "ran").read_text().split() == ["a", "b", "c", "last"]
    assert read_run(run.folder).state == "succeeded"


def test_no_thread_of_a_run_is_left_when_its_result_is_there(service, tmp_path, monkeypatch):
    real = RunEvents.end

    def late(self):
        threading.Event().wait(0.2)
        real(self)

    monkeypatch.setattr(RunEvents, "end", late)
    run = submit(service, tmp_path, "one", "name: one\nentry_points: {first: {command: 'true'}}\n")
    assert run.result().state == "succeeded"
    assert not [thread.name for thread in threading.enumerate() if run.name in thread.name]


DAG = """
name: nested
entry_points:
  before: {command: "true"}
  part:
    deps: before
    entry_points:
      hold: {command: "cd %(folder)s; touch begun; sleep 600"}
      beside: {command: "sleep 600"}
      each: {command: "true", deps: hold, loop_argument: [1, 2]}
  after: {command: "true", deps: part}
  other: {command: "cd %(folder)s; until test -e go; do sleep 0.02; done"}
"""


def test_a_dag_of_a_live_run_is_cancelled_by_its_name(service, tmp_path):
    run = submit(service, tmp_path, "nested", DAG)
    until((tmp_path / "begun").exists)
    assert service.cancel(f"{run.name}/part", reason="not this part") == f"{run.name}/part"
    until(lambda: service.show(run.name).step("part.hold").ended)
    with pytest.raises(ConflictError, match="all steps of part of run-000001 have ended already"):
        until(lambda: service.cancel(f"{run.name}/part") and None)
    (tmp_path / "go").touch()
    assert isinstance(run.result().error, RunCancelledError)
    assert {step.name: step.state for step in read_run(run.folder).steps} == {
        "before": "succeeded",
        "part.hold": "cancelled",
        "part.beside": "cancelled",
        "part.each": "cancelled",
        "after": "cancelled",
        "other": "succeeded",
    }
