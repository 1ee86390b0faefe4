"""The table of the verbs of runs, with the help of the command line and the protocol of the control socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from weft.model.errors import UsageError

Handler = Callable[[Mapping[str, Any]], Any]
TYPES: Final[Mapping[str, type]] = {"run": str, "text": str, "flag": bool, "count": int, "seconds": float}
"""The types of arguments, and their types in JSON; `run` is an id or another name of a run."""


class Argument(NamedTuple):
    """One argument of a verb; with `many` it is a list of such values. `name` is a flag, unless it is a run."""

    name: str
    type: str
    help: str
    required: bool = False
    many: bool = False


class Verb(NamedTuple):
    """One operation on runs. `returns` names the fields of the answer.

    `changes`: it changes state. `owner`: the process that owns the run answers it, by its control socket.
    """

    name: str
    help: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    changes: bool
    owner: bool = False

    def order(self, **arguments: object) -> dict[str, object]:
        """Return the message that asks the owner of a run for this verb; a default argument is left out."""
        return {"do": self.name, **{name: value for name, value in arguments.items() if value not in (False, "")}}

    def about(self, argument: str) -> str:
        """Return the help of one argument."""
        return next(one.help for one in self.arguments if one.name == argument)


_RUN: Final = Argument(
    "run", "run", "The id of a run, a unique prefix of it, its number, @last or @failed.", required=True
)
_RUNS: Final = _RUN._replace(many=True)

VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb
    for verb in (
        Verb(
            "cancel",
            "Cancel a run: stop its tasks in order, then run its post_process.",
            (
                _RUN,
                Argument("force", "flag", "Stop its post_process too."),
                Argument("reason", "text", "The reason, for the records of the run."),
            ),
            ("run",),
            changes=True,
            owner=True,
        ),
        Verb(
            "suspend",
            "Suspend a run: start no more tasks, and release it when its running tasks have ended.",
            (_RUN, Argument("now", "flag", "Stop running tasks; a resume runs them again.")),
            ("run",),
            changes=True,
            owner=True,
        ),
        Verb(
            "delete",
            "Delete ended runs: their outputs, logs and records. Results in the cache stay.",
            (_RUNS,),
            ("runs",),
            changes=True,
        ),
        Verb(
            "prune",
            "Delete old runs: all ended runs that no option keeps.",
            (
                Argument(
                    "older_than", "seconds", "Delete only runs that ended longer ago than this, such as 30d or 12h."
                ),
                Argument("keep", "count", "Keep this many of the newest."),
                Argument(
                    "state",
                    "text",
                    "Delete only runs in this state: succeeded, failed, terminated, interrupted or suspended.",
                ),
                Argument("dry_run", "flag", "Print the runs, and delete none."),
            ),
            ("runs", "deleted"),
            changes=True,
        ),
        Verb(
            "story",
            "Print the history of a run or a step, with reasons.",
            (_RUN, Argument("subject", "text", "A vertex, or one task of it: `vertex[3]`; without it the run.")),
            ("lines",),
            changes=False,
            owner=True,
        ),
        Verb(
            "explain",
            "Compare the planned and the executed graph, and print each change with its cause.",
            (_RUN,),
            ("graph", "changes"),
            changes=False,
            owner=True,
        ),
    )
}
"""All verbs by name. The owner of a run needs no name of it, and receives the other arguments."""


def protocol(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """Return the handlers of a control socket: one for each verb of an owner, which refuses unknown arguments.

    KeyError: a verb has no handler.
    """
    return {verb.name: _checked(verb, handlers[verb.name]) for verb in VERBS.values() if verb.owner}


def _checked(verb: Verb, handler: Handler) -> Handler:
    types = {one.name: TYPES[one.type] for one in verb.arguments if one.type != "run"}

    def answer(order: Mapping[str, Any]) -> Any:
        for name, value in order.items():
            if name == "do":
                continue
            if name not in types:
                known = f"It takes: {', '.join(types)}" if types else "It takes no argument."
                raise UsageError(f"{verb.name} takes no argument {name[:60]!r}", hint=known)
            if type(value) is not types[name]:
                raise UsageError(f"{name} of {verb.name} is {str(value)[:60]!r}; it must be a {types[name].__name__}")
        return handler(order)

    return answer
