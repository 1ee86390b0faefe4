"""The verbs of runs, as one table: the command line takes its help from it, and the control socket its protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from weft.model.errors import UsageError

Handler = Callable[[Mapping[str, Any]], Any]
TYPES: Final[Mapping[str, type]] = {"run": str, "text": str, "flag": bool, "count": int, "seconds": float}
"""The types that arguments may have, and how JSON has them; `run` is an id or another name of a run."""


class Argument(NamedTuple):
    """One argument of a verb; with `many` it is a list of such values. `name` is a flag, if it is no run."""

    name: str
    type: str
    help: str
    required: bool = False
    many: bool = False


class Verb(NamedTuple):
    """One thing that is asked of runs. `returns` names the fields of the answer.

    `changes`: it changes state. `owner`: the process that owns the run answers it, by its control socket.
    """

    name: str
    help: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    changes: bool
    owner: bool = False

    def about(self, argument: str) -> str:
        """Return the help of one argument."""
        return next(one.help for one in self.arguments if one.name == argument)


_RUN: Final = Argument("run", "run", "The id of a run, a beginning of it, its number, @last or @failed.", required=True)
_RUNS: Final = _RUN._replace(many=True)

VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb
    for verb in (
        Verb(
            "cancel",
            "Ask a run to stop; what runs is ended in order, and what post_process says is done.",
            (
                _RUN,
                Argument("force", "flag", "End its post_process too, or do not begin it."),
                Argument("reason", "text", "The reason that the run tells."),
            ),
            ("run",),
            changes=True,
            owner=True,
        ),
        Verb(
            "suspend",
            "Give a run up once all that runs has ended, and start nothing more; `weft resume` goes on with it.",
            (_RUN, Argument("now", "flag", "Stop what runs; it runs again when the run is resumed.")),
            ("run",),
            changes=True,
            owner=True,
        ),
        Verb(
            "delete",
            "Delete runs that have ended: their outputs, logs and records. Results in the cache stay.",
            (_RUNS,),
            ("runs",),
            changes=True,
        ),
        Verb(
            "prune",
            "Delete the runs that are old or many: those that have ended and that no option spares.",
            (
                Argument("older_than", "seconds", "Delete runs that ended longer ago than this, such as 30d or 12h."),
                Argument("keep", "count", "Spare the newest of them, as many as this."),
                Argument(
                    "state",
                    "text",
                    "Delete only runs in this state: succeeded, failed, terminated, interrupted or suspended.",
                ),
                Argument("dry_run", "flag", "Name the runs, and delete none."),
            ),
            ("runs", "deleted"),
            changes=True,
        ),
        Verb(
            "story",
            "Tell what happened to a run or a step, and why.",
            (_RUN, Argument("subject", "text", "A vertex, or one task of it: `vertex[3]`; without it the run.")),
            ("lines",),
            changes=False,
            owner=True,
        ),
        Verb(
            "explain",
            "Set what was planned and what was executed side by side, with every change and what it was made from.",
            (_RUN,),
            ("graph", "changes"),
            changes=False,
            owner=True,
        ),
    )
}
"""All of them by name. The owner of a run knows which run is meant, and is sent the other arguments."""


def protocol(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """Return what a control socket answers: a handler for each verb of an owner, which refuses other arguments.

    KeyError: one of these verbs has no handler.
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
