"""Parameters and losses of boosted trees, with the names and defaults of FATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.frontends.federated.components.inputs import (
    check_classes,
    group,
    number,
    refuse_values,
    threshold_of,
    whole_number,
    word,
)
from weft.frontends.federated.components.links import sigmoid, softmax
from weft.frontends.federated.components.predictions import class_frame, regression_frame
from weft.frontends.federated.components.trees import SplitRules
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
CLASSIFICATION, REGRESSION = "classification", "regression"
STANDARD, MIX, LAYERED = "std", "mix", "layered"
_LEAST_PROBABILITY: Final = 1e-15
_REFUSED: Final = ("EINI_inference",)


class Boosting(NamedTuple):
    """The parameters of boosted trees."""

    rules: SplitRules
    task: str
    num_trees: int
    learning_rate: float
    bin_num: int
    feature_rate: float
    n_iter_no_change: bool
    tol: float
    complete_secure: bool
    strategy: str
    trees_per_party: int
    guest_depth: int
    host_depth: int
    goss: tuple[float, float] | None
    seed: int
    use_missing: bool
    zero_as_missing: bool


def boosting_of(part: ComponentPart) -> Boosting:
    """Return the parameters of a part. UsageError: one is not possible, or not supported."""
    _refuse(part)
    task = word(part, "task_type", CLASSIFICATION, CLASSIFICATION, REGRESSION)
    _check_objective(part, task)
    fast = part.module == "HeteroFastSecureBoost"
    name = "boosting_strategy" if part.parameters.get("boosting_strategy") is not None else "work_mode"
    strategy = word(part, name, MIX if fast else STANDARD, STANDARD, MIX, LAYERED)
    guest_depth = whole_number(part, "guest_depth", 2, least=0)
    host_depth = whole_number(part, "host_depth", 3, least=0)
    rules = _rules(part)
    if strategy == LAYERED:
        rules = rules._replace(max_depth=guest_depth + host_depth)
    goss = None
    if part.parameters.get("run_goss"):
        goss = number(part, "top_rate", 0.2, least=0.0), number(part, "other_rate", 0.1, least=0.0)
        if not (goss[0] > 0 and goss[1] > 0 and sum(goss) <= 1):
            raise UsageError(f"{part.component}: top_rate and other_rate must be positive, and at most 1 together")
    rate = number(part, "subsample_feature_rate", 1.0, least=0.0)
    if not 0 < rate <= 1:
        raise UsageError(f"{part.component}: subsample_feature_rate is {rate:g}; it must be above 0 and at most 1")
    return Boosting(
        rules,
        task,
        whole_number(part, "num_trees", 5, least=1),
        number(part, "learning_rate", 0.3, least=0.0),
        whole_number(part, "bin_num", 32, least=2),
        rate,
        bool(part.parameters.get("n_iter_no_change", True)),
        number(part, "tol", 0.0001),
        bool(part.parameters.get("complete_secure", False)),
        strategy,
        whole_number(part, "tree_num_per_party", 1, least=1),
        guest_depth,
        host_depth,
        goss,
        whole_number(part, "random_seed", 100, least=0),
        *(_asks(part, name) for name in ("use_missing", "zero_as_missing")),
    )


def _asks(part: ComponentPart, name: str) -> bool:
    return bool(part.parameters.get(name) or group(part, "tree_param").get(name))


def tree_matrix(part: ComponentPart, frame: PartyFrame, *, use_missing: bool, zero_as_missing: bool) -> Array:
    """Return the features of a frame, NaN where they are missing, shape (rows, features).

    `zero_as_missing` counts with `use_missing` alone, as in FATE. UsageError: a value is infinite, no number, or
    missing without `use_missing`.
    """
    matrix = frame.matrix()
    wrong = np.isinf(matrix) if use_missing else ~np.isfinite(matrix)
    refuse_values(part, matrix, frame.features, wrong, "Set missing_fill before it, or train with use_missing.")
    return np.where(matrix == 0, np.nan, matrix) if use_missing and zero_as_missing else matrix


def _refuse(part: ComponentPart) -> None:
    given = part.parameters
    for name in _REFUSED:
        if given.get(name):
            raise UsageError(f"{part.component}: {name} is not supported", hint="Set it to false.")
    word(part, "multi_mode", "single_output", "single_output")
    threshold_of(part)


def _check_objective(part: ComponentPart, task: str) -> None:
    given = group(part, "objective_param").get("objective")
    allowed = "cross_entropy" if task == CLASSIFICATION else "lse"
    if part.here.role == "host" and given is None:
        return
    if str(given or "cross_entropy").lower() != allowed:
        raise UsageError(
            f"{part.component}: objective_param.objective is {given!r}, which is not supported with {task}",
            hint=f"Use {allowed}.",
        )


def _rules(part: ComponentPart) -> SplitRules:
    given, defaults = group(part, "tree_param"), SplitRules()
    values: dict[str, Any] = {}
    for name in ("max_depth", "min_sample_split", "min_impurity_split", "min_leaf_node", "min_child_weight"):
        value, default = given.get(name), getattr(defaults, name)
        if value is None:
            continue
        whole = isinstance(default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or value < 0:
            raise UsageError(f"{part.component}: tree_param.{name} is {value!r}; it must be a number from 0 on")
        values[name] = value
    if values.get("max_depth") == 0:
        raise UsageError(f"{part.component}: tree_param.max_depth is 0; it must be at least 1")
    if str(given.get("criterion_method") or "xgboost").lower() != "xgboost":
        raise UsageError(f"{part.component}: tree_param.criterion_method is {given['criterion_method']!r}")
    penalties = given.get("criterion_params")
    if isinstance(penalties, Mapping):
        penalties = [penalties.get("l2"), penalties.get("l1")]
    if penalties is not None:
        ok = isinstance(penalties, (list, tuple)) and 1 <= len(penalties) <= 2
        if not ok or not all(isinstance(one, (int, float)) and one >= 0 for one in penalties):
            raise UsageError(f"{part.component}: tree_param.criterion_params is {given['criterion_params']!r}")
        values |= dict(zip(("l2", "l1"), map(float, penalties), strict=False))
    return SplitRules(**values)


class BoostingLoss(NamedTuple):
    """A loss over scores of shape (rows, outputs). `target` is what derivatives subtract, of the same shape.

    `predict` turns scores into predictions, `derivatives` those into g and h, `loss` into the mean loss.
    """

    start: Callable[[Array], Array]
    predict: Callable[[Array], Array]
    derivatives: Callable[[Array, Array], tuple[Array, Array]]
    loss: Callable[[Array, Array], float]


def _two_classes_loss(target: Array, found: Array) -> float:
    found = np.clip(found, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    return float(-(target * np.log(found) + (1 - target) * np.log(1 - found)).mean())


def _classes_loss(target: Array, found: Array) -> float:
    return float(-np.log(np.clip((target * found).sum(axis=1), _LEAST_PROBABILITY, 1.0)).mean())


def _zeros(target: Array) -> Array:
    return np.zeros(target.shape[1])


TWO_CLASSES: Final = BoostingLoss(
    _zeros, sigmoid, lambda target, found: (found - target, found * (1 - found)), _two_classes_loss
)
MORE_CLASSES: Final = BoostingLoss(
    _zeros, softmax, lambda target, found: (found - target, found * (1 - found)), _classes_loss
)
LEAST_SQUARES: Final = BoostingLoss(
    lambda target: target.mean(axis=0),
    lambda scores: scores,
    lambda target, found: (2 * (found - target), np.full(found.shape, 2.0)),
    lambda target, found: float(((found - target) ** 2).mean()),
)


def loss_of(task: str, classes: list[Any]) -> BoostingLoss:
    """Return the loss of a task; `classes` are those of a classification."""
    if task == REGRESSION:
        return LEAST_SQUARES
    return TWO_CLASSES if len(classes) == 2 else MORE_CLASSES


def targets_of(part: ComponentPart, task: str, y: Array | None, known: Sequence[Any] = ()) -> tuple[list[Any], Array]:
    """Return the classes (none in a regression), and what is to be predicted, shape (rows, outputs).

    `known` are the classes if other parties have rows, too. UsageError: there is no label, or one that is not possible.
    """
    if y is None:
        raise UsageError(f"{part.component}: the rows of {part.here} have no label", hint="Set with_label before it.")
    if task == REGRESSION:
        if y.dtype.kind not in "iufb":
            raise UsageError(f"{part.component}: the label is no number", hint="Set task_type to classification.")
        return [], y.astype(float)[:, None]
    classes: list[Any] = list(known) or np.unique(y).tolist()
    check_classes(part, classes)
    kinds = classes[1:] if len(classes) == 2 else classes
    return classes, np.column_stack([(y == one).astype(float) for one in kinds])


def prediction_frame(
    part: ComponentPart, frame: PartyFrame, task: str, classes: list[Any], scores: Array, kind: str
) -> PartyFrame:
    """Return scores of shape (rows, outputs) as predictions."""
    found = loss_of(task, classes).predict(scores)
    if task != CLASSIFICATION:
        return regression_frame(frame, found[:, 0], kind)
    probabilities = np.column_stack([1 - found[:, 0], found[:, 0]]) if len(classes) == 2 else found
    return class_frame(frame, probabilities, classes, kind, threshold=threshold_of(part))
