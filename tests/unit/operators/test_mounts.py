"""What is planned for mounts, without mounting anything."""

import os
import shutil
import sys

import pytest

from weft.model.errors import TaskError
from weft.operators import mounts
from weft.operators.mounts import BindMount, MountNamespace, impossible_mount, plan

NOWHERE = "/weft-no-such-folder"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A file system `data`, a folder `work` that the step works in, and a folder `system` like one of the system."""
    for name in ("data/sub", "work", "system/there", "home"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data" / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path.resolve()


def planned(place, *wanted: BindMount) -> MountNamespace:
    view = plan(wanted, str(place / "work"), "step").view
    assert view is not None
    return view


def refused(place, *wanted: BindMount) -> str:
    with pytest.raises(TaskError) as caught:
        plan(wanted, str(place / "work"), "step")
    assert caught.value.task == "step"
    assert "step step cannot start" in caught.value.message
    return str(caught.value)


class TestPlan:
    def test_a_path_that_is_there_is_bound_over(self, place):
        data, there = str(place / "data"), str(place / "system" / "there")
        assert planned(place, BindMount(data, there)) == MountNamespace((), (), ((data, there, False),))

    def test_a_path_that_is_missing_is_made_in_a_copy_of_what_is_above(self, place):
        data, system = str(place / "data"), str(place / "system")
        view = planned(place, BindMount(data, f"{system}/a/b", read_only=True))
        assert view.copies == (system,)
        assert view.made == ((f"{system}/a", True), (f"{system}/a/b", True))
        assert view.binds == ((data, f"{system}/a/b", True),)

    def test_what_lies_in_one_copy_needs_no_other(self, place):
        data, system = str(place / "data"), str(place / "system")
        view = planned(
            place, BindMount(data, f"{system}/a/b"), BindMount(data, f"{system}/a/c"), BindMount(data, NOWHERE)
        )
        assert view.copies == ("/", system)
        assert [path for path, _ in view.made] == [f"{system}/a", f"{system}/a/b", f"{system}/a/c", NOWHERE]

    def test_a_file_is_mounted_at_a_file(self, place):
        file = str(place / "data" / "file")
        assert planned(place, BindMount(file, NOWHERE)).made == ((NOWHERE, False),)
        told = refused(place, BindMount(file, str(place / "system")))
        assert f"the mount path {place}/system is a folder, what goes there a file: {file}" in told

    def test_those_above_come_first_and_what_they_show_counts(self, place):
        data, there = str(place / "data"), str(place / "system" / "there")
        view = planned(place, BindMount(str(place / "work"), f"{there}/sub"), BindMount(data, there))
        assert [target for _, target, _ in view.binds] == [there, f"{there}/sub"]
        assert view.copies == ()
        told = refused(place, BindMount(data, there, read_only=True), BindMount(data, f"{there}/missing"))
        assert f"mkdir -p {data}/missing" in told

    def test_the_first_of_two_at_one_path_counts(self, place):
        data, work = str(place / "data"), str(place / "work")
        view = planned(place, BindMount(data, NOWHERE), BindMount(work, f"{NOWHERE}/"))
        assert view.binds == ((data, NOWHERE, False),)

    def test_links_are_followed(self, place):
        (place / "link").symlink_to(place / "system" / "there")
        (place / "other").symlink_to("data")
        view = planned(place, BindMount(str(place / "other"), str(place / "link")))
        assert view.binds == ((str(place / "data"), str(place / "system" / "there"), False),)

    def test_what_is_there_already_needs_nothing(self, place):
        (place / "link").symlink_to(place / "data")
        assert plan([BindMount(str(place / "data"), str(place / "link"))], str(place / "work"), "step").view is None
        assert planned(place, BindMount(str(place / "data"), str(place / "link"), read_only=True)).binds


class TestRefusals:
    def test_a_source_that_is_missing_is_named(self, place):
        told = refused(place, BindMount(str(place / "no"), NOWHERE))
        assert f"nothing to mount at {NOWHERE}: No such file or directory: {place / 'no'}" in told
        assert "-f NAME=FOLDER" in told

    @pytest.mark.parametrize("folder", ["work", "data/sub", "home"])
    def test_a_folder_that_steps_may_write_to_is_not_copied(self, place, folder):
        told = refused(place, BindMount(str(place / "data"), str(place / folder / "new")))
        assert f"there is no {place / folder}/new to mount" in told
        assert f"Make it ({place / folder} lies where steps may write): mkdir -p {place / folder}/new" in told

    def test_nor_one_that_everybody_writes_to(self, place):
        (place / "system").chmod(0o1777)
        assert "everybody writes to" in refused(place, BindMount(str(place / "data"), str(place / "system" / "new")))

    def test_nor_one_with_very_many_things(self, place, monkeypatch):
        monkeypatch.setattr(mounts, "MOST_ENTRIES", 2)
        for number in range(3):
            (place / "system" / str(number)).touch()
        assert "holds more than 2 things" in refused(place, BindMount(str(place / "data"), f"{place}/system/new"))

    def test_nor_what_is_no_folder(self, place):
        (place / "system" / "file").touch()
        told = refused(place, BindMount(str(place / "data"), str(place / "system" / "file" / "new")))
        assert f"({place}/system/file is no folder)" in told

    def test_the_folder_that_it_works_in_must_stay_in_sight(self, place):
        for target in (place, place / "work"):
            told = refused(place, BindMount(str(place / "data"), str(target)))
            assert f"would hide the folder that it works in, {place}/work" in told

    def test_the_shell_must_stay_in_sight(self, place):
        shell = os.path.realpath(shutil.which("sh") or "")
        told = refused(place, BindMount(str(place / "data"), os.path.dirname(shell)))
        assert f"a mount at {os.path.dirname(shell)} would hide {os.path.dirname(shell)}/" in told
        assert "Choose another mount_path." in told

    def test_a_folder_that_has_a_shell_of_its_own_will_do(self, place):
        (place / "data" / "sh").touch()
        folder = os.path.dirname(os.path.realpath(shutil.which("sh") or ""))
        assert planned(place, BindMount(str(place / "data"), folder)).binds == ((str(place / "data"), folder, False),)

    def test_the_shell_is_the_first_one_on_the_path_of_this_moment(self, place, monkeypatch):
        (place / "other").mkdir()
        (place / "other" / "sh").symlink_to(os.path.realpath(shutil.which("sh") or ""))
        told = []
        for path in (f"{place}/other:{os.environ['PATH']}", os.environ["PATH"]):
            monkeypatch.setenv("PATH", path)
            error = impossible_mount([BindMount(str(place / "data"), f"{place}/other")], str(place / "work"), "step")
            told.append("" if error is None else error.message)
        assert f"would hide {place}/other/sh" in told[0]
        assert told[1] == ""

    @pytest.mark.skipif(sys.platform != "linux", reason="what is loaded is known on Linux only")
    def test_so_must_what_is_loaded_for_all(self, place):
        library = os.path.dirname(mounts._needed("sh", tuple(os.get_exec_path()))[-1])
        assert "without which nothing can run" in refused(place, BindMount(str(place / "data"), library))

    def test_what_can_never_be_is_known_before_anything_is_there(self, place):
        (place / "data" / "sub").rmdir()
        (place / "system" / "file").touch()
        cwd, data, later = str(place / "work"), str(place / "data"), str(place / "data" / "sub")

        def told(source: str, target: str, *, optional: bool = False) -> str:
            error = impossible_mount([BindMount(source, target, optional=optional)], cwd, "step")
            return "" if error is None else error.message

        assert "would hide the folder" in told(later, cwd)
        assert f"the mount path {place}/system/file is a file, what goes there a folder" in told(
            data, f"{place}/system/file"
        )
        assert [told(data, f"{cwd}/new"), told(data, NOWHERE), told(later, NOWHERE)] == ["", "", ""]
        assert told(later, cwd, optional=True) == ""

    def test_of_the_first_step_nothing_is_made_before(self, place):
        cwd, data, later = str(place / "work"), str(place / "data"), str(place / "later")

        def told(source: str, target: str, *, optional: bool = False) -> str:
            error = impossible_mount([BindMount(source, target, optional=optional)], cwd, "step", first=True)
            return "" if error is None else error.hint

        assert f"mkdir -p {cwd}/new" in told(data, f"{cwd}/new")
        assert [told(data, f"{cwd}/new", optional=True), told(data, NOWHERE), told(later, f"{cwd}/new")] == ["", "", ""]

    @pytest.mark.parametrize("top", ["system/there", NOWHERE])
    @pytest.mark.parametrize("optional", [(True, False), (False, True), (False, False)])
    def test_what_lies_in_a_mount_that_is_read_only_needs_a_folder_there(self, place, top, optional):
        data, work, top = str(place / "data"), str(place / "work"), str(place / top)
        outer = BindMount(data, top, read_only=True, optional=optional[0])
        inner = BindMount(work, f"{top}/new", optional=optional[1])
        for wanted in ([outer, inner], [inner, outer]):
            error = impossible_mount(wanted, work, "step", first=True)
            assert error is not None
            assert f"there is no {top}/new to mount at" in error.message
            assert error.hint == f"Make it ({top} is mounted itself, read only): mkdir -p {data}/new"
        found = plan([outer, inner], work, "step") if optional[1] else None
        assert found is None or [target for _, target, _ in found.view.binds] == [top]
        (place / "data/new").mkdir()
        assert impossible_mount([outer, inner], work, "step", first=True) is None
        assert [target for _, target, _ in planned(place, inner, outer).binds] == [top, f"{top}/new"]

    @pytest.mark.parametrize("top", ["system/there", NOWHERE])
    def test_what_lies_in_another_mount_gets_a_folder_there(self, place, top):
        data, work, top, file = str(place / "data"), str(place / "work"), str(place / top), str(place / "data" / "file")
        wanted = [
            BindMount(work, f"{top}/new/deep/er"),
            BindMount(data, top),
            BindMount(data, f"{top}/new"),
            BindMount(file, f"{top}/new/f"),
        ]
        assert impossible_mount(wanted, work, "step", first=True) is None
        found = plan(wanted, work, "step")
        assert found.points == ((data, "new", True), (data, "deep/er", True), (data, "f", False))
        assert [target for _, target, _ in found.view.binds] == [
            top,
            f"{top}/new",
            f"{top}/new/deep/er",
            f"{top}/new/f",
        ]
        assert all(not path.startswith(f"{top}/") for path, _ in found.view.made)
        assert not (place / "data/new").exists(), "to plan makes nothing"


class TestOptional:
    def test_one_that_cannot_be_made_is_left_out(self, place):
        wanted = [BindMount(str(place / "data"), str(place / "work" / "new"), optional=True)]
        found = plan(wanted, str(place / "work"), "step")
        assert found.view is None
        assert found.left_out[0].startswith(f"there is no {place / 'work' / 'new'} to mount")

    def test_a_view_is_optional_if_all_in_it_is(self, place):
        main = BindMount(str(place / "data"), NOWHERE, optional=True)
        assert planned(place, main).optional
        assert not planned(place, main, BindMount(str(place / "data"), NOWHERE + "2")).optional

    def test_paths_travel_as_bytes(self, place):
        odd = os.fsdecode(b"/weft-\xff")
        (_, made, binds, *_) = planned(place, BindMount(str(place / "data"), odd)).encoded()
        assert made == ((b"/weft-\xff", True),)
        assert binds == ((os.fsencode(place / "data"), b"/weft-\xff", False),)
