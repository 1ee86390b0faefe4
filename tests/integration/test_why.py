"""`weft why` of tasks that wait: from the owner of a run, and from the folder of one that was killed."""

import json
from typing import Any

import pytest

import weft
from tests.integration.places import DEADLINE_S, RUN, Project, until
from weft import Resources, gather
from weft.store.state import owned


@pytest.fixture
def place(tmp_path) -> Project:
    return Project(tmp_path)


HOLD = "touch began; until test -e go; do sleep 0.02; done"


@pytest.mark.parametrize("kills", [True, False])
def test_a_run_and_what_a_killed_or_suspended_one_waited_for(place, kills):
    loop = {"command": "true", "deps": "long", "loop_argument": [1, 2]}
    place.write({"long": {"command": HOLD}, "next": {"command": "true", "deps": "long"}, "loop": loop})
    process = place.start()
    try:
        until(lambda: (place.folder / "began").exists() and place.states().get("long") == "running")
        code, told, err = place.weft("why", f"{RUN}/next")
        assert (code, told) == (0, "next: waits for the end of long (0 of 1 task finished, 1 running)\n"), err
        code, told, _ = place.weft("why", f"{RUN}/next", "--json")
        (wait,) = json.loads(told)["waits"]
        assert (wait["kind"], wait["subject"], wait["n"]) == ("inputs", "next", 1)
        code, told, _ = place.weft("why", f"{RUN}/long")
        assert (code, told.splitlines()[0][:5]) == (0, "long ")
        if not kills:
            assert place.weft("suspend", RUN, "--now")[0] == 0
            process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    until(lambda: not owned(place.folder_of()))
    code, told, err = place.weft("why", f"{RUN}/next")
    assert (code, told) == (0, "next: waits for the end of long (0 of 1 task finished)\n"), err
    code, told, err = place.weft("why", RUN)
    assert code == 0, err
    lines = told.splitlines()
    assert "next: waits for the end of long (0 of 1 task finished)" in lines
    how = "interrupted" if kills else "suspended"
    assert [line for line in lines if line.startswith("long")] == [
        f"long: was interrupted: the run was {how}; it goes on with: weft resume {RUN}"
    ]
    assert sum(line.startswith("loop") for line in lines) == 1


def test_the_steps_that_wait_for_the_resume_stand_beside_those_that_wait_for_others(place):
    place.write(
        {
            "long": {"command": HOLD},
            "first": {"command": "true", "deps": "long"},
            "second": {"command": "true", "deps": "first"},
        }
    )
    process = place.start()
    try:
        until((place.folder / "began").exists)
        assert place.weft("suspend", RUN)[0] == 0
        (place.folder / "go").touch()
        process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    code, told, err = place.weft("why", RUN)
    assert code == 0, err
    assert sorted(told.splitlines()) == [
        f"first: it has not started: the run is suspended; it goes on with: weft resume {RUN}",
        "second: waits for the end of first (0 of 1 task finished)",
    ]


def test_a_run_that_waits_for_the_slots_and_the_result_of_another_run(place):
    cached: Any = {
        "command": f"{HOLD}; echo x > {{{{out}}}}",
        "artifacts": {"output": ["out"]},
        "cache": {"enable": True},
    }
    place.write({"made": cached})
    first, second = place.start(), None
    try:
        until((place.folder / "began").exists)
        second = place.start()
        until(lambda: place.folder_of("run-000002").is_dir())

        def told() -> str:
            return str(place.weft("why", "run-000002/made")[1])

        until(lambda: "which is making the same output" in told())
        assert told() == f"made: waits for {RUN}/made, which is making the same output\n"
        (place.folder / "go").touch()
        for process in (first, second):
            _, err = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, err
        assert "was taken from the cache" in told()
    finally:
        for each in (first, second):
            if each is not None:
                each.kill()
                each.communicate()


def hold(number: int, go: str) -> int:
    from pathlib import Path
    from time import sleep

    while not Path(go).exists():
        sleep(0.01)
    return number


def add(values: list[int]) -> int:
    return sum(values)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_session_tells_which_run_holds_what_a_task_asks_for(backend, tmp_path):
    go = str(tmp_path / "go")
    small, large = weft.Graph("small"), weft.Graph("large")
    held = small.map(hold, range(3), params={"go": go}, name="held")
    small.add(add, gather(held), name="total")
    large.map(hold, range(1), params={"go": go}, name="wide", resources=Resources(cpu=2))
    with weft.Session(backend, workers=2) as session:
        one = session.submit(small)
        until(lambda: one.view().vertices[0].executing == 2)
        two = session.submit(large)
        until(lambda: two.waits("wide"))
        (wait,) = two.waits("wide")
        assert wait.kind == "slots"
        assert wait.text.startswith("asks for cpu 2; does not fit now; free: local 0 of 2 slots, ")
        assert wait.text.endswith(f"; {one.id} holds 2")
        (plain,) = one.waits("held[2]")
        assert plain.line().startswith("held[2]: waits for an idle worker; no worker is idle; free: local 0 of 2 slots")
        assert plain.text.endswith("this run holds 2")
        assert [wait.kind for wait in one.waits()] == ["worker", "inputs"]
        with pytest.raises(weft.NotFoundError):
            one.waits("none")
        (tmp_path / "go").touch()
        for run in (one, two):
            run.result(DEADLINE_S)
            assert run.waits() == ()
