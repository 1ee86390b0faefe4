"""Projects that are copied, moved, mounted elsewhere or restored in part: nothing outside of the named one changes."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.integration.places import DEADLINE_S, MAIN, RUN, Project, until
from tests.started import start

SECOND = "run-000002"


class Place(Project):
    """A project with a cached step `one`, and a step `two` that fails unless the file `go` is there."""

    def __init__(self, folder: Path, *, two: str = "test -e go", **top: object) -> None:
        super().__init__(folder)
        (folder / "in.txt").write_text("in")
        one = {
            "command": "echo one >> ran; cp in.txt {{out}}",
            "artifacts": {"output": ["out"]},
            "cache": {"enable": True, "fs_scope": [{"name": "data", "path": "in.txt"}]},
        }
        second = {
            "deps": "one",
            "command": f"echo two >> ran; cat {{{{in}}}} > {{{{out}}}}; {two}",
            "artifacts": {"input": {"in": "{{one.out}}"}, "output": ["out"]},
        }
        self.write({"one": one, "two": second}, fs_options={"main_fs": {"name": "data"}}, **top)

    def at(self, folder: Path) -> "Place":
        """The project at another path."""
        other = Place.__new__(Place)
        Project.__init__(other, folder)
        return other

    def copied(self, folder: Path) -> "Place":
        subprocess.run(["cp", "-r", self.folder, folder], check=True)
        return self.at(folder)

    def moved(self, folder: Path) -> "Place":
        subprocess.run(["mv", self.folder, folder], check=True)
        return self.at(folder)

    def restored(self, folder: Path) -> "Place":
        """The project from a backup, after the loss of the original."""
        with tarfile.open(folder.with_suffix(".tar"), "w") as tar:
            tar.add(self.folder, folder.name)
        shutil.rmtree(self.folder)
        with tarfile.open(folder.with_suffix(".tar")) as tar:
            tar.extractall(folder.parent, filter="tar")
        return self.at(folder)

    def mounted(self, folder: Path) -> "Place":
        """The project through a link; `realpath` sees through it as through no mount."""
        folder.symlink_to(self.folder)
        return self.at(folder)

    def output(self, run: str = RUN) -> Path:
        return self.folder / ".pipeline" / run

    def tree(self) -> dict[str, bytes]:
        """All files of the project with their content, except the shared index of SQLite's readers."""
        paths = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".db-shm"]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(paths)}

    def ran(self) -> list[str]:
        return (self.folder / "ran").read_text().split()

    def listed(self) -> dict[str, str]:
        return {run["id"]: run["state"] for run in json.loads(self.weft("ls", "--json")[1])["runs"]}

    def shown(self, run: str = RUN) -> str:
        """All that the reading commands say about a run."""
        said = [self.weft(verb, run) for verb in ("show", "logs", "story", "explain")]
        assert [code for code, _, _ in said] == [0] * 4, said
        return "".join(out for _, out, _ in said)

    def examine(self) -> None:
        code, out, err = self.weft("doctor")
        assert code == 0, out + err


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project whose run has failed."""
    found = Place(tmp_path / "A")
    assert found.weft()[0] == 1
    return found


WAYS = ("copied", "moved", "restored", "mounted")


@pytest.mark.parametrize("way", WAYS)
def test_a_project_elsewhere_has_its_runs(place, tmp_path, way):
    other = getattr(place, way)(tmp_path / "B")
    assert other.listed() == {RUN: "failed"}
    assert os.path.samefile(json.loads(other.weft("show", RUN, "--json")[1])["run"]["file"], other.file)
    if way != "mounted":
        assert str(place.folder) not in other.shown()
    code, _, err = other.weft("cancel", "1")
    assert (code, "has ended already" in err) == (7, True)
    (other.folder / "go").touch()
    code, out, err = other.weft("resume", "@last")
    assert code == 0, out + err
    assert other.ran() == ["one", "two", "two"], "a finished step does not run again"
    assert other.listed() == {RUN: "succeeded"}
    assert len(list(other.output().rglob("out"))) == 2
    assert other.weft()[0] == 0
    assert other.ran() == ["one", "two", "two", "two"], "its results are kept"
    assert other.weft("delete", "1")[0] == 0
    assert not other.output().exists()
    assert other.listed() == {SECOND: "succeeded"}


@pytest.mark.parametrize("words", [("delete", "1"), ("cache", "gc", "--max-size", "0"), ("prune", "--keep", "0")])
def test_no_command_in_a_copy_changes_the_original(place, tmp_path, words):
    other = place.copied(tmp_path / "B")
    before = place.tree()
    code, out, err = other.weft(*words)
    assert code == 0, out + err
    assert place.tree() == before
    assert words[0] == "cache" or not other.output().exists()
    assert words[0] != "cache" or not list((other.folder / ".pipeline/.cas/objects").rglob("*/*"))
    (place.folder / "go").touch()
    assert place.weft("resume", "1")[0] == 0
    assert place.weft()[0] == 0
    assert place.ran() == ["one", "two", "two", "two"]
    other.examine()
    place.examine()


def test_a_copy_and_its_original_go_on_apart(place, tmp_path):
    other = place.copied(tmp_path / "B")
    before = place.tree()
    (other.folder / "go").touch()
    code, _, err = other.weft("resume", "1")
    assert code == 0, err
    assert f"{RUN} was copied" in err
    assert other.weft()[0] == 0
    assert place.tree() == before
    assert place.listed() == {RUN: "failed"}


def test_a_live_run_is_not_touched_through_a_copy(tmp_path):
    place = Place(tmp_path / "A", two="touch began; until test -e go; do sleep 0.02; done")
    process = place.start()
    try:
        until((place.folder / "began").exists)
        until(lambda: place.listed() == {RUN: "running"})  # a step may begin before the record of its start
        other = place.copied(tmp_path / "B")
        assert other.listed() == {RUN: "interrupted"}
        assert "interrupted" in other.weft("show", "1")[1]
        code, _, err = other.weft("cancel", "1")
        assert (code, "was interrupted: nothing of it runs" in err) == (7, True)
        (other.folder / "go").touch()
        code, out, err = other.weft("resume", "1")
        assert code == 0, out + err
        assert other.weft("delete", "1")[0] == 0
        assert process.poll() is None
        assert place.listed() == {RUN: "running"}
        (place.folder / "go").touch()
        _, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, err
    finally:
        process.kill()
        process.communicate()
    assert place.ran() == ["one", "two"]
    assert len(list(place.output().rglob("out"))) == 2


def test_what_a_killed_owner_left_is_not_ended_through_a_copy(place, tmp_path):
    sleeper = start([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    try:
        from weft.worker.group import process_id

        found = process_id(sleeper.pid)
        assert found is not None
        (place.folder_of() / "processes").mkdir(exist_ok=True)
        (place.folder_of() / "processes/two").write_text(f"{found.pid} {found.start_time}\n")
        other, gone = place.copied(tmp_path / "B"), place.copied(tmp_path / "C")
        (other.folder / "go").touch()
        assert other.weft("resume", "1")[0] == 0
        assert gone.weft("delete", "1")[0] == 0
        assert sleeper.poll() is None
        assert place.weft("delete", "1")[0] == 0
        assert sleeper.wait(DEADLINE_S) != 0
    finally:
        sleeper.kill()
        sleeper.wait()


class TestOutside:
    """A project whose main file system lies outside of it."""

    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        (tmp_path / "data").mkdir()
        (tmp_path / "data/in.txt").write_text("in")
        return tmp_path / "data"

    @pytest.fixture
    def place(self, tmp_path: Path, data: Path) -> Place:
        found = Place(tmp_path / "A")
        assert found.weft("run", "run.yaml", "-f", f"data={data}")[0] == 1
        return found

    def made(self, data: Path) -> dict[str, bytes]:
        paths = [path for path in data.rglob("*") if path.is_file()]
        return {str(path.relative_to(data)): path.read_bytes() for path in paths if path.name not in ("lock", "users")}

    def test_a_copy_leaves_it_alone(self, place, data, tmp_path):
        other = place.copied(tmp_path / "B")
        before = self.made(data)
        code, _, err = other.weft("resume", "1")
        assert code == 7, err
        assert f"works in {data}, outside of this project, and is a copy" in err
        code, _, err = other.weft("cache", "gc", "--max-size", "0")
        assert code == 0
        assert f"stays, because other projects use it: {place.folder}/.weft" in err
        code, _, err = other.weft("delete", "1")
        assert code == 0
        assert f"note: {data}/.pipeline/{RUN} stays" in err
        assert self.made(data) == before
        assert place.weft("delete", "1")[0] == 0
        assert not (data / ".pipeline" / RUN).exists()

    def test_a_moved_project_keeps_it(self, place, data, tmp_path):
        other = place.moved(tmp_path / "B")
        (data / "go").touch()
        code, out, err = other.weft("resume", "1")
        assert code == 0, out + err
        assert other.weft("run", "run.yaml", "-f", f"data={data}")[0] == 0
        assert (data / "ran").read_text().split() == ["one", "two", "two", "two"]
        assert other.weft("delete", "1")[0] == 0
        assert not (data / ".pipeline" / RUN).exists()
        code, out, err = other.weft("cache", "gc", "--max-size", "0")
        assert (code, "stays" in err) == (0, False)
        assert not list((data / ".pipeline/.cas/objects").rglob("*/*"))

    def test_the_content_of_another_project_stays(self, place, data, tmp_path):
        other = Place(tmp_path / "C")
        assert other.weft("run", "run.yaml", "-f", f"data={data}")[0] == 1
        assert list(other.listed()) == [SECOND], "no two runs have one folder for their outputs"
        assert "write 10MiB, or 10B" in other.weft("cache", "gc", "--max-size", "10")[2]
        assert "other projects use it" in other.weft("cache", "gc", "--max-size", "0")[2]
        (data / "go").touch()
        assert place.weft("resume", "1")[0] == 0
        assert (data / "ran").read_text().split().count("one") == 2

    def test_a_state_folder_elsewhere_is_copied_and_moved(self, tmp_path):
        place = Place(tmp_path / "A")
        assert place.weft("run", "run.yaml", "--state-dir", "../S")[0] == 1
        subprocess.run(["cp", "-r", tmp_path / "S", tmp_path / "S2"], check=True)
        assert f"note: {place.output()} stays" in place.weft("delete", "1", "--state-dir", "../S2")[2]
        (tmp_path / "S").rename(tmp_path / "S3")
        (place.folder / "go").touch()
        assert place.weft("resume", "1", "--state-dir", "../S3")[0] == 0
        assert place.ran() == ["one", "two", "two"]
        assert place.weft("delete", "1", "--state-dir", "../S3")[0] == 0
        assert not place.output().exists()

    def test_a_copy_sends_nothing_to_the_remote_folder_of_the_original(self, data, tmp_path):
        place = Place(tmp_path / "A")
        assert place.weft("run", "run.yaml", "-f", f"data=local://{data}")[0] == 1
        other = place.copied(tmp_path / "B")
        before = self.made(data)
        code, _, err = other.weft("resume", "1")
        assert (code, f"works in local://{data}, and is a copy" in err) == (7, True), err
        assert other.weft("delete", "1")[0] == 0
        assert self.made(data) == before

    def test_a_link_out_of_a_copy_is_not_followed(self, data, tmp_path):
        place = Place(tmp_path / "A")
        (place.folder / "data").symlink_to(data)
        assert place.weft("run", "run.yaml", "-f", "data=data")[0] == 1
        other = place.copied(tmp_path / "B")
        before = self.made(data)
        assert "stays" in other.weft("delete", "1")[2]
        assert self.made(data) == before


@pytest.mark.parametrize("way", ["copied", "moved"])
def test_a_resume_at_a_place_with_a_blank_warns_as_a_run_does(place, tmp_path, way):
    other = getattr(place, way)(tmp_path / "B b")
    code, _, err = other.weft("resume", RUN)
    assert code == 1
    assert f"a shell acts on blanks in the path {other.folder}" in err
    plain = other.moved(tmp_path / "C")
    (plain.folder / "go").touch()
    code, _, err = plain.weft("resume", RUN)
    assert code == 0, err
    assert "a shell acts on" not in err


def test_a_project_whose_scripts_lie_above_its_pipeline_moves_as_a_whole(tmp_path):
    top = tmp_path / "A"
    place = Place(top)
    (top / "ci").mkdir()
    document = json.loads(place.file.read_text())
    (top / "ci/run.yaml").write_text(json.dumps(document))
    place.file.unlink()
    (top / "scripts").mkdir()
    inner = place.at(top / "ci")
    assert inner.weft()[0] == 1
    assert (top / ".pipeline" / RUN).is_dir(), "in.txt lies there"
    top.rename(tmp_path / "B")
    inner, top = inner.at(tmp_path / "B/ci"), tmp_path / "B"
    (top / "go").touch()
    code, out, err = inner.weft("resume", "1")
    assert code == 0, out + err
    assert inner.weft()[0] == 0
    assert (top / "ran").read_text().split() == ["one", "two", "two", "two"]
    assert inner.weft("delete", "1")[0] == 0
    assert not (top / ".pipeline" / RUN).exists()


def test_a_project_that_moves_away_from_its_background_run_takes_it_along(tmp_path):
    place = Place(tmp_path / "A")
    one = "touch began; until test -e release; do sleep 0.01; done"
    second = {"deps": "one", "command": "echo 2 > {{out}}", "artifacts": {"output": ["out"]}}
    place.write({"one": {"command": one}, "two": second})
    assert place.weft("run", "-d", "run.yaml")[0] == 0
    until((place.folder / "began").exists)
    other = place.moved(tmp_path / "B")
    (other.folder / "release").touch()
    until(lambda: "failed" in other.weft("ls")[1])
    assert "was moved or deleted" in other.weft("show", "1")[1]
    until(lambda: not other.weft("resume", "1")[0])
    assert not (tmp_path / "A").exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_runs_in_the_place_from_which_a_running_project_moved(tmp_path, replaced):
    place = Place(tmp_path / "A")
    one = "touch began; until test -e release; do sleep 0.01; done; echo 1 > out"
    place.write(
        {"one": {"command": one, "cache": {"enable": True}}, "two": {"deps": "one", "command": "echo 2 >> ran"}},
        failure_options={"strategy": "continue"},
        post_process={"end": {"command": "echo end >> ran"}},
        cache={"enable": True},
    )
    assert place.weft("run", "-d", "run.yaml")[0] == 0
    until((place.folder / "began").exists)
    other = place.moved(tmp_path / "B")
    if replaced:
        place.folder.mkdir()
    (other.folder / "release").touch()
    until(lambda: other.listed() == {RUN: "failed"})
    run = json.loads(other.weft("show", "1", "--json")[1])["run"]
    assert {step["name"]: step["state"] for step in run["steps"]} == {
        "one": "succeeded",
        "two": "failed",
        "end": "failed",
    }
    assert [step["message"].count("was moved or deleted") for step in run["steps"]] == [0, 1, 1]
    until(lambda: not other.weft("resume", "1")[0])
    assert other.ran() == ["2", "end"]
    assert place.folder.exists() == replaced
    assert not replaced or not list(place.folder.iterdir())


@pytest.mark.parametrize("ends", [0, 1])
def test_a_run_whose_project_moves_away_tells_its_own_end(tmp_path, ends):
    place = Place(tmp_path / "A")
    place.write({"one": {"command": f"touch began; until test -e release; do sleep 0.01; done; exit {ends}"}})
    process = place.start()
    until((place.folder / "began").exists)
    other = place.moved(tmp_path / "B")
    (other.folder / "release").touch()
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (ends, f"{RUN}\n"), err
    assert f"{RUN} has {'failed' if ends else 'succeeded'}; its folder was moved" in err
    assert ("WEFT501: step one ended with exit code 1" in err) == bool(ends)


def works(*words: object) -> bool:
    return subprocess.run([*map(str, words)], capture_output=True, check=False).returncode == 0


MOUNTED = ("unshare", "--mount", "--map-root-user", "sh", "-c")


@pytest.mark.skipif(not works(*MOUNTED, "mount --bind /tmp /mnt"), reason="no mounts here")
def test_a_project_at_another_mount_point_is_the_same_project(place, tmp_path):
    (tmp_path / "B").mkdir()
    (place.folder / "go").touch()
    weft = f"{sys.executable} -P -c '{MAIN}'"
    script = (
        f"mount --bind A B; cd B; {weft} resume 1; {weft} cache gc; {weft} doctor; {weft} run run.yaml; {weft} delete 1"
    )
    done = subprocess.run(
        [*MOUNTED, f"set -e; {script}"], cwd=tmp_path, env=place.env(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "copied" not in done.stderr
    assert place.ran() == ["one", "two", "two", "two"]
    assert place.listed() == {SECOND: "succeeded"}
    assert not place.output().exists()


@pytest.mark.parametrize("way", ["copied", "moved"])
def test_steps_of_loops_over_content_go_on_elsewhere(tmp_path, way):
    place = Place(tmp_path / "A")
    made = {"command": "echo '[1, 2]' > {{out}}", "artifacts": {"output": ["out"]}}
    each = {
        "deps": "made",
        "loop_argument": "{{items}}",
        "command": "echo {{PF_LOOP_ARGUMENT}} > {{out}}",
        "artifacts": {"input": {"items": "{{made.out}}"}, "output": ["out"]},
    }
    last = {
        "deps": "each",
        "command": "cat {{ins}} > {{out}}; test -e go",
        "artifacts": {"input": {"ins": "{{each.out}}"}, "output": ["out"]},
    }
    place.write({"made": made, "each": each, "last": last})
    assert place.weft()[0] == 1
    other = getattr(place, way)(tmp_path / "B")
    outputs = json.loads(other.weft("show", RUN, "--json")[1])["run"]["outputs"]
    assert len(outputs) == 3
    assert all(path.startswith(f"{other.folder}/") for path in outputs.values()), outputs
    (other.folder / "go").touch()
    code, out, err = other.weft("resume", "1")
    assert code == 0, out + err
    assert place.folder.exists() or str(place.folder) not in other.shown()


def test_a_function_of_a_moved_project_is_found(tmp_path):
    place = Place(tmp_path / "A")
    place.file = place.folder / "flow.py"
    place.file.write_text(
        "import weft\nimport helpers\n@weft.step\ndef one(out: weft.Output):\n    out.write_text(helpers.text())\n"
        "@weft.pipeline\ndef flow():\n    return one().out\n"
    )
    (place.folder / "helpers.py").write_text("def text():\n    raise ValueError('not yet')\n")
    assert place.weft("run", "flow.py:flow")[0] == 1
    other = place.moved(tmp_path / "B")
    (other.folder / "helpers.py").write_text("def text():\n    return 'made'\n")
    code, out, err = other.weft("resume", "1")
    assert code == 0, out + err
    assert [path.read_text() for path in other.output().rglob("out")] == ["made"]


def test_a_durable_run_of_a_moved_project_has_its_values(tmp_path):
    place = Place(tmp_path / "A")
    (place.folder / "program.py").write_text(
        "import weft, functions\nimport numpy as np\n"
        "graph = weft.Graph('g')\n"
        "one = graph.map(functions.large, [1, 2], name='one')\n"
        "graph.add(functions.total, weft.gather(one), name='two')\n"
        "with weft.Session(durable=True, workers=1) as session:\n"
        "    session.run(graph)\n"
    )
    (place.folder / "functions.py").write_text(
        "import os\nimport numpy as np\n"
        "def large(number):\n    open('ran', 'a').write('one ')\n    return np.full(1 << 18, number)\n"
        "def total(values):\n    assert os.path.exists('go')\n    return int(sum(one.sum() for one in values))\n"
    )
    words = [sys.executable, "program.py"]
    assert subprocess.run(words, cwd=place.folder, env=place.env(), capture_output=True).returncode == 1
    other = place.moved(tmp_path / "B")
    (other.folder / "go").touch()
    code, out, err = other.weft("resume", "1")
    assert code == 0, out + err
    assert other.ran() == ["one", "one"]
    last = other.moved(tmp_path / "C")
    read = "import weft; print(weft.Session(durable=True).resume('1').result().value('two'))"
    done = subprocess.run([sys.executable, "-c", read], cwd=last.folder, env=last.env(), capture_output=True, text=True)
    assert done.stdout.strip() == str(3 << 18), done.stderr
    assert last.weft("delete", "1")[0] == 0


class TestHalf:
    """Half of a copy."""

    def test_folders_without_an_index(self, place, tmp_path):
        other = place.copied(tmp_path / "B")
        for file in (other.folder / ".weft").glob("*.db*"):
            file.unlink()
        assert other.listed() == {RUN: "failed"}
        (other.folder / "go").touch()
        assert other.weft("resume", "1")[0] == 0
        assert other.weft()[0] == 0
        assert other.listed() == {SECOND: "succeeded", RUN: "succeeded"}
        other.examine()

    def test_an_index_without_folders(self, place, tmp_path):
        other = place.copied(tmp_path / "B")
        shutil.rmtree(other.folder / ".weft/runs")
        assert other.listed() == {}
        for verb in ("show", "logs", "resume", "cancel"):
            code, _, err = other.weft(verb, "1")
            assert (code, "there is no run" in err) == (4, True), verb
        other.weft()
        assert other.listed() == {SECOND: "failed"}
        other.examine()

    def test_one_folder_of_another_project(self, place, tmp_path):
        other = Place(tmp_path / "C")
        shutil.copytree(place.root.runs, other.root.runs, ignore=shutil.ignore_patterns("*.sock"))
        before = place.tree()
        assert other.listed() == {RUN: "failed"}
        assert other.weft("delete", "1")[0] == 0
        assert other.weft()[0] == 1
        assert other.listed() == {SECOND: "failed"}
        assert place.tree() == before


def test_schedules_name_the_project_they_are_in(place, tmp_path):
    assert place.weft("schedule", "create", "run.yaml", "--cron", "0 0 1 1 *")[0] == 0
    other = place.copied(tmp_path / "B")
    said = other.weft("schedule", "show", "trial")[1]
    assert str(other.file) in said
    assert str(place.folder) not in said


def test_a_link_in_the_place_of_outputs_is_told_with_the_way_that_works(tmp_path):
    place = Project(tmp_path / "project")
    bigger = tmp_path / "bigger"
    bigger.mkdir()
    (place.folder / ".pipeline").symlink_to(bigger)
    place.write({"a": {"command": "echo 1 > {{o}}", "artifacts": {"output": ["o"]}}})
    for words in (("run", "run.yaml"), ("plan", "run.yaml")):
        code, _, err = place.weft(*words)
        assert code != 0
        assert ".pipeline is a link" in err
        assert "-f main=FOLDER" in err
    assert place.weft("run", "-f", f"main={bigger}", "run.yaml")[0] == 0
    code, out, _ = place.weft("doctor")
    assert code == 1
    assert ".pipeline is a link" in out
    assert [path.name for path in bigger.iterdir()] == [".pipeline"]


def test_a_file_in_the_place_of_the_state_folder_stops_runs_without_another_one(tmp_path):
    place = Project(tmp_path / "project")
    place.write({"a": {"command": "true"}})
    (place.folder / ".weft").write_text("")
    code, _, err = place.weft("run", "run.yaml")
    assert code != 0
    assert ".weft is not a folder" in err
    assert place.weft("run", "--state-dir", str(tmp_path / "state"), "run.yaml")[0] == 0
    assert (tmp_path / "state/runs" / RUN).is_dir()
