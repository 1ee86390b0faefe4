"""HeteroSecureBoost: boosted trees over the columns of a guest, which has labels and key, and hosts.

A model is in pieces: the guest has the trees with weights of leaves and owners of splits, and each party features and
thresholds of its own splits. In a prediction the guest asks, level by level and for all trees at once, which of the
rows at a node go left; so it learns no more sides than it needs, and the hosts learn which rows reach their nodes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.boosting import (
    LAYERED,
    MIX,
    Boosting,
    boosting_of,
    loss_of,
    prediction_frame,
    targets_of,
)
from weft.frontends.federated.components.columns import checked_columns
from weft.frontends.federated.components.cross_validation import cross_validated
from weft.frontends.federated.components.inputs import (
    check_parties,
    only_frame,
    only_model,
    validation_frame,
    weights_of,
)
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, joined
from weft.frontends.federated.components.secure_trees import (
    GuestTree,
    HostTree,
    LevelPlan,
    bits_of,
    mask_of,
    message_as,
)
from weft.frontends.federated.components.trees import FeatureBins
from weft.frontends.federated.components.vertical import check_rows
from weft.frontends.federated.crypto.ciphers import PLAIN
from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]


@cross_validated()
def run(part: ComponentPart) -> PartOutput:
    """Train, or predict with a model. UsageError: a parameter, a label or a value is not possible."""
    check_parties(part)
    model = only_model(part)
    if model is not None:
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        return PartOutput(data=(_predicted(part, frame, model, TEST),))
    boosting, frame = boosting_of(part), only_frame(part, "train_data", "data")
    check_rows(part, len(frame))
    matrix = frame.matrix()
    if not len(frame):
        raise UsageError(f"{part.component}: there are no rows at {part.here}")
    if not np.isfinite(matrix).all():
        raise UsageError(f"{part.component}: a value at {part.here} is missing", hint="Set missing_fill before it.")
    bins = FeatureBins.of(matrix, boosting.bin_num)
    found: list[PartyFrame | None] = []
    if part.here.role == GUEST:
        model, scores = _GuestFit(part, boosting, frame, bins).fit()
        found.append(prediction_frame(part, frame, model["task"], model["classes"], scores, TRAIN))
    else:
        model = _host_fit(part, boosting, frame, bins)
    validate = validation_frame(part)
    if validate is not None:
        found.append(_predicted(part, validate, model, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


# ------------------------------------------------------------------------------------------------------------ training


class _GuestFit:
    def __init__(self, part: ComponentPart, boosting: Boosting, frame: PartyFrame, bins: FeatureBins) -> None:
        self._part, self._boosting, self._frame, self._bins = part, boosting, frame, bins
        self._splits: list[tuple[int, int]] = []
        self._hosts = part.all_of(HOST)

    def fit(self) -> tuple[dict[str, Any], Array]:
        """Return the model and the scores of the rows, shape (rows, outputs)."""
        part, boosting = self._part, self._boosting
        classes, target = targets_of(part, boosting.task, self._frame.y)
        loss = loss_of(boosting.task, classes)
        method, bits, notes = cipher_of(part.parameters)
        if part.parameters.get("validation_freqs"):
            notes.append("validation_freqs has no effect: the model is validated once, when it is trained")
        keys = make_keys(method, bits)
        part.channel.send("key", keys.public.to_wire(), self._hosts)
        growth = GuestTree(part, boosting.rules, keys, self._bins, self._splits)
        start = loss.start(target)
        scores = np.tile(start, (len(target), 1))
        trees: list[list[Any]] = []
        losses: list[float] = []
        counts = weights_of(part, self._frame)
        for at in range(boosting.num_trees):
            g, h = loss.derivatives(target, loss.predict(scores))
            if counts is not None:
                g, h = g * counts[:, None], h * counts[:, None]
            steps = np.empty_like(scores)
            for output in range(scores.shape[1]):
                number = len(trees)
                one_g, one_h, active = _sampled(boosting, g[:, output], h[:, output], number)
                features = _features(part, boosting, len(self._bins.edges), number)
                grown = growth.grow(one_g, one_h, active, features, _plan(boosting, at, self._hosts))
                trees.append(grown.nodes)
                steps[:, output] = grown.weights
                part.tracker.progress(len(trees), boosting.num_trees * scores.shape[1])
            scores = scores + boosting.learning_rate * steps
            losses.append(loss.loss(target, loss.predict(scores)))
            if boosting.n_iter_no_change and at and abs(losses[-2] - losses[-1]) < boosting.tol:
                break
        part.channel.send("tree", None, self._hosts)
        part.tracker.curve("train", "loss", [(float(at), one) for at, one in enumerate(losses)], kind="LOSS")
        model = {
            "kind": part.module,
            "task": boosting.task,
            "classes": classes,
            "learning_rate": boosting.learning_rate,
            "start": start.tolist(),
            "parties": [GUEST, *(one.id for one in self._hosts)],
            "trees": trees,
            "losses": losses,
            "converged": len(losses) < boosting.num_trees,
            **_own_splits(self._frame, self._bins, self._splits),
        }
        for note in notes:
            part.tracker.log(note)
        part.tracker.summary(self._summary(model) | {"encryption": method, "key_length": bits, "notes": notes})
        return model, scores

    def _summary(self, model: dict[str, Any]) -> dict[str, Any]:
        """Return what is known about the model: importances of own features by name, and of hosts as a whole."""
        gains: dict[str, float] = {}
        counts: dict[str, int] = {}
        for node in (one for tree in model["trees"] for one in tree if "split" in one):
            place = node["party"]
            name = model["splits"][node["split"]][0] if not place else f"{HOST}:{model['parties'][place]}"
            gains[name] = gains.get(name, 0.0) + node["gain"]
            counts[name] = counts.get(name, 0) + 1
        return {
            "loss": model["losses"],
            "trees": len(model["trees"]),
            "is_converged": model["converged"],
            "feature_importance": {name: {"split": counts[name], "gain": gains[name]} for name in gains},
        }


def _host_fit(part: ComponentPart, boosting: Boosting, frame: PartyFrame, bins: FeatureBins) -> dict[str, Any]:
    guest = part.all_of(GUEST)[0]
    key = read_key(part.channel.receive("key", guest), plain=cipher_of(part.parameters)[0] == PLAIN)
    splits: list[tuple[int, int]] = []
    growth, trees = HostTree(part, key, bins, splits), 0
    while (begin := part.channel.receive("tree", guest)) is not None:
        growth.grow(begin, _features(part, boosting, len(bins.edges), trees))
        trees += 1
        part.tracker.progress(trees, max(trees, boosting.num_trees))
    model = {"kind": part.module, **_own_splits(frame, bins, splits)}
    counts: dict[str, int] = {}
    for name, _ in model["splits"]:
        counts[name] = counts.get(name, 0) + 1
    part.tracker.summary({"feature_importance": {name: {"split": count} for name, count in counts.items()}})
    return model


def _own_splits(frame: PartyFrame, bins: FeatureBins, splits: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the splits of a party by their ids: the feature, and the largest value that goes left."""
    found = [[frame.features[feature], float(bins.edges[feature][edge])] for feature, edge in splits]
    return {"features": list(frame.features), "splits": found}


def _features(part: ComponentPart, boosting: Boosting, count: int, tree: int) -> Array:
    """Return the features of a tree, ascending."""
    if boosting.feature_rate == 1:
        return np.arange(count)
    random = np.random.default_rng([boosting.seed, part.seed, tree, zlib.crc32(str(part.here).encode())])
    chosen = min(count, max(1, round(boosting.feature_rate * count)))
    return np.sort(random.choice(count, chosen, replace=False))


def _sampled(boosting: Boosting, g: Array, h: Array, tree: int) -> tuple[Array, Array, Array]:
    """Return the derivatives and the rows of a tree: by gradient if GOSS is set (Ke and others 2017), or all."""
    if boosting.goss is None:
        return g, h, np.arange(len(g))
    top, other = (max(1, int(rate * len(g))) for rate in boosting.goss)
    order = np.argsort(-np.abs(g), kind="stable")
    random = np.random.default_rng([boosting.seed, tree])
    rest = random.choice(order[top:], min(other, len(order) - top), replace=False)
    factor = np.ones(len(g))
    factor[rest] = (1 - boosting.goss[0]) / boosting.goss[1]
    return g * factor, h * factor, np.sort(np.concatenate([order[:top], rest]))


def _plan(boosting: Boosting, at: int, hosts: Sequence[Party]) -> list[LevelPlan]:
    """Return whose features the levels of a tree use."""
    depth = boosting.rules.max_depth
    if boosting.complete_secure and at == 0:
        return [LevelPlan(guest=True, hosts=())] * depth
    if boosting.strategy == MIX:
        turn = at // boosting.trees_per_party % (len(hosts) + 1)
        return [LevelPlan(guest=turn == 0, hosts=hosts[turn - 1 : turn] if turn else ())] * depth
    if boosting.strategy == LAYERED:
        first = [LevelPlan(guest=False, hosts=hosts)] * boosting.host_depth
        return first + [LevelPlan(guest=True, hosts=())] * boosting.guest_depth
    return [LevelPlan(guest=True, hosts=hosts)] * depth


# ---------------------------------------------------------------------------------------------------------- prediction


def _predicted(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame | None:
    """Return the predictions for the rows of a frame at the guest; None at hosts."""
    if part.here.role == HOST:
        answer_leaves(part, frame, model, kind)
        return None
    leaves, trees = find_leaves(part, frame, model, kind), model["trees"]
    scores = np.tile(np.array(model["start"]), (len(frame), 1))
    for tree, nodes in enumerate(trees):
        weights = np.array([node.get("weight", 0.0) for node in nodes])
        scores[:, tree % len(model["start"])] += model["learning_rate"] * weights[leaves[:, tree]]
    return prediction_frame(part, frame, model["task"], model["classes"], scores, kind)


class _SplitsOf:
    """The splits of a party over the rows of a frame."""

    def __init__(self, part: ComponentPart, frame: PartyFrame, model: dict[str, Any]) -> None:
        self.rows, self._part, self._splits = len(frame), part, model["splits"]
        names = list(dict.fromkeys(name for name, _ in self._splits))
        checked_columns(part, frame, names)
        stacked = np.column_stack([frame.columns[name] for name in names] or [np.empty((len(frame), 0))])
        matrix = frame.with_features(names, stacked).matrix()
        if not np.isfinite(matrix).all():
            raise UsageError(f"{part.component}: a value at {part.here} is missing", hint="Set missing_fill before it.")
        self._columns = dict(zip(names, matrix.T, strict=True))

    def left(self, split: int, rows: Array) -> Array:
        """Return which of the rows go left. PartyMessageError: there is no such split."""
        if not 0 <= split < len(self._splits):
            guest = self._part.all_of(GUEST)[0]
            raise PartyMessageError(f"{guest} asks for a split that {self._part.here} does not have", party=guest.id)
        name, threshold = self._splits[split]
        found: Array = self._columns[name][rows] <= threshold
        return found


def answer_leaves(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str = TEST) -> None:
    """Answer at a host the questions of the guest: which rows of a node go left. UsageError: a column is missing."""
    check_rows(part, len(frame))
    splits = _SplitsOf(part, frame, model)
    guest = part.all_of(GUEST)[0]
    while (questions := part.channel.receive(f"ask/{kind}", guest)) is not None:
        answers = []
        for split, bits in message_as(list[tuple[int, Any]], questions, guest):
            answers.append(bits_of(splits.left(split, np.flatnonzero(mask_of(bits, splits.rows, guest)))))
        part.channel.send(f"answer/{kind}", answers, guest)


def find_leaves(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str = TEST) -> Array:
    """Return at the guest the leaf of each row in each tree, shape (rows, trees), by all trees level by level.

    UsageError: a column or a host of the model is missing. PartyMessageError: a host has sent no answers.
    """
    check_rows(part, len(frame))
    splits = _SplitsOf(part, frame, model)
    known = {one.id: one for one in part.all_of(HOST)}
    gone = [id for id in model["parties"][1:] if id not in known]
    if gone:
        raise UsageError(f"{part.component}: the model has splits of host:{gone[0]}, which is not in this job")
    hosts = [known[id] for id in model["parties"][1:]]
    leaves = np.zeros((splits.rows, len(model["trees"])), dtype=np.int64)
    level = [(tree, 0, np.arange(splits.rows)) for tree in range(len(model["trees"]))]
    while level:
        questions: dict[Party, list[tuple[int, dict[str, Any], Array]]] = {}
        following = []
        for tree, at, rows in level:
            node = model["trees"][tree][at]
            if "split" not in node:
                leaves[rows, tree] = at
            elif node["party"] == 0:
                following += _children(tree, node, rows, splits.left(node["split"], rows))
            elif len(rows):
                questions.setdefault(hosts[node["party"] - 1], []).append((tree, node, rows))
        for host, nodes in questions.items():
            bits = [bits_of(np.isin(np.arange(splits.rows), rows, assume_unique=True)) for _, _, rows in nodes]
            asked = [[node["split"], one] for (_, node, _), one in zip(nodes, bits, strict=True)]
            part.channel.send(f"ask/{kind}", asked, host)
        for host, nodes in questions.items():
            answers = part.channel.receive(f"answer/{kind}", host)
            if not isinstance(answers, list) or len(answers) != len(nodes):
                raise PartyMessageError(f"{host} has answered another number of questions", party=host.id)
            for (tree, node, rows), one in zip(nodes, answers, strict=True):
                following += _children(tree, node, rows, mask_of(one, len(rows), host))
        level = following
    part.channel.send(f"ask/{kind}", None, part.all_of(HOST))
    return leaves


def _children(tree: int, node: dict[str, Any], rows: Array, left: Array) -> list[tuple[int, int, Array]]:
    return [(tree, node["left"], rows[left]), (tree, node["right"], rows[~left])]
