"""Runs that are deleted: what goes, what stays, and what happens when the process dies in the middle."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.places import DEADLINE_S, RUN, Commands, Project, until
from weft import wiring
from weft.admin import deleting
from weft.admin.deleting import delete_run, delete_runs
from weft.model.errors import ConflictError, DiskFullError, ForbiddenError
from weft.runs.active import RunResult
from weft.runs.listing import list_runs
from weft.store.entries import CACHE_NAME, CacheIndex
from weft.store.folders import remove_folder

FIRST, SECOND = RUN, "run-000002"


class Place(Project):
    """A folder with a pipeline whose one step makes an output, and counts how often it ran."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write({"a": self.step()})

    def step(self, then: str = ":", **more: Any) -> dict[str, Any]:
        return {
            "command": f"echo ran >> ran; echo made > {{{{out}}}}; {then}",
            "artifacts": {"output": ["out"]},
            **more,
        }

    def run(self) -> RunResult:
        loaded = wiring.load_pipeline(str(self.folder / "run.yaml"), user="me")
        return wiring.run_pipeline(loaded, self.settings, quiet=True)

    def delete(self, run: str = FIRST) -> None:
        delete_run(self.root, self.root.folder(run))

    def runs(self) -> list[str]:
        return [row.id for row in list_runs(self.root)[0]]

    def left(self, run: str = FIRST) -> list[str]:
        """What there is of a run on disk."""
        places = [self.root.folder(run), self.folder / ".pipeline" / run]
        return [str(path) for path in places if os.path.lexists(path)]

    def ran(self) -> int:
        return len((self.folder / "ran").read_text().split())


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_nothing_of_a_run_is_left_and_others_stay(place):
    assert place.run().state == place.run().state == "succeeded"
    assert len(place.left()) == 2
    code, _, err = place.weft("delete", "1")
    assert (code, err) == (0, f"deleted {FIRST}\n")
    assert place.left() == []
    assert len(place.left(SECOND)) == 2
    assert place.runs() == [SECOND]
    assert place.weft("show", FIRST)[0] == 4
    assert place.run().run_id == "run-000003", "no id is given out twice"


def test_several_at_once_and_as_json(place):
    place.run()
    place.run()
    code, out, _ = place.weft("delete", FIRST, "@last", SECOND, "--json")
    assert code == 0
    assert json.loads(out)["runs"] == [FIRST, SECOND]
    assert place.runs() == []


def test_if_one_of_them_cannot_be_deleted_none_is(place):
    place.run()
    code, _, err = place.weft("delete", FIRST, "run-000009")
    assert code == 4
    assert "run-000009" in err
    assert place.runs() == [FIRST]
    assert place.weft("delete")[0] == 2


def test_a_live_run_is_refused_and_the_next_step_is_said(place):
    place.write({"a": place.step("touch began; until test -e go; do sleep 0.02; done")})
    process = place.start("run", "run.yaml")
    try:
        until((place.folder / "began").exists)
        code, _, err = place.weft("delete", FIRST)
        assert code == 7
        assert f"{FIRST} is still running" in err
        assert f"weft cancel {FIRST}" in err
        with pytest.raises(ConflictError, match="still running"):
            place.delete()
        (place.folder / "go").touch()
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, "it went on undisturbed"
    finally:
        process.kill()
        process.communicate()
    assert place.weft("delete", FIRST)[0] == 0


def test_a_killed_run_is_deleted(place):
    place.write({"a": place.step("touch began; until test -e go; do sleep 0.02; done")})
    process = place.start("run", "run.yaml")
    try:
        until((place.folder / "began").exists)
    finally:
        process.kill()
        process.communicate()
    assert place.weft("delete", "@last")[0] == 0
    assert place.left() == []


def test_results_that_others_use_stay(place):
    place.write({"a": place.step(cache={"enable": True})})
    place.run()
    second = place.run()
    assert place.ran() == 1
    place.delete()
    assert Path(second.outputs["a.out"]).read_text() == "made\n"
    third = place.run()
    assert place.ran() == 1, "the result is kept though the run that made it is gone"
    index = CacheIndex(place.root.path / CACHE_NAME)
    entry = index.entries()[0]
    assert index.users(entry.key) == [SECOND, third.run_id]
    place.delete(SECOND)
    assert index.users(entry.key) == [third.run_id]
    index.close()
    assert place.weft("doctor")[0] == 0


@pytest.mark.parametrize("stage", ["end_processes", "_forget", "_remove_outputs", "remove_folder"])
@pytest.mark.parametrize("after", [False, True])
def test_it_may_be_killed_anywhere_and_done_again(place, monkeypatch, stage, after):
    place.run()
    real = getattr(deleting, stage)

    def die(*arguments: Any) -> None:
        if after:
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deleting, stage, die)
        with pytest.raises(KeyboardInterrupt):
            place.delete()
    gone = stage == "remove_folder" and after
    assert place.runs() == ([] if gone else [FIRST]), "what is not gone is listed"
    if not gone:
        place.delete()
    assert place.left() == []
    assert place.runs() == []


def test_files_go_first_and_what_has_no_room_is_tried_again(place, monkeypatch):
    place.run()
    place.run()
    real, tried = deleting._forget, []

    def forget(root: Any, run: str) -> None:
        tried.append((run, place.left(run)))
        if tried[-1][1] or place.left(SECOND):
            raise DiskFullError("the index is full")
        real(root, run)

    monkeypatch.setattr(deleting, "_forget", forget)
    folders = [place.root.folder(run) for run in (FIRST, SECOND)]
    assert list(delete_runs(place.root, folders)) == [SECOND, FIRST]
    assert tried[0] == (FIRST, [str(folders[0])]), "its outputs are gone before anything is written"
    assert place.runs() == []


def test_what_has_no_room_even_then_is_told(place, monkeypatch):
    place.run()

    def full(*_: Any) -> None:
        raise DiskFullError("the index is full")

    with monkeypatch.context() as patch:
        patch.setattr(deleting, "_forget", full)
        with pytest.raises(DiskFullError, match=f"the files of {FIRST} are removed"):
            list(delete_runs(place.root, [place.root.folder(FIRST)]))
    assert place.left() == []
    place.delete()
    assert place.runs() == []


def test_what_a_kill_left_of_a_folder_is_swept_and_never_listed(place):
    place.run()
    folder = place.root.folder(FIRST)
    trash = folder.with_name(f".trash-{FIRST}-00")
    folder.rename(trash)
    (place.root.path / "weft.db").unlink()
    assert place.runs() == []
    assert place.run().state == "succeeded"
    place.delete(place.runs()[0])
    assert not trash.exists()


def test_a_run_whose_folder_was_removed_by_hand(place):
    place.run()
    folder = place.root.folder(FIRST)
    remove_folder(folder)
    assert place.weft("delete", FIRST)[0] == 0
    assert place.runs() == []
    assert not folder.exists()


def test_folders_that_a_step_closed_to_writing_go_too(place):
    command = "mkdir -p {{out}}/b; touch {{out}}/b/c; chmod 555 {{out}}/b"
    place.write({"a": {"command": command, "artifacts": {"output": ["out"]}}})
    place.run()
    place.delete()
    assert place.left() == []


def test_a_link_in_the_place_of_the_outputs_is_not_followed(place, tmp_path):
    place.run()
    other = tmp_path / "other"
    (tmp_path / ".pipeline").rename(other)
    (tmp_path / ".pipeline").symlink_to(other)
    with pytest.raises(ForbiddenError, match="is a link") as told:
        place.delete()
    assert "--state-dir" not in told.value.hint
    (tmp_path / ".pipeline").unlink()
    place.delete()
    assert (other / FIRST).is_dir()


def test_outputs_below_a_sub_path_go_too(place):
    place.write({"a": place.step()}, fs_options={"main_fs": {"name": "ppl", "sub_path": "some/where"}})
    result = place.run()
    made = Path(result.outputs["a.out"])
    assert made.exists()
    place.delete()
    assert not (place.folder / "some/where/.pipeline" / FIRST).exists()
    assert (place.folder / "some/where/.pipeline").is_dir()


def test_a_damaged_index_of_the_cache_stops_no_deletion(place):
    place.run()
    file = place.root.path / CACHE_NAME
    file.write_bytes(b"nonsense" * 1000)
    code, _, err = place.weft("delete", "1")
    assert code == 0
    assert f"is kept as {file}.damaged" in err
    assert place.left() == []
    assert place.weft("doctor")[0] == 0


def test_a_damaged_index_of_runs_is_told_before_anything_is_removed(place):
    place.run()
    (place.root.path / "weft.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(ConflictError, match="damaged"):
        place.delete()
    assert len(place.left()) == 2


@pytest.mark.parametrize("text", ["{", None])
def test_what_is_left_of_a_run_without_a_usable_description_is_said(place, text):
    place.run()
    file = place.root.folder(FIRST) / "run.json"
    file.unlink()
    if text is not None:
        file.write_text(text)
    for words in (("resume", "1"), ("doctor",)):
        code, *shown = place.weft(*words)
        assert code != 0
        assert f"weft delete {FIRST}" in "".join(shown)
    code, _, err = place.weft("delete", "1")
    assert code == 0
    assert "the outputs of run-000001, if any, stay" in err
    assert place.weft("doctor")[0] == 0


def test_folders_of_other_programs_are_no_runs(tmp_path, monkeypatch):
    """A state folder among folders of the user takes none of them for a run, so no command deletes them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(json.dumps({"name": "p", "entry_points": {"a": {"command": ":"}}}))
    theirs = [tmp_path / "runs" / "exp1" / "events.tfevents", tmp_path / "runs" / "run-000001" / "model.pt"]
    for file in theirs:
        file.parent.mkdir(parents=True)
        file.write_text("precious")
    weft = Commands(tmp_path)
    weft("run", "run.yaml", "--state-dir", ".")
    assert [run["id"] for run in weft.json("ls", "--state-dir", ".")["runs"]] == [SECOND]
    assert "weft delete" not in weft.ended("doctor", "--state-dir", ".")[1]
    weft("prune", "--state", "interrupted", "--keep", "0", "--state-dir", ".")
    for name in ("exp1", "run-000001"):
        weft("delete", name, "--state-dir", ".", code=4)
    assert [file.read_text() for file in theirs] == ["precious"] * 2


class Disk(Project):
    """A project with a pipeline that works in a folder on a disk of its own, which can go and come back."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.commands = Commands(folder)
        self.disk, self.off = folder / "disk", folder / "elsewhere"
        (self.disk / "work").mkdir(parents=True)
        (folder / "weft.toml").write_text('state_dir = ".weft"\n[fs]\nmain = "disk/work"\n')
        steps = {"a": {"command": "echo made > {{out}}", "artifacts": {"output": ["out"]}}}
        self.write(steps, fs_options={"main_fs": {"name": "main"}})

    def keep_last(self, number: int) -> None:
        with (self.folder / "weft.toml").open("r+") as file:
            text = file.read()
            file.seek(0)
            file.write(f"keep_last = {number}\n{text}")

    def unmount(self, left: str | None) -> None:
        self.disk.rename(self.off)
        if left is not None:
            (self.folder / left).mkdir(parents=True)

    def mount(self) -> None:
        shutil.rmtree(self.disk, ignore_errors=True)
        self.off.rename(self.disk)

    def outputs(self) -> list[str]:
        return sorted(file.name for file in (self.off / "work/.pipeline").glob("run-*"))


@pytest.fixture
def disk(tmp_path, monkeypatch) -> Disk:
    monkeypatch.chdir(tmp_path)
    return Disk(tmp_path)


@pytest.mark.parametrize("left", [None, "disk", "disk/work", "disk/work/.pipeline"])
def test_a_run_whose_disk_is_not_there_is_refused(disk, left):
    for _ in range(2):
        disk.commands("run", "run.yaml")
    disk.unmount(left)
    err = disk.commands("delete", FIRST, code=7)[1]
    assert f"the outputs of {FIRST} are not in their place: {disk.disk}" in err
    assert f"weft delete --force {FIRST}" in err
    for words in (("prune", "--keep", "0"), ("prune", "--keep", "0", "--dry-run")):
        err = disk.commands(*words)[1]
        assert f"{SECOND}, {FIRST} cannot be deleted, because the outputs are not in their place" in err
        assert "deleted run" not in err
    assert disk.outputs() == [FIRST, SECOND]
    assert "deleted" in disk.commands("delete", "--force", SECOND)[1]
    disk.mount()
    assert disk.commands("delete", FIRST)[1] == f"deleted {FIRST}\n"
    assert disk.commands.json("ls")["runs"] == []


def test_keep_last_keeps_a_run_whose_disk_is_not_there(disk):
    disk.commands("run", "run.yaml")
    disk.unmount("disk/work")
    disk.keep_last(1)
    err = disk.commands("run", "run.yaml")[1]
    assert f"note: {FIRST} cannot be deleted" in err
    assert [run["id"] for run in disk.commands.json("ls")["runs"]] == [SECOND, FIRST]
    disk.mount()
    err = disk.commands("delete", FIRST)[1]
    assert err == f"deleted {FIRST}\n"


def test_a_run_whose_outputs_were_removed_by_hand_is_deleted(disk):
    for _ in range(2):
        disk.commands("run", "run.yaml")
    shutil.rmtree(disk.disk / "work/.pipeline" / FIRST)
    assert disk.commands("delete", FIRST)[1] == f"deleted {FIRST}\n"
