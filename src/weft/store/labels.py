"""The tags and the note of a run, in a file of its folder that any process may change, before and after its end."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from weft.model.errors import UsageError, WeftError
from weft.model.patterns import late_pattern
from weft.model.suggestions import did_you_mean
from weft.store.folders import safe_open
from weft.store.state import os_error, safe_exclusive

if TYPE_CHECKING:
    from pathlib import Path

LABELS: Final = "labels.json"
KEEP: Final = "keep"
"""The name of the tag of runs that are never pruned."""
SWEEP: Final = "sweep"
"""The name of the tag of the points of sweeps."""
_NAME: Final = late_pattern(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_MOST_TAGS: Final = 64
_MOST_VALUE: Final = 256
_MOST_NOTE: Final = 4096


class RunLabels(Struct, frozen=True):
    """The tags of a run, by name, and its note."""

    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def parse_tags(texts: Iterable[str]) -> dict[str, str]:
    """Return tags by name from texts `NAME=VALUE`, or `NAME` alone, whose value is empty. UsageError: one is wrong."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not _NAME.fullmatch(name):
            hint = "For example: stage=test. Names have up to 64 letters, digits, '_', '.', '-'; first a letter or '_'."
            raise UsageError(f"{text[:100]!r} is not a tag", hint=hint)
        if not value.isprintable() or len(value) > _MOST_VALUE:
            raise UsageError(f"the value of tag {name} must be one line of at most {_MOST_VALUE} characters")
        if name in found:
            raise UsageError(f"tag {name} is given twice")
        found[name] = value
    return found


def valid_note(text: str) -> str:
    """Return a note without blanks at its ends. UsageError: it is too long, or has control characters."""
    text = text.strip()
    if len(text) > _MOST_NOTE or not text.replace("\n", "").replace("\t", "").isprintable():
        raise UsageError(f"a note must be text of at most {_MOST_NOTE} characters, without control characters")
    return text


def has_tags(labels: RunLabels, wanted: Iterable[str]) -> bool:
    """Whether a run has all wanted tags: `NAME=VALUE`, or `NAME` with any value."""
    for text in wanted:
        name, equals, value = (part.strip() for part in text.partition("="))
        if name not in labels.tags or (equals and labels.tags[name] != value):
            return False
    return True


def read_labels(folder: Path) -> RunLabels:
    """Return the tags and the note of the run in a folder; empty ones if it has none."""
    try:
        with safe_open(folder, LABELS, mode="rb") as file:
            found: Any = json.loads(file.read(1 << 20))
    except (WeftError, OSError, ValueError):
        return RunLabels()
    tags, note = (found.get("tags"), found.get("note")) if isinstance(found, dict) else ({}, "")
    own = {str(name): str(value) for name, value in tags.items()} if isinstance(tags, dict) else {}
    return RunLabels(own, note if isinstance(note, str) else "")


def change_labels(
    folder: Path, *, tags: Mapping[str, str] | None = None, remove: Iterable[str] = (), note: str | None = None
) -> RunLabels:
    """Add tags to a run, remove some by name, and replace its note; return all of them.

    UsageError: a tag to remove is not there, or there are too many. ForbiddenError, DiskFullError: they cannot be
    written.
    """
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise os_error(f"{folder} cannot be opened", error) from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX)  # two processes may change them at a time
        before = read_labels(folder)
        own = dict(before.tags)
        for name in remove:
            if name not in own:
                hint = did_you_mean(name, own, f"It has: {', '.join(own) or 'none'}")
                raise UsageError(f"{folder.name} has no tag {name[:64]!r}", hint=hint)
            del own[name]
        own |= tags or {}
        if len(own) > _MOST_TAGS:
            raise UsageError(f"{folder.name} would have {len(own)} tags; it can have {_MOST_TAGS}")
        labels = RunLabels(own, before.note if note is None else note)
        _write(folder, labels)
    finally:
        os.close(held)
    return labels


def _write(folder: Path, labels: RunLabels) -> None:
    draft = folder / f".{LABELS}"
    try:
        draft.unlink(missing_ok=True)  # of a killed process: the folder is locked
        try:
            with safe_exclusive(draft) as file:
                file.write(json.dumps({"tags": dict(labels.tags), "note": labels.note}).encode())
            draft.replace(folder / LABELS)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
    except OSError as error:
        raise os_error(f"{folder / LABELS} cannot be written", error) from None
