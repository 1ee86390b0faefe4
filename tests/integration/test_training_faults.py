"""Training jobs whose replicas, guardians and owners misbehave or are killed."""

import os
import random
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.integration.places import RUN, StartedCommand, namespaces, until
from tests.integration.test_training import Place, place, replica, tfjob
from weft.runs.reading import read_run

__all__ = ["place"]


def records(place: Place) -> dict[str, list[tuple[int, str]]]:
    """Return pid and start time of guardian and command of each replica, by the name of its record."""
    found = {}
    for path in (place.folder_of() / "processes").glob("*"):
        with suppress(FileNotFoundError):  # it has ended meanwhile
            rows = [line.split() for line in path.read_text().splitlines()]
            found[path.name] = [(int(row[0]), row[1]) for row in rows if len(row) == 2]
    return found


def is_alive(pid: int, start: str) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and start.startswith(f"{fields[19]}@")


def kill(pid: int, start: str) -> None:
    """Kill a process that a record names."""
    if is_alive(pid, start):
        os.kill(pid, signal.SIGKILL)


def _answers(place: Place, process: StartedCommand) -> bool:
    """Whether a resumed run takes orders, or has ended."""
    return (place.folder_of() / "control.sock").exists() or process.poll() is not None


def running(place: Place, count: int) -> bool:
    """Whether so many replicas have begun, and all of their commands are recorded."""
    begun = len(list(place.folder.glob("begun.*")))
    return begun >= count and sum(len(rows) == 2 for rows in records(place).values()) >= count


@pytest.mark.parametrize("isolation", ["auto", "ports"])
def test_a_replica_ends_with_its_command_whatever_that_left(isolation, place: Place):
    """As a container does with its first process."""
    left = replica("(trap '' TERM; sleep 3600) & exit 0")
    left["template"]["spec"]["terminationGracePeriodSeconds"] = 3600
    place.job(tfjob(Worker=left))
    code, _, err = place.run("--isolation", isolation)
    assert code == 0, err
    assert not place.alive()


@pytest.mark.parametrize("isolation", ["auto", "ports"])
def test_a_replica_whose_guardian_is_killed_starts_again(isolation, place: Place):
    """Neither the program nor its restart policy is at fault."""
    command = "test -e begun.0 && exit 0; touch begun.0; sleep 600"
    place.job(tfjob({"backoffLimit": 1}, Worker=replica(command, policy="ExitCode")))
    process = place.start("run", "run.yaml", "--isolation", isolation)
    until(lambda: running(place, 1))
    (ids,) = records(place).values()
    kill(*ids[0])
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert "worker-0 failed: was ended by signal 9 (SIGKILL): something killed its guardian" in err
    assert place.conditions()["Succeeded"] == "True"


BEGIN = "echo $$ >> starts.$HOSTNAME; touch begun.$HOSTNAME; "


def test_a_replica_that_forks_away_and_ignores_sigterm_ends_with_its_job(place: Place):
    away = "setsid sh -c \"trap '' TERM; sleep 600\" & "
    place.job(
        tfjob(
            Chief=replica("until test -e begun.echo-ps-0; do sleep 0.02; done"), PS=replica(away + BEGIN + "sleep 600")
        )
    )
    code, _, err = place.run()
    assert code == 0, err
    until(lambda: not place.alive())


def test_a_killed_replica_fails_its_job_with_its_signal(place: Place):
    place.job(tfjob(Worker=replica(BEGIN + "sleep 600", 2)))
    process = place.start("run", "run.yaml")
    until(lambda: running(place, 2))
    kill(*records(place)["worker.1.0"][1])
    _, err = process.communicate(timeout=180)
    assert process.returncode == 1
    assert "worker-1" in err
    assert "SIGKILL" in err
    assert place.alive() == []


def test_a_killed_guardian_ends_its_replica_alone(place: Place):
    place.job(tfjob(Worker=replica("test -e go && exit; " + BEGIN + "sleep 600", 2, policy="OnFailure")))
    process = place.start("run", "run.yaml")
    until(lambda: running(place, 2))
    (place.folder / "go").touch()
    (guardian, command), (_, other) = (records(place)[f"worker.{index}.0"] for index in (1, 0))
    kill(*guardian)
    until(lambda: not is_alive(*command), "the end of the command")
    assert is_alive(*other)
    kill(*other)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert place.alive() == []


@pytest.mark.parametrize("isolation", ["auto", "ports"])
def test_a_program_that_is_not_there_is_named(isolation, place: Place):
    job = tfjob(Worker=replica("unused", 2))
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["command"] = ["/no/such/program", "argument"]
    place.job(job)
    code, _, err = place.run("--isolation", isolation)
    assert code == 1
    assert "/no/such/program" in err
    assert place.alive() == []


def test_a_log_without_end_does_not_fill_the_disk(place: Place):
    place.job(tfjob(Worker=replica("head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last line")))
    code, _, err = place.run()
    assert code == 0, err
    log = place.folder_of() / "logs" / "worker.0.0.log"
    assert log.stat().st_size < 70 << 20
    assert log.read_bytes().endswith(b"last line\n")


def test_a_server_that_ends_by_itself_does_not_end_the_job(place: Place):
    place.job(tfjob(Chief=replica("sleep 0.5; echo done"), PS=replica("exit 0")))
    code, _, err = place.run()
    assert code == 0, err


def test_a_gang_that_never_fits_is_refused_with_the_arithmetic(place: Place):
    spec = replica("true", 3)
    spec["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500"}}
    place.job(tfjob(Worker=spec))
    code, out, err = place.run()
    assert code == 8, err
    assert "500" in err + out


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["namespace", "ports"])
def test_runs_that_are_killed_at_random_moments_go_on_and_leave_nothing(isolation, place: Place):
    """Whatever is killed and when: a resume runs each replica again at most once at a time, and nothing is left."""
    seed = int(os.environ.get("WEFT_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"WEFT_SEED={seed}")
    draw = random.Random(seed)
    made: set[str] = set()
    work = "mkdir lock.$HOSTNAME || echo doubled >> faults; sleep 0.4; rmdir lock.$HOSTNAME; echo $HOSTNAME >> done"
    chief = "until test -e finish; do sleep 0.02; done"
    place.job(
        tfjob(
            {"backoffLimit": 1000},
            Chief=replica(chief, policy="ExitCode"),
            PS=replica("tail -f /dev/null", policy="OnFailure"),
            Worker=replica(f"rmdir lock.$HOSTNAME 2>/dev/null; {work}", 2, policy="ExitCode"),
        )
    )
    process = place.start("run", "run.yaml", "--isolation", isolation)
    until(lambda: place.folder_of().is_dir() and read_run(place.folder_of()).state == "running")
    for _ in range(10):
        time.sleep(draw.uniform(0, 0.5))  # the moment of the fault, not a wait for anything
        made |= namespaces(place.alive())
        victim = draw.choice(["owner", "owner", "guardian", "command"])
        if victim == "owner":
            process.kill()
            process.communicate()
            until(lambda: not place.alive(), "the end of all replicas")
            process = place.start("resume", RUN)
            until(partial(_answers, place, process))
        else:
            rows = [row for row in records(place).values() if len(row) == 2]
            if rows:
                kill(*draw.choice(rows)[0 if victim == "guardian" else 1])
    (place.folder / "finish").touch()
    _, err = process.communicate(timeout=180)
    if process.returncode != 0:
        code, _, err = place.weft("resume", RUN)
        assert code == 0, err
    assert not (place.folder / "faults").exists(), "two attempts of one replica ran at the same time"
    assert place.conditions()["Succeeded"] == "True"
    until(lambda: not place.alive(), "the end of all replicas")
    made -= namespaces([os.getpid()])
    until(lambda: not made & namespaces(), "the end of the namespaces")
    assert not list((place.folder_of() / "processes").glob("*"))
    assert not (place.folder_of() / "pods").exists()
