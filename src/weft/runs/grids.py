"""The points of a sweep: values of parameters from texts, all combinations of them or a sample, and conditions."""

from __future__ import annotations

import math
import operator
import random
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.runs.reports.facts import MetricFact

MOST_POINTS: Final = 10_000
_NUMBER: Final = r"([+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_RANGE: Final = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(?:\.\.{_NUMBER})?")
_MOST_DIGITS: Final = 300
"""Before or after the point of a number in a range."""
_CONDITION: Final = re.compile(r"\s*([^\s<>=!]+)\s*(<=|>=|==|!=|<|>)\s*(\S+)\s*")
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_CLOSERS: Final = {"[": "]", "{": "}", "(": ")"}


def values_of(name: str, text: str) -> list[str]:
    """Return the values of a parameter: `0.1,0.01`, `1..5`, `0..1..0.25`; quotes and brackets keep commas.

    UsageError: a range has no values, or too many.
    """
    found: list[str] = []
    for part in _split(text):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            quoted = len(part) > 1 and part[0] == part[-1] and part[0] in "\"'"
            found.append(part[1:-1] if quoted else part)
            continue
        found += _range(name, part, *match.groups())
    if len(found) != len(set(found)):
        raise UsageError(f"parameter {name} has the value {_repeated(found)!r} twice in {text[:60]!r}")
    return found


def _split(text: str) -> list[str]:
    """Split a text at the commas outside of quotes and brackets."""
    parts, closers, quote = [""], [], ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _CLOSERS:
            closers.append(_CLOSERS[letter])
        elif closers and letter == closers[-1]:
            closers.pop()
        elif letter == "," and not closers:
            parts.append("")
            continue
        parts[-1] += letter
    return [text] if quote or closers else parts


def _range(name: str, text: str, first: str, last: str, step: str | None) -> list[str]:
    try:
        low, high, by = Decimal(first), Decimal(last), Decimal(step or "1")
    except InvalidOperation:
        low, high, by = Decimal(0), Decimal(-1), Decimal(1)
    if any(value and abs(value.adjusted()) > _MOST_DIGITS for value in (low, high, by)):
        raise UsageError(f"the range {text[:60]} of parameter {name} has numbers that are too large or too small")
    if step is None and any(value != value.to_integral_value() for value in (low, high)):
        raise UsageError(f"the range {text[:60]} of parameter {name} has no step", hint="For example: 0..1..0.25")
    if by <= 0:
        raise UsageError(
            f"the step {step} of parameter {name} in {text[:60]} is not more than 0", hint="For example: 0..1..0.25"
        )
    count = int((high - low) / by) + 1 if high >= low else 0
    if not 0 < count <= MOST_POINTS:
        what = "has no values" if count <= 0 else f"has more than {MOST_POINTS:,} values"
        raise UsageError(f"the range {text[:60]} of parameter {name} {what}", hint="For example: 1..5")
    return [format((low + at * by).normalize(), "f") for at in range(count)]


def _repeated(values: Sequence[str]) -> str:
    return next(value for at, value in enumerate(values) if value in values[:at])


def points_of(
    parameters: Mapping[str, str], sample: int | None = None, seed: int = 0
) -> tuple[list[dict[str, str]], list[str]]:
    """Return the points of a grid, each with all parameters, and the names of those that vary.

    With `sample`, as many different points at random, the same for the same seed. UsageError: nothing varies, or there
    are too many points.
    """
    axes = {name: values_of(name, text) for name, text in parameters.items()}
    varied = [name for name, values in axes.items() if len(values) > 1]
    if not varied:
        raise UsageError("no parameter has several values", hint="For example: -p lr=0.1,0.01 -p depth=1..5")
    total = math.prod(len(values) for values in axes.values())
    if sample is not None and sample < 1:
        raise UsageError(f"--sample is {sample}; it must be 1 or more")
    count = total if sample is None else min(sample, total)
    if count > MOST_POINTS:
        hint = "Give fewer values, or choose some points at random: --sample 50"
        raise UsageError(f"the grid has {total:,} points; a sweep can have {MOST_POINTS:,}", hint=hint)
    numbers = list(range(total)) if count == total else sorted(random.Random(seed).sample(range(total), count))
    return [_point(axes, number) for number in numbers], varied


def _point(axes: Mapping[str, Sequence[str]], number: int) -> dict[str, str]:
    """Return a point by its number: the last parameter varies first."""
    found = {}
    for name, values in reversed(list(axes.items())):
        number, at = divmod(number, len(values))
        found[name] = values[at]
    return {name: found[name] for name in axes}


class StopCondition:
    """A condition on a metric, such as `loss < 0.1`. UsageError: it is none."""

    def __init__(self, text: str) -> None:
        match = _CONDITION.fullmatch(text)
        try:
            self.limit = float(match[3]) if match else math.nan
        except ValueError:
            self.limit = math.nan
        if match is None or math.isnan(self.limit):
            raise UsageError(f"{text[:100]!r} is not a condition on a metric", hint="For example: 'loss < 0.1'")
        self.text, self.metric, self._holds = text.strip(), match[1], _OPERATORS[match[2]]

    def holds(self, metrics: Sequence[MetricFact]) -> bool:
        """Whether a run with these metrics meets the condition."""
        value = metric_value(metrics, self.metric)
        return value is not None and self._holds(value, self.limit)


def metric_value(metrics: Sequence[MetricFact], name: str) -> float | None:
    """Return a metric by its name, or by `STEP.OUTPUT.NAME`; of several, that of the last step. None: there is none."""
    found = [one.value for one in metrics if name in (one.name, f"{one.source}.{one.name}")]
    return found[-1] if found else None


class Halving:
    """Decides which points go on at the rungs 1, 2, 4, ... of their progress: the better half of those that came there.

    A point is judged when it comes to a rung, by those that were there before.
    """

    def __init__(self, *, maximize: bool) -> None:
        self._sign = -1.0 if maximize else 1.0
        self._rungs: dict[int, dict[int, float]] = {}

    def drops(self, point: int, progress: float, value: float) -> int | None:
        """Take the progress and the metric of a point; return the rung at which it is dropped, None: it goes on."""
        rung, worst = 1, None
        while rung <= progress:
            reached = self._rungs.setdefault(rung, {})
            if point not in reached:
                reached[point] = self._sign * value
                better = sum(other < reached[point] for other in reached.values())
                if better >= math.ceil(len(reached) / 2):
                    worst = rung
            rung *= 2
        return worst


def plain_point(point: Mapping[str, Any], varied: Sequence[str]) -> str:
    """Return the varied parameters of a point as text."""
    return " ".join(f"{name}={point[name]}" for name in varied)
