"""Notes are data: each kind has words, and nothing else of Weft reads them."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.engine import decisions as d
from weft.engine.notes import Note, NoteKind, data_of, figures_of
from weft.engine.policy import InputView, View
from weft.engine.text import change_of, seen_by, text_of
from weft.graph.logical import BROADCAST, CONCURRENT, Patch, Storage, Vertex
from weft.model.program import Program
from weft.model.resources import Resources

SOURCE = Path(weft.__file__).parent
DECISION = data_of(d.SetParallelism("v", 2), "v")
SEEN = {"n": 10, "finished": 4, "rows": 0, "inputs": []}

SAMPLES: dict[NoteKind, list[tuple[dict[str, Any], str]]] = {
    NoteKind.JOB_STATE: [({"state": "running"}, "job running")],
    NoteKind.ONLY_FINAL: [
        (
            {"reason": "enough"},
            "only final vertices run, which a first cancel (enough) does not end: a second one does",
        )
    ],
    NoteKind.LEASED: [
        ({"lo": 1, "hi": 3, "worker": 2}, "tasks 1:3 leased to worker 2"),
        ({"lo": 1, "hi": 2, "worker": -1}, "started beside the workers"),
    ],
    NoteKind.FINISHED: [({"lo": 0, "hi": 4}, "tasks 0:4 finished")],
    NoteKind.FINISHED_AGAIN: [({"attempt": 2}, "finished on attempt 2")],
    NoteKind.ATTEMPT_FAILED: [
        ({"worker": 1, "failure": "user", "message": "{x}", "other": None}, "attempt failed on worker 1 (user): {x}"),
        (
            {"worker": 1, "failure": "user", "message": "no", "other": 3},
            "attempt failed on worker 1 (user): no; worker 3 goes on with it",
        ),
    ],
    NoteKind.FAILED: [({"failure": "memory", "message": "full"}, "failed for good (memory): full")],
    NoteKind.CANNOT_RUN: [
        ({"source": "a", "lacks": ""}, "cannot run: a failed"),
        ({"source": "a", "lacks": "width"}, "cannot run: a failed and says no width"),
        ({"source": "a", "lacks": "branch"}, "cannot run: a failed and decides nothing"),
    ],
    NoteKind.VERTEX_FAILED: [({"message": "no input"}, "no input")],
    NoteKind.CANNOT_GO_ON: [({"source": "a"}, "cannot go on: a failed")],
    NoteKind.EMITTED: [({"name": "loss"}, "emitted loss")],
    NoteKind.UNSTOPPABLE: [
        ({"index": 3, "grace_s": 0.5}, "task 3 did not stop within 0.5 s: its thread is left to itself")
    ],
    NoteKind.BACKUP_STARTED: [
        ({"worker": 1, "beside": 2, "reason": "slow"}, "backup on worker 1 beside worker 2: slow")
    ],
    NoteKind.BACKUP_ENDED: [({"first": 1, "other": 2}, "worker 1 was first, worker 2 is cancelled")],
    NoteKind.OUTPUTS_LOST: [
        ({"count": 2, "first": 7, "reason": "gone"}, "outputs of 2 tasks (first 7) are lost: gone")
    ],
    NoteKind.RUN_AGAIN: [({"count": 2}, "2 tasks are run again: their output is gone and still wanted")],
    NoteKind.UNREAD: [({"count": 1, "n": 3}, "1 of 3 tasks are left out: nobody reads what they would make")],
    NoteKind.CACHE_HIT: [({"before": True}, "had finished before"), ({"before": False}, "taken from the cache")],
    NoteKind.CACHE_MISS: [({"reason": "never ran"}, "not in the cache: never ran")],
    NoteKind.CACHE_WAITS: [({"owner": "run-7"}, "waits for run-7, which is making the same output")],
    NoteKind.WORKER_LOST: [({"reason": "killed"}, "lost: killed")],
    NoteKind.NODE_JOINED: [
        (
            {"name": "big", "slots": 4, "memory": 1000, "gpu": 1},
            "joined as big: 4 slots, 1,000 bytes of memory, 1 GPUs",
        )
    ],
    NoteKind.NODE_DRAINING: [({"reason": "preempted"}, "drains: preempted")],
    NoteKind.NODE_LOST: [({"reason": "failed"}, "lost: failed")],
    NoteKind.NODES_AWAITED: [({"reason": "no GPU"}, "no GPU")],
    NoteKind.WORKER_EXCLUDED: [
        ({"seconds": 60.0, "reason": "fails", "seen": "3 of 4"}, "avoided for 60 s: fails (seen: 3 of 4)")
    ],
    NoteKind.WORKER_READMITTED: [({"reason": "its time is over"}, "not avoided any more: its time is over")],
    NoteKind.LAST_WORKER: [({}, "rejected: it cannot be avoided, for nobody else is left")],
    NoteKind.CONFIGURED: [({"n": 4}, "configured with 4 tasks")],
    NoteKind.MANAGER_DECIDED: [
        ({"decision": DECISION, "seen": SEEN}, "its manager decides: 2 tasks (seen: 4 of 10 tasks finished)")
    ],
    NoteKind.MANAGER_FAILED: [({"message": "no"}, "its manager cannot decide: no")],
    NoteKind.MANAGER_SILENT: [({"n": 8}, "its manager has named no width: 8 tasks, as without one")],
    NoteKind.MANAGER_HOLDS: [
        ({"released": 2, "n": 8}, "its manager is not asked again, and has let 2 of 8 tasks start: all may start")
    ],
    NoteKind.CONTROL_DECIDED: [
        (
            {"control": "c", "decision": DECISION, "seen": "load 9"},
            "control vertex c decides: 2 tasks (seen: load 9)",
        ),
        ({"control": "c", "decision": DECISION, "seen": ""}, "control vertex c decides: 2 tasks"),
    ],
    NoteKind.CONTROLLER_DECIDED: [
        ({"decision": data_of(d.StartTasks("v", 1, 3), "v")}, "the controller decides: start tasks 1:3"),
        ({"decision": data_of(d.StopTasks("w", 0, 2, "few"), "")}, "the controller decides: w: stop tasks 0:2: few"),
        (
            {"decision": data_of(d.Conclude("succeeded", "one is enough"), "v")},
            "the controller decides: end the job as succeeded: one is enough",
        ),
    ],
    NoteKind.CONTROLLER_FAILED: [({"message": "it raised"}, "it raised")],
    NoteKind.CANCELLING: [({"reason": "too slow"}, "CANCELLED: too slow; it is being stopped")],
    NoteKind.REQUESTED: [({"name": "scale"}, "requested by the user: scale")],
    NoteKind.DECISION_REJECTED: [({"reason": "it runs"}, "rejected: it runs")],
    NoteKind.DECIDED_TO_FAIL: [({"reason": "bad"}, "failed by decision: bad")],
    NoteKind.ENDED_EARLY: [({"reason": "enough"}, "ended early: enough")],
    NoteKind.SERVICE_UNUSED: [({}, "its last consumer has ended: stopping")],
    NoteKind.BRANCH_TAKEN: [({"choice": "c", "branch": "b"}, "choice c: takes b")],
    NoteKind.BRANCH_SKIPPED: [({"choice": "c", "branch": "b"}, "skipped: choice c took b")],
    NoteKind.UNANSWERED: [({"expander": "x"}, "skipped: x ended without an answer")],
    NoteKind.PATCHED: [({"vertices": 2, "edges": 3}, "patch: 2 vertices, 3 edges added")],
    NoteKind.REGION_RESTARTS: [({"reason": "a[0] failed"}, "region restarts: a[0] failed")],
    NoteKind.BUBBLE_ASKS: [({"slots": 4}, "asks for 4 slots at once")],
    NoteKind.BUBBLE_GRANTED: [({"slots": 4}, "granted 4 slots")],
    NoteKind.BUBBLE_REFUSED: [({"reason": "no GPU"}, "refused: no GPU")],
    NoteKind.BUBBLE_TIMED_OUT: [({"timeout_s": 30.0}, "not granted within 30 s")],
    NoteKind.BUBBLE_SHRUNK: [({"vertices": ["a", "b"]}, "shrunk: a, b left")],
}

DECISIONS: list[tuple[Any, str]] = [
    (d.SetParallelism("v", 1), "1 task"),
    (d.SetParallelism("v", 2000, (("e", object()),)), "2,000 tasks, each with its share of the inputs"),  # type: ignore[arg-type]
    (d.SetParallelism("v", "many"), "'many' tasks"),  # type: ignore[arg-type]
    (d.SetParallelism("other", 2), "other: 2 tasks"),
    (d.Schedule("v", 3), "3 tasks may start"),
    (d.SetResources("v", (Resources(cpu=2), Resources(gpu=1))), "its tasks ask for cpu 2 or cpu 1, gpu 1"),
    (d.SetResources("v", 3), "its tasks ask for 3"),  # type: ignore[arg-type]
    (d.SetEdge("a->v", CONCURRENT, Storage.DURABLE), "edge a->v concurrent and stored durable"),
    (d.SetEdge("a->v"), "edge a->v as it is"),
    (d.SetEdge("a->v", movement=BROADCAST), "edge a->v moved broadcast"),
    (d.Emit("v", "go"), "emit 'go'"),
    (d.Emit("v", "go", {"x": 1}), "emit 'go' with {'x': 1}"),
    (d.Choose("c", "b"), "choice c takes branch b"),
    (d.Finish("v", "enough"), "end now: enough"),
    (d.Fail("v", "bad"), "fail: bad"),
    (d.ApplyPatch("v", Patch((Vertex("v/a", Program("m:f")),))), "a patch of 1 vertex"),
    (d.ApplyPatch("v", 3), "a patch: 3"),  # type: ignore[arg-type]
    (d.AskController("v", "scale", {"w": 2}), "request 'scale' of the controller with {'w': 2}"),
    (d.BackUp(3, "slow"), "BackUp"),
]


@pytest.mark.parametrize("kind", NoteKind)
def test_every_kind_has_words(kind):
    for data, text in SAMPLES[kind]:
        assert tuple(data) == kind.fields
        assert text_of(Note(1.0, "v", kind, tuple(data.values()))) == text


@pytest.mark.parametrize("kind", NoteKind)
def test_the_data_of_a_note_are_plain_values(kind):
    for data, _ in SAMPLES[kind]:
        assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize(("decision", "text"), DECISIONS, ids=[text for _, text in DECISIONS])
def test_decisions_are_noted_as_data(decision, text):
    data = data_of(decision, "v")
    assert json.loads(json.dumps(data)) == data
    note = Note(0.0, "v", NoteKind.MANAGER_DECIDED, (data, SEEN))
    assert change_of(note) == f"its manager decides: {text}"


def test_the_figures_of_a_decision_are_data():
    inputs = (
        InputView("a->v", "a", 4, 3, False, 2, [10, 20], 0, -1),
        InputView("b->v", "b", 4, 4, True, 0, None, 0, 5000),
    )
    events = {("a", "seen"): [[1, 2, 3], 4], ("c", "other"): [1]}
    seen = figures_of(view(n=-1, rows=1500, inputs=inputs, events=events))
    assert json.loads(json.dumps(seen)) == seen
    note = Note(0.0, "v", NoteKind.MANAGER_DECIDED, (DECISION, seen))
    assert seen_by(note) == (
        "1,500 rows, a 3 of 4 with 30 bytes in 2 partitions, 'seen' of a: 4, b ended with 5,000 bytes"
    )
    nothing = Note(0.0, "v", NoteKind.MANAGER_DECIDED, (DECISION, figures_of(view(n=-1))))
    assert seen_by(nothing) == "nothing yet"


def view(n: int, rows: int = 0, inputs=(), events=None) -> View:
    return View(0.0, "v", "running", n, 0, 0, 0, rows, 1, inputs, events or {}, None, 0, 0)


# -------------------------------------------------------------------------------------------------- the source of Weft


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def test_every_note_names_a_kind_and_has_a_value_for_each_of_its_fields():
    """Nothing is noted as text: the second argument is a kind, the others are its data."""
    noted = set()
    for path in SOURCE.rglob("*.py"):
        if not re.search(r"\bnote\(|\bNoted\(", path.read_text()):
            continue
        for call in calls(path):
            if ast.unparse(call.func) == "Noted":  # the event of a backend: its kind is a word
                member = NoteKind[ast.unparse(call.args[2]).split(".")[1]]
                noted.add(member)
                assert len(call.args[3].elts) == len(member.fields)  # type: ignore[attr-defined]
                continue
            if not (isinstance(call.func, ast.Attribute) and call.func.attr == "note"):
                continue
            if ast.unparse(call.func.value) not in ("core", "self.core"):
                continue
            _, kind, *values = call.args
            if isinstance(kind, ast.Name):
                continue  # handed on by a function that was given a kind
            assert ast.unparse(kind.value) == "NoteKind", f"{path.name}:{call.lineno}"  # type: ignore[attr-defined]
            member = NoteKind[kind.attr]  # type: ignore[attr-defined]
            noted.add(member)
            assert len(values) == len(member.fields), f"{path.name}:{call.lineno}: {member.fields}"
    assert noted >= set(NoteKind) - {NoteKind.CANNOT_RUN, NoteKind.VERTEX_FAILED}


PARSING = {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix"}
SUBJECTS = {"worker "}
"""How subjects begin: these may be told by their beginnings."""
PARSING |= {"find", "index", "replace", "match", "fullmatch", "search"}
CALLED = re.compile(rf"\.(?:{'|'.join(sorted(PARSING))})\(")


def test_nobody_parses_the_words():
    """No module of Weft looks for a piece of a note's text in a string."""
    texts = [text for samples in SAMPLES.values() for _, text in samples]
    for path in SOURCE.rglob("*.py"):
        if not CALLED.search(path.read_text()):
            continue
        for call in calls(path):
            if not (isinstance(call.func, ast.Attribute) and call.func.attr in PARSING):
                continue
            for node in (each for argument in call.args for each in ast.walk(argument)):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and len(node.value) > 4
                    and node.value not in SUBJECTS
                ):
                    assert not any(node.value in text for text in texts), f"{path.name}:{call.lineno}: {node.value!r}"


def test_only_history_and_explanations_write_notes_as_text():
    readers = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "engine.text import" in path.read_text()
    }
    assert readers == {"engine/story.py", "engine/explain.py", "engine/waiting.py"}
