"""Rules for names: vertex ids, task names, attempt names.

A vertex id matches `NAME` (vertices that a patch adds begin with the id of their expander and a slash). A task is
written `vertex[index]`, an attempt `vertex[index]@attempt`.
"""

from __future__ import annotations

from weft.model.patterns import late_pattern

NAME = late_pattern(r"[A-Za-z0-9_]([A-Za-z0-9_.\-/]{0,198}[A-Za-z0-9_\-])?")
"""The characters of names: 1 to 200 of them; `is_name` has the whole rule."""

_LONGEST = 200
_OTHER = late_pattern(r"[^A-Za-z0-9_\-]")
_TASK = late_pattern(r"(?P<vertex>[^\[\]@]+)(?:\[(?P<index>\d+)\])?(?:@(?P<attempt>\d+))?")


def is_name(text: str) -> bool:
    """Return whether `text` may name a vertex, bubble, choice or graph.

    1 to 200 characters, no blanks, no special characters of shells or paths: different names lead to different files.
    Case matters.
    """
    if isinstance(text, str) and text[:1] != "-" and text.isascii() and text.replace("-", "_").isidentifier():
        return len(text) <= _LONGEST  # most names are of this form
    return (
        isinstance(text, str)
        and NAME.fullmatch(text) is not None
        and ".." not in text
        and "//" not in text
        and "/." not in text
    )


def task_name(vertex: str, index: int, attempt: int | None = None) -> str:
    """Return the name of a task, or of one attempt of it, as all messages and histories write it."""
    return f"{vertex}[{index}]" if attempt is None else f"{vertex}[{index}]@{attempt}"


def item_name(step: str, number: int) -> str:
    """Return the name of an item in the names of outputs: the first item has that of the step, as in PaddleFlow."""
    return f"{step}-{number}" if number else step


def loop_item(step: str, number: int) -> str:
    """Return the name of an item of a loop with several items, as commands print and accept it."""
    return f"{step}-{number}"


def parse_task(text: str) -> tuple[str, int | None, int | None]:
    """Parse `vertex`, `vertex[index]` or `vertex[index]@attempt`. ValueError: any other form."""
    match = _TASK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a task: write vertex, vertex[index] or vertex[index]@attempt")
    index, attempt = match["index"], match["attempt"]
    return match["vertex"], None if index is None else int(index), None if attempt is None else int(attempt)


def as_name(text: str) -> str:
    """Return a text, such as the name of a function, as the name of a vertex: "plus_1" for "plus 1"."""
    clean = _OTHER.sub("_", text)[:150]
    return clean if NAME.fullmatch(clean) else "task"
