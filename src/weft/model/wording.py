"""The grammar of messages: articles, plurals and sizes; and texts of users without control characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft.model.patterns import late_pattern

EXCEPTION: Final = late_pattern(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)(?:: .*)?")
"""A line that tells an exception of Python."""
LAST_LINES: Final = "Its last lines:"
"""The line of the message of a failed command that precedes what it printed last."""
MOST_TOLD: Final = 20
"""The number of failures and restarts of a group of replicas that get a line each."""
_VOWELS: Final = tuple("aeiouAEIOU")
_SOUNDED: Final = ("uni", "uint", "use", "uui", "one", "eu", "Uni", "Use", "UUI", "One", "Eu")
"""Beginnings that are written with a vowel and spoken with a consonant, such as `uint8`."""
_SPELT: Final = ("nd", "mp", "np", "MPI", "XGB")
"""Beginnings that are spoken as a letter with a vowel, such as `ndarray`, or by letters, such as `MPIJob`."""

_ESCAPE: Final = late_pattern(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -~])"
)


def with_article(noun: str) -> str:
    """Return a noun, such as the name of a class, with its indefinite article."""
    noun = noun.lstrip("_") or noun
    vowel = noun.startswith(_VOWELS) and not noun.startswith(_SOUNDED)
    return f"an {noun}" if vowel or noun.startswith(_SPELT) else f"a {noun}"


def type_of(value: object) -> str:
    """Return what a value is, by its type: "an int", "a list", or "None"."""
    return "None" if value is None else with_article(type(value).__name__)


def no_attribute(owner: object, name: str, others: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing attribute; `others` has what stands for names that other libraries use."""
    there = f": here it is {others[name]}" if name in others else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{there}", name=name, obj=owner)


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number of things: "1 task", "2,000 tasks"."""
    return f"1 {noun}" if n == 1 else f"{n:,} {plural or f'{noun}s'}"


def size_text(nbytes: float) -> str:
    """Return a number of bytes as text: 512 B, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def number_text(value: float) -> str:
    """Return a number with all digits that tell it from others: `0.1234567`, `3`, `1e-07`."""
    return repr(float(value)).removesuffix(".0")


def duration(seconds: float | None) -> str:
    """Return a time span as text: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 04 min`."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def bin_name(edges: Sequence[float] | None, at: int) -> str:
    """Return a bin in words: its bounds, or its number where they are not known. After the last one come no values."""
    if edges is None:
        return f"{at + 1}"
    if at >= len(edges):
        return "missing"
    if at == len(edges) - 1:
        return f"above {edges[at - 1]:.6g}" if at else "all"
    return f"up to {edges[at]:.6g}"


def clean(text: str) -> str:
    """Return text without escape sequences and control characters; newlines and tabs stay.

    A line overwritten with carriage returns keeps only its last state.
    """
    if text.isprintable():
        return text
    lines = _ESCAPE.sub("", text).split("\n")
    return "\n".join(
        line
        if line.isprintable()
        else "".join(c for c in line.rstrip("\r").rpartition("\r")[2] if c == "\t" or c.isprintable())
        for line in lines
    )


def sentences(text: str, more: str) -> str:
    """Return two texts as one, the first with a full stop."""
    return f"{text.removesuffix('.')}. {more}" if text else more


def how_failed(message: str) -> str:
    """Return the message of a failed command with only the last line that it printed: an exception is the reason."""
    how, _, told = message.partition(f"\n{LAST_LINES}\n")
    printed = [line.strip() for line in told.split("\n") if line.startswith("  ") and line.strip()]
    if not printed:
        return message
    return f"{how.removesuffix('.')}{':' if EXCEPTION.fullmatch(printed[-1]) else '; its last line:'} {printed[-1]}"
