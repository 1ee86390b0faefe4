"""Runs that an earlier version of Weft began are resumed by this one, from folders that stay in the tree."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.fixtures.journal_program import GRAPHS, SNAPSHOTS
from tests.fixtures.make_journals import JOURNALS, ROOT, RUN
from weft.cli.main import main
from weft.durability.journal import JOURNAL, read_journal, recover
from weft.durability.programs import load_graph
from weft.runs.reading import read_run
from weft.wiring import MANAGERS

DEADLINE_S = 180.0
VERSIONS = sorted(path.name for path in JOURNALS.iterdir())


def taken_up(folder: Path, version: str, name: str) -> tuple[Path, Any]:
    """Copy the state of a run into a folder; return where the run lies, and what had finished."""
    kept = JOURNALS / version / name
    run = folder / ".weft" / "runs" / RUN
    shutil.copytree(kept / "run", run)
    for path in (folder / ".weft", run.parent, run, *run.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return run, json.loads((kept / "finished.json").read_text())


def test_the_journals_of_this_version_are_there():
    assert weft.__version__ in VERSIONS, "make them: python -m tests.fixtures.make_journals"
    for version in VERSIONS:
        assert {path.name for path in (JOURNALS / version).iterdir()} == {*GRAPHS, "pipeline"}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_journal_of_a_graph_is_read_and_the_run_resumed(tmp_path, version, name):
    run, finished = taken_up(tmp_path, version, name)
    graph, digest = load_graph(run)
    before = (run / JOURNAL).read_bytes()
    recorded = read_journal(run / JOURNAL, trusted=True)
    assert recorded.header.weft == version
    assert bool(recorded.snapshot) == (name in SNAPSHOTS)
    inspector = recover(graph, recorded, MANAGERS, digest).master.inspector
    assert sorted(map(list, inspector.finished_tasks())) == finished
    with weft.Session(backend="threads", workers=2, durable=tmp_path / ".weft") as session:
        resumed = session.resume(RUN)
        assert resumed.result(DEADLINE_S).value("end") == GRAPHS[name][1]
    after = read_journal(run / JOURNAL, trusted=True)
    assert after.incarnation == recorded.incarnation + 1
    assert (run / JOURNAL).read_bytes().startswith(before), "it was replayed, not begun again"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_journal_of_a_pipeline_is_read_and_the_run_resumed(tmp_path, version, monkeypatch):
    run, finished = taken_up(tmp_path, version, "pipeline")
    for name in ("run.json", "events.jsonl"):
        (run / name).write_text((run / name).read_text().replace(ROOT, str(tmp_path)))
    for name in ("one.txt", "two.txt"):
        shutil.copy(JOURNALS / version / "pipeline" / name, tmp_path / name)
    before = (run / JOURNAL).read_bytes()
    recorded = read_journal(run / JOURNAL)
    assert recorded.header.weft == version
    # The graph names the folder that the run was begun in: let its copy elsewhere count as the same.
    monkeypatch.setattr("weft.durability.resume.edited_digest", lambda *_: recorded.header.graph)
    assert main(["resume", RUN, "--state-dir", str(tmp_path / ".weft")]) == 0
    assert (tmp_path / "three.txt").read_text() == "one\ntwo\n"
    assert (run / JOURNAL).read_bytes().startswith(before), "it was replayed, not begun again"
    attempts = {step.name: step.attempts for step in read_run(run).steps}
    assert all(attempts[step] == 1 for step in finished)
