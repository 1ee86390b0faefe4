"""Runs in processes of their own that share an index of the cache at a PostgreSQL server."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import DEADLINE_S, Project, until

COUNT = 2


class AtAServer(Project):
    """A project whose command lines use a PostgreSQL server: to load the driver takes them longer than all else."""

    loaded = ("sqlalchemy.dialects.postgresql.pg8000", "pg8000.dbapi")


@pytest.fixture
def places(tmp_path, postgresql_url) -> list[AtAServer]:
    """Projects with state folders of their own and one index; the step waits for a file `go` beside them."""
    command = f"echo x >> {tmp_path}/ran; until test -e {tmp_path}/go; do sleep 0.02; done; echo made > {{{{out}}}}"
    step: dict[str, Any] = {"command": command, "artifacts": {"output": ["out"]}, "cache": {"enable": True}}
    made = []
    for number in range(COUNT):
        place = AtAServer(tmp_path / str(number))
        place.environ["WEFT_CACHE_INDEX"] = postgresql_url
        place.write({"make": step})
        made.append(place)
    return made


def waits(place: Project) -> bool:
    started = place.folder_of().is_dir()
    return started and "which is making the same output" in place.weft("why", "1/make")[1]


def test_one_run_makes_a_result_and_the_others_wait_for_it(places, tmp_path):
    running = [places[0].start()]
    try:
        until((tmp_path / "ran").exists)
        running += [place.start() for place in places[1:]]
        for place in places[1:]:
            until(partial(waits, place))
        (tmp_path / "go").touch()
        for process in running:
            _, err = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, err
    finally:
        for process in running:
            process.kill()
            process.communicate()
    assert (tmp_path / "ran").read_text() == "x\n"
    for place in places[1:]:
        assert "was taken from the cache" in place.weft("why", "1/make")[1]


def test_one_that_waits_takes_over_from_one_that_is_killed(places, tmp_path):
    first = places[0].start()
    until((tmp_path / "ran").exists)
    second = places[1].start()
    try:
        until(partial(waits, places[1]))
        first.kill()
        first.communicate()
        until(lambda: (tmp_path / "ran").read_text() == "x\nx\n")
        (tmp_path / "go").touch()
        _, err = second.communicate(timeout=DEADLINE_S)
        assert second.returncode == 0, err
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def test_two_collections_at_once_leave_what_is_needed(places, tmp_path):
    (tmp_path / "go").touch()
    for place in places:
        assert place.weft("run", "run.yaml")[0] == 0
    for words in (["--max-size", "1GiB"], ["--max-size", "0"]):
        collecting = [place.start("cache", "gc", *words) for place in places]
        for process in collecting:
            _, err = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, err
        before = len((tmp_path / "ran").read_text())
        code, out, err = places[0].weft("run", "run.yaml")
        assert code == 0, err
        assert len((tmp_path / "ran").read_text()) == before + 2 * (words[-1] == "0"), out
    assert Path(places[0].folder_of("run-000003")).is_dir()


@pytest.mark.parametrize("words", [["delete", "1"], ["resume", "1"], ["cache", "gc", "--max-size", "0"]])
def test_the_end_of_an_equally_named_run_of_another_project_takes_no_result(places, tmp_path, words):
    kept, other = places
    command = f"touch {tmp_path}/other; until test -e {tmp_path}/go_other; do sleep 0.02; done; echo > {{{{out}}}}"
    other.write({"make": {"command": command, "artifacts": {"output": ["out"]}, "cache": {"enable": True}}})
    running = kept.start()
    killed = other.start()
    try:
        until((tmp_path / "ran").exists)
        until((tmp_path / "other").exists)
        killed.kill()
        killed.communicate()
        (tmp_path / "go_other").touch()
        code, _, err = other.weft(*words)
        assert code == 0, err
        (tmp_path / "go").touch()
        _, err = running.communicate(timeout=DEADLINE_S)
        assert running.returncode == 0, err
    finally:
        for process in (running, killed):
            process.kill()
            process.communicate()
    assert kept.weft("run", "run.yaml")[0] == 0
    assert "was taken from the cache" in kept.weft("why", "2/make")[1]
