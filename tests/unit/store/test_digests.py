"""Digests of files and folders, and when a stat may stand for content."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.errors import ConflictError, ForbiddenError, InputLimitError, RunCancelledError
from weft.store.digests import ABSENT, MARGIN_NS, Digester, Item, read_listing, write_listing


class Noted:
    """What is remembered, in memory."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, int], tuple[str, str]] = {}
        self.trees: dict[str, bytes] = {}

    def digest(self, device: int, inode: int, seen: str) -> str | None:
        noted = self.files.get((device, inode))
        return noted[1] if noted is not None and noted[0] == seen else None

    def note(self, device: int, inode: int, seen: str, digest: str) -> None:
        self.files[device, inode] = (seen, digest)

    def note_tree(self, digest: str, listing: bytes) -> None:
        self.trees[digest] = listing


class Clock:
    """The clock of the file system, which runs ahead by as much as it is told."""

    def __init__(self, path: Path) -> None:
        self.path, self.ahead_ns = path, 0

    def __call__(self) -> int:
        probe = self.path / ".clock"
        probe.write_bytes(b"")
        return probe.stat().st_ctime_ns + self.ahead_ns


@pytest.fixture
def noted():
    return Noted()


@pytest.fixture
def clock(tmp_path):
    (tmp_path / "clock").mkdir()
    return Clock(tmp_path / "clock")


@pytest.fixture
def digester(noted, clock):
    return Digester(noted, clock)


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "a").write_text("1")
    (root / "sub" / "b").write_text("2")
    (root / "link").symlink_to("sub/b")
    return root


def later(clock: Clock) -> None:
    clock.ahead_ns += MARGIN_NS + 1_000_000_000


class TestWhatCounts:
    def test_equal_trees_have_equal_digests_wherever_they_are(self, digester, tree, tmp_path):
        import shutil

        copy = tmp_path / "elsewhere" / "copy"
        shutil.copytree(tree, copy, symlinks=True)
        os.utime(copy / "a", (1, 1))
        assert digester.of(tree) == digester.of(copy)

    @pytest.mark.parametrize(
        "change",
        [
            lambda root: (root / "a").write_text("3"),
            lambda root: (root / "sub" / "b").write_text(""),
            lambda root: (root / "a").rename(root / "c"),
            lambda root: (root / "a").chmod(0o755),
            lambda root: (root / "new").write_text(""),
            lambda root: (root / "empty").mkdir(),
            lambda root: (root / "link").unlink(),
            lambda root: ((root / "link").unlink(), (root / "link").symlink_to("a")),
            lambda root: ((root / "a").unlink(), (root / "a").mkdir()),
            lambda root: os.mkfifo(root / "pipe"),
        ],
    )
    def test_every_change_shows(self, digester, tree, change):
        before = digester.of(tree)
        change(tree)
        assert digester.of(tree) != before

    def test_what_a_link_leads_to_outside_counts(self, digester, tree, tmp_path):
        (tmp_path / "outside").write_text("1")
        (tree / "out").symlink_to(tmp_path / "outside")
        before = digester.of(tree)
        (tmp_path / "outside").write_text("2")
        assert digester.of(tree) != before

    def test_links_in_circles_end(self, digester, tree, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        (tree / "there").symlink_to(other)
        (other / "back").symlink_to(tree)
        (tree / "self").symlink_to("self")
        assert digester.of(tree) == digester.of(tree)

    def test_what_is_absent_or_ignored(self, noted, clock, digester, tree):
        assert digester.of(tree / "none") == digester.of(tree / "a" / "b") == ABSENT
        before = Digester(noted, clock, ignore={b".weft"}).of(tree)
        (tree / ".weft").mkdir()
        assert Digester(noted, clock, ignore={b".weft"}).of(tree) == before
        assert digester.of(tree) != before

    def test_names_that_are_no_text(self, digester, tree):
        open(os.fsencode(tree) + b"/\xff\n", "w").close()
        assert digester.of(tree)[0] == "d"

    def test_a_file_is_itself_through_a_link(self, digester, tree):
        assert digester.of(tree / "link") == digester.of(tree / "sub" / "b")

    def test_several_paths(self, digester, tree):
        one, two = str(tree / "a"), str(tree / "sub")
        assert digester.of_all([one]) == digester.of(one)
        assert digester.of_all([one, two]) != digester.of_all([two, one])

    def test_folders_that_are_too_deep(self, digester, tmp_path):
        root = tmp_path / "deep"
        (root / Path(*["d"] * 300)).mkdir(parents=True)
        with pytest.raises(InputLimitError, match="256 folders"):
            digester.of(root)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_what_cannot_be_read(self, digester, tree):
        (tree / "a").chmod(0)
        with pytest.raises(ForbiddenError, match="cannot be read"):
            digester.of(tree)


class TestShortcut:
    def test_nothing_is_read_again(self, noted, clock, digester, tree):
        later(clock)
        first = digester.of(tree)
        assert digester.bytes_read == 2
        again = Digester(noted, clock)
        assert again.of(tree) == first
        assert again.of(tree / "a")[0] == "f"
        assert again.bytes_read == 0

    def test_of_a_changed_folder_only_the_changed_file_is_read(self, noted, clock, digester, tree):
        later(clock)
        digester.of(tree)
        (tree / "c").write_text("12345")
        again = Digester(noted, clock)
        again.of(tree)
        assert again.bytes_read == 5

    def test_what_was_changed_just_before_is_read_again(self, noted, clock, digester, tree):
        digester.of(tree)
        again = Digester(noted, clock)
        again.of(tree)
        assert again.bytes_read == 2

    def test_the_same_size_and_the_old_time_do_not_fool_it(self, noted, clock, digester, tree):
        later(clock)
        before = digester.of(tree)
        stat = (tree / "a").stat()
        (tree / "a").write_text("9")
        os.utime(tree / "a", ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert Digester(noted, clock).of(tree) != before

    def test_an_edit_within_a_tick_of_the_clock_does_not_fool_it(self, noted, clock, tree):
        for number in range(50):
            (tree / "a").write_text(f"{number:03}")
            stat = (tree / "a").stat()
            one = Digester(noted, clock).of(tree)
            with (tree / "a").open("r+") as file:
                file.write(f"{number + 1:03}")
            os.utime(tree / "a", ns=(stat.st_atime_ns, stat.st_mtime_ns))
            assert Digester(noted, clock).of(tree) != one

    def test_a_clock_that_was_set_back_makes_nothing_trusted(self, noted, clock, digester, tree):
        clock.ahead_ns = -(10**12)
        digester.of(tree)
        assert noted.files == {}

    def test_a_file_that_changes_while_it_is_read_is_refused(self, noted, clock, tree):
        class Restless(Digester):
            def _file(self, path: bytes, about: os.stat_result, started: int) -> str:
                with open(path, "ab") as file:
                    file.write(b"x")
                return super()._file(path, about, started)

        with pytest.raises(ConflictError, match="keeps changing"):
            Restless(noted, clock).of(tree)
        with pytest.raises(ConflictError, match="keeps changing"):
            Restless(noted, clock).of(tree / "a")

    def test_it_gives_up_when_it_is_told_to(self, noted, clock, tree):
        for stopped in (lambda: True, iter([False, False, True]).__next__):
            with pytest.raises(RunCancelledError):
                Digester(noted, clock, stopped=stopped).of(tree)
        assert noted.files == {}

    def test_a_file_that_changed_once_while_it_was_read_is_read_again(self, noted, clock, tree):
        class Once(Digester):
            done = False

            def _file(self, path: bytes, about: os.stat_result, started: int) -> str:
                if not self.done:
                    self.done = True
                    with open(path, "ab") as file:
                        file.write(b"x")
                return super()._file(path, about, started)

        found = Once(noted, clock).of(tree)
        assert found == Digester(Noted(), clock).of(tree)


names = st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name and b"/" not in name)
digests = st.sampled_from("fxdlo").flatmap(lambda kind: st.just(kind + "0" * 64))


@given(st.lists(st.tuples(names, digests, st.one_of(st.just(b""), names))))
def test_a_listing_comes_back_as_it_was(items):
    listing = [Item(*item) for item in items]
    assert read_listing(write_listing(listing)) == listing


def test_a_damaged_listing_says_so():
    with pytest.raises(ConflictError, match="damaged"):
        read_listing(b"f0 name\0")
