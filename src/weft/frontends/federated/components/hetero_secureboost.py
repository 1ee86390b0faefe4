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
    tree_matrix,
)
from weft.frontends.federated.components.cross_validation import cross_validated
from weft.frontends.federated.components.inputs import (
    check_parties,
    only_frame,
    shared_validation_frame,
    validation_frame,
    weights_of,
)
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, joined
from weft.frontends.federated.components.secure_trees import (
    GuestTree,
    HostTree,
    LevelPlan,
)
from weft.frontends.federated.components.tree_beginnings import EARLIER, GrownSplits, boosting_before, tree_rounds
from weft.frontends.federated.components.tree_leaves import answer_leaves, find_leaves, leaf_weights
from weft.frontends.federated.components.tree_validation import ROUND, VALIDATES, TreeWatch
from weft.frontends.federated.components.trees import FeatureBins
from weft.frontends.federated.components.vertical import check_rows
from weft.frontends.federated.components.warm_start import Beginning, beginning_of, classes_before
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
    begin = beginning_of(part, tree_rounds)
    if not begin.trains:
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        return PartOutput(data=(_predicted(part, frame, begin.model, TEST),))
    boosting, frame = boosting_of(part), only_frame(part, "train_data", "data")
    check_rows(part, len(frame))
    if not len(frame):
        raise UsageError(
            f"{part.component}: there are no rows at {part.here}",
            hint="Compare the ids of the parties: the Intersection has found no common one.",
        )
    use, zero = boosting.use_missing, boosting.zero_as_missing
    bins = FeatureBins.of(tree_matrix(part, frame, use_missing=use, zero_as_missing=zero), boosting.bin_num)
    found: list[PartyFrame | None] = []
    if begin.goes_on:
        boosting = boosting_before(part, boosting, frame, begin.model)
    if part.here.role == GUEST:
        model, scores = _GuestFit(part, boosting, frame, bins, begin).fit()
        found.append(prediction_frame(part, frame, model["task"], model["classes"], scores, TRAIN))
    else:
        model = _host_fit(part, boosting, frame, bins, begin)
    validate = validation_frame(part)
    if validate is not None:
        found.append(_predicted(part, validate, model, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


# ------------------------------------------------------------------------------------------------------------ training


class _GuestFit:
    def __init__(
        self, part: ComponentPart, boosting: Boosting, frame: PartyFrame, bins: FeatureBins, begin: Beginning
    ) -> None:
        self._part, self._boosting, self._frame, self._bins, self._begin = part, boosting, frame, bins, begin
        self._splits = GrownSplits(boosting, frame, bins, begin)
        self._hosts = part.all_of(HOST)

    def fit(self) -> tuple[dict[str, Any], Array]:
        """Return the model and the scores of the rows, shape (rows, outputs)."""
        part, boosting, begin = self._part, self._boosting, self._begin
        known = classes_before(part, self._frame, begin.model) if begin.goes_on and begin.model["classes"] else ()
        classes, target = targets_of(part, boosting.task, self._frame.y, known)
        loss = loss_of(boosting.task, classes)
        method, bits, notes = cipher_of(part.parameters)
        keys = make_keys(method, bits)
        part.channel.send("key", keys.public.to_wire(), self._hosts)
        growth = GuestTree(part, boosting.rules, keys, self._bins, self._splits.found)
        start, scores, trees, losses = self._before(loss.start(target))
        done = begin.done()
        counts, converged = weights_of(part, self._frame), False
        watch = TreeWatch.of(part, boosting, classes, start)
        for at in range(done, done + boosting.num_trees):
            g, h = loss.derivatives(target, loss.predict(scores))
            if counts is not None:
                g, h = g * counts[:, None], h * counts[:, None]
            steps = np.empty_like(scores)
            for output in range(scores.shape[1]):
                number = len(trees)
                one_g, one_h, active = _sampled(boosting, g[:, output], h[:, output], number)
                features = _features(part, boosting, self._bins, number)
                grown = growth.grow(one_g, one_h, active, features, _plan(boosting, at, self._hosts))
                trees.append(grown.nodes)
                steps[:, output] = grown.weights
                part.tracker.progress(len(trees), (done + boosting.num_trees) * scores.shape[1])
            scores = scores + boosting.learning_rate * steps
            losses.append(loss.loss(target, loss.predict(scores)))
            converged = boosting.n_iter_no_change and len(losses) > 1 and abs(losses[-2] - losses[-1]) < boosting.tol
            halts = watch is not None and watch.see(at, self._pieces(trees), scores)
            if converged or halts:
                break
        part.channel.send("tree", None, self._hosts)
        if watch is not None:
            trees, scores = watch.chosen(trees, scores)
        self._keep(trees)
        part.tracker.curve("train", "loss", [(float(at), one) for at, one in enumerate(losses)], kind="LOSS")
        model = {
            "kind": part.module,
            "task": boosting.task,
            "classes": classes,
            "learning_rate": boosting.learning_rate,
            "start": start.tolist(),
            "losses": losses,
            "converged": bool(converged),
            **self._pieces(trees),
        }
        for note in notes:
            part.tracker.log(note)
        part.tracker.summary(self._summary(model) | {"encryption": method, "key_length": bits, "notes": notes})
        part.tracker.summary({} if watch is None else watch.close())
        return model, scores

    def _before(self, start: Array) -> tuple[Array, Array, list[list[Any]], list[float]]:
        """Return the first score, the scores of the rows, and the trees and losses of an earlier training."""
        begin, part, model = self._begin, self._part, self._begin.model
        if not begin.goes_on:
            return start, np.tile(start, (len(self._frame), 1)), [], []
        parties = [GUEST, *(one.id for one in self._hosts)]
        if model["parties"] != parties:
            raise UsageError(
                f"{part.component}: the model is one of other hosts",
                hint="A training goes on with the hosts of the model, in the same order.",
            )
        start, trees = np.array(model["start"]), list(model["trees"])
        leaves = find_leaves(part, self._frame, model, EARLIER)
        scores = start + model["learning_rate"] * leaf_weights(trees, leaves, len(start))
        return start, scores, trees, list(model["losses"])

    def _pieces(self, trees: list[list[Any]]) -> dict[str, Any]:
        """Return what a model of these trees needs to find leaves."""
        parties = [GUEST, *(one.id for one in self._hosts)]
        return {
            "parties": parties,
            "trees": trees,
            **self._splits.model(),
        }

    def _keep(self, trees: list[list[Any]]) -> None:
        """Let each party forget the splits of trees that are not kept, which are its last ones."""
        counts = [0] * (1 + len(self._hosts))
        for node in (one for tree in trees for one in tree if "split" in one):
            counts[node["party"]] = max(counts[node["party"]], node["split"] + 1)
        del self._splits.found[counts[0] :]
        for host, count in zip(self._hosts, counts[1:], strict=True):
            self._part.channel.send("kept", count, host)

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


def _host_fit(
    part: ComponentPart, boosting: Boosting, frame: PartyFrame, bins: FeatureBins, begin: Beginning
) -> dict[str, Any]:
    guest = part.all_of(GUEST)[0]
    key = read_key(part.channel.receive("key", guest), plain=cipher_of(part.parameters)[0] == PLAIN)
    splits, trees = GrownSplits(boosting, frame, bins, begin), begin.done()
    growth = HostTree(part, key, bins, splits.found)
    if begin.goes_on:
        answer_leaves(part, frame, begin.model, EARLIER)
    while (begin := part.channel.receive("tree", guest)) is not None:
        if begin == VALIDATES:
            answer_leaves(part, shared_validation_frame(part), splits.model(), ROUND)
            continue
        growth.grow(begin, _features(part, boosting, bins, trees))
        trees += 1
        part.tracker.progress(trees, max(trees, boosting.num_trees))
    kept = part.channel.receive("kept", guest)
    if not isinstance(kept, int) or not 0 <= kept <= len(splits.found):
        raise PartyMessageError(f"{guest} keeps splits that there are not", party=guest.id)
    del splits.found[kept:]
    model = {"kind": part.module, **splits.model()}
    counts: dict[str, int] = {}
    for name, *_ in model["splits"]:
        counts[name] = counts.get(name, 0) + 1
    part.tracker.summary({"feature_importance": {name: {"split": count} for name, count in counts.items()}})
    return model


def _features(part: ComponentPart, boosting: Boosting, bins: FeatureBins, tree: int) -> Array:
    """Return the features of a tree, ascending: those of some of the columns."""
    columns = np.unique(bins.columns)
    if boosting.feature_rate < 1 and len(columns):
        random = np.random.default_rng([boosting.seed, part.seed, tree, zlib.crc32(str(part.here).encode())])
        chosen = min(len(columns), max(1, round(boosting.feature_rate * len(columns))))
        columns = random.choice(len(columns), chosen, replace=False)
    return bins.features_of(columns)


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
    leaves, start = find_leaves(part, frame, model, kind), np.array(model["start"])
    scores = start + model["learning_rate"] * leaf_weights(model["trees"], leaves, len(start))
    return prediction_frame(part, frame, model["task"], model["classes"], scores, kind)
