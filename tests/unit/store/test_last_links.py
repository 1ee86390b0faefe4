"""The links to the last outputs: all of a pipeline change at once, lead into a copy, and go with their run."""

import shutil

import pytest

from weft.store.last_links import link_last, unlink_last


def made(outputs, run, content, *titles):
    found = {}
    for title in titles:
        step, _, artifact = title.rpartition(".")
        path = outputs / run / "words" / f"{step}-0-hash" / artifact
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        found[title] = str(path)
    return found


def test_they_lead_to_the_outputs_of_the_last_run(tmp_path):
    outputs = tmp_path / "a" / ".pipeline"
    outputs.mkdir(parents=True)
    link_last(outputs, "run-1", "words", made(outputs, "run-1", "first", "fetch.pages", "sums.below.sum"))
    last = outputs / "last" / "words"
    assert (last / "fetch" / "pages").read_text() == (last / "sums.below" / "sum").read_text() == "first"
    found = made(outputs, "run-2", "second", "fetch.pages")
    (outputs / "run-2" / "gone").touch()
    link_last(outputs, "run-2", "words", {**found, "fetch.gone": f"{outputs}/run-2/none", "x.elsewhere": "/etc/hosts"})
    assert (last / "fetch" / "pages").read_text() == "second"
    assert sorted(str(path.relative_to(last)) for path in last.rglob("*")) == ["fetch", "fetch/pages"]
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    shutil.rmtree(tmp_path / "a")
    copied = tmp_path / "b" / ".pipeline" / "last" / "words" / "fetch" / "pages"
    assert copied.read_text() == "second"
    assert copied.resolve().is_relative_to((tmp_path / "b").resolve())


def test_what_a_user_has_there_stays(tmp_path):
    (tmp_path / "last" / "words").mkdir(parents=True)
    with pytest.raises(OSError, match="words"):
        link_last(tmp_path, "run-1", "words", made(tmp_path, "run-1", "x", "a.b"))
    assert (tmp_path / "last" / "words").is_dir()
    assert sorted(path.name for path in (tmp_path / "last").iterdir()) == [".words.run-1", "words"]


def test_a_link_goes_with_its_run_alone(tmp_path):
    unlink_last(tmp_path, "run-1", "words")
    for run in ("run-1", "run-2"):
        link_last(tmp_path, run, "words", made(tmp_path, run, run, "a.b"))
    unlink_last(tmp_path, "run-1", "none")
    unlink_last(tmp_path / "run-2", "run-1", "x/../../last")
    unlink_last(tmp_path, "run-1", "words")
    assert (tmp_path / "last" / "words" / "a" / "b").read_text() == "run-2"
    unlink_last(tmp_path, "run-2", "words")
    assert not list((tmp_path / "last").iterdir())
