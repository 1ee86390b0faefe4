"""Values of parameters: conversion from texts, types, and limits of lists."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.documents import yaml
from weft.documents.problems import Problems
from weft.frontends.pipelines.language import PIPELINE_FILE
from weft.frontends.pipelines.templates import ParameterValue, as_text, find
from weft.model.errors import DefinitionError
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from weft.frontends.pipelines.language import ParameterKind

_DIGITS = late_pattern(r"(?<![\w.+-])[-+]?[0-9]{18,}(?![\w.])")
_PATH_VALUE = late_pattern(r"[.a-zA-Z0-9/_-]+")


def mismatch(kind: ParameterKind, value: ParameterValue) -> str:
    """Return the fault of `value` as a parameter of `kind`; "" if it fits."""
    match kind:
        case "string":
            return "" if isinstance(value, str) else "must be text"
        case "int":
            return "" if isinstance(value, int) else "must be an integer"
        case "float":
            return "" if isinstance(value, int | float) else "must be a number"
        case "list":
            return "" if isinstance(value, tuple) else "must be a list"
        case "path":
            good = isinstance(value, str) and _PATH_VALUE.fullmatch(value)
            return "" if good else "must be a path of letters, digits and . _ - /"


def convert(kind: ParameterKind, value: ParameterValue) -> ParameterValue:
    """Convert a value from outside the file, a text or another type, to a parameter of `kind`.

    ValueError: the value does not fit; the message says what it must be.
    """
    why = ""
    if kind in {"string", "path"}:
        value = as_text(value)
    elif isinstance(value, str):
        why = _too_large(value)
        value = list_from_text(value) if kind == "list" else number_from_text(value)
    if problem := mismatch(kind, value):
        raise ValueError(why or problem)
    return float(value) if kind == "float" and isinstance(value, int) else value


def _too_large(text: str) -> str:
    """Return the fault of a text with a number too large for a file; "" if there is none."""
    for number in _DIGITS.findall(text):
        try:
            yaml.plain_value(number)
        except OverflowError:
            return "must have at most 64 bits where it is a whole number"
    return ""


def number_from_text(text: str) -> ParameterValue:
    """Parse a number; return any other text unchanged."""
    try:
        number = yaml.plain_value(text)
    except (ValueError, OverflowError):
        return text
    return number if isinstance(number, int | float) and not isinstance(number, bool) else text


def list_from_text(text: str) -> ParameterValue:
    """Parse a list written as JSON; return any other text unchanged."""
    problems = Problems("list", PIPELINE_FILE)
    try:
        value = read_value(yaml.load(text, problems), "", problems)
        problems.raise_if_any()
    except DefinitionError:
        return text
    return text if value is None else value


KINDS: tuple[ParameterKind, ...] = ("string", "int", "float", "path", "list")


def read_value(node: yaml.Node, path: str, problems: Problems, *, inside: bool = False) -> ParameterValue | None:
    """Return the value of a parameter; None, with a problem noted, for a node that has none."""
    if isinstance(node, yaml.Sequence):
        items = [read_value(n, f"{path}[{i}]", problems, inside=True) for i, n in enumerate(node.items)]
        return tuple(item for item in items if item is not None)
    if isinstance(node, yaml.Scalar) and node.value is not None and not isinstance(node.value, bool):
        if inside and isinstance(node.value, str) and any(find(node.value)):
            problems.add(node.mark, path, "a template cannot stand inside a list", "make it a parameter of its own")
        return node.value
    problems.add(node.mark, path, f"must be text, a number or a list, is {yaml.describe(node)}", "quotes make it text")
    return None


def check_value(value: object, *, depth: int = 0) -> ParameterValue:
    """Return a parameter's value from a program, with lists as tuples.

    ValueError: a file could not hold it: another type, a number beyond 64 bits, a text over 64 KiB.
    """
    match value:
        case bool():
            pass
        case str():
            try:
                yaml.check_text(value)
            except OverflowError:
                raise ValueError(f"must have at most {yaml.MAX_SCALAR_BYTES // 1024} KiB") from None
            except ValueError as error:
                raise ValueError(f"must be text that a file can hold ({error})") from None
            return value
        case int():
            if not yaml.INT_MIN <= value <= yaml.INT_MAX:
                raise ValueError("must have at most 64 bits where it is a whole number (as a text it can be longer)")
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple() if depth < yaml.MAX_DEPTH:
            return tuple(check_value(item, depth=depth + 1) for item in value)
    raise ValueError("must be text, a finite number or a list of these")
