"""The metrics of components under the names of FATE, for its clients.

FATE names the metrics of an `Evaluation` after the component whose predictions it has: `hetero_lr_0` has the single
figures, and `hetero_lr_0_roc`, `hetero_lr_0_ks_fpr` and others are curves. The namespace is the kind of rows; one such
as `train/hetero_lr_0` names the component as well. Source: `federatedml/evaluation` of 1.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from weft.parties.http.ports import MetricSeries

_INTERSECTION: Final = "intersection"
_AXES: Final[Mapping[str, Mapping[str, str]]] = {"roc": {"unit_name": "fpr", "ordinate_name": "tpr"}}
_PAIRS: Final = ("ks_fpr", "ks_tpr", "precision", "recall")
"""Curves that FATE draws in one chart with another one."""


def fate_metrics(found: Iterable[MetricSeries], module: str, source: str) -> list[MetricSeries]:
    """Return the metrics of a component of `module` as FATE names them; `source` is the component that it follows."""
    if module == "Evaluation":
        return _of_evaluation(found, source or "evaluation")
    if module == "Intersection":
        return list(_grouped(found, _INTERSECTION, "INTERSECTION"))
    return [_as_loss(one) if one.about.get("metric_type") == "LOSS" else one for one in found]


def _of_evaluation(found: Iterable[MetricSeries], only: str) -> list[MetricSeries]:
    """Return the metrics by the component whose predictions they are of: `only`, unless their namespace names it."""
    by_place: dict[tuple[str, str], list[MetricSeries]] = {}
    for one in found:
        kind, _, source = one.namespace.partition("/")
        by_place.setdefault((kind, source or only), []).append(replace(one, namespace=kind))
    return [made for (_, source), these in by_place.items() for made in _of_source(these, source)]


def _of_source(found: Sequence[MetricSeries], source: str) -> list[MetricSeries]:
    singles = [one for one in found if is_single(one)]
    made = list(_grouped(singles, source, "EVALUATION_SUMMARY"))
    for one in found:
        if is_single(one):
            continue
        name = f"{source}_{one.name}"
        curve = f"{source}_{one.name.rpartition('_')[2]}" if one.name in _PAIRS else source
        about: dict[str, Any] = {"name": name, "metric_type": one.about.get("metric_type"), "curve_name": curve}
        about |= {"pair_type": source} if one.name in _PAIRS else {}
        about |= _AXES.get(one.name, {"unit_name": ""})
        made.append(MetricSeries(namespace=one.namespace, name=name, points=one.points, about=about))
    return made


def _grouped(found: Iterable[MetricSeries], name: str, kind: str) -> Iterable[MetricSeries]:
    """Yield one metric for each namespace, with all single figures of it as its points."""
    groups: dict[str, list[tuple[Any, Any]]] = {}
    for one in found:
        groups.setdefault(one.namespace, []).append((one.name, one.points[0][1]))
    for namespace, points in groups.items():
        yield MetricSeries(namespace=namespace, name=name, points=points, about={"name": name, "metric_type": kind})


def _as_loss(one: MetricSeries) -> MetricSeries:
    about = {"name": one.namespace, "metric_type": "LOSS", "unit_name": "iters"}
    return MetricSeries(namespace=one.namespace, name=one.name, points=one.points, about=about)


def is_single(one: MetricSeries) -> bool:
    """Whether a metric is a single figure, and not a curve."""
    return len(one.points) == 1 and one.points[0][0] == one.name
