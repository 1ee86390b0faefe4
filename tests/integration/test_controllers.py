"""Jobs with controllers on real workers: requests of users, and a process that is killed and whose run goes on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import weft
from tests.integration.controlled_program import WORKERS, build, main
from tests.started import start
from weft.durability import snapshot
from weft.durability.journal import read_journal, recover, replay_journal
from weft.durability.programs import load_graph
from weft.engine.recovery import digest
from weft.model.errors import UsageError
from weft.wiring import MANAGERS

DEADLINE_S = 180.0
RUN = "run-000001"
SOURCE = Path(weft.__file__).parents[1]


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.005)
    return found


def began(marks: Path) -> list[str]:
    return sorted(path.name for path in marks.glob("began-*"))


def has_begun(marks: Path, process: int) -> bool:
    """Whether all workers run in a process."""
    return sum(f".{process}." in name for name in began(marks)) == WORKERS


def has_recorded(state: Path, starts: int) -> bool:
    """Whether the journal of the run tells so many attempts at each worker."""
    folder = state / "runs" / RUN
    graph, digest = load_graph(folder)
    recorded = read_journal(folder / "journal", trusted=True)
    stages = recover(graph, recorded, MANAGERS, digest).master.core.stages
    return any(stage.control.starts == [starts] * WORKERS for stage in stages if stage.id == "w" and stage.control)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_job_is_suspended_and_resumed_by_requests(marks, backend):
    with weft.Session(backend=backend, workers=4) as session:
        run = session.submit(build(str(marks)))
        until(lambda: len(began(marks)) == WORKERS)
        run.request("suspend")
        until(lambda: run.view().bubbles == {"gang": "forming"}, "the release of all slots")
        assert not any(vertex.executing for vertex in run.view().vertices)
        assert "is held by the controller" in run.waits("w")[0].text
        run.request("resume")
        until(lambda: len(began(marks)) == 2 * WORKERS)
        assert {name.rpartition(".")[2] for name in began(marks)} == {"0", "1"}, "the second attempts"
        (marks / "go").touch()
        assert run.wait(DEADLINE_S)
        assert run.status == "succeeded"
        run.request("suspend")  # too late, and without effect


def test_a_request_is_small_json(marks):
    with weft.Session(workers=4) as session:
        run = session.submit(build(str(marks)))
        with pytest.raises(UsageError, match="request 'scale' is not JSON"):
            run.request("scale", {1, 2})
        with pytest.raises(UsageError, match="at most 65,536 are allowed"):
            run.request("scale", "x" * 70_000)
        run.cancel()


def test_a_snapshot_after_any_record_is_as_good_as_the_records(tmp_path, marks):
    (marks / "go").touch()
    state = tmp_path / "state"
    main(str(state), str(marks))
    folder = state / "runs" / RUN
    graph, digest_of_graph = load_graph(folder)
    whole = read_journal(folder / "journal", trusted=True)
    ended = digest(recover(graph, whole, MANAGERS, digest_of_graph).master.core)
    for at in range(len(whole.records) + 1):
        before = replay_journal(graph, replace(whole, records=whole.records[:at]), MANAGERS)
        cut = replace(whole, records=whole.records[at:], snapshot=snapshot.dump(graph, before))
        assert digest(recover(graph, cut, MANAGERS, digest_of_graph).master.core) == ended, f"cut at {at}"


def test_a_run_without_a_controller_takes_no_requests():
    graph = weft.Graph("plain")
    graph.add(len, name="a", items=["x"], n=1)
    with weft.Session(workers=1) as session, pytest.raises(UsageError, match="no controller"):
        session.submit(graph).request("suspend")


def test_a_whole_bubble_that_never_fits_fails_the_run_with_the_arithmetic(marks):
    with weft.Session(workers=2) as session:
        run = session.submit(build(str(marks)))
        with pytest.raises(weft.CapacityError, match="needs 4 slots at once; the session has 2"):
            run.result(DEADLINE_S)


@pytest.mark.parametrize("kills", [1, 3])
def test_a_killed_run_goes_on_with_its_controller_and_doubles_nothing(tmp_path, marks, kills):
    state = tmp_path / "state"
    script = ["-c", f"from {build.__module__} import main; main({str(state)!r}, {str(marks)!r})"]
    resume = ["-c", "import sys; from weft.cli.main import main; sys.exit(main())", "resume", RUN, "-q"]
    for kill in range(kills):
        words = script if not kill else [*resume, "--state-dir", str(state)]
        process = start(
            [sys.executable, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{SOURCE.parent}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until(partial(has_begun, marks, process.pid))
            until(partial(has_recorded, state, kill + 1), "the record of these starts")
        finally:
            process.kill()
            _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, err
    (marks / "go").touch()
    with weft.Session(workers=4, durable=state) as session:
        run = session.resume(RUN)
        run.result(DEADLINE_S)
        assert run.notes == ()
        story = "\n".join(run.story(""))
    assert not list(marks.glob("doubled-*"))
    attempts = {int(name.rpartition(".")[2]) for name in began(marks)}
    assert attempts >= set(range(kills)), "each process began another attempt"
    calls = int(story.partition("as succeeded: after ")[2].split()[0])
    assert calls > 3 * kills, "the memo of the killed processes was kept"
