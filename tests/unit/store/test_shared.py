"""Objects that machines share: whole or not there, equal for equal content, never outside of their folder."""

import os
import tarfile

import pytest

from tests.objects import Objects
from weft.model.errors import CapacityError, ConflictError, ForbiddenError, NotFoundError, UsageError
from weft.store.remote import shared_url
from weft.store.shared import SharedObject, SharedStorage, fetch, pack, send, unpack

WAITS: list[float] = []


def sent(storage, path, name, scratch) -> SharedObject:
    found = send(storage, path, name, scratch)
    assert found is not None
    return found


@pytest.fixture(params=["objects", "file"])
def storage(request, tmp_path):
    Objects.clear()
    url = "objects://bucket/some" if request.param == "objects" else f"file://{tmp_path}/there"
    yield SharedStorage(url, wait=WAITS.append)
    Objects.clear()


@pytest.fixture
def scratch(tmp_path):
    (tmp_path / "scratch").mkdir()
    return str(tmp_path / "scratch")


@pytest.fixture
def tree(tmp_path):
    made = tmp_path / "tree"
    (made / "b" / "empty").mkdir(parents=True)
    (made / "a").write_text("one")
    (made / "b" / "run.sh").write_text("two")
    (made / "b" / "run.sh").chmod(0o755)
    (made / "b" / "link").symlink_to("../a")
    (made / "out").symlink_to("/etc/passwd")
    os.link(made / "a", made / "same")
    return made


def test_a_file_comes_back_with_its_mode_and_time(storage, scratch, tmp_path):
    (tmp_path / "f").write_text("text")
    (tmp_path / "f").chmod(0o750)
    os.utime(tmp_path / "f", ns=(10**9, 10**9))
    found = sent(storage, str(tmp_path / "f"), "run/step/f", scratch)
    assert found.size == 4
    assert storage.description("run/step/f") == found
    fetch(storage, found, str(tmp_path), str(tmp_path / "new" / "place"))
    place = tmp_path / "new" / "place"
    assert (place.read_text(), place.stat().st_mode & 0o777, place.stat().st_mtime_ns) == ("text", 0o755, 10**9)
    assert [one.name for one in place.parent.iterdir()] == ["place"]


def test_a_folder_comes_back_without_what_leads_out_of_it(storage, scratch, tmp_path, tree):
    found = sent(storage, str(tree), "run/tree", scratch)
    place = tmp_path / "copy"
    place.mkdir()
    (place / "old").touch()
    fetch(storage, found, str(tmp_path), str(place))
    names = sorted(str(one.relative_to(place)) for one in place.rglob("*"))
    assert names == ["a", "b", "b/empty", "b/link", "b/run.sh", "same"]
    assert (place / "b" / "link").read_text() == (place / "same").read_text() == "one"
    assert os.access(place / "b" / "run.sh", os.X_OK)
    assert os.listdir(scratch) == []


def test_equal_content_is_written_once(storage, scratch, tree):
    first = send(storage, str(tree), "run/tree", scratch)
    assert send(storage, str(tree), "run/tree", scratch) == first
    (tree / "a").write_text("three")
    assert send(storage, str(tree), "run/tree", scratch) != first


def test_what_is_missing_is_no_object(storage, scratch, tmp_path):
    assert send(storage, str(tmp_path / "none"), "run/none", scratch) is None
    assert storage.description("run/none") is None
    storage.remove("run")


def test_a_half_upload_is_not_taken(storage, scratch, tmp_path):
    storage.put_bytes(b'{"name": "run/f.1", "dig', "run/f.json")
    assert storage.description("run/f") is None
    (tmp_path / "f").write_text("text")
    found = sent(storage, str(tmp_path / "f"), "run/f", scratch)
    storage.put_bytes(b"te", found.name)
    with pytest.raises(ConflictError, match="other content"):
        fetch(storage, found, str(tmp_path), str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
    storage.remove("run")
    with pytest.raises(NotFoundError, match="is gone"):
        fetch(storage, found, str(tmp_path), str(tmp_path / "copy"))
    assert sorted(os.listdir(tmp_path)) in (["f", "scratch"], ["f", "scratch", "there"])


def test_no_link_on_the_way_is_followed(storage, scratch, tmp_path):
    (tmp_path / "f").write_text("text")
    found = sent(storage, str(tmp_path / "f"), "run/f", scratch)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "way").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ForbiddenError, match="cannot be written"):
        fetch(storage, found, str(tmp_path / "project"), str(tmp_path / "project" / "way" / "f"))
    assert not os.listdir(tmp_path / "elsewhere")


def test_an_archive_of_someone_else_writes_nothing_outside(tmp_path):
    (tmp_path / "f").write_text("text")
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.add(tmp_path / "f", "../outside")
    with pytest.raises(tarfile.TarError):
        unpack(str(tmp_path / "bad.tar"), str(tmp_path / "in"))
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "in").exists()


def test_a_part_that_is_skipped_is_not_packed(tmp_path, tree):
    pack([(str(tree), "0")], str(tmp_path / "p.tar"), lambda path, name: name == "b")
    with tarfile.open(tmp_path / "p.tar") as archive:
        assert sorted(archive.getnames()) == ["0/a", "0/same"]


def test_what_a_store_refuses_says_the_next_step(tmp_path):
    Objects.clear()
    Objects.error = PermissionError("no")
    (tmp_path / "f").write_text("text")
    with pytest.raises(CapacityError, match="cannot write to objects://bucket: it is not permitted") as caught:
        SharedStorage("objects://bucket").put(str(tmp_path / "f"), "f")
    assert "credentials" in caught.value.hint
    Objects.clear()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://me:hush@bucket/x", "credentials in the URL"),
        ("s3://bucket/x?key=hush", "credentials in the URL"),
        ("folder/x", "no URL"),
        ("s3://", "no URL"),
    ],
)
def test_a_url_must_be_one_without_credentials(url, said):
    with pytest.raises(UsageError, match=said) as caught:
        shared_url(url, "--storage")
    assert "hush" not in str(caught.value)
    assert caught.value.hint


def test_last_slashes_of_a_url_do_not_count():
    assert shared_url("s3://bucket/x//", "--storage") == "s3://bucket/x"
    assert SharedObject(name="n", digest="d", size=1).packed is False
