"""The source of runs of job files: whether the file of a run was edited."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from weft.frontends.training.reading import read_files
from weft.frontends.training.source import load_jobs, source_of
from weft.store.state import StateRoot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from weft.frontends.training.source import TrainingSource


def text(replicas: int = 1, word: str = "once", secret: str = "key") -> str:
    container = {"name": "tensorflow", "image": "x", "command": ["true"]}
    worker = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "echo"},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }
    key: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}}
    return "\n---\n".join(map(json.dumps, (job, {**key, "stringData": {"word": word}})))


class Edited:
    """A job file, and a source of what stood in it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "job.yaml"
        self.file.write_text(text())
        self.state = StateRoot(folder / ".weft")

    def read(self) -> TrainingSource:
        return load_jobs(str(self.file), state=self.state)

    def built(self) -> TrainingSource:
        return source_of(read_files(str(self.file)), self.file, state=self.state)


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    return Edited(tmp_path)


@pytest.mark.parametrize(
    ("edit", "is_edited"),
    [
        (lambda file: file.write_text(text()), False),
        (lambda file: file.write_text(f"# a comment\n{text()}"), False),
        (lambda file: file.write_text(text(word="twice")), False),
        (lambda file: file.unlink(), False),
        (lambda file: file.write_text(text(replicas=2)), True),
        (lambda file: file.write_text(text(secret="other")), True),
        (lambda file: file.write_text("kind: TFJob"), True),
    ],
    ids=["as it was", "comment", "data of a secret", "gone", "replicas", "another secret", "mistakes"],
)
def test_a_file_with_other_jobs_is_edited(edited: Edited, edit: Callable[[Path], object], is_edited: bool) -> None:
    read, built = edited.read(), edited.built()
    edit(edited.file)
    assert read.is_edited({}) is is_edited
    assert not built.is_edited({}), "its jobs are those of a program"
