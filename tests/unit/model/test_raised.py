"""Errors of tasks that are also of the class that the user's code raised."""

import pickle
from typing import ClassVar

import pytest

from weft.model.errors import TaskError
from weft.model.raised import as_raised


class PropertyError(Exception):
    @property
    def message(self) -> str:
        raise ValueError("no")


class GuardedError(ValueError):
    def __init_subclass__(cls) -> None:
        raise RuntimeError("no subclasses")


class NewError(ValueError):
    def __new__(cls, a: int, b: int) -> "NewError":
        return super().__new__(cls, a, b)


class CodeError(Exception):
    code: ClassVar[int]

    def __init_subclass__(cls, *, code: int) -> None:
        cls.code = code


class NoMoreError(StopIteration, LookupError):
    pass


class NotThereError(CodeError, KeyError, code=404):
    pass


def raised(kind: type[Exception]) -> TaskError:
    return as_raised(TaskError("f[0] failed: the reason", task="f[0]", raised=f"{kind.__module__}:{kind.__qualname__}"))


def test_a_property_of_the_class_does_not_hide_what_the_error_tells():
    error = raised(PropertyError)
    assert isinstance(error, PropertyError)
    assert (str(error), error.message, error.task) == ("f[0] failed: the reason", "f[0] failed: the reason", "f[0]")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, PropertyError)
    assert again.message == error.message


@pytest.mark.parametrize(
    ("kind", "caught"), [(GuardedError, ValueError), (NewError, ValueError), (NotThereError, KeyError)]
)
def test_a_class_that_cannot_be_mixed_is_caught_by_its_nearest_base(kind, caught):
    error = raised(kind)
    assert isinstance(error, caught)
    assert error.message == "f[0] failed: the reason"


def test_a_class_without_such_a_base_leaves_the_error_as_it_is():
    assert type(raised(ExceptionGroup)) is TaskError
    assert type(raised(CodeError)) is TaskError


@pytest.mark.parametrize(
    ("kind", "caught"), [(StopIteration, TaskError), (StopAsyncIteration, TaskError), (NoMoreError, LookupError)]
)
def test_no_error_of_a_task_looks_like_the_end_of_an_iteration(kind, caught):
    error = raised(kind)
    assert not isinstance(error, StopIteration | StopAsyncIteration)
    assert isinstance(error, caught)
