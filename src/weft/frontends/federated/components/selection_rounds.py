"""The filters of a feature selection as a list of rounds, with the names and defaults of FATE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.frontends.federated.components.inputs import group
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart

THRESHOLD, TOP_K, TOP_PERCENTILE = "threshold", "top_k", "top_percentile"
MANUALLY, PERCENTAGE, CORRELATION = "manually", "percentage_value", "correlation_filter"
UNIQUE, VARIATION, OUTLIER = "unique_value", "coefficient_of_variation_value_thres", "outlier_cols"
IV, STATISTIC, PSI, VIF = "iv", "statistic_filter", "psi_filter", "vif_filter"
TREES: Final[Mapping[str, Sequence[str]]] = {
    "hetero_sbt_filter": ("HeteroSecureBoost",),
    "hetero_fast_sbt_filter": ("HeteroFastSecureBoost",),
    "homo_sbt_filter": ("HomoSecureBoost", "HomoSecureboost"),
}
"""The modules whose models have the importances of features, by filter."""
_MERGES: Final = ("average", "max", "min")


class FilterRound(NamedTuple):
    """One filter with one metric. `method` is that of FATE, `label` its name in the summary.

    `limit` is a threshold, a number of features or a share of them, by `kind`; `high` says whether high values stay.
    With `federated` the guest decides for all parties, with `host_limits` if the hosts have thresholds of their own.
    """

    method: str
    label: str
    source: str
    kind: str = THRESHOLD
    limit: float = 0.0
    high: bool = True
    metric: str = ""
    federated: bool = False
    host_limits: Sequence[float] | None = None
    merge: str = "average"
    names: Mapping[str, Any] = {}


def rounds_of(part: ComponentPart) -> list[FilterRound]:
    """Return the rounds of all filters, in order. UsageError: there is no such filter, or a parameter is wrong."""
    methods = part.parameters.get("filter_methods")
    if methods is None:
        methods = [MANUALLY]
    if not isinstance(methods, list):
        raise UsageError(f"{part.component}: filter_methods is {methods!r}", hint="Use a list of filters.")
    found = []
    for one in methods:
        method = str(one).lower()
        if method not in _READERS:
            raise UsageError(
                f"{part.component}: there is no filter {one!r}", hint=f"Use some of {', '.join(sorted(_READERS))}."
            )
        found += _READERS[method](part, method)
    return found


def _manually(part: ComponentPart, method: str) -> list[FilterRound]:
    given = group(part, "manually_param")
    out = given.get("filter_out_indexes"), given.get("filter_out_names")
    left = given.get("left_col_indexes"), given.get("left_col_names")
    if any(one is not None for one in out) and any(one is not None for one in left):
        raise UsageError(
            f"{part.component}: manually_param has columns to leave out and columns to keep", hint="Use one of both."
        )
    for name, value in given.items():
        kind = int if name.endswith("indexes") else str
        if value is not None and not (isinstance(value, list) and all(isinstance(one, kind) for one in value)):
            raise UsageError(f"{part.component}: manually_param.{name} is {value!r}; it must be a list")
    return [FilterRound(method, method, method, names=given)]


def _unique(part: ComponentPart, method: str) -> list[FilterRound]:
    return [FilterRound(method, method, UNIQUE, limit=_number(part, "unique_param", "eps", 1e-5))]


def _variation(part: ComponentPart, method: str) -> list[FilterRound]:
    return [FilterRound(method, method, VARIATION, limit=_number(part, "variance_coe_param", "value_threshold", 1.0))]


def _outlier(part: ComponentPart, method: str) -> list[FilterRound]:
    share = _share(part, "outlier_param", "percentile", 1.0)
    limit = _number(part, "outlier_param", "upper_threshold", 1.0)
    return [FilterRound(method, method, OUTLIER, limit=limit, high=False, metric=str(share))]


def _percentage(part: ComponentPart, method: str) -> list[FilterRound]:
    share = _share(part, "percentage_value_param", "upper_pct", 1.0)
    if share < 0.1:
        raise UsageError(f"{part.component}: percentage_value_param.upper_pct is {share:g}; it must be at least 0.1")
    return [FilterRound(method, method, PERCENTAGE, limit=share, high=False)]


def _iv_value(part: ComponentPart, method: str) -> list[FilterRound]:
    limit = _number(part, "iv_value_param", "value_threshold", 0.0)
    limits = _host_limits(part, group(part, "iv_value_param").get("host_thresholds"))
    return [FilterRound(method, method, IV, limit=limit, federated=_all(part, "iv_value_param"), host_limits=limits)]


def _iv_percentile(part: ComponentPart, method: str) -> list[FilterRound]:
    share = _share(part, "iv_percentile_param", "percentile_threshold", 1.0)
    return [FilterRound(method, method, IV, TOP_PERCENTILE, share, federated=_all(part, "iv_percentile_param"))]


def _iv_top_k(part: ComponentPart, method: str) -> list[FilterRound]:
    count = _whole(part, "iv_top_k_param.k", group(part, "iv_top_k_param").get("k", 10))
    return [FilterRound(method, method, IV, TOP_K, count, federated=_all(part, "iv_top_k_param"))]


def _iv(part: ComponentPart, method: str) -> list[FilterRound]:
    return _common(part, method, "iv_param", IV, metric="iv", only=True, federated=True)


def _statistic(part: ComponentPart, method: str) -> list[FilterRound]:
    return _common(part, method, "statistic_param", STATISTIC, metric="mean")


def _stability(part: ComponentPart, method: str) -> list[FilterRound]:
    return _common(part, method, "psi_param", PSI, metric="psi", only=True, high=False)


def _trees(part: ComponentPart, method: str) -> list[FilterRound]:
    return _common(part, method, "sbt_param", method, metric="feature_importance", only=True)


def _inflation(part: ComponentPart, method: str) -> list[FilterRound]:
    return _common(part, method, "vif_param", VIF, metric="vif", high=False, limit=5.0)


def _correlation(part: ComponentPart, method: str) -> list[FilterRound]:
    given = group(part, "correlation_param")
    if str(given.get("sort_metric", IV)).lower() != IV:
        raise UsageError(f"{part.component}: correlation_param.sort_metric is {given['sort_metric']!r}", hint="Use iv.")
    limit = _number(part, "correlation_param", "threshold", 0.1)
    federated = given.get("select_federated") is not False
    return [FilterRound(method, method, CORRELATION, limit=limit, federated=federated)]


_READERS: Final = {
    MANUALLY: _manually,
    UNIQUE: _unique,
    VARIATION: _variation,
    OUTLIER: _outlier,
    PERCENTAGE: _percentage,
    "iv_value_thres": _iv_value,
    "iv_percentile": _iv_percentile,
    "iv_top_k": _iv_top_k,
    "iv_filter": _iv,
    STATISTIC: _statistic,
    PSI: _stability,
    VIF: _inflation,
    CORRELATION: _correlation,
    **dict.fromkeys(TREES, _trees),
}


def _common(
    part: ComponentPart,
    method: str,
    name: str,
    source: str,
    *,
    metric: str,
    only: bool = False,
    high: bool = True,
    limit: float = 1.0,
    federated: bool = False,
) -> list[FilterRound]:
    """Return a round for each metric of a group of parameters; its other values are lists of the same length, or one.

    `metric`, `high` and `limit` are defaults; with `only`, metric and direction cannot be chosen.
    """
    given = group(part, name)
    metrics = given.get("metrics", metric)
    fields = _listed(part, name, metrics, {"take_high": high, "threshold": limit})
    limits = given.get("host_thresholds")
    if limits is not None and not federated:
        raise UsageError(f"{part.component}: {name}.host_thresholds has no effect", hint="Set threshold at the hosts.")
    found = []
    for at, one in enumerate(metrics if isinstance(metrics, list) else [metrics]):
        own = {key: values[at] for key, values in fields.items()}
        if only and (one != metric or own["take_high"] is not high):
            raise UsageError(f"{part.component}: {name} needs metrics {metric!r} and take_high {str(high).lower()}")
        kind = _one_of(part, f"{name}.filter_type", own["filter_type"], (THRESHOLD, TOP_K, TOP_PERCENTILE))
        found.append(
            FilterRound(
                method,
                str(one) if source == STATISTIC else f"{one}_{kind}",
                source,
                kind,
                _bound(part, f"{name}.threshold", kind, own["threshold"]),
                bool(own["take_high"]),
                str(one),
                federated and own["select_federated"] is not False,
                _host_limits(part, _of_metric(limits, at)),
                _one_of(part, f"{name}.mul_class_merge_type", own["mul_class_merge_type"], _MERGES),
            )
        )
    return found


def _listed(part: ComponentPart, name: str, metrics: Any, defaults: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of a group of parameters as lists of the length of `metrics`."""
    given = group(part, name)
    known = {"filter_type": THRESHOLD, "select_federated": True, "mul_class_merge_type": _MERGES[0], **defaults}
    count = len(metrics) if isinstance(metrics, list) else 1
    found = {}
    for key, default in known.items():
        value = given.get(key, default)
        if isinstance(value, list) and not (isinstance(metrics, list) and len(value) == count):
            raise UsageError(
                f"{part.component}: {name}.{key} has {len(value)} values, and metrics is {metrics!r}",
                hint="Write metrics as a list of the same length.",
            )
        found[key] = value if isinstance(value, list) else [value] * count
    return found


def _of_metric(limits: Any, at: int) -> Any:
    """Return what `host_thresholds` has for a metric: a list in it belongs to one metric, beside null for others."""
    if not isinstance(limits, list) or not any(isinstance(one, list) for one in limits):
        return limits
    return limits[at] if at < len(limits) else None


def _one_of(part: ComponentPart, name: str, value: Any, words: Sequence[str]) -> str:
    if value not in words:
        raise UsageError(f"{part.component}: {name} is {value!r}", hint=f"Use one of {', '.join(words)}.")
    return str(value)


def _bound(part: ComponentPart, name: str, kind: str, value: Any) -> float:
    if kind == TOP_K:
        return _whole(part, name, value)
    found = _checked(part, name, value)
    if kind == TOP_PERCENTILE and not 0 <= found <= 1:
        raise UsageError(f"{part.component}: {name} is {found:g}; with top_percentile it must be from 0 to 1")
    return found


def _checked(part: ComponentPart, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{part.component}: {name} is {value!r}; it must be a number")
    return value


def _number(part: ComponentPart, name: str, key: str, default: float) -> float:
    return _checked(part, f"{name}.{key}", group(part, name).get(key, default))


def _share(part: ComponentPart, name: str, key: str, default: float) -> float:
    found = _number(part, name, key, default)
    if not 0 <= found <= 1:
        raise UsageError(f"{part.component}: {name}.{key} is {found:g}; it must be from 0 to 1")
    return found


def _whole(part: ComponentPart, name: str, value: Any) -> float:
    if type(value) is not int or value < 1:
        raise UsageError(f"{part.component}: {name} is {value!r}; it must be a whole number from 1 on")
    return value


def _host_limits(part: ComponentPart, value: Any) -> list[float] | None:
    """Return a threshold for each host; None if they have that of the guest."""
    hosts = len(part.parties.get("host", ()))
    if value is None:
        return None
    if isinstance(value, (int, float)):
        return [value] * hosts
    if not isinstance(value, list) or len(value) != hosts:
        raise UsageError(f"{part.component}: host_thresholds is {value!r}", hint=f"Use a list of {hosts} numbers.")
    return [_checked(part, "host_thresholds", one) for one in value]


def _all(part: ComponentPart, name: str) -> bool:
    return not group(part, name).get("local_only")
