"""What `weft doctor` says of this machine."""

import shutil
from types import SimpleNamespace

import pytest

from weft.runs import health
from weft.store.results import close_cache, open_cache
from weft.store.state import DESCRIPTION, RunFolder, StateRoot


@pytest.mark.parametrize(
    ("does", "what", "hinted"),
    [
        ("pass", "steps can have mounts", False),
        ("raise OSError(28, '')", "steps cannot have mounts: this system allows its users no more namespaces", True),
        ("raise OSError(1, '')", "steps cannot have mounts: this system does not allow user namespaces", True),
    ],
)
def test_it_says_whether_steps_can_have_mounts(tmp_path, monkeypatch, does, what, hinted):
    file = tmp_path / "mounting.py"
    file.write_text(f"def enter(copies, made, binds):\n    {does}\n")
    monkeypatch.setattr(health, "mounting", SimpleNamespace(__file__=str(file)))
    found = next(iter(health.examine(StateRoot(tmp_path / "none"), None)))  # type: ignore[arg-type]
    assert found.what.startswith(what)
    assert (found.problem, bool(found.hint)) == ("", hinted)


@pytest.mark.parametrize(("free", "problem"), [(1 << 30, ""), (0, "it is full: 0 KiB are free")])
def test_a_full_disk_is_a_finding(tmp_path, monkeypatch, free, problem):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    root = StateRoot(tmp_path)
    cache = open_cache(tmp_path, lambda: 0.0)
    found = {one.what: one for one in health.examine(root, cache)}["the disk of the state folder"]
    close_cache(cache)
    assert found.problem == problem
    assert ("weft delete" in found.hint) == bool(problem)


def test_a_run_of_which_nothing_can_be_told_is_a_finding(tmp_path):
    root = StateRoot(tmp_path)
    cache = open_cache(tmp_path, lambda: 0.0)
    for name in ("run-000001", "run-000002", "run-000003"):
        folder = RunFolder.create(root, name)
        if name != "run-000003":
            folder.describe(steps=[])
            folder.release()

    def told() -> tuple[str, str]:
        found = {one.what: one for one in health.examine(root, cache)}["the descriptions of runs"]
        return found.problem, found.hint

    assert told() == ("", "")
    file = root.folder("run-000002") / DESCRIPTION
    file.write_text("{")
    problem, hint = told()
    assert problem == f"{file} is damaged"
    assert hint.endswith("weft delete run-000002")
    file.unlink()
    assert told()[0] == f"{file} is missing"
    folder.release()  # its owner ends before it has described the run
    assert told()[0].endswith(f"run.json is missing; {root.folder('run-000003') / DESCRIPTION} is missing")
    close_cache(cache)


def test_a_damaged_environment_is_a_finding(tmp_path):
    root = StateRoot(tmp_path)
    cache = open_cache(tmp_path, lambda: 0.0)
    folder = tmp_path / "environments" / "conda-0123"
    (folder / "bin").mkdir(parents=True)
    (folder / "complete").write_text('{"files": 3}')

    def told() -> list[tuple[str, str, bool]]:
        return [(f.what, f.problem, bool(f.hint)) for f in health.examine(root, cache) if "of steps" in f.what]

    problem = "conda-0123: 3 files fewer than when it was made"
    assert told() == [("1 environment of steps", problem, True)]
    assert told() == [("0 environments of steps", "", False)]
    close_cache(cache)
