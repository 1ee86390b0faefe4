"""Tags and notes of runs: what is valid, and how several processes change them."""

import threading

import pytest

from weft.model.errors import UsageError
from weft.store.labels import LABELS, RunLabels, change_labels, has_tags, parse_tags, read_labels, valid_note


def test_tags_have_names_and_values():
    assert parse_tags(["stage=test", "keep", "url=a=b", " x = y "]) == {
        "stage": "test",
        "keep": "",
        "url": "a=b",
        "x": "y",
    }


@pytest.mark.parametrize("texts", [["=1"], ["1a=2"], ["a b=1"], ["a=\x1b"], ["a=" + "x" * 257], ["a=1", "a=2"], [""]])
def test_what_is_no_tag_is_refused(texts):
    with pytest.raises(UsageError):
        parse_tags(texts)


@pytest.mark.parametrize("text", ["x" * 4097, "a\x1b[31m"])
def test_what_is_no_note_is_refused(text):
    with pytest.raises(UsageError):
        valid_note(text)
    assert valid_note(" two\nlines ") == "two\nlines"


@pytest.mark.parametrize(
    ("wanted", "has"),
    [([], True), (["a"], True), (["a=1"], True), (["a=2"], False), (["a", "b"], False), (["a="], False)],
)
def test_runs_are_found_by_tags(wanted, has):
    assert has_tags(RunLabels({"a": "1"}), wanted) is has


def test_tags_are_added_and_removed_and_notes_replaced(tmp_path):
    assert read_labels(tmp_path) == read_labels(tmp_path / "none") == RunLabels()
    change_labels(tmp_path, tags={"a": "1", "b": "2"}, note="first")
    assert change_labels(tmp_path, tags={"a": "3"}, remove=["b"]) == RunLabels({"a": "3"}, "first")
    assert change_labels(tmp_path, note="") == read_labels(tmp_path) == RunLabels({"a": "3"}, "")
    with pytest.raises(UsageError, match="no tag 'c'"):
        change_labels(tmp_path, remove=["c"])
    assert [path.name for path in tmp_path.iterdir()] == [LABELS]


def test_changes_at_a_time_are_all_kept(tmp_path):
    def add(number: int) -> None:
        for each in range(4):
            change_labels(tmp_path, tags={f"t{number}_{each}": ""})

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_labels(tmp_path).tags) == 16
    with pytest.raises(UsageError, match="would have 65 tags"):
        change_labels(tmp_path, tags={f"more{number}": "" for number in range(49)})


def test_a_damaged_file_has_no_tags(tmp_path):
    (tmp_path / LABELS).write_text('{"tags": [')
    assert read_labels(tmp_path) == RunLabels()
    (tmp_path / LABELS).unlink()
    (tmp_path / LABELS).symlink_to("/etc/passwd")
    assert read_labels(tmp_path) == RunLabels()
