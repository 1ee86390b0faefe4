"""HeteroFeatureBinning: bins of features at each party, and what they tell about the labels of the guest.

The guest sends encrypted labels, one number for each row. A host adds up those of each bin and sends the encrypted
sums, packed; the guest decrypts them to counts, and computes weight of evidence and information value. Source: the
description of FATE 1.11. Quantiles are exact, so `error`, `head_size` and `compress_thres` have no effect. With the
method `optimal` fine bins are merged (`optimal_bins`), those of a host by the guest, which tells it the last of each.

Who learns what: a host learns the number of rows and of classes, and nothing about the labels. It does not get weights
of evidence either: with its own number of rows in each bin they would tell it how many of these have which label. So,
as in FATE, `woe` is no transform of a host. The guest learns, under anonymous names, how many rows of each class are in
each bin of a host, in order, but no edges, no values and not which rows these are. A guest that does not follow the
protocol could send other numbers than labels, and learn more about bins.

With `optimal` the guest learns these numbers of each fine bin, of which some may hold a single row. The host learns
which of its fine bins were merged, so where in its columns labels change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.bins import (
    BUCKET,
    QUANTILE,
    bin_codes,
    bucket_edges,
    category_edges,
    evidence,
    quantile_edges,
)
from weft.frontends.federated.components.columns import (
    ANONYMOUS,
    anonymous_names,
    checked_columns,
    chosen_features,
    numbers_of,
    with_anonymous,
)
from weft.frontends.federated.components.inputs import group, number, only_frame, only_model, whole_number, word
from weft.frontends.federated.components.label_counts import (
    FINE,
    BinLabels,
    Columns,
    announce,
    answer,
    counts_of_hosts,
    labels_of,
    merged_counts,
)
from weft.frontends.federated.components.optimal_bins import rule_of
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
BIN_NUM, WOE, OPTIMAL = "bin_num", "woe", "optimal"


def run(part: ComponentPart) -> PartOutput:
    """Bin, or do it as a model says. UsageError: a parameter, a label or a column is not possible."""
    frame, model = only_frame(part), only_model(part)
    if model is None:
        model = _fit(part, frame)
    if "columns" not in model:
        raise UsageError(
            f"{part.component}: {part.here} does not have the model", hint="Name the model_version of a training job."
        )
    return PartOutput(data=(_transformed(part, frame, model),), model=model)


def _fit(part: ComponentPart, frame: PartyFrame) -> dict[str, Any]:
    static = not part.parameters.get("skip_static")
    transform = _transform_of(part, static=static)
    adjustment = number(part, "adjustment_factor", 0.5)
    if not 0 < adjustment < 1:
        raise UsageError(f"{part.component}: adjustment_factor is {adjustment:g}; it must be between 0 and 1")
    columns = _columns(part, frame)
    if any(FINE in one for one in columns.values()) and not (static and _asks_hosts(part)):
        raise UsageError(
            f"{part.component}: the method optimal needs labels at {part.here}",
            hint="Set skip_static to false, and local_only, too, if hosts use it.",
        )
    names = anonymous_names(part, frame)
    if part.here.role == GUEST:
        results = _guest_results(part, frame, columns, adjustment, static=static)
    else:
        rule = None
        if any(FINE in one for one in columns.values()):
            rule = rule_of(part, whole_number(part, "bin_num", 10, least=1))[0]
        answer(part, frame, columns, wants=static and not part.parameters.get("local_only"), rule=rule)
    columns = {name: {key: value for key, value in one.items() if key != FINE} for name, one in columns.items()}
    model: dict[str, Any] = {
        "kind": part.module,
        "columns": columns,
        ANONYMOUS: {name: names[name] for name in columns},
        "transform": {"type": transform, "names": _transformed_names(part, frame, columns) if transform else []},
    }
    if part.here.role == GUEST:
        model |= results
        if transform == WOE and len(model["results"]) > 1:
            part.tracker.log(f"woe is that of the label {model['labels'][0]} against all others, as in FATE")
        _tell(part, model)
    else:
        part.tracker.summary({"split_points": {name: one["edges"] for name, one in columns.items()}})
    return model


def _asks_hosts(part: ComponentPart) -> bool:
    """Whether this part has labels of its own, or the guest counts them for it."""
    return part.here.role == GUEST or not part.parameters.get("local_only")


# ---------------------------------------------------------------------------------------------------------------- bins


def _columns(part: ComponentPart, frame: PartyFrame) -> dict[str, dict[str, Any]]:
    """Return the edges of all columns that are binned, by name."""
    given = part.parameters
    method, count = (
        word(part, "method", QUANTILE, QUANTILE, BUCKET, OPTIMAL),
        whole_number(part, "bin_num", 10, least=1),
    )
    optimal = method == OPTIMAL
    if optimal:
        _, fine = rule_of(part, count)
        method, count = fine.method, fine.count
    number(part, "error", 0.001, least=0.0)
    chosen = chosen_features(part, frame, given, "bin_indexes", "bin_names")
    categories = chosen_features(part, frame, given, "category_indexes", "category_names", nothing=True)
    manual = _manual_edges(part, frame)
    found = {}
    for name in frame.features:
        if name not in chosen and name not in categories:
            continue
        values = numbers_of(part, frame, name)
        if manual is not None:
            if name not in manual:
                raise UsageError(
                    f"{part.component}: there are no split points for {name!r} at {part.here}",
                    hint="Give split points to all columns that are binned, or to none.",
                )
            edges = manual[name]
        elif np.isnan(values).all():
            part.tracker.log(f"column {name!r} has no values, so all rows are in one bin")
            edges = []
        elif name in categories:
            edges = category_edges(values)
        else:
            edges = (quantile_edges if method == QUANTILE else bucket_edges)(values, count)
        found[name] = {"edges": edges, "category": name in categories, "missing": bool(np.isnan(values).any())}
        if optimal and manual is None and name not in categories:
            if found[name]["missing"]:
                raise UsageError(
                    f"{part.component}: column {name!r} at {part.here} has missing values, and the method is optimal",
                    hint="Set missing_fill before it.",
                )
            found[name][FINE] = True
    return found


def _manual_edges(part: ComponentPart, frame: PartyFrame) -> dict[str, list[float]] | None:
    """Return the edges that the file gives, by name; None if it gives none."""
    by_index = group(part, "split_points_by_index")
    by_name = group(part, "split_points_by_col_name")
    if not by_index and not by_name:
        return None
    found: dict[str, list[float]] = {}
    for key, edges in [*by_index.items(), *by_name.items()]:
        name = key
        if key in by_index and key not in by_name:
            at = int(key) if str(key).isdigit() else -1
            if not 0 <= at < len(frame.features):
                raise UsageError(f"{part.component}: split_points_by_index has {key!r}, and there is no such column")
            name = frame.features[at]
        numbers = isinstance(edges, list) and all(isinstance(one, (int, float)) for one in edges)
        if not numbers or not edges or sorted(set(edges)) != edges:
            raise UsageError(
                f"{part.component}: the split points of {name!r} are {edges!r}",
                hint="Use an ascending list of numbers.",
            )
        if name in found:
            raise UsageError(f"{part.component}: {name!r} has split points by index and by name")
        found[name] = [float(one) for one in edges]
    return found


# ------------------------------------------------------------------------------------------------------------ evidence


def _guest_results(
    part: ComponentPart, frame: PartyFrame, columns: dict[str, dict[str, Any]], adjustment: float, *, static: bool
) -> dict[str, Any]:
    """Return the results of the guest and of the hosts: for each event, what the bins of each feature tell."""
    hosts = part.all_of(HOST)
    asks = static and not part.parameters.get("local_only")
    labels = labels_of(part, frame) if static else BinLabels([], np.empty(0, int))
    announce(part, len(labels.classes) if asks else 0)
    if not static:
        return {"labels": [], "results": [], "hosts": {}}
    width = len(labels.classes)
    counts = {}
    for name, one in columns.items():
        codes = bin_codes(numbers_of(part, frame, name), one["edges"])
        size = len(one["edges"]) + one["missing"]
        counts[name] = np.bincount(codes * width + labels.places, minlength=size * width).reshape(-1, width)
        if FINE in one:
            rule, _ = rule_of(part, whole_number(part, "bin_num", 10, least=1))
            ends, counts[name] = merged_counts(part, counts[name], rule, adjustment)
            one["edges"] = [one["edges"][at] for at in ends]
    theirs = counts_of_hosts(part, labels, hosts, adjustment) if asks and hosts else {}
    return {
        "labels": labels.classes,
        "results": _results(counts, width, adjustment),
        "hosts": {host.id: _results(found, width, adjustment) for host, found in theirs.items()},
    }


def _results(counts: Mapping[str, Array], classes: int, adjustment: float) -> list[dict[str, Any]]:
    """Return what counts, shape (bins, classes), tell about each event: the first class, or with more each of them."""
    events = [0] if classes == 2 else list(range(classes))
    return [
        {
            name: evidence(one[:, event], one.sum(axis=1) - one[:, event], adjustment).document()
            for name, one in counts.items()
        }
        for event in events
    ]


def _tell(part: ComponentPart, model: Mapping[str, Any]) -> None:
    """Show the results: a metric for each information value, a curve for each weight of evidence, and the summary."""
    events = model["labels"][:1] if len(model["results"]) == 1 else model["labels"]
    summary = {}
    for at, event in enumerate(events):
        every = dict(model["results"][at])
        for theirs in model["hosts"].values():
            every |= theirs[at]
        tag = "" if len(events) == 1 else f"/{event}"
        for name, one in every.items():
            part.tracker.metric(f"iv{tag}", name, one["iv"])
            part.tracker.curve(f"woe{tag}", name, [(float(bin), woe) for bin, woe in enumerate(one["woe"])], kind="WOE")
        summary["result" if len(events) == 1 else str(event)] = {
            "iv": sorted(([name, one["iv"]] for name, one in every.items()), key=lambda pair: -pair[1]),
            "woe": {name: one["woe"] for name, one in every.items()},
            "monotonic": {name: _is_monotonic(one["woe"]) for name, one in every.items()},
        }
    part.tracker.summary({"split_points": {name: one["edges"] for name, one in model["columns"].items()}} | summary)


def _is_monotonic(values: Sequence[float]) -> bool:
    steps = np.diff(values)
    return bool((steps >= 0).all() or (steps <= 0).all())


# ----------------------------------------------------------------------------------------------------------- transform


def _transform_of(part: ComponentPart, *, static: bool) -> str:
    """Return what replaces values: bins, weights of evidence, or nothing."""
    given = group(part, "transform_param")
    kind = given.get("transform_type", BIN_NUM)
    if kind not in (BIN_NUM, WOE, None):
        raise UsageError(
            f"{part.component}: transform_param.transform_type is {kind!r}", hint="Use bin_num, woe or null."
        )
    if kind == WOE and part.here.role == HOST:
        raise UsageError(
            f"{part.component}: transform_type woe is not possible at {part.here}: weights would show it labels",
            hint='Write for hosts: "transform_param": {"transform_type": "bin_num"}',
        )
    if kind == WOE and not static:
        raise UsageError(f"{part.component}: transform_type woe needs labels", hint="Set skip_static to false.")
    return str(kind or "")


def _transformed_names(part: ComponentPart, frame: PartyFrame, columns: Columns) -> list[str]:
    given = group(part, "transform_param")
    indexes = given.get("transform_cols", -1)
    if indexes == -1 and not ("transform_cols" not in given and given.get("transform_names")):
        return list(columns)
    found = chosen_features(part, frame, given, "transform_cols", "transform_names", nothing=True)
    unknown = [name for name in found if name not in columns]
    if unknown:
        raise UsageError(
            f"{part.component}: column {unknown[0]!r} at {part.here} is transformed, and has no bins",
            hint="Name it in bin_names, too.",
        )
    return found


def _transformed(part: ComponentPart, frame: PartyFrame, model: Mapping[str, Any]) -> PartyFrame:
    """Return the frame with bins or weights of evidence in place of values."""
    names = anonymous_names(part, frame)
    kind, chosen = model["transform"]["type"], model["transform"]["names"]
    checked_columns(part, frame, chosen)
    columns = dict(frame.columns)
    for name in chosen:
        codes = bin_codes(numbers_of(part, frame, name), model["columns"][name]["edges"])
        if kind == BIN_NUM:
            columns[name] = codes.astype(float)
            continue
        woe = np.array(model["results"][0][name]["woe"])
        if codes.size and codes.max() >= len(woe):
            raise UsageError(
                f"{part.component}: column {name!r} at {part.here} has missing values, which it had not in training",
                hint="Set missing_fill before it.",
            )
        columns[name] = woe[codes]
    return with_anonymous(replace(frame, columns=columns), names)
