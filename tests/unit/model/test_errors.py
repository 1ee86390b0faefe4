"""Errors: what they say, and that they survive the way back from a worker."""

import copy
import pickle

import pytest

from weft.model import errors
from weft.model.errors import (
    GraphError,
    InternalError,
    InvalidTransition,
    MissingExtraError,
    PipelineError,
    TaskError,
    UsageError,
    WeftError,
)

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WeftError)]


class OwnError(WeftError):
    """With arguments that are neither the message nor the hint."""

    def __init__(self, left: int, *, right: str) -> None:
        super().__init__(f"{left} is not {right}", hint="Compare.")
        self.left, self.right = left, right


def examples():
    wordy = {
        GraphError: GraphError("cycle", subject="a->b", rule="cycle", hint="Remove one."),
        PipelineError: PipelineError("wrong", file="p.yaml", line=3, column=7, path="steps[0].cmd", hint="Write text."),
        TaskError: TaskError("boom", task="read[3]", traceback_text="Traceback...", hint="See the log."),
        InvalidTransition: InvalidTransition("no way", story=("first", "then")),
    }
    plain = [kind("message", hint="hint") for kind in KINDS if kind not in wordy]
    return [*wordy.values(), *plain, OwnError(1, right="2")]


@pytest.mark.parametrize("error", examples(), ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_every_error_survives_a_journey(error, protocol):
    error.add_note("seen on the way")
    for again in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(again) is type(error)
        assert vars(again) == vars(error)
        assert (str(again), again.args) == (str(error), error.args)
        assert (again.code, again.exit_code) == (error.code, error.exit_code)


def test_fields_survive_by_value():
    again = pickle.loads(pickle.dumps(TaskError("boom", task="read[3]", traceback_text="Traceback...")))
    assert (again.message, again.task, again.traceback_text) == ("boom", "read[3]", "Traceback...")
    own = pickle.loads(pickle.dumps(OwnError(1, right="2")))
    assert (own.left, own.right, own.message, own.hint) == (1, "2", "1 is not 2", "Compare.")


def test_a_hint_stands_below_the_message():
    assert str(WeftError("a is wrong", hint="Change a.")) == "a is wrong\nChange a."
    assert str(WeftError("a is wrong")) == "a is wrong"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({"file": "p.yaml", "line": 3, "column": 7, "path": "a.b"}, "p.yaml:3:7: a.b: no"),
        ({"file": "p.yaml", "path": "a.b"}, "p.yaml: a.b: no"),
        ({"path": "a.b"}, "a.b: no"),
        ({"file": "p.yaml"}, "p.yaml: no"),
        ({}, "no"),
    ],
)
def test_a_pipeline_error_says_where(place, text):
    assert str(PipelineError("no", **place)) == text


def test_a_transition_tells_its_story():
    assert str(InvalidTransition("no way", story=("first", "then"))) == "no way\n  first\n  then"


def test_kinds_are_caught_by_their_family():
    assert issubclass(MissingExtraError, UsageError)
    assert issubclass(InvalidTransition, InternalError)
    assert {kind.exit_code for kind in KINDS} == {1, 2, 3, 4, 5, 6, 7, 8, 70, 130}
