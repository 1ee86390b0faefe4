"""DataStatistics: figures of columns, each party of its own rows. Nothing crosses between parties.

The names of the figures are those of FATE 1.5 to 1.11 (`statistics_param`). The summary is part of every result, since
filters of features need it. `quantile_error` has no effect: percentiles are exact. Values that are missing, and those
of `abnormal_list`, are counted as missing and left out of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import chosen_features, numbers_without, value_key
from weft.frontends.federated.components.inputs import only_frame
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_PERCENTILE: Final = re.compile(r"(100|[1-9]?\d)%")
_SUMMARY: Final = "summary"
_LEAST_MEAN: Final = 1e-8


def run(part: ComponentPart) -> PartOutput:
    """Compute. UsageError: a statistic or a column does not exist, or a value is no number."""
    frame = only_frame(part)
    wanted, names = _wanted(part), chosen_features(part, frame, part.parameters, "column_indexes", "column_names")
    listed = part.parameters.get("abnormal_list") or ()
    if not isinstance(listed, (list, tuple)):
        raise UsageError(f"{part.component}: abnormal_list is {listed!r}", hint="Write a list of values.")
    abnormal = {value_key(one) for one in listed}
    bias = part.parameters.get("bias") is not False
    found = {name: _figures(part, frame, name, wanted, abnormal, bias=bias) for name in names}
    part.tracker.summary(found)
    return PartOutput(model={"kind": part.module, "statistics": found})


def _wanted(part: ComponentPart) -> list[str]:
    """Return the figures that the parameters name."""
    given = part.parameters.get("statistics") or _SUMMARY
    found: dict[str, None] = {}
    for one in given if isinstance(given, list) else [given]:
        if one == _SUMMARY:
            found |= dict.fromkeys(_BASIC)
        elif isinstance(one, str) and (one in _FIGURES or one in _COUNTS or _PERCENTILE.fullmatch(one)):
            found[one] = None
        else:
            words = ", ".join((_SUMMARY, *_COUNTS, *_FIGURES))
            raise UsageError(f"{part.component}: there is no statistic {one!r}", hint=f"Use {words}, or 95%.")
    return list(found)


def _figures(
    part: ComponentPart, frame: PartyFrame, name: str, wanted: list[str], abnormal: set[str], *, bias: bool
) -> dict[str, float | None]:
    """Return the figures of a column; None for one that is wanted and needs values, of which there are none."""
    hint = "Put a DataTransform before it, or name the values in abnormal_list."
    values = numbers_without(part, frame, name, abnormal, hint=hint)
    known = values[~np.isnan(values)]
    missing = len(values) - len(known)
    counts = {
        "count": float(len(known)),
        "missing_count": float(missing),
        "missing_ratio": missing / len(values) if len(values) else 0.0,
    }
    found: dict[str, float | None] = {}
    for one in dict.fromkeys((*wanted, *_BASIC)):
        if one in counts:
            found[one] = counts[one]
        elif not len(known):
            if one in wanted:
                found[one] = None
                part.tracker.log(f"column {name!r} has no values for {one}")
        elif one in _FIGURES:
            found[one] = float(_FIGURES[one](known, bias))
        else:
            found[one] = float(np.percentile(known, float(one[:-1])))
    return found


def _skewness(values: Array, bias: bool) -> float:
    deviation, count = values.std(), len(values)
    if not deviation:
        return 0.0
    found = float((((values - values.mean()) / deviation) ** 3).mean())
    return found if bias or count < 3 else found * float(np.sqrt(count * (count - 1))) / (count - 2)


def _kurtosis(values: Array, bias: bool) -> float:
    """Return the excess kurtosis: 0 for a normal distribution."""
    deviation, count = values.std(), len(values)
    if not deviation:
        return 0.0
    found = float((((values - values.mean()) / deviation) ** 4).mean()) - 3
    return found if bias or count < 4 else ((count + 1) * found + 6) * (count - 1) / ((count - 2) * (count - 3))


def _variation(values: Array, bias: bool) -> float:
    """Return the deviation by the mean; one of zero counts as 1e-8, as in FATE, so that the figure is a number."""
    return float(values.std() / max(abs(values.mean()), _LEAST_MEAN))


_COUNTS: Final = ("count", "missing_count", "missing_ratio")
_FIGURES: Final[Mapping[str, Callable[[Array, bool], Any]]] = {
    "sum": lambda values, bias: values.sum(),
    "mean": lambda values, bias: values.mean(),
    "stddev": lambda values, bias: values.std(),
    "median": lambda values, bias: np.median(values),
    "min": lambda values, bias: values.min(),
    "max": lambda values, bias: values.max(),
    "variance": lambda values, bias: values.var(),
    "coefficient_of_variance": _variation,
    "skewness": _skewness,
    "kurtosis": _kurtosis,
}
_BASIC: Final = (
    "sum",
    "mean",
    "stddev",
    "median",
    "min",
    "max",
    "variance",
    "coefficient_of_variance",
    "missing_count",
    "missing_ratio",
    "skewness",
    "kurtosis",
)
