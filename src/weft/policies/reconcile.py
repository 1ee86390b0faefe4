"""`Reconciler`: the controller of jobs whose decisions a pure function of a front end makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from weft.engine.decisions import Conclude, Decision, StartTasks, StopTasks, WakeAt
from weft.engine.policy import JobController
from weft.graph.control import AnswerKind
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.graph.control import ControlAnswer

PREPARE: Final = "prepare"
"""The function of the same module that decodes the parameters once."""


class Reconciler(JobController):
    """A controller that calls `target` ("module:function") with the view, the memo and the decoded parameters.

    The module has a function `prepare`, which decodes `params` (JSON). The function returns a list of `ControlAnswer`
    and the next memo.
    """

    def __init__(self, target: str, params: Mapping[str, Any]) -> None:
        name, _, function = target.partition(":")
        try:
            module = import_module(name)
            self._decide: Callable[..., tuple[Sequence[ControlAnswer], Any]] = getattr(module, function)
            self._params = getattr(module, PREPARE)(**params)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise GraphError(f"the controller {target!r} cannot be used: {error}", rule="controller") from None

    def decide(self, view: Any, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Return the decisions of the function, and its memo."""
        answers, memo = self._decide(view, memo, self._params)
        return [_DECISIONS[answer.kind](answer) for answer in answers], memo


_DECISIONS: Final[Mapping[AnswerKind, Callable[[ControlAnswer], Decision]]] = {
    AnswerKind.START: lambda one: StartTasks(one.vertex, one.lo, one.hi),
    AnswerKind.STOP: lambda one: StopTasks(one.vertex, one.lo, one.hi, one.text),
    AnswerKind.CONCLUDE: lambda one: Conclude(one.outcome, one.text, one.task),
    AnswerKind.WAKE: lambda one: WakeAt(one.at),
}
