"""Names of things.

A vertex id matches `NAME` (vertices that a patch adds carry the id of their expander and a slash in front). A task is
written `vertex[index]`, an attempt `vertex[index]@attempt`.
"""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.\-/]{0,198}[A-Za-z0-9_\-])?")
"""The characters that names are made of: 1 to 200 of them; `is_name` has the whole rule."""

_TASK = re.compile(r"(?P<vertex>[^\[\]@]+)(?:\[(?P<index>\d+)\])?(?:@(?P<attempt>\d+))?")


def is_name(text: str) -> bool:
    """Tell whether `text` may name a vertex, bubble, choice or graph.

    1 to 200 characters, no blanks, no shell or path tricks: two names never lead to one file. Case matters.
    """
    return (
        isinstance(text, str)
        and NAME.fullmatch(text) is not None
        and ".." not in text
        and "//" not in text
        and "/." not in text
    )


def task_name(vertex: str, index: int, attempt: int | None = None) -> str:
    """Write a task (or one attempt of it) the way every message and story does."""
    return f"{vertex}[{index}]" if attempt is None else f"{vertex}[{index}]@{attempt}"


def parse_task(text: str) -> tuple[str, int | None, int | None]:
    """Read `vertex`, `vertex[index]` or `vertex[index]@attempt`; raise ValueError for anything else."""
    match = _TASK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a task: write vertex, vertex[index] or vertex[index]@attempt")
    index, attempt = match["index"], match["attempt"]
    return match["vertex"], None if index is None else int(index), None if attempt is None else int(attempt)
