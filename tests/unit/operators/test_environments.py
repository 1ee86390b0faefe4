"""Environments of packages: their content, how they are made and shared, and what is told when they cannot be made."""

import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.model.errors import MissingExtraError, NotFoundError, RunCancelledError, TaskError
from weft.operators.environments import UNUSED_S, check, collect, content, enter, examine

TOOL = """#!/bin/sh
echo "$@" >> {trace}
[ -e {broken} ] && echo "no such package" && exit 4
for word in "$@"; do
  [ "$before" = --prefix ] && mkdir -p "$word/bin"
  [ "$before" = --manifest-path ] && mkdir -p "$(dirname "$word")/.pixi/envs/default/bin"
  before=$word
done
exit 0
"""


@pytest.fixture
def tools(tmp_path, monkeypatch) -> Path:
    """A folder with substitutes for conda and pixi; `trace` has their words, and with `broken` they fail."""
    folder: Path = tmp_path / "tools"
    folder.mkdir()
    for name in ("conda", "pixi"):
        (folder / name).write_text(TOOL.format(trace=folder / "trace", broken=folder / "broken"))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def context(*, cancelled: bool = False) -> Any:
    return SimpleNamespace(cancelled=lambda: cancelled, on_cancel=lambda stop: stop() if cancelled else None)


def requirements(folder: Path, text: str) -> str:
    (folder / "requirements.txt").write_text(text)
    return content("venv", str(folder / "requirements.txt"))


def test_only_what_pip_reads_is_content(tmp_path):
    plain = requirements(tmp_path, "numpy==2.0\npandas\n")
    assert requirements(tmp_path, "# for all\n\nnumpy==2.0   # pinned\n  pandas\n") == plain
    assert requirements(tmp_path, "numpy==2.1\npandas\n") != plain
    (tmp_path / "more.txt").write_text("scipy\n")
    for line in ("-r more.txt", "--constraint=more.txt", "./more.txt"):
        before = requirements(tmp_path, line)
        (tmp_path / "more.txt").write_text(f"scipy\n{line}\n")
        assert requirements(tmp_path, line) != before
        (tmp_path / "more.txt").write_text("scipy\n")
    assert requirements(tmp_path, "-r requirements.txt\n")


def test_the_files_of_a_package_in_a_folder_count(tmp_path):
    package = tmp_path / "lib"
    (package / "greeting").mkdir(parents=True)
    module = package / "greeting" / "__init__.py"
    module.write_text("A = 1\n")
    for line in ("./lib", "-e ./lib", "./lib[more]", str(package)):
        before = requirements(tmp_path, line)
        for left_out in ("build", ".git", "greeting.egg-info", "greeting/__pycache__"):
            (package / left_out).mkdir(exist_ok=True)
            (package / left_out / line.replace("/", "-")).touch()
        assert requirements(tmp_path, line) == before
        module.write_text(f"A = {line!r}\n")
        assert requirements(tmp_path, line) != before
    before = requirements(tmp_path, "lib")  # a package of the index
    module.write_text("A = 2\n")
    assert requirements(tmp_path, "lib") == before


def test_a_damaged_one_is_found_and_made_anew(tmp_path, tools):
    (tmp_path / "environment.yaml").write_text("a")
    words = ("conda", str(tmp_path / "environment.yaml"), str(tmp_path / "environments"), "fit")
    told: list[str] = []
    folder = Path(enter(context(), *words, tell=told.append).programs).parent
    assert told == [
        "waits for its environment (conda environment.yaml) to be made",
        f"its environment is there, in {folder.name}",
    ]
    (folder / "bin" / "tool").touch()
    (folder / "complete").write_text('{"files": 1}')
    assert examine(tmp_path) == (1, {})
    (folder / "bin" / "more").touch()
    assert examine(tmp_path) == (1, {}), "somebody has added a file"
    (folder / "complete").write_text('{"files": 4}')
    assert examine(tmp_path) == (1, {folder.name: "2 files fewer than when it was made"})
    assert examine(tmp_path) == (0, {})
    assert Path(enter(context(), *words).programs).is_dir()
    assert len((tools / "trace").read_text().splitlines()) == 2
    shutil.rmtree(folder / "bin")
    assert Path(enter(context(), *words, tell=told.append).programs).is_dir(), "a step that needs it makes it again"
    shutil.rmtree(folder / "bin")
    assert examine(tmp_path) == (1, {folder.name: "its programs are gone"})
    (folder / "complete").touch()  # of an earlier version
    (folder / "bin").mkdir()
    assert examine(tmp_path) == (1, {})


def test_a_lock_file_of_pixi_counts(tmp_path):
    (tmp_path / "pixi.toml").write_text("[project]\n")
    before = content("pixi", str(tmp_path / "pixi.toml"))
    (tmp_path / "pixi.lock").write_text("version: 6\n")
    assert content("pixi", str(tmp_path / "pixi.toml")) != before


def test_a_missing_file_and_a_missing_program_are_told_with_the_step(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFoundError, match=r"step fit: .*gone\.txt, the file of an environment, cannot be read"):
        check("venv", str(tmp_path / "gone.txt"), "fit")
    for kind in ("conda", "pixi"):
        (tmp_path / kind).write_text("x")
        with pytest.raises(MissingExtraError, match=f"step fit: an environment of {kind} needs the program {kind}"):
            check(kind, str(tmp_path / kind), "fit")


@pytest.mark.parametrize(("kind", "name"), [("conda", "environment.yaml"), ("pixi", "pixi.toml")])
def test_it_is_made_once_for_each_content(tmp_path, tools, kind, name):
    (tmp_path / name).write_text("a")
    (tmp_path / "pixi.lock").write_text("lock")
    place = str(tmp_path / "environments")
    first = enter(context(), kind, str(tmp_path / name), place, "fit")
    assert Path(first.programs).is_dir()
    assert first.variables == {"CONDA_PREFIX": str(Path(first.programs).parent)}
    assert enter(context(), kind, str(tmp_path / name), place, "other") == first
    assert len((tools / "trace").read_text().splitlines()) == 1
    (tmp_path / name).write_text("b")
    assert enter(context(), kind, str(tmp_path / name), place, "fit") != first
    assert len((tools / "trace").read_text().splitlines()) == 2
    assert ("--frozen" in (tools / "trace").read_text()) is (kind == "pixi")


def test_a_failure_has_the_last_lines_and_leaves_nothing(tmp_path, tools):
    (tmp_path / "environment.yaml").write_text("a")
    (tools / "broken").touch()
    place = tmp_path / "environments"
    log = tmp_path / "fit.0.log"
    with pytest.raises(TaskError) as caught:
        enter(context(), "conda", str(tmp_path / "environment.yaml"), str(place), "fit", log=str(log))
    assert log.read_text() == "no such package\n"
    assert "step fit cannot start: its environment of" in caught.value.message
    assert "conda ended with exit code 4.\nIts last lines:\n  no such package" in caught.value.message
    assert not any(path.is_dir() for path in place.iterdir())
    (tools / "broken").unlink()
    assert enter(context(), "conda", str(tmp_path / "environment.yaml"), str(place), "fit")


def test_two_steps_make_it_once(tmp_path, tools):
    (tmp_path / "environment.yaml").write_text("a")
    found: list[Any] = []
    words = ("conda", str(tmp_path / "environment.yaml"), str(tmp_path / "environments"), "fit")
    threads = [threading.Thread(target=lambda: found.append(enter(context(), *words))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len((tools / "trace").read_text().splitlines()) == 1


def test_a_cancel_ends_it(tmp_path, tools):
    (tmp_path / "environment.yaml").write_text("a")
    with pytest.raises(RunCancelledError):
        enter(context(cancelled=True), "conda", str(tmp_path / "environment.yaml"), str(tmp_path / "e"), "fit")


def test_what_nobody_uses_is_removed(tmp_path, tools):
    (tmp_path / "environment.yaml").write_text("a")
    made = enter(context(), "conda", str(tmp_path / "environment.yaml"), str(tmp_path / "environments"), "fit")
    folder = Path(made.programs).parent
    used = (folder / "complete").stat().st_mtime
    assert collect(tmp_path, used + 1) == (0, 0)
    (folder / "file").write_bytes(bytes(100))
    removed, nbytes = collect(tmp_path, used + UNUSED_S + 1)
    assert (removed, nbytes >= 100, list((tmp_path / "environments").iterdir())) == (1, True, [])
    assert collect(tmp_path / "nowhere", used) == (0, 0)
