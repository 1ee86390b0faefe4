"""Several `weft run`s of job files share one machine: no overcommitment, priority, preemption, fairness, kill -9."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from tests.integration.places import Project, until
from tests.integration.test_training import replica, tfjob
from weft.runs.reading import read_run
from weft.store.state import read_status

CORES = len(os.sched_getaffinity(0))
BARRIER = "echo $$ >> {name}.pids; touch {name}.started; until test -e {name}.go; do sleep 0.05; done; exit 0"


def asking(
    name: str, replicas: int = 1, cpu: str | float = CORES, policy: dict[str, Any] | None = None, **pod: Any
) -> dict[str, Any]:
    """Return a job whose workers run from the file NAME.started to NAME.go."""
    spec = replica(BARRIER.format(name=name), replicas, **pod)
    spec["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cpu)}}
    return tfjob(policy, name, Worker=spec)


class Machine(Project):
    """A folder with several job files, and the runs of them."""

    def begin(self, name: str, *documents: dict[str, Any], flags: tuple[str, ...] = ()) -> Any:
        (self.folder / f"{name}.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
        return self.start("run", f"{name}.yaml", "--name", name, *flags)

    def started(self, name: str) -> bool:
        return (self.folder / f"{name}.started").exists()

    def starts(self, name: str) -> int:
        file = self.folder / f"{name}.pids"
        return len(file.read_text().split()) if file.exists() else 0

    def let_go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def run_of(self, name: str) -> str:
        found = (
            read_run(folder)
            for folder in sorted((self.folder / ".weft" / "runs").glob("run-*"))
            if (folder / "run.json").exists()
        )
        return next((one.id for one in found if one.name == name), "")

    def why(self, name: str) -> str:
        run = self.run_of(name)
        if not run:
            return ""
        _, out, err = self.weft("why", run)
        return " ".join((out + err).split())

    def conditions(self, name: str) -> dict[str, dict[str, str]]:
        found = read_status(self.folder / ".weft" / "runs" / self.run_of(name))
        return {one["type"]: one for one in found[0]["status"]["conditions"]} if found else {}

    def end(self, process: Any) -> int:
        process.communicate(timeout=180)
        code: int = process.returncode
        return code


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    (tmp_path / "x").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "x"))
    return Machine(tmp_path)


def test_the_second_run_waits_for_the_cores_of_the_first(machine: Machine):
    first = machine.begin("first", asking("first"))
    until(lambda: machine.started("first"))
    second = machine.begin("second", asking("second"))
    until(lambda: "at once, 0 are free" in machine.why("second"), "the reason")
    run = machine.run_of("first")
    assert f"needs {CORES} cores at once, 0 are free; {run} (priority 0) holds {CORES}" in machine.why("second")
    assert not machine.started("second")
    machine.let_go("first")
    assert machine.end(first) == 0
    machine.let_go("second")
    assert machine.end(second) == 0


def test_a_killed_run_frees_its_cores_at_once(machine: Machine):
    first = machine.begin("first", asking("first"))
    until(lambda: machine.started("first"))
    second = machine.begin("second", asking("second"))
    until(lambda: "0 are free" in machine.why("second"))
    first.kill()
    machine.let_go("second")
    assert machine.end(second) == 0
    machine.end(first)


def test_two_halves_run_together_and_a_gang_never_starts_in_part(machine: Machine):
    half = CORES / 2
    one, other = machine.begin("one", asking("one", cpu=half)), machine.begin("other", asking("other", cpu=half))
    until(lambda: machine.started("one") and machine.started("other"))
    gang = machine.begin("gang", asking("gang", replicas=2, cpu=half))
    until(lambda: "0 are free" in machine.why("gang"))
    machine.let_go("one")
    assert machine.end(one) == 0
    until(lambda: re.search(rf"needs {CORES} cores at once, {half:g} are free", machine.why("gang")))
    assert machine.starts("gang") == 0
    machine.let_go("other")
    assert machine.end(other) == 0
    until(lambda: machine.starts("gang") == 2)
    machine.let_go("gang")
    assert machine.end(gang) == 0


def test_replicas_beyond_the_least_start_each_when_there_is_room(machine: Machine):
    job = asking("gang", replicas=CORES + 2, cpu=1, policy={"schedulingPolicy": {"minAvailable": 1}})
    job["spec"]["successPolicy"] = "AllWorkers"
    run = machine.begin("gang", job)
    until(lambda: machine.starts("gang") == CORES)
    until(lambda: "needs 1 core at once, 0 are free" in machine.why("gang"), "the reason")
    machine.let_go("gang")
    assert machine.end(run) == 0
    assert machine.starts("gang") == CORES + 2


def test_a_higher_priority_suspends_a_run_that_goes_on_by_itself(machine: Machine):
    low = machine.begin("low", asking("low"))
    until(lambda: machine.started("low"))
    (machine.folder / "low.started").unlink()
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    policy = {"schedulingPolicy": {"priorityClass": "urgent"}}
    high = machine.begin("high", urgent, asking("high", policy=policy))
    until(lambda: machine.started("high"))
    suspended = until(lambda: machine.conditions("low").get("Suspended"))
    assert suspended["status"] == "True"
    assert f"preempted by {machine.run_of('high')}" in suspended["message"]
    held = f"{machine.run_of('high')} (priority 9) holds {CORES}"
    room = f"has made room for {machine.run_of('high')}; needs"
    until(lambda: held in (why := machine.why("low")) and room in why)
    assert not machine.started("low")
    machine.let_go("high")
    assert machine.end(high) == 0
    until(lambda: machine.started("low"))
    machine.let_go("low")
    assert machine.end(low) == 0
    assert machine.starts("low") == 2
    assert machine.conditions("low")["Suspended"]["status"] == "False"


def test_priority_of_the_command_line_goes_first_in_the_queue(machine: Machine):
    first = machine.begin("first", asking("first"), flags=("--priority", "20"))
    until(lambda: machine.started("first"))
    early = machine.begin("early", asking("early"))
    until(lambda: "0 are free" in machine.why("early"))
    late = machine.begin("late", asking("late"), flags=("--priority", "10"))
    until(lambda: f"place 2 in the queue, behind {machine.run_of('late')} (priority 10)" in machine.why("early"))
    machine.let_go("first")
    until(lambda: machine.started("late"))
    assert not machine.started("early")
    machine.let_go("late")
    machine.let_go("early")
    assert [machine.end(one) for one in (first, late, early)] == [0, 0, 0]


def test_a_cancelled_run_leaves_the_queue(machine: Machine):
    first, second = machine.begin("first", asking("first")), None
    until(lambda: machine.started("first"))
    second = machine.begin("second", asking("second"))
    until(lambda: "0 are free" in machine.why("second"))
    third = machine.begin("third", asking("third"))
    until(lambda: "place 2 in the queue" in machine.why("third"))
    assert machine.weft("cancel", machine.run_of("second"))[0] == 0
    machine.end(second)
    until(lambda: "in the queue" not in machine.why("third"))
    machine.let_go("first")
    machine.let_go("third")
    assert [machine.end(one) for one in (first, third)] == [0, 0]


def test_a_queue_has_a_capacity(machine: Machine):
    (machine.folder / "weft.toml").write_text("[queues.small]\ncpu = 0.5\n")
    policy = {"schedulingPolicy": {"queue": "small"}}
    first = machine.begin("first", asking("first", cpu="500m", policy=policy))
    until(lambda: machine.started("first"))
    second = machine.begin("second", asking("second", cpu="100m", policy=policy))
    until(lambda: "needs 0.1 cores at once, 0 are free in the queue small" in machine.why("second"))
    machine.let_go("first")
    machine.let_go("second")
    assert [machine.end(one) for one in (first, second)] == [0, 0]


def test_a_gang_that_finds_no_place_in_time_fails_with_the_reason(machine: Machine):
    first = machine.begin("first", asking("first"))
    until(lambda: machine.started("first"))
    second = machine.begin("second", asking("second", policy={"schedulingPolicy": {"scheduleTimeoutSeconds": 1}}))
    _, err = second.communicate(timeout=180)
    assert second.returncode != 0
    assert "found no place within 1 s" in err
    assert f"needs {CORES} cores at once, 0 are free" in err
    machine.let_go("first")
    assert machine.end(first) == 0


def test_the_least_available_replicas_start_and_the_others_follow(machine: Machine):
    half = CORES / 2
    other = machine.begin("other", asking("other", cpu=half))
    until(lambda: machine.started("other"))
    gang = machine.begin("gang", asking("gang", 2, half, {"schedulingPolicy": {"minAvailable": 1}}))
    until(lambda: machine.starts("gang") == 1)
    until(lambda: "0 are free" in machine.why("gang"))
    machine.let_go("other")
    assert machine.end(other) == 0
    until(lambda: machine.starts("gang") == 2)
    machine.let_go("gang")
    assert machine.end(gang) == 0
    assert read_run(machine.folder / ".weft" / "runs" / machine.run_of("gang")).state == "succeeded"


def test_a_killed_run_waits_for_its_place_when_it_is_resumed(machine: Machine):
    first = machine.begin("first", asking("first"))
    until(lambda: machine.started("first"))
    second = machine.begin("second", asking("second"))
    until(lambda: "0 are free" in machine.why("second"))
    first.kill()
    machine.end(first)
    until(lambda: machine.started("second"))
    again = machine.start("resume", machine.run_of("first"))
    until(lambda: f"{machine.run_of('second')} (priority 0) holds {CORES}" in machine.why("first"))
    assert machine.starts("first") == 1
    machine.let_go("second")
    assert machine.end(second) == 0
    until(lambda: machine.starts("first") == 2)
    machine.let_go("first")
    assert machine.end(again) == 0


def test_a_preempted_run_that_is_killed_leaves_the_queue_and_can_be_resumed(machine: Machine):
    low = machine.begin("low", asking("low"))
    until(lambda: machine.started("low"))
    high = machine.begin("high", asking("high"), flags=("--priority", "3"))
    until(lambda: machine.started("high"))
    until(lambda: f"has made room for {machine.run_of('high')}; needs" in machine.why("low"))
    low.kill()
    machine.end(low)
    third = machine.begin("third", asking("third"))
    until(lambda: "0 are free" in machine.why("third"))
    assert "in the queue" not in machine.why("third")
    again = machine.start("resume", machine.run_of("low"))
    until(lambda: "place 2 in the queue" in machine.why("low"))
    for name in ("high", "third", "low"):
        machine.let_go(name)
    assert [machine.end(one) for one in (high, third, again)] == [0, 0, 0]


def test_a_user_suspends_a_preempted_run(machine: Machine):
    low = machine.begin("low", asking("low"))
    until(lambda: machine.started("low"))
    high = machine.begin("high", asking("high"), flags=("--priority", "3"))
    until(lambda: machine.started("high"))
    assert machine.weft("suspend", machine.run_of("low"))[0] == 0
    machine.end(low)
    assert read_run(machine.root.folder(machine.run_of("low"))).state == "suspended"
    machine.let_go("high")
    assert machine.end(high) == 0
    machine.let_go("low")
    assert machine.weft("resume", machine.run_of("low"))[0] == 0


def test_a_gang_that_never_fits_is_refused_with_what_helps(machine: Machine):
    process = machine.begin("large", asking("large", replicas=3))
    _, err = process.communicate(timeout=180)
    assert process.returncode == 8
    words = " ".join(err.split())
    assert f"it needs {3 * CORES} cores at once (3 of worker, each cpu {CORES}); this machine has {CORES}." in words
    assert "--workers N, fewer replicas, or lower requests" in words
    machine.let_go("large")
    assert machine.end(machine.begin("large2", asking("large", 3), flags=("--workers", str(3 * CORES)))) == 0


def test_a_user_who_has_used_less_goes_first(machine: Machine):
    ada = ("--user", "ada")
    first = machine.begin("first", asking("first"), flags=ada)
    until(lambda: machine.started("first"))
    second = machine.begin("second", asking("second"), flags=ada)
    until(lambda: "0 are free" in machine.why("second"))
    other = machine.begin("other", asking("other"), flags=("--user", "bob"))
    until(lambda: f"place 2 in the queue, behind {machine.run_of('other')}" in machine.why("second"))
    machine.let_go("first")
    until(lambda: machine.started("other"))
    assert not machine.started("second")
    machine.let_go("other")
    machine.let_go("second")
    assert [machine.end(one) for one in (first, other, second)] == [0, 0, 0]
