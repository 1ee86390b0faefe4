"""DataIO and DataTransform: uploaded text as numbers, with label, missing values and outliers taken care of.

What a fit decides (columns, fill values, bounds) is its model; a prediction does the same to its rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft.frontends.federated.components.base import ComponentPart, PartOutput
from weft.frontends.federated.components.columns import number_of
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.inputs import only_frame, only_model, word
from weft.model.errors import CapacityError, UsageError

_MISSING: Final = frozenset({"", "NULL", "null", "NA", "na", "N/A", "nan", "NaN", "None", "none"})
_UNLABELLED: Final = frozenset({"", "nan", "NaN"})
"""What stands for a missing label: other words of `_MISSING` may be classes."""
_FILLS: Final = ("min", "max", "mean", "designated")
_VALUE: Final = "value"
_LABELS: Final = ("int", "int64", "float", "float64", "str", "long")
_AT_HOME: Final = "The log of the component at this party tells the value."
_MOST_CELLS: Final = 1 << 28
"""The most values of a table that is made of tags or sparse rows: 2 GiB of numbers."""
Array = np.ndarray[Any, Any]
_TEXT: Final = "str"
"""The type of data whose values stay as they are, for encoders of words."""
_NO_TEXT: Final = ""
_Cells = dict[int, str]
"""The values of a column by row."""


def run(part: ComponentPart) -> PartOutput:
    """Transform. UsageError: a parameter is not possible, or a value is no number."""
    raw, model = only_frame(part), only_model(part)
    frame = _as_columns(part, raw)
    if model is None:
        model = _fit(part, frame)
    found = _applied(part, frame, model)
    missing = int(
        sum(np.isnan(found.columns[name]).sum() for name in found.features if found.columns[name].dtype == float)
    )
    part.tracker.summary({"rows": len(found), "columns": list(found.features), "missing": missing})
    return PartOutput(data=(found,), model=model)


def _as_columns(part: ComponentPart, raw: PartyFrame) -> PartyFrame:
    """Return rows of one text each (tags, or `index:value`) as columns; dense rows as they are."""
    separator = str(part.parameters.get("delimitor") or ",")
    form = word(part, "input_format", "dense", "dense", "sparse", "svmlight", "tag")
    if form == "dense":
        if list(raw.columns) != [_VALUE] or separator not in str(raw.columns[_VALUE][:1]):
            return raw
        rows = [str(one).split(separator) for one in raw.columns[_VALUE]]
        width = len(rows[0]) if rows else 0
        if any(len(one) != width for one in rows):
            raise UsageError(f"{part.component}: rows have different numbers of values")
        return PartyFrame(raw.ids, {f"x{at}": np.array([one[at] for one in rows], dtype=object) for at in range(width)})
    joined = [separator.join(map(str, row)) for row in zip(*raw.columns.values(), strict=True)]
    if form == "tag":
        return _tags(part, raw, joined, separator)
    return _sparse(part, raw, joined, separator)


def _tags(part: ComponentPart, raw: PartyFrame, texts: list[str], separator: str) -> PartyFrame:
    with_value = bool(part.parameters.get("tag_with_value"))
    between = str(part.parameters.get("tag_value_delimitor") or ":")
    found: dict[str, _Cells] = {}
    for at, text in enumerate(texts):
        for item in filter(None, text.replace(separator, " ").split()):
            name, _, value = item.partition(between) if with_value else (item, "", "1")
            found.setdefault(name, {})[at] = value or "1"
    _check_size(part, len(found), len(raw))
    return PartyFrame(raw.ids, {name: _filled(cells, len(raw)) for name, cells in sorted(found.items())})


def _check_size(part: ComponentPart, columns: int, rows: int) -> None:
    if columns * rows > _MOST_CELLS:
        raise CapacityError(
            f"{part.component}: the rows of {part.here} would get {columns:,} columns, with {columns * rows:,} values",
            hint=f"Up to {_MOST_CELLS:,} are possible. Each tag, and each index up to the largest, is a column: choose "
            "input_format dense if the values are neither.",
        )


def _filled(cells: _Cells, rows: int) -> Array:
    """Return a column with "0" where nothing was given."""
    found = np.full(rows, "0", dtype=object)
    found[list(cells)] = list(cells.values())
    return found


def _sparse(part: ComponentPart, raw: PartyFrame, texts: list[str], separator: str) -> PartyFrame:
    with_label = bool(part.parameters.get("with_label"))
    labels: list[str] = []
    cells: dict[int, _Cells] = {}
    for at, text in enumerate(texts):
        words = text.replace(separator, " ").split()
        if with_label:
            labels.append(words.pop(0) if words else "")
        for item in words:
            index, _, value = item.partition(":")
            if not index.isdigit() or not value:
                part.tracker.log(f"row {at + 1} has {item!r}")
                raise UsageError(
                    f"{part.component}: row {at + 1} at {part.here} has a value that is no index:value", hint=_AT_HOME
                )
            cells.setdefault(int(index), {})[at] = value
    width = max(cells, default=-1) + 1
    _check_size(part, width, len(raw))
    columns = {f"x{index}": _filled(cells.get(index, {}), len(raw)) for index in range(width)}
    if with_label:
        columns = {_label_name(part): np.array(labels, dtype=object)} | columns
    return PartyFrame(raw.ids, columns)


def _label_name(part: ComponentPart) -> str:
    return str(part.parameters.get("label_name") or "y")


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    """Decide what is done to the rows."""
    label = ""
    if part.parameters.get("with_label"):
        label = _label_name(part)
        if label not in frame.columns:
            part.tracker.log(f"the table has {', '.join(frame.columns)}")
            raise UsageError(
                f"{part.component}: the table at {part.here} has no column {label!r}, the label",
                hint="Set label_name, or with_label to false. The log of the component names the columns of the table.",
            )
    features = [name for name in frame.columns if name != label]
    missing = {*_MISSING, *map(str, part.parameters.get("missing_impute") or ())}
    outliers = {*map(str, part.parameters.get("outlier_impute") or ())}
    model: dict[str, Any] = {
        "label": label,
        "label_type": str(part.parameters.get("label_type") or "int"),
        "features": features,
        "missing": sorted(missing),
        "outliers": sorted(outliers),
        "data_type": str(part.parameters.get("data_type") or "float64"),
        "fill": {},
        "replace": {},
    }
    if model["data_type"] == _TEXT:
        if part.parameters.get("missing_fill"):
            model["fill"] = dict.fromkeys(features, str(part.parameters.get("default_value") or 0))
    elif part.parameters.get("missing_fill"):
        model["fill"] = _values(part, frame, features, missing | outliers, "missing_fill_method", "default_value")
    if part.parameters.get("outlier_replace") and outliers and model["data_type"] != _TEXT:
        names = ("outlier_replace_method", "outlier_replace_value")
        model["replace"] = _values(part, frame, features, missing | outliers, *names)
    if model["label_type"] not in _LABELS:
        raise UsageError(f"{part.component}: label_type is {model['label_type']!r}", hint=f"Use {', '.join(_LABELS)}.")
    return model


def _values(
    part: ComponentPart, frame: PartyFrame, features: list[str], left_out: set[str], method: str, default: str
) -> dict[str, float]:
    """Return the value that each column gets in place of missing ones, or of outliers."""
    how = word(part, method, "designated", *_FILLS)
    given = part.parameters.get(default)
    found = {}
    for at, name in enumerate(features):
        numbers = _numbers(part, name, frame.columns[name], left_out)
        known = numbers[~np.isnan(numbers)]
        if how == "designated":
            value = given[at] if isinstance(given, list) else given
            found[name] = float(value or 0.0)
        elif not len(known):
            found[name] = 0.0
        else:
            found[name] = float(known.min() if how == "min" else known.max() if how == "max" else known.mean())
    return found


def _applied(part: ComponentPart, frame: PartyFrame, model: dict[str, Any]) -> PartyFrame:
    missing, outliers = set(model["missing"]), set(model["outliers"])
    columns: dict[str, Array] = {}
    label = model["label"] if model["label"] in frame.columns else ""
    if label:
        columns[label] = _labels(part, label, frame.columns[label], model["label_type"])
    for name in model["features"]:
        if name not in frame.columns:
            raise UsageError(f"{part.component}: the table at {part.here} has no column {name!r}")
        texts = frame.columns[name]
        if model["data_type"] == _TEXT:
            fill = model["fill"].get(name, _NO_TEXT)
            columns[name] = np.array([fill if one.strip() in missing else one for one in map(str, texts)], dtype=object)
            continue
        numbers = _numbers(part, name, texts, missing | outliers)
        if model["replace"]:
            numbers[np.isin(texts.astype(str), list(outliers))] = model["replace"][name]
        if model["fill"]:
            numbers[np.isnan(numbers)] = model["fill"][name]
        columns[name] = numbers
    return PartyFrame(frame.ids, columns, label=label)


def _numbers(part: ComponentPart, name: str, texts: Array, missing: set[str]) -> Array:
    """Return texts as numbers; missing ones as NaN."""
    found = np.empty(len(texts))
    try:
        for at, text in enumerate(texts.tolist()):
            word = str(text).strip()
            found[at] = np.nan if word in missing else number_of(word)
    except ValueError:
        part.tracker.log(f"row {at + 1} of column {name!r} has {texts[at]!r}, which is no number")
        raise UsageError(
            f"{part.component}: row {at + 1} of column {name!r} at {part.here} has a value that is no number",
            hint=f"Name it in missing_impute, or leave the column out. {_AT_HOME}",
        ) from None
    return found


def _labels(part: ComponentPart, name: str, texts: Array, kind: str) -> Array:
    """Return the labels of a type. UsageError, with the row: one is missing, or is not of that type."""
    words = [str(one).strip() for one in texts.tolist()]
    for at, text in enumerate(words):
        if text in _UNLABELLED:
            raise UsageError(
                f"{part.component}: row {at + 1} of the table at {part.here} has no label in column {name!r}",
                hint="Leave rows without a label out of the table.",
            )
    if kind == "str":
        return np.array([str(one) for one in texts], dtype=object)
    whole = kind.startswith(("int", "long"))
    numbers = np.empty(len(words))
    for at, text in enumerate(words):
        try:
            numbers[at] = number_of(text)
        except ValueError:
            raise _no_label(part, name, at, text, "no number", "Set label_type to str.") from None
        if not np.isfinite(numbers[at]):
            raise _no_label(part, name, at, text, "no finite number", "Leave the row out of the table.")
        if whole and numbers[at] != round(numbers[at]):
            raise _no_label(part, name, at, text, "no whole number", "Set label_type to float for a regression.")
    return numbers.astype(np.int64) if whole else numbers


def _no_label(part: ComponentPart, name: str, at: int, text: str, what: str, hint: str) -> UsageError:
    part.tracker.log(f"row {at + 1} of the label {name!r} has {text!r}, which is {what}")
    return UsageError(
        f"{part.component}: row {at + 1} of the label {name!r} at {part.here} is {what}", hint=f"{hint} {_AT_HOME}"
    )
