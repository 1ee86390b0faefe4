"""The words for differences between two executions, by their leaves: why a step runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from weft.model.errors import WeftError
from weft.store.alike_names import endings_of
from weft.store.digests import ABSENT, DIGEST, FOLDER, read_listing
from weft.store.entries import ITEM_LEAF
from weft.store.opened import LOOKED, OPENED, READ, SET, UNSET, WROTE
from weft.store.places import shown_path

_MOUNT: Final = ("sub_path", "mount_path", "read_only", "place")
"""The fields of a mount's leaf, in this order."""
_MOST_FILES: Final = 3
_SHOWN: Final = 80
_DIGESTED: Final = {"query": "the text of the query", "packages": "what its packages are made of ({})"}
"""The words for leaves that are digests of a text, by the first word of their names."""
_FILES: Final = ("read", "looked", "wrote")
"""The first words of the names of leaves that are files which a step has opened."""
_ORDER: Final = (
    "parameter ",
    "environment ",
    "secret ",
    "image",
    "copied ",
    ITEM_LEAF,
    "user",
    "code ",
    "package ",
    "mode",
    "version",
    "mount ",
    "input name ",
    "output name ",
    "condition",
    "command",
    "input ",
    "file ",
    *OPENED,
)
"""The order of differences in a report: changes by people come before their effects."""


def tell_differences(old: Mapping[str, str], new: Mapping[str, str], tree: Callable[[str], bytes]) -> list[str]:
    """Describe the differences between the leaves of two executions, changes by people first.

    `tree` returns the listing of a folder by its digest. NotFoundError: it is not known.
    """
    names = [name for name in unlike(old, new) if name not in (SET, UNSET)]
    return [text for name in names for text in _differences(name, old.get(name), new.get(name), tree)]


def _differences(name: str, old: str | None, new: str | None, tree: Callable[[str], bytes]) -> Iterator[str]:
    kind = name.split(" ", 1)[0]
    if kind in ("input", "file", *_FILES) and not name.startswith("input name") and old is not None and new is not None:
        what = name.removeprefix("file ").removeprefix(READ).removeprefix(LOOKED)
        if endings := endings_of(old):
            what = f"the names {', '.join(f'*{ending}' for ending in endings)} in {what}"
        if name.startswith(WROTE):
            what = f"{name.removeprefix(WROTE)}, which it wrote and which is no output of it,"
        yield from _file_differences(what, old, new, tree)
    else:
        yield _leaf_difference(name, old, new)


def _file_differences(what: str, old: str, new: str, tree: Callable[[str], bytes]) -> Iterator[str]:
    if old[:1] == FOLDER and new[:1] == FOLDER:
        try:
            found = list(_tree_differences("", old, new, tree))
        except WeftError:
            found = []
        if found:
            shown = ", ".join(found[:_MOST_FILES]) + (", ..." if len(found) > _MOST_FILES else "")
            yield f"{what}: {shown}"
            return
    if old == ABSENT:
        yield f"{what} is there now"
    elif new == ABSENT:
        yield f"{what} is gone"
    elif old[1:] == new[1:]:
        yield f"{what} {'can' if new[0] == 'x' else 'cannot'} be executed now"
    else:
        yield f"{what} changed"


def _tree_differences(below: str, old: str, new: str, tree: Callable[[str], bytes]) -> Iterator[str]:
    before = {item.name: item.digest for item in read_listing(tree(old))}
    after = {item.name: item.digest for item in read_listing(tree(new))}
    for name in sorted(before.keys() | after.keys()):
        shown = f"{below}{shown_path(name)}"
        one, two = before.get(name), after.get(name)
        if one == two:
            continue
        if one is None:
            yield f"{shown} was added"
        elif two is None:
            yield f"{shown} was removed"
        elif one[0] == two[0] == FOLDER:
            yield from _tree_differences(f"{shown}/", one, two, tree)
        else:
            yield f"{shown} changed"


def tell_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Describe the differences between the leaves of two steps, without those of files."""
    return [_leaf_difference(name, old.get(name), new.get(name)) for name in unlike(old, new)]


def _leaf_difference(name: str, old: str | None, new: str | None) -> str:
    kind = name.split(" ", 1)[0]
    if kind == "mount":
        return _mount_difference(name, old, new)
    if kind == "variable" and old is None and new is not None:
        return f"{name} is set now" + ("" if new.startswith(DIGEST) else f": {shortened(new)}")
    if kind in _DIGESTED:
        name = _DIGESTED[kind].format(name.partition(" ")[2])
        if old is not None and new is not None:
            return f"{name} changed"
    if old is None:
        text = new or ""
        silent = kind in ("input", "output", "file", "code", *_FILES, *_DIGESTED) or text.startswith(DIGEST)
        return f"{name} was added" + ("" if silent else f": {shortened(text)}")
    if new is None:
        return f"{name} was removed"
    if kind == "variable" and new == ABSENT:
        return f"{name} is not set now"
    if kind in ("code", "copied", "variable", "job") and old.startswith(DIGEST) and new.startswith(DIGEST):
        return f"{name} changed"
    return (
        f"the command changed: {_part(old, new)}"
        if kind == "command"
        else f"{name}: {shortened(old)} → {shortened(new)}"
    )


def _mount_difference(name: str, old: str | None, new: str | None) -> str:
    """Describe the changed fields of a mount, in the words of the pipeline's file."""
    was, is_now = (dict(zip(_MOUNT, json.loads(text or "[]"), strict=False)) for text in (old, new))
    if new is None:
        return f"{name} was removed"
    if old is None:
        given = ", ".join(f"{key} {_shown(value)}" for key, value in is_now.items() if value)
        return f"{name} was added" + (f": {given}" if given else "")
    changed = [key for key in _MOUNT if was.get(key) != is_now.get(key)]
    differences = [f"{key} {_shown(was.get(key))} → {_shown(is_now.get(key))}" for key in changed]
    return f"{name}: {', '.join(differences)}"


def _shown(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value or "not given")


def unlike(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the names of the leaves that differ, in the order of a report."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return sorted(names, key=lambda name: (_rank(name), name))


def _rank(name: str) -> int:
    return next((at for at, beginning in enumerate(_ORDER) if name.startswith(beginning)), len(_ORDER))


def readable(text: str) -> str:
    """Return a leaf as readable text: keys are made of ASCII, in which other letters are numbers."""
    if "\\u" in text:
        with suppress(ValueError):  # half of a letter stays a number: it cannot be displayed
            shown = json.dumps(json.loads(text), ensure_ascii=False)
            shown.encode()
            return shown
    return text


def shortened(text: str) -> str:
    """Return a leaf as it stands in a line."""
    text = readable(text)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _part(old: str, new: str) -> str:
    """Return the position where two texts begin to differ."""
    at = next((at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), min(len(old), len(new)))
    begin = max(0, at - 20)
    lead = "..." if begin else ""
    return f"{lead}{shortened(old[begin:])!r} → {lead}{shortened(new[begin:])!r}"
