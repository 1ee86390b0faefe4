"""HomoSecureBoost: boosted trees over the rows of guest and hosts, which have the same columns, with an arbiter.

The parties agree on bins by quantiles over the rows of all (`quantiles`). For each level of a tree they add their sums
of first and second derivatives in each bin; derivatives are integers, so the sums are exact and the trees are those of
the pooled rows. The guest chooses the splits, and all parties divide their own rows. Predictions are local.

Who learns what: see `horizontal`. All data parties have the whole model, and learn the sums of each node: derivatives
and numbers of rows in each bin over all parties. With one guest and one host, each can compute those of the other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.frontends.federated.components.base import ARBITER, ComponentPart, PartOutput
from weft.frontends.federated.components.boosting import (
    CLASSIFICATION,
    REGRESSION,
    Boosting,
    boosting_of,
    loss_of,
    prediction_frame,
    targets_of,
    tree_matrix,
)
from weft.frontends.federated.components.cross_validation import cross_validated
from weft.frontends.federated.components.horizontal import HorizontalSums, arbitrate
from weft.frontends.federated.components.inputs import (
    columns_of,
    labels_of,
    only_frame,
    refuse_weights,
    validation_frame,
    word,
)
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, joined
from weft.frontends.federated.components.quantiles import pooled_bins
from weft.frontends.federated.components.tree_beginnings import boosting_before, tree_rounds
from weft.frontends.federated.components.trees import (
    DerivativeScale,
    FeatureBins,
    SplitRules,
    SplitSums,
    left_sums,
)
from weft.frontends.federated.components.validation import asked_early_stop
from weft.frontends.federated.components.warm_start import Beginning, beginning_of, classes_before
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

_NAMES: Final = {"feature_rate": "subsample_feature_rate", "task": "task_type", "seed": "random_seed"}
_LEAF: Final = -1
_DERIVATIVE_BITS: Final = 16
"""The binary digits of first and second derivatives, counted from the largest one of a tree."""
Array = np.ndarray[Any, Any]


@cross_validated(own_rows=True)
def run(part: ComponentPart) -> PartOutput:
    """Train, or predict with a model. UsageError: a parameter, a label or a value is not possible."""
    begin = beginning_of(part, tree_rounds)
    if not begin.trains:
        if part.here.role == ARBITER:
            return PartOutput()
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        return PartOutput(data=(_predicted(part, frame, begin.model, TEST),))
    if asked_early_stop(part):
        raise UsageError(
            f"{part.component}: early_stopping_rounds is not supported", hint="Leave it out; see n_iter_no_change."
        )
    boosting = boosting_of(part)
    word(part, "backend", "distributed", "distributed", "memory")
    if part.here.role == ARBITER:
        arbitrate(part)
        return PartOutput()
    frame = only_frame(part, "train_data", "data")
    refuse_weights(part, frame)
    if begin.goes_on:
        boosting = boosting_before(part, boosting, frame, begin.model)
    model, scores = _fit(part, boosting, frame, begin)
    found = [prediction_frame(part, frame, model["task"], model["classes"], scores, TRAIN)]
    validate = validation_frame(part)
    if validate is not None:
        found.append(_predicted(part, validate, model, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


# ------------------------------------------------------------------------------------------------------------ training


def _fit(part: ComponentPart, boosting: Boosting, frame: PartyFrame, begin: Beginning) -> tuple[dict[str, Any], Array]:
    """Return the model and the scores of own rows, shape (rows, outputs)."""
    labels_of(part, frame)
    sums = HorizontalSums(part)
    sums.compare(_settings(boosting))
    features, matrix = sums.matrix(frame, partial(_matrix, part, boosting.use_missing, boosting.zero_as_missing))
    classes = sums.classes(frame) if boosting.task == CLASSIFICATION else []
    if begin.goes_on and classes:
        classes = classes_before(part, frame, begin.model)
    _, target = targets_of(part, boosting.task, frame.y, classes)
    rows, share = sums.share(len(frame))
    bins = pooled_bins(sums, matrix, boosting.bin_num, rows, may_miss=boosting.use_missing)
    growth = _Growth(sums, boosting, bins, rows, features)
    loss = loss_of(boosting.task, classes)
    power = sums.powers(target)[0] if boosting.task == REGRESSION else 0
    own = loss.start(target) if len(target) else np.zeros(target.shape[1])
    start = sums.total(share * own, power=power)
    trees, losses, done = list[list[dict[str, Any]]](), list[float](), begin.done()
    scores = np.tile(start, (len(target), 1))
    if begin.goes_on:
        start, trees, losses = np.array(begin.model["start"]), list(begin.model["trees"]), list(begin.model["losses"])
        scores = _scores(part, frame, begin.model)
    for _ in range(boosting.num_trees):
        g, h = loss.derivatives(target, loss.predict(scores))
        for output in range(scores.shape[1]):
            tree, weights = growth.grow(g[:, output], h[:, output], len(trees))
            trees.append(tree)
            scores[:, output] += boosting.learning_rate * weights
            part.tracker.progress(len(trees), (done + boosting.num_trees) * scores.shape[1])
        mean = share * loss.loss(target, loss.predict(scores)) if len(target) else 0.0
        losses.append(float(sums.total(np.array([mean]), power=2 * power)[0]))
        still = boosting.n_iter_no_change and len(losses) > 1 and abs(losses[-2] - losses[-1]) < boosting.tol
        if sums.same("end", bool(still), bool):
            break
    sums.close()
    part.tracker.curve("train", "loss", [(float(at), one) for at, one in enumerate(losses)], kind="LOSS")
    model = {
        "kind": part.module,
        "task": boosting.task,
        "features": features,
        "classes": classes,
        "learning_rate": boosting.learning_rate,
        "start": start.tolist(),
        "trees": trees,
        "losses": losses,
        "converged": len(losses) < done + boosting.num_trees,
        "use_missing": boosting.use_missing,
        "zero_as_missing": boosting.zero_as_missing,
    }
    notes = ["validation_freqs has no effect: the model is validated once"] * bool(
        part.parameters.get("validation_freqs")
    )
    part.tracker.summary(_summary(model) | {"encryption": "pairwise masks", "notes": notes})
    return model, scores


def _settings(boosting: Boosting) -> dict[str, Any]:
    """Return the parameters that must be the same at all parties, by their names in files."""
    names = ["task", "num_trees", "learning_rate", "bin_num", "feature_rate", "n_iter_no_change", "tol", "seed"]
    names += ["use_missing", "zero_as_missing"]
    own = {_NAMES.get(name, name): getattr(boosting, name) for name in names}
    return own | {f"tree_param.{name}": value for name, value in boosting.rules._asdict().items()}


def _matrix(part: ComponentPart, use_missing: bool, zero_as_missing: bool, frame: PartyFrame) -> Array:
    return tree_matrix(part, frame, use_missing=use_missing, zero_as_missing=zero_as_missing)


def _summary(model: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, dict[str, float]] = {}
    for node in (one for tree in model["trees"] for one in tree if "feature" in one):
        one = found.setdefault(node["feature"], {"split": 0, "gain": 0.0})
        one["split"] += 1
        one["gain"] += node["gain"]
    return {
        "loss": model["losses"],
        "trees": len(model["trees"]),
        "is_converged": model["converged"],
        "feature_importance": found,
    }


class _Node(NamedTuple):
    """A node that grows: its place in the tree, own rows, and g, h and numbers of rows of all parties."""

    at: int
    rows: Array
    total: tuple[int, int, int]


class _Growth:
    """The growth of trees at a data party."""

    def __init__(
        self, sums: HorizontalSums, boosting: Boosting, bins: FeatureBins, rows: int, features: list[str]
    ) -> None:
        self._sums, self._boosting, self._bins, self._rows = sums, boosting, bins, rows
        self._rules: SplitRules = boosting.rules
        self._names = features

    def grow(self, g: Array, h: Array, number: int) -> tuple[list[dict[str, Any]], Array]:
        """Grow a tree, and return its nodes and the weights of own rows."""
        scale = self._scale(g, h)
        whole_g, whole_h = scale.integers(g, h)
        chosen = self._features(number)
        bins = self._bins.only(chosen)
        nodes: list[dict[str, Any]] = [{}]
        total = self._sums.total(np.array([whole_g.sum(), whole_h.sum(), len(g)], dtype=np.int64))
        level = [_Node(0, np.arange(len(g)), _triple(total))]
        leaves: list[_Node] = []
        for depth in range(self._rules.max_depth + 1):
            last = depth == self._rules.max_depth
            fit = [one for one in level if not last and one.total[2] >= max(2, self._rules.min_sample_split)]
            found = self._level_sums(bins, fit, whole_g, whole_h)
            splits = self._choices(found, fit, scale)
            following = []
            for node in level:
                best, gain, sums = splits.get(node.at, (_LEAF, 0.0, None))
                if sums is None:
                    leaves.append(node)
                else:
                    following += self._divide(nodes, node, bins, chosen, best, gain, sums)
            level = following
            if not level:
                break
        return nodes, self._weigh(nodes, leaves, g, h, scale)

    def _scale(self, g: Array, h: Array) -> DerivativeScale:
        """Return a scale for the derivatives of all parties, with `_DERIVATIVE_BITS` digits of the largest one."""
        g_power, h_power = self._sums.powers(g, h)
        return DerivativeScale(_DERIVATIVE_BITS - g_power, _DERIVATIVE_BITS - h_power)

    def _weigh(
        self, nodes: list[dict[str, Any]], leaves: list[_Node], g: Array, h: Array, scale: DerivativeScale
    ) -> Array:
        """Set the weights of leaves by the derivatives before they became integers; return those of own rows."""
        own = np.array([[one[leaf.rows].sum() for leaf in leaves] for one in (g, h)])
        sums = [
            self._sums.total(values, power=_DERIVATIVE_BITS - power)
            for values, power in zip(own, (scale.g_power, scale.h_power), strict=True)
        ]
        weights = np.zeros(len(g))
        for leaf, all_g, all_h in zip(leaves, *sums, strict=True):
            nodes[leaf.at]["weight"] = self._rules.weight(float(all_g), float(all_h))
            weights[leaf.rows] = nodes[leaf.at]["weight"]
        return weights

    def _features(self, number: int) -> Array:
        """Return the features of a tree, ascending: the choice of the guest."""
        boosting, count = self._boosting, len(self._names)
        if boosting.feature_rate == 1:
            return self._bins.features_of(np.arange(count))
        random = np.random.default_rng([boosting.seed, self._sums.part.seed, number])
        chosen = min(count, max(1, round(boosting.feature_rate * count)))
        own = np.sort(random.choice(count, chosen, replace=False)).tolist()
        found = np.array(self._sums.same("chosen", own, list[int]), dtype=np.int64)
        if len(found) != chosen or found.min() < 0 or found.max() >= count or len(np.unique(found)) != chosen:
            raise PartyMessageError("the guest has chosen features that there are not")
        return self._bins.features_of(found)

    def _level_sums(self, bins: FeatureBins, nodes: list[_Node], g: Array, h: Array) -> list[SplitSums]:
        """Return the sums over all parties to the left of each candidate, for each node."""
        if not nodes or not bins.candidates:
            return []
        own = np.empty((len(nodes), 3, bins.candidates), dtype=np.int64)
        for at, node in enumerate(nodes):
            own[at] = left_sums(bins, node.rows, g[node.rows], h[node.rows])
        return [SplitSums(*one) for one in self._sums.total(own)]

    def _choices(
        self, found: list[SplitSums], nodes: list[_Node], scale: DerivativeScale
    ) -> dict[int, tuple[int, float, SplitSums]]:
        """Return the candidate, its gain and the sums of the nodes that are divided: the choice of the guest."""
        if not found:
            return {}
        gains = [self._rules.gains(sums, node.total, scale) for node, sums in zip(nodes, found, strict=True)]
        own = [int(one.argmax()) if np.isfinite(one.max()) else _LEAF for one in gains]
        places = self._sums.same("split", own, list[int])
        if len(places) != len(nodes) or any(not _LEAF <= one < len(gains[0]) for one in places):
            raise PartyMessageError("the guest has chosen splits that there are not")
        return {
            node.at: (place, float(one[place]), sums)
            for node, place, one, sums in zip(nodes, places, gains, found, strict=True)
            if place != _LEAF
        }

    def _divide(
        self,
        nodes: list[dict[str, Any]],
        node: _Node,
        bins: FeatureBins,
        chosen: Array,
        best: int,
        gain: float,
        sums: SplitSums,
    ) -> list[_Node]:
        feature, edge = bins.candidate(best)
        left = bins.codes[node.rows, feature] <= edge
        nodes[node.at] |= {
            "feature": self._names[int(bins.columns[feature])],
            "threshold": float(bins.edges[feature][edge]),
            "gain": gain,
            "left": len(nodes),
            "right": len(nodes) + 1,
        }
        low = _triple(np.array([one[best] for one in sums]))
        if self._boosting.use_missing:
            nodes[node.at]["missing_left"] = bins.sends_left(feature, low[2], node.total[2])
        nodes += [{}, {}]
        high = (node.total[0] - low[0], node.total[1] - low[1], node.total[2] - low[2])
        return [
            _Node(len(nodes) - 2, node.rows[left], low),
            _Node(len(nodes) - 1, node.rows[~left], high),
        ]


def _triple(values: Array) -> tuple[int, int, int]:
    g, h, count = values.tolist()
    return g, h, count


# ---------------------------------------------------------------------------------------------------------- prediction


def _predicted(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame:
    """Return the predictions for the rows of a frame."""
    return prediction_frame(part, frame, model["task"], model["classes"], _scores(part, frame, model), kind)


def _scores(part: ComponentPart, frame: PartyFrame, model: dict[str, Any]) -> Array:
    """Return the scores of the rows of a frame, shape (rows, outputs)."""
    read = partial(_matrix, part, model.get("use_missing", False), model.get("zero_as_missing", False))
    columns = dict(zip(model.get("features", ()), columns_of(part, frame, model, read).T, strict=True))
    scores = np.tile(np.array(model["start"]), (len(frame), 1))
    for number, tree in enumerate(model["trees"]):
        level = [(0, np.arange(len(frame)))]
        while level:
            at, rows = level.pop()
            node = tree[at]
            if "weight" in node:
                scores[rows, number % scores.shape[1]] += model["learning_rate"] * node["weight"]
            elif len(rows):
                values = columns[node["feature"]][rows]
                left = values <= node["threshold"]
                if node.get("missing_left"):
                    left |= np.isnan(values)
                level += [(node["left"], rows[left]), (node["right"], rows[~left])]
    return scores
