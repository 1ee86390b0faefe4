"""Keywords of the builder's methods and their types: a mistake raises at the call, not when the graph runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

from weft.graph.logical import Manager, Outcome, RestartPolicy, Retry, Role, Storage, Trigger, VertexKind
from weft.model.errors import GraphError
from weft.model.resources import Placement, Resources
from weft.model.wording import type_of

Wanted = Mapping[str, tuple[tuple[type, ...], str]]
"""For each keyword the allowed types, and their name in messages."""

_FLAG = (bool,), "True or False"
_TEXT = (str,), "text"
_NUMBER = (int, float), "a number"

FIELDS: Wanted = {
    "kind": ((VertexKind,), "Kind.FINITE or Kind.SERVICE"),
    "resources": ((Resources, tuple), "Resources(...) or a tuple of alternatives"),
    "placement": ((Placement, NoneType), "Placement(...)"),
    "retry": ((Retry,), "Retry(...)"),
    "restart": ((RestartPolicy, NoneType), "Restart.ALWAYS, ON_FAILURE, NEVER or EXIT_CODE"),
    "timeout_s": ((int, float, NoneType), "a number of seconds"),
    "idempotent": _FLAG,
    "cache_key": ((str, NoneType), "text"),
    "manager": ((Manager, str, NoneType), "a Manager, or the name of one"),
    "keep": _FLAG,
    "output_bytes": ((int, NoneType), "a whole number"),
    "scratch_bytes": ((int,), "a whole number"),
    "expands": _FLAG,
    "lazy": _FLAG,
    "label": _TEXT,
    "role": ((Role,), "Role.OWN or Role.HELPER"),
    "outputs": ((tuple, NoneType), "a tuple of names"),
    "final": _FLAG,
    "controlled": _FLAG,
    "counted": _FLAG,
    "starts_processes": _FLAG,
    "priority": ((int,), "a whole number"),
}

OPTIONS: Wanted = {
    "concurrent": _FLAG,
    "when": ((Trigger, NoneType), "a Trigger"),
    "fraction": _NUMBER,
    "event": _TEXT,
    "outcome": ((Outcome,), "an Outcome"),
    "storage": ((Storage,), "a Storage"),
    "blocking": _FLAG,
    "name": _TEXT,
}


def check_keywords(owner: str, subject: str, given: Mapping[str, Any], wanted: Wanted) -> None:
    """Raise GraphError for a keyword that is not in `wanted`, or a value of another type. Messages name `owner`."""
    for name, value in given.items():
        if name not in wanted:
            raise GraphError(
                f"{owner} has no field {name}",
                subject=subject,
                rule="unknown-field",
                hint=f"Fields: {', '.join(wanted)}"
                + ("; give the function's own arguments with params=." if wanted is FIELDS else "."),
            )
        kinds, words = wanted[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise wrong_type(f"{name} of {owner}", value, words, subject)


def check_params(owner: str, subject: str, params: Any) -> None:
    """Raise GraphError if `params` is not a mapping with string keys."""
    if not isinstance(params, (dict, Mapping)):  # a dict is recognised fast
        raise wrong_type(f"params of {owner}", params, "a mapping", subject)
    for key in params:
        if not isinstance(key, str):
            raise wrong_type(f"key {key!r} in the params of {owner}", key, "text", subject)


def wrong_type(what: str, value: object, wanted: str, subject: str = "", hint: str = "") -> GraphError:
    """Return the error for an argument of another type than `wanted`."""
    return GraphError(f"{what} is {type_of(value)}, not {wanted}", subject=subject, rule="type", hint=hint)
