"""Which runs have left which files, also where other processes add results meanwhile."""

from typing import Any

from weft.store.entries import Entry
from weft.store.left_files import LeftFiles


class Results:
    """The part of the index that is asked."""

    def __init__(self, *kept: Entry) -> None:
        self.kept = list(kept)
        self.asked = 0

    def count(self) -> tuple[int, int]:
        return len(self.kept), 0

    def entries(self, *, pipeline: str) -> list[Entry]:
        self.asked += 1
        return [one for one in self.kept if one.pipeline == pipeline]


def result(run: str, text: str, pipeline: str = "p") -> Entry:
    times: dict[str, Any] = {"started": 0.0, "completed": 0.0, "expires": None, "used": 0.0, "size": 0}
    leaves = {"wrote f": text, "read g": text}
    return Entry(key=run, store="", pipeline=pipeline, step="s", run=run, leaves=leaves, outputs={}, **times)


def test_a_file_is_left_by_the_runs_of_a_pipeline_with_a_content():
    results: Any = Results(result("run-1", "one"), result("run-2", "two"), result("run-3", "one", "other"))
    left = LeftFiles(results)
    assert left.has("p", "s", "wrote f", "one", {"run-1", "run-2"})
    assert not left.has("p", "s", "wrote f", "one", {"run-2", "run-3"})
    assert not left.has("p", "s", "wrote f", "three", {"run-1"})
    assert not left.has("p", "s", "read g", "one", {"run-1"})
    assert not left.has("p", "t", "wrote f", "one", {"run-1"})


def test_results_are_read_once_and_again_after_others_were_kept():
    results: Any = Results(result("run-1", "one"))
    left = LeftFiles(results)
    left.add(result("run-0", "zero"))
    assert not left.has("p", "s", "wrote f", "two", {"run-2"})
    own = result("run-2", "two")
    results.kept.append(own)
    left.add(own)
    assert left.has("p", "s", "wrote f", "two", {"run-2"})
    assert results.asked == 1
    results.kept.append(result("run-3", "three"))
    assert left.has("p", "s", "wrote f", "three", {"run-3"})
    assert results.asked == 2
