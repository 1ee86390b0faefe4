"""Keys, reasons, keeping and collecting of results."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.started import start
from weft.model.errors import DiskFullError, NotFoundError
from weft.store.differences import readable, tell_changes
from weft.store.entries import CacheIndex, Claim
from weft.store.results import Recipe, ResultCache, digest_of_leaves

pytestmark = pytest.mark.slow


class Clock:
    def __init__(self) -> None:
        self.now = 4_000_000_000.0  # later than every file

    def __call__(self) -> float:
        return self.now


class World:
    """A step with an input file, an input folder, two scopes and two outputs."""

    def __init__(self, folder: Path, url: str = "", *, fresh: bool = True) -> None:
        self.folder = folder
        self.clock = Clock()
        self.place = url or folder / "cache.db"
        self.cache = ResultCache(CacheIndex(self.place), self.clock)
        if fresh:  # else another process has made them
            self._make_inputs()
        self.recipe = Recipe(
            pipeline="p",
            step="train",
            run="run-1",
            store=str(folder / ".cas"),
            root=str(folder),
            static={
                "command": "sh train.sh {{in}} {{model}}",
                "image": "python:3.12",
                "user": "me",
                "parameter epoch": "15",
                "parameter rate": "0.1",
                "parameter name": '"a"',
                "parameter sizes": "[1, 2]",
                "environment FOO": "1",
                "environment BAR": "x y",
                "input name data": "",
                "input name one": "",
                "output name model": "",
                "output name log": "",
                "mount main": '["", "", false]',
                "loop item": "1",
            },
            inputs={"data": [f"{folder}/in"], "one": [f"{folder}/one"]},
            scopes=[["main:scripts", f"{folder}/scripts"], ["main:conf", f"{folder}/conf"]],
            outputs={"model": f"{folder}/run-1/model", "log": f"{folder}/run-1/log"},
        )

    def _make_inputs(self) -> None:
        folder = self.folder
        (folder / "in/sub/deep").mkdir(parents=True)
        (folder / "scripts/lib").mkdir(parents=True)
        for name in ("in/a", "in/sub/b", "in/sub/deep/c", "one", "scripts/train.sh", "scripts/lib/util.py", "conf"):
            (folder / name).write_text(name)

    def make(self, recipe: Recipe | None = None) -> str:
        """Run the step as it were, and keep its result; return why it was not kept."""
        recipe = recipe or self.recipe
        key = self.cache.key(recipe)
        for name, path in recipe.outputs.items():
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(f"{name} of {recipe.run}")
        self.claim(recipe)
        assert key == self.cache.key(recipe)
        return self.cache.keep(recipe, self.clock())

    def claim(self, recipe: Recipe) -> Claim:
        key = self.cache.key(recipe)
        now = self.clock()
        claim = Claim(
            key=key.key,
            epoch=0,
            run=recipe.run,
            step=recipe.step,
            task=recipe.task,
            host="here",
            pid=1,
            since=now,
            lease_until=now,
            leaves=key.leaves,
        )
        return self.cache.index.claim(claim)

    def why(self, recipe: Recipe | None = None) -> str:
        recipe = recipe or self.recipe
        key = self.cache.key(recipe)
        found = self.cache.find(key.key, recipe.expires_s)
        assert found.entry is None
        return found.reason or self.cache.why(recipe, key.leaves).reason

    def leaf(self, name: str, value: str | None) -> Recipe:
        static = {**self.recipe.static, name: value}
        return replace(self.recipe, static={key: text for key, text in static.items() if text is not None})


@pytest.fixture
def place(request):
    """The URL of the index; "": a file. A parameter selects one of both."""
    server = getattr(request, "param", "sqlite") == "postgresql"
    return request.getfixturevalue("postgresql_url") if server else ""


@pytest.fixture
def world(tmp_path, place):
    world = World(tmp_path, place)
    yield world
    world.cache.index.close()


def leaf(name: str, value: str | None) -> Callable[[World], Recipe]:
    return lambda world: world.leaf(name, value)


def on_disk(change: Callable[[Path], Any]) -> Callable[[World], Recipe]:
    def act(world: World) -> Recipe:
        change(world.folder)
        return world.recipe

    return act


def _make_it_a_file(folder: Path) -> None:
    shutil.rmtree(folder / "in")
    (folder / "in").touch()


CHANGES: list[tuple[str, Callable[[World], Recipe], str]] = [
    *((f"parameter {n} changed", leaf(f"parameter {n}", v), f"parameter {n}: {b} → {v}") for n, b, v in (
        ("epoch", "15", "20"), ("epoch", "15", "15.0"), ("epoch", "15", '"15"'), ("rate", "0.1", "0.2"),
        ("name", '"a"', '"b"'), ("sizes", "[1, 2]", "[2, 1]"), ("sizes", "[1, 2]", "[1]"),
    )),
    ("parameter removed", leaf("parameter epoch", None), "parameter epoch was removed"),
    ("list removed", leaf("parameter sizes", None), "parameter sizes was removed"),
    ("parameter added", leaf("parameter depth", "3"), "parameter depth was added: 3"),
    ("variable changed", leaf("environment FOO", "2"), "environment FOO: 1 → 2"),
    ("variable emptied", leaf("environment FOO", ""), "environment FOO: 1 → "),
    ("variable removed", leaf("environment BAR", None), "environment BAR was removed"),
    ("variable added", leaf("environment NEW", "1"), "environment NEW was added: 1"),
    ("image", leaf("image", "python:3.13"), "image: python:3.12 → python:3.13"),
    ("image digest", leaf("image", "sha256:1"), "image: python:3.12 → sha256:1"),
    ("no image", leaf("image", None), "image was removed"),
    ("loop item", leaf("loop item", "2"), "loop item: 1 → 2"),
    ("no loop", leaf("loop item", None), "loop item was removed"),
    ("user", leaf("user", "you"), "user: me → you"),
    ("command", leaf("command", "sh train.sh -v {{in}} {{model}}"), "the command changed: "),
    ("a blank in the command", leaf("command", "sh train.sh  {{in}} {{model}}"), "the command changed: "),
    ("mount", leaf("mount main", '["sub", "", false]'), "mount main: sub_path not given → sub"),
    ("mount for reading", leaf("mount main", '["", "/x", true]'),
     "mount main: mount_path not given → /x, read_only no → yes"),
    ("mount removed", leaf("mount main", None), "mount main was removed"),
    ("mount added", leaf("mount more", '["", "", false]'), "mount more was added"),
    ("mount of a part added", leaf("mount more", '["sub", "/x", true]'),
     "mount more was added: sub_path sub, mount_path /x, read_only yes"),
    ("characters", leaf("parameter name", '"\\u65e5\\u672c"'), 'parameter name: "a" → "日本"'),
    ("half a character", leaf("parameter name", '"\\ud800"'), 'parameter name: "a" → "\\ud800"'),
    ("output name added", leaf("output name extra", ""), "output name extra was added"),
    ("output name removed", leaf("output name log", None), "output name log was removed"),
    ("input name added", leaf("input name extra", ""), "input name extra was added"),
    ("mode", lambda world: replace(world.recipe, mode="paddleflow"), "mode: content → paddleflow"),
    ("input file", on_disk(lambda f: (f / "one").write_text("other")), "input one changed"),
    ("input file of the same size", on_disk(lambda f: (f / "one").write_text("eno")), "input one changed"),
    ("input file executable", on_disk(lambda f: (f / "one").chmod(0o755)), "input one can be executed now"),
    ("input gone", on_disk(lambda f: (f / "one").unlink()), "input one is gone"),
    ("input folder: file", on_disk(lambda f: (f / "in/a").write_text("")), "input data: a changed"),
    ("input folder: nested", on_disk(lambda f: (f / "in/sub/b").write_text("")), "input data: sub/b changed"),
    ("input folder: deep", on_disk(lambda f: (f / "in/sub/deep/c").write_text("")), "input data: sub/deep/c changed"),
    ("input folder: new", on_disk(lambda f: (f / "in/new").write_text("")), "input data: new was added"),
    ("input folder: gone", on_disk(lambda f: (f / "in/sub/b").unlink()), "input data: sub/b was removed"),
    ("input folder: a folder", on_disk(lambda f: shutil.rmtree(f / "in/sub")), "input data: sub was removed"),
    ("input folder: renamed", on_disk(lambda f: (f / "in/a").rename(f / "in/z")), "input data: a was removed, z was"),
    ("input folder: link", on_disk(lambda f: (f / "in/l").symlink_to("a")), "input data: l was added"),
    ("input folder: executable", on_disk(lambda f: (f / "in/a").chmod(0o755)), "input data: a changed"),
    ("input folder is a file", on_disk(_make_it_a_file), "input data changed"),
    ("script", on_disk(lambda f: (f / "scripts/train.sh").write_text("")), "main:scripts: train.sh changed"),
    ("library", on_disk(lambda f: (f / "scripts/lib/util.py").write_text("")), "main:scripts: lib/util.py changed"),
    ("new script", on_disk(lambda f: (f / "scripts/lib/x").touch()), "main:scripts: lib/x was added"),
    ("empty folder", on_disk(lambda f: (f / "scripts/x").mkdir()), "main:scripts: x was added"),
    ("single file", on_disk(lambda f: (f / "conf").write_text("")), "main:conf changed"),
    ("scope emptied", on_disk(lambda f: shutil.rmtree(f / "scripts/lib")), "main:scripts: lib was removed"),
    ("scope removed", lambda w: replace(w.recipe, scopes=w.recipe.scopes[:1]), "file main:conf was removed"),
]  # fmt: skip


def test_the_matrix_is_large():
    assert len(CHANGES) >= 40


@pytest.mark.parametrize(("change", "said"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_a_single_change_is_told_exactly(world, change, said):
    assert world.make() == ""
    recipe = change(world)
    told = world.why(recipe)
    assert told.startswith(said)
    assert told.endswith(", compared with run-1")
    assert "and" not in told.removeprefix(said).split(), "there is one change, so one is told"


def test_a_scope_that_is_gone_is_told_and_has_no_key(world):
    assert world.make() == ""
    shutil.rmtree(world.folder / "scripts")
    with pytest.raises(NotFoundError, match=r"fs_scope names main:scripts, but .*/scripts does not exist"):
        world.why(world.recipe)


def test_the_item_of_a_loop_is_told_before_code():
    old, new = ({"code x": n, "loop argument": n} for n in "12")
    assert [told.partition(":")[0] for told in tell_changes(old, new)] == ["loop argument", "code x"]


@pytest.mark.parametrize(
    ("leaf", "changed", "added"),
    [
        ("query", "the text of the query changed", "the text of the query was added"),
        (
            "packages venv",
            "what its packages are made of (venv) changed",
            "what its packages are made of (venv) was added",
        ),
    ],
)
def test_a_digest_is_told_in_words(leaf, changed, added):
    assert tell_changes({leaf: "1" * 64}, {leaf: "2" * 64}) == [changed]
    assert tell_changes({}, {leaf: "2" * 64}) == [added]


def test_an_item_without_a_result_is_not_compared_with_another_item(world):
    world.make(world.leaf("loop argument", "3"))
    other = replace(world.leaf("loop argument", "2"), run="run-2")
    assert world.why(other) == "no result for the item 2 is kept"


def test_what_is_told_is_the_nearest(world):
    world.make()
    world.make(
        replace(
            world.leaf("parameter epoch", "99"),
            run="run-2",
            static={**world.recipe.static, "user": "x", "parameter epoch": "99"},
        )
    )
    assert world.why(world.leaf("parameter epoch", "20")).endswith("compared with run-1")


def test_an_item_is_compared_with_the_same_item_of_an_earlier_run(world):
    """Also where later items of its own run, and more items than are newest, have results."""

    def item(number: int, run: str, change: str) -> Recipe:
        own = replace(world.leaf("loop argument", str(number)), run=run, task=number)
        changed: Recipe = replace(own, static={**own.static, "parameter change": change})
        return changed

    for number in range(55):
        world.make(item(number, "run-1", "a"))
    assert world.why(item(55, "run-1", "a")).startswith("no result of it is kept")
    world.clock.now += 10
    for number in range(1, 56):
        reason = world.why(item(number, "run-2", "b"))
        new = number == 55
        assert reason == "parameter change: a → b" + ", loop argument: 54 → 55" * new + ", compared with run-1"
        world.make(item(number, "run-2", "b"))
    assert world.why(item(0, "run-2", "b")) == "parameter change: a → b, compared with run-1"
    assert world.why(item(40, "run-2", "c")) == "parameter change: b → c, compared with run-2", "it was resumed"


def test_files_in_folders_count_for_what_is_nearest(world):
    file = world.folder / "scripts/lib/util.py"
    world.make()
    file.write_text("other")
    world.clock.now += 1
    world.make(replace(world.recipe, run="run-2"))
    file.write_text("scripts/lib/util.py")
    (world.folder / "scripts/train.sh").write_text("x")
    assert world.why() == "main:scripts: train.sh changed, compared with run-1"


def test_a_folder_that_nobody_knows_any_more_is_one_difference(world):
    world.make()
    world.cache.index.forget_trees(lambda entries, claims: ())
    (world.folder / "scripts/train.sh").write_text("x")
    assert world.why() == "main:scripts changed, compared with run-1"


def test_looking_changes_nothing(world):
    world.make()
    shutil.rmtree(world.folder / ".cas")
    assert world.why() == world.why()
    assert world.cache.index.count()[0] == 1


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_never_ran_expired_and_gone(world):
    assert "never ran" in world.why()
    limited = replace(world.recipe, expires_s=100.0)
    world.make(limited)
    world.clock.now += 99
    assert world.cache.find(world.cache.key(limited).key, limited.expires_s).entry is not None
    world.clock.now += 41
    assert world.why(limited) == "its result of run-1 expired 40 s ago"
    world.clock.now -= 41
    shutil.rmtree(world.folder / ".cas")
    assert "is gone" in world.why()


def test_a_change_of_what_runs_share_is_told_with_the_runs(world):
    store = world.cache.content(world.recipe.store)
    store.share, store.copied = True, -1
    world.make()
    entry = world.cache.find(world.cache.key(world.recipe).key).entry
    again = {name: f"{world.folder}/run-2/{name}" for name in world.recipe.outputs}
    world.cache.take(entry, replace(world.recipe, run="run-2", outputs=again))
    world.cache.index.flush()
    edited = Path(world.recipe.outputs["model"])
    edited.chmod(0o644)
    edited.write_text("edited")
    if Path(again["model"]).read_text() != "edited":
        pytest.skip("this file system makes clones")
    assert world.why().endswith("through another name of it; what runs have of it changed too (run-1, run-2)")


def test_the_reader_decides_how_old_a_result_may_be(world):
    world.make()
    world.clock.now += 50
    limited = replace(world.recipe, expires_s=20.0)
    assert world.why(limited) == "its result of run-1 expired 30 s ago"
    world.make(limited)
    world.clock.now += 60
    for wider in (world.recipe, replace(world.recipe, expires_s=70.0)):
        assert world.cache.find(world.cache.key(wider).key, wider.expires_s).entry is not None


class TestAClockThatWasSetBack:
    DAY_S = 86_400.0

    def test_a_result_of_unknown_age_counts_as_expired(self, world):
        limited = replace(world.recipe, expires_s=100.0)
        world.make(limited)
        world.clock.now -= self.DAY_S
        assert "the clock was set back" in world.why(limited)
        assert world.cache.collect() == (1, 2, 2 * len("model of run-1") - 2)

    def test_a_result_that_never_expires_stays(self, world):
        world.make()
        world.clock.now -= self.DAY_S
        assert world.cache.find(world.cache.key(world.recipe).key).entry is not None

    @pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
    def test_the_least_recently_used_goes_first(self, world):
        def made(number, later_s):
            world.clock.now += later_s
            recipe = world.leaf("parameter epoch", number)
            assert world.make(recipe) == ""
            return world.cache.key(recipe).key

        oldest, second, third = made("1", 0), made("2", 10), made("3", 10)
        newest = made("4", 10 - self.DAY_S)
        world.cache.index.used(second, "run-9", world.clock() + 1)
        world.cache.index.flush(world.clock() + 1)
        order = [entry.key for entry in world.cache.index.entries()]
        assert order == [second, newest, third, oldest]

    def test_what_is_not_used_for_long_goes(self, world):
        world.make()
        world.clock.now -= self.DAY_S
        assert world.cache.collect(max_age_s=60)[0] == 0
        world.clock.now += 120
        assert world.cache.collect(max_age_s=60)[0] == 1


def test_only_minus_one_means_for_ever(world):
    """PaddleFlow adds any other number to the time of the end."""
    limited = replace(world.recipe, expires_s=-5.0)
    world.make(limited)
    assert world.why(limited) == "its result of run-1 expired 5 s ago"


def test_keys_know_nothing_of_runs_and_places(world, tmp_path):
    other = World(tmp_path / "elsewhere")
    assert other.cache.key(other.recipe).key == world.cache.key(world.recipe).key
    again = replace(world.recipe, run="run-2", step="other", pipeline="q", outputs={"model": "/x", "log": "/y"}, task=3)
    assert world.cache.key(again).key == world.cache.key(world.recipe).key
    other.cache.index.close()


def test_a_recipe_travels_as_text(world):
    again = Recipe.from_json(world.recipe.to_json())
    assert again.to_json() == world.recipe.to_json()
    assert world.cache.key(again) == world.cache.key(world.recipe)


def test_what_was_kept_is_put_in_place(world):
    world.make()
    entry = world.cache.find(world.cache.key(world.recipe).key).entry
    again = replace(
        world.recipe, run="run-2", outputs={name: f"{world.folder}/run-2/x/{name}" for name in ("model", "log")}
    )
    world.cache.take(entry, again)
    assert (world.folder / "run-2/x/model").read_text() == "model of run-1"
    world.cache.index.flush()
    assert world.cache.index.users(entry.key) == ["run-2"]
    with pytest.raises(NotFoundError, match="no output new"):
        world.cache.take(entry, replace(again, outputs={"new": f"{world.folder}/run-2/new"}))


class TestTogether:
    """Results that are looked up and taken at once."""

    @pytest.fixture
    def key(self, world) -> str:
        assert world.make() == ""
        return str(world.cache.key(world.recipe).key)

    def free(self, world: World) -> bool:
        """Whether somebody could remove what nobody refers to."""
        fd = os.open(world.folder / ".cas" / "lock", os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def taken(self, world: World, key: str, run: str) -> str:
        folder = world.folder / run
        recipe = replace(world.recipe, run=run, outputs={"model": str(folder / "model"), "log": str(folder / "log")})
        found = world.cache.find(key)
        if found.entry is None:
            return found.reason
        world.cache.take(found.entry, recipe)
        return (folder / "model").read_text()

    def test_the_store_is_held_still_once(self, world, key):
        with world.cache.together():
            assert self.free(world), "it is not needed yet"
            assert self.taken(world, key, "run-2") == "model of run-1"
            assert not self.free(world)
            assert self.taken(world, key, "run-3") == "model of run-1"
        assert self.free(world)
        assert self.taken(world, key, "run-4") == "model of run-1"
        assert self.free(world)

    def test_it_is_let_go_of_after_an_error_too(self, world, key):
        other = replace(world.recipe, outputs={"other": f"{world.folder}/other"})
        found = world.cache.find(key).entry
        with pytest.raises(NotFoundError), world.cache.together():
            world.cache.take(found, other)
        assert self.free(world)

    def test_what_is_foreseen_is_taken(self, world, key):
        with world.cache.together():
            world.cache.foresee([key, "unknown"])
            assert self.taken(world, key, "run-2") == "model of run-1"
            assert self.taken(world, key, "run-3") == "model of run-1", "once more"

    def test_what_was_not_there_yet_is_found_all_the_same(self, world):
        key = world.cache.key(world.recipe).key
        with world.cache.together():
            world.cache.foresee([key])
            assert world.make() == ""
            assert self.taken(world, key, "run-2") == "model of run-1"

    def test_what_is_not_whole_any_more_is_not_taken(self, world, key):
        with world.cache.together():
            world.cache.foresee([key])
            shutil.rmtree(world.folder / ".cas" / "objects")
            assert "cannot be used" in self.taken(world, key, "run-2")
            assert world.cache.find(key).entry is None


def test_the_digest_of_leaves_is_that_of_their_json():
    leaves = {"b": 'quoted "text" \\ \n', "a": "ä€😀", "\x00": ""}
    written = json.dumps(sorted(leaves.items()), ensure_ascii=True)
    assert digest_of_leaves(leaves) == hashlib.sha256(written.encode()).hexdigest()


def test_nothing_is_kept_without_a_claim_or_with_a_late_one(world):
    assert world.cache.keep(world.recipe, 0.0) == ""
    assert world.cache.index.count() == (0, 0)
    for path in world.recipe.outputs.values():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).touch()
    world.claim(world.recipe)
    world.claim(replace(world.recipe, run="run-2"))
    assert world.cache.keep(world.recipe, 0.0) == ""
    assert world.cache.index.count() == (0, 0)


def test_unchanged_inputs_are_not_read_again(world):
    world.cache.key(world.recipe)
    assert world.cache.bytes_read > 0
    world.cache.bytes_read = 0
    world.cache.key(world.recipe)
    assert world.cache.bytes_read == 0


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
class TestCollecting:
    def results(self, world: World, count: int) -> None:
        for number in range(count):
            world.clock.now += 100
            world.make(replace(world.leaf("parameter epoch", str(number)), run=f"run-{number}"))

    def runs(self, world: World) -> list[str]:
        return sorted(entry.run for entry in world.cache.index.entries())

    def test_the_oldest_go_until_there_is_room(self, world):
        self.results(world, 4)
        size = world.cache.index.entries()[0].size
        forgot, files, nbytes = world.cache.collect(max_bytes=2 * size)
        assert (forgot, files, nbytes) == (2, 4, 2 * size)
        assert self.runs(world) == ["run-2", "run-3"]
        assert world.cache.content(str(world.folder / ".cas")).size() == (4, 2 * size)

    def test_what_was_not_used_for_long_goes(self, world):
        self.results(world, 3)
        world.cache.index.used(world.cache.key(world.leaf("parameter epoch", "0")).key, "run-9", world.clock())
        world.cache.index.flush()
        world.cache.collect(max_age_s=150)
        assert self.runs(world) == ["run-0", "run-1", "run-2"]
        world.clock.now += 120
        world.cache.collect(max_age_s=150)
        assert self.runs(world) == ["run-0", "run-2"]

    def test_pinned_ones_stay_and_expired_ones_go(self, world):
        world.make(replace(world.recipe, expires_s=10.0))
        world.cache.index.pin(world.cache.index.entries()[0].key, True)
        world.clock.now += 11
        world.cache.collect(max_bytes=0, max_age_s=0)
        assert self.runs(world) == ["run-1"]
        world.cache.index.pin(world.cache.index.entries()[0].key, False)
        assert world.cache.collect()[0] == 1

    def test_shared_content_stays_with_who_needs_it(self, world):
        world.make()
        same = replace(world.leaf("parameter epoch", "16"), run="run-1", outputs=dict(world.recipe.outputs))
        world.clock.now += 1
        world.make(same)
        forgot, files, _ = world.cache.collect(max_bytes=world.cache.index.entries()[0].size)
        assert (forgot, files) == (1, 0)
        assert world.cache.find(world.cache.key(same).key).entry is not None

    def test_files_go_before_the_index_is_told(self, world, monkeypatch):
        world.make()
        store = world.folder / ".cas/objects"
        assert list(store.glob("*/*"))

        def full(_: object) -> None:
            assert not list(store.glob("*/*"))
            raise DiskFullError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(world.cache.index, "remove_unchanged", full)
            with pytest.raises(DiskFullError):
                world.cache.collect(max_bytes=0)
        assert "cannot be used" in world.cache.find(world.cache.key(world.recipe).key).reason
        world.cache.collect(max_bytes=0)
        assert world.cache.index.entries() == []

    def test_the_content_of_removed_results_goes_when_no_other_is_left(self, world):
        """The cache of the next command knows the store by no result any more."""
        world.make()
        world.cache.index.remove([entry.key for entry in world.cache.index.entries()])
        world.cache.index.close()
        cache = ResultCache(CacheIndex(world.place), world.clock)
        try:
            assert cache.collect()[:2] == (0, 2)
            assert cache.index.left_stores() == set()
            assert cache.content(world.recipe.store).size() == (0, 0)
        finally:
            cache.index.close()

    def test_collecting_keeps_what_reasons_need(self, world):
        world.make()
        world.cache.collect()
        (world.folder / "in/sub/b").write_text("changed")
        assert world.why().startswith("input data: sub/b changed")

    def test_and_what_those_of_tasks_that_still_run_will_need(self, world):
        world.claim(world.recipe)  # its inputs are noted with the claim
        world.cache.collect()
        for name, path in world.recipe.outputs.items():
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(name)
        assert world.cache.keep(world.recipe, world.clock()) == ""
        (world.folder / "in/sub/b").write_text("changed")
        assert world.why().startswith("input data: sub/b changed")

    def other(self, world: World) -> World:
        """The same folder and index, as another process has them."""
        other = copy(world)
        other.cache = ResultCache(CacheIndex(world.place), world.clock)
        return other

    def test_a_result_that_is_made_again_meanwhile_stays(self, world, monkeypatch):
        world.make()
        other = self.other(world)
        real = world.cache.index.remove_unchanged

        def late(gone: dict[str, float]) -> None:
            world.clock.now += 1
            assert other.make() == ""
            real(gone)

        monkeypatch.setattr(world.cache.index, "remove_unchanged", late)
        assert world.cache.collect(max_bytes=0)[0] == 1
        assert other.cache.find(other.cache.key(world.recipe).key).entry is not None
        other.cache.index.close()

    def test_the_folders_of_a_result_that_is_made_meanwhile_stay(self, world, monkeypatch):
        other = self.other(world)
        real = world.cache.index.forget_trees
        made = replace(world.recipe, outputs={"model": f"{world.folder}/run-1/folder"})

        def late(kept: Any) -> None:
            other.claim(made)
            (world.folder / "run-1/folder").mkdir(parents=True)
            (world.folder / "run-1/folder/x").write_text("x")
            assert other.cache.keep(made, world.clock()) == ""
            real(kept)

        monkeypatch.setattr(world.cache.index, "forget_trees", late)
        world.cache.collect()
        found = self.other(world).cache
        entry = found.find(found.key(made).key).entry
        assert entry is not None
        found.take(entry, replace(made, run="run-2", outputs={"model": f"{world.folder}/run-2/folder"}))
        assert (world.folder / "run-2/folder/x").read_text() == "x"
        other.cache.index.close()
        found.index.close()

    def test_two_processes_may_make_and_collect(self, world):
        """Every result in the index is whole at the end, whoever has removed what meanwhile."""
        told = [
            start(
                [sys.executable, "-c", HAMMER, str(world.folder), str(world.place), str(number)],
                cwd=ROOT,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(2)
        ]
        for process in told:
            _, err = process.communicate(timeout=180)
            assert process.returncode == 0, err
        entries = world.cache.index.entries()
        for entry in entries:
            found = world.cache.find(entry.key)
            assert found.entry is not None, found.reason
            out = {"model": str(world.folder / "again" / entry.key)}
            world.cache.take(entry, replace(world.recipe, run="again", outputs=out))
            assert (world.folder / "again" / entry.key / "x").read_text().startswith("x")
        assert len(entries) >= 2


ROOT = Path(__file__).parents[3]
HAMMER = """
import random, sys
from pathlib import Path
from msgspec.structs import replace
from tests.unit.store.test_results import World

folder, place, number = sys.argv[1:]
world = World(Path(folder), place if "://" in place else "", fresh=False)
rng = random.Random(number)
for turn in range(25):
    epoch = rng.randrange(6)
    out = Path(folder, f"run-{number}-{turn}", "folder")
    recipe = replace(world.leaf("parameter epoch", str(epoch)), run=out.parent.name, outputs={"model": str(out)})
    world.clock.now += 1
    world.claim(recipe)
    out.mkdir(parents=True)
    (out / "x").write_text(f"x{epoch}")
    world.cache.keep(recipe, world.clock())
    if turn % 3 == 2:
        world.cache.collect(max_bytes=8)
world.cache.index.close()
"""


def test_text_is_told_as_people_write_it():
    old, new = {"parameter a": json.dumps("日本")}, {"parameter a": json.dumps(["温", 1])}
    assert tell_changes(old, new) == ['parameter a: "日本" → ["温", 1]']
    assert [readable(text) for text in (*old.values(), "{x}", "15")] == ['"日本"', "{x}", "15"]
    assert tell_changes({"parameter a": "\\u and more"}, new) == ['parameter a: \\u and more → ["温", 1]']
