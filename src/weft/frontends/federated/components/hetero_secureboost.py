"""HeteroSecureBoost: boosted trees over the columns of guest and hosts (Cheng and others 2021).

The guest has labels and key. It encrypts the gradient and hessian of each row in one number. The hosts add those of
each bin, and send the sums, several in one number. The guest decrypts them, finds the best split, and the party that
has the feature says which rows go left. Sums of a sibling follow by subtraction.

Who learns what: the hosts see which rows are in a node, and encrypted numbers. The guest sees the sums and the number
of rows of each bin of unknown features in an unknown order, and which rows a split divides, but no value. Each party
keeps the thresholds of its own splits.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.inputs import (
    columns_of,
    complete_matrix,
    group,
    number,
    only_frame,
    only_model,
)
from weft.frontends.federated.components.predictions import (
    TEST,
    TRAIN,
    VALIDATE,
    class_frame,
    joined,
    regression_frame,
)
from weft.frontends.federated.components.trees import (
    UNIT,
    BinnedColumns,
    BinSums,
    Gradients,
    TreeParameters,
    bin_groups,
    binned,
    feature_of,
    fixed_gradients,
    histogram,
    leaf_weight,
    splits,
)
from weft.frontends.federated.components.vertical import check_rows
from weft.frontends.federated.crypto.ciphers import PLAIN, Encrypted, PrivateKey
from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.frontends.federated.crypto.packing import compress, pack, slots_of, unpack
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.schema import Party

_CROSS_ENTROPY, _LSE = "cross_entropy", "lse"
_REGRESSION: Final = "regression"
_NOT_YET: Final = ("complete_secure", "use_missing", "zero_as_missing", "run_goss")
Array = np.ndarray[Any, Any]


def run(part: ComponentPart) -> PartOutput:
    """Train, or predict with a model. UsageError: a parameter or a label is not possible."""
    model = only_model(part)
    if model is not None:
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        check_rows(part, len(frame))
        return PartOutput(data=(_predicted(part, frame, model, TEST),))
    for name in _NOT_YET:
        if part.parameters.get(name):
            raise UsageError(f"{part.component}: {name} is not supported", hint="Set it to false.")
    parameters = _parameters(part)
    frame = only_frame(part, "train_data", "data")
    check_rows(part, len(frame))
    model = _GuestFit(part, frame, parameters).fit() if part.here.role == GUEST else _fit_host(part, frame, parameters)
    found = [_predicted(part, frame, model, TRAIN)]
    if part.data.get("validate_data"):
        found.append(_predicted(part, part.data["validate_data"][0], model, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


def _parameters(part: ComponentPart) -> TreeParameters:
    tree = group(part, "tree_param")
    criterion = tree.get("criterion_params") or [0.1]
    reg_lambda = criterion.get("l2", 0.1) if isinstance(criterion, Mapping) else criterion[-1]
    return TreeParameters(
        trees=int(number(part, "num_trees", 5, least=1)),
        rate=number(part, "learning_rate", 0.3, least=0),
        depth=int(tree.get("max_depth") or 3),
        bins=max(2, int(number(part, "bin_num", 32, least=2))),
        reg_lambda=float(reg_lambda),
        min_gain=float(tree.get("min_impurity_split") or 1e-3),
        min_split_rows=int(tree.get("min_sample_split") or 2),
        min_leaf_rows=int(tree.get("min_leaf_node") or 1),
        feature_rate=number(part, "subsample_feature_rate", 1.0, least=0),
    )


# --------------------------------------------------------------------------------------------------------------- guest


class _GuestFit:
    """The training at the guest."""

    def __init__(self, part: ComponentPart, frame: PartyFrame, parameters: TreeParameters) -> None:
        self._part, self._frame, self._parameters = part, frame, parameters
        self._hosts = part.all_of(HOST)
        self._columns = binned(complete_matrix(part, frame), parameters.bins)
        method, bits, notes = cipher_of(part.parameters)
        self._keys: PrivateKey = make_keys(method, bits)
        self._key_bits = bits
        self._width = (2 * UNIT * max(len(frame), 1)).bit_length()
        self._widths: dict[Party, list[int]] = {}
        self._chooser = np.random.default_rng(part.seed)
        self._family: dict[int, tuple[int, int]] = {}
        for note in notes:
            part.tracker.log(note)
        part.tracker.summary({"encryption": method, "key_length": bits, "notes": notes})

    def fit(self) -> dict[str, Any]:
        """Train all trees, and return the model."""
        part, frame = self._part, self._frame
        if frame.y is None:
            raise UsageError(f"{part.component}: the rows of {part.here} have no label")
        regression = str(part.parameters.get("task_type") or "classification").lower() == _REGRESSION
        objective = str(group(part, "objective_param").get("objective") or (_LSE if regression else _CROSS_ENTROPY))
        if objective != (_LSE if regression else _CROSS_ENTROPY):
            raise UsageError(
                f"{part.component}: objective_param.objective is {objective!r}",
                hint=f"Use {_CROSS_ENTROPY}, or {_LSE} in a regression.",
            )
        classes: list[Any] = [] if regression else np.unique(frame.y).tolist()
        if not regression and len(classes) < 2:
            raise UsageError(f"{part.component}: all labels are the same")
        outputs = len(classes) if len(classes) > 2 else 1
        part.channel.send("key", [self._keys.public.to_wire(), self._width, self._key_bits], self._hosts)
        for host in self._hosts:
            self._widths[host] = [int(one) for one in part.channel.receive("widths", host)]
        truth = _truth(frame.y, classes)
        start = float(truth.mean()) if regression else 0.0
        scores, trees, losses = np.full(truth.shape, start), [], []
        for turn in range(self._parameters.trees):
            first, second = _gradients(truth, scores, regression=regression)
            for output in range(outputs):
                tree, values = self._tree(fixed_gradients(first[:, output], second[:, output]))
                trees.append(tree)
                scores[:, output] += values
            losses.append(_loss(truth, scores, regression=regression))
            part.tracker.progress(turn + 1, self._parameters.trees)
        self._ask("end")
        points = [(float(at), one) for at, one in enumerate(losses)]
        part.tracker.curve("train", "loss", points, kind="LOSS")
        own = list(self._frame.features)
        used = [node["feature"] for tree in trees for node in tree if node.get("party") == str(part.here)]
        part.tracker.summary({"trees": len(trees), "loss": losses[-1], "own_splits": {n: used.count(n) for n in own}})
        return {
            "kind": part.module,
            "features": own,
            "classes": classes,
            "outputs": outputs,
            "start": start,
            "trees": trees,
            "losses": losses,
        }

    def _tree(self, gradients: Gradients) -> tuple[list[dict[str, Any]], Array]:
        """Grow one tree; return its nodes, and the value of each row."""
        packed = pack([gradients.second, gradients.first], [self._width] * 2)
        cells = self._keys.public.encrypt(packed)
        self._ask("gradients", cells.to_wire())
        self._family = {}
        nodes: list[dict[str, Any]] = [{}]
        values = np.zeros(len(packed))
        level = [(0, np.arange(len(packed)))]
        known: dict[int, dict[Party, BinSums]] = {}
        for depth in range(self._parameters.depth + 1):
            least = self._parameters.min_split_rows
            grows = [one for one in level if depth < self._parameters.depth and len(one[1]) >= least]
            self._histograms(grows, known, gradients)
            following = []
            for at, rows in level:
                split = self._best(known[at], gradients) if at in known else None
                if split is None:
                    first, second = gradients.sums(
                        int(gradients.first[rows].sum()), int(gradients.second[rows].sum()), len(rows)
                    )
                    weight = leaf_weight(first, second, self._parameters)
                    nodes[at] = {"weight": weight}
                    values[rows] = weight
                    continue
                left = self._divide(split, at, rows, nodes)
                children = (len(nodes), len(nodes) + 1)
                nodes += [{}, {}]
                nodes[at] |= {"left": children[0], "right": children[1]}
                following += [(children[0], rows[left]), (children[1], rows[~left])]
            level = following
            if not level:
                break
        return nodes, values

    def _ask(self, *what: Any) -> None:
        self._part.channel.send("ask", list(what), self._hosts)

    def _histograms(
        self, level: Sequence[tuple[int, Array]], known: dict[int, dict[Party, BinSums]], gradients: Gradients
    ) -> None:
        """Add the histograms of nodes to `known`: of two siblings the smaller one is asked for."""
        if not level:
            return
        asked, derived = self._asked(level, known)
        self._ask("nodes", [rows for _, rows in asked])
        for at, rows in asked:
            known[at] = {self._part.here: histogram(self._columns, rows, gradients)}
        for host in self._hosts:
            for (at, _), found in zip(asked, self._sums(host, len(asked)), strict=True):
                known[at][host] = found
        for at, sibling, parent in derived:
            known[at] = {party: one.minus(known[sibling][party]) for party, one in known[parent].items()}

    def _asked(
        self, level: Sequence[tuple[int, Array]], known: Mapping[int, Any]
    ) -> tuple[list[tuple[int, Array]], list[tuple[int, int, int]]]:
        """Return the nodes whose sums are asked for, and those that follow, as (node, sibling, parent)."""
        rows = dict(level)
        asked, derived = [], []
        for at, mine in level:
            sibling, parent = self._family.get(at, (-1, -1))
            if sibling in rows and parent in known and (len(mine), at) > (len(rows[sibling]), sibling):
                derived.append((at, sibling, parent))
            else:
                asked.append((at, mine))
        return asked, derived

    def _sums(self, host: Party, count: int) -> list[BinSums]:
        """Return the histograms of nodes that a host has sent, in the order of its own."""
        total, key = sum(self._widths[host]), self._keys.public
        slots, found = slots_of(total, 2 * self._width, self._key_bits), []
        for _ in range(count):
            wire, rows = self._part.channel.receive("sums", host)
            if not isinstance(rows, np.ndarray) or rows.shape != (total,):
                raise PartyMessageError(f"{host} has sent sums of another form", party=host.id)
            values = slots.unpack(self._keys.decrypt_integers(key.encrypted(wire)))
            second, first = (np.array(one, dtype=np.int64) for one in unpack(values, [self._width] * 2))
            found.append(BinSums(first, second, rows.astype(np.int64)))
        return found

    def _best(self, found: Mapping[Party, BinSums], gradients: Gradients) -> tuple[Party, int] | None:
        """Return the party and the place of the best split; None if no split gains enough."""
        best: tuple[float, int, int] | None = None
        parties = list(found)
        for order, party in enumerate(parties):
            widths = self._columns.widths if party == self._part.here else self._widths[party]
            allowed = self._allowed(len(widths))
            for gain, place in splits(found[party], widths, gradients, self._parameters):
                if feature_of(widths, place)[0] in allowed and (best is None or gain > best[0] + 1e-12):
                    best = (gain, order, place)
        return None if best is None else (parties[best[1]], best[2])

    def _allowed(self, count: int) -> set[int]:
        if self._parameters.feature_rate >= 1.0:
            return set(range(count))
        chosen = max(1, round(self._parameters.feature_rate * count))
        return set(self._chooser.choice(count, chosen, replace=False).tolist())

    def _divide(self, split: tuple[Party, int], at: int, rows: Array, nodes: list[dict[str, Any]]) -> Array:
        """Write a split into its node, and return which of its rows go left."""
        party, place = split
        children = len(nodes)
        self._family |= {children: (children + 1, at), children + 1: (children, at)}
        if party == self._part.here:
            feature, bin = feature_of(self._columns.widths, place)
            name = self._frame.features[feature]
            nodes[at] = {"party": str(party), "feature": name, "at_most": float(self._columns.edges[feature][bin])}
            left: Array = self._columns.places[rows, feature] <= bin
            return left
        self._part.channel.send("ask", ["split", rows, place], party)
        mask = self._part.channel.receive("left", party)
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != rows.shape:
            raise PartyMessageError(f"{party} has divided rows of another number", party=party.id)
        nodes[at] = {"party": str(party), "split": int(self._part.channel.receive("id", party))}
        return mask


# ---------------------------------------------------------------------------------------------------------------- host


def _fit_host(part: ComponentPart, frame: PartyFrame, parameters: TreeParameters) -> dict[str, Any]:
    """Answer the guest until all trees are grown, and return the splits of this party."""
    guest, channel = part.all_of(GUEST)[0], part.channel
    method, _, _ = cipher_of(part.parameters)
    wire, width, key_bits = channel.receive("key", guest)
    key = read_key(wire, plain=method == PLAIN)
    order = list(range(len(frame.features)))
    secrets.SystemRandom().shuffle(order)  # so that the place of a feature says nothing
    names = [frame.features[at] for at in order]
    columns = binned(complete_matrix(part, frame)[:, order], parameters.bins)
    channel.send("widths", columns.widths, guest)
    cells: Encrypted | None = None
    kept: list[dict[str, Any]] = []
    while (asked := channel.receive("ask", guest))[0] != "end":
        if asked[0] == "gradients":
            cells = key.encrypted(asked[1])
            if cells.shape != (len(frame),):
                raise PartyMessageError(f"{guest} has sent gradients of another number", party=guest.id)
        elif asked[0] == "nodes" and cells is not None:
            for rows in asked[1]:
                sums, counts = _sums(columns, _checked(rows, len(frame), guest), cells)
                packed, _ = compress(sums, 2 * int(width), int(key_bits))
                channel.send("sums", [packed.masked().to_wire(), counts], guest)
        elif asked[0] == "split":
            rows = _checked(asked[1], len(frame), guest)
            feature, bin = feature_of(columns.widths, int(asked[2]))
            channel.send("left", columns.places[rows, feature] <= bin, guest)
            channel.send("id", len(kept), guest)
            kept.append({"feature": names[feature], "at_most": float(columns.edges[feature][bin])})
        else:
            raise PartyMessageError(f"{guest} asks for something unknown", party=guest.id)
    part.tracker.summary({"own_splits": {name: [one["feature"] for one in kept].count(name) for name in names}})
    return {"kind": part.module, "features": list(frame.features), "splits": kept}


def _checked(rows: Any, count: int, guest: Party) -> Array:
    if not isinstance(rows, np.ndarray) or rows.dtype.kind != "i" or rows.ndim != 1:
        raise PartyMessageError(f"{guest} has sent rows of another form", party=guest.id)
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        raise PartyMessageError(f"{guest} has sent rows that are none", party=guest.id)
    return rows


def _sums(columns: BinnedColumns, rows: Array, cells: Encrypted) -> tuple[Encrypted, Array]:
    """Return the encrypted sums of each bin, and the rows of each bin."""
    groups, count = bin_groups(columns, rows)
    sums = cells[np.repeat(rows, len(columns.edges))].group_sums(groups.ravel(), count)
    return sums, np.bincount(groups.ravel(), minlength=count)


# ---------------------------------------------------------------------------------------------------- targets, scores


def _truth(y: Array, classes: Sequence[Any]) -> Array:
    """Return the targets, shape (rows, outputs)."""
    if not classes:
        return y.astype(float)[:, None]
    if len(classes) == 2:
        return np.asarray(y == classes[1], dtype=float)[:, None]
    return np.column_stack([(y == one).astype(float) for one in classes])


def _probabilities(scores: Array) -> Array:
    if scores.shape[1] == 1:
        found: Array = 1.0 / (1.0 + np.exp(-np.clip(scores, -500, 500)))
        return found
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _gradients(truth: Array, scores: Array, *, regression: bool) -> tuple[Array, Array]:
    if regression:
        return scores - truth, np.ones_like(scores)
    chances = _probabilities(scores)
    return chances - truth, np.maximum(chances * (1.0 - chances), 1e-16)


def _loss(truth: Array, scores: Array, *, regression: bool) -> float:
    if regression:
        return float(((scores - truth) ** 2).mean())
    chances = np.clip(_probabilities(scores), 1e-15, 1 - 1e-15)
    if scores.shape[1] == 1:
        return float(-(truth * np.log(chances) + (1 - truth) * np.log(1 - chances)).mean())
    return float(-(truth * np.log(chances)).sum(axis=1).mean())


def _predicted(part: ComponentPart, frame: PartyFrame, model: Mapping[str, Any], kind: str) -> PartyFrame | None:
    """Return the predictions at the guest. A host says for each of its splits which rows go left, and gets None."""
    matrix = columns_of(part, frame, model)
    names = list(model["features"])
    if part.here.role == HOST:
        left = [matrix[:, names.index(one["feature"])] <= one["at_most"] for one in model["splits"]]
        bits = np.array(left, dtype=bool).reshape(len(model["splits"]), len(frame))
        part.channel.send(f"left/{kind}", np.packbits(bits, axis=1), part.all_of(GUEST)[0])
        return None
    directions = {}
    for host in part.all_of(HOST):
        packed = part.channel.receive(f"left/{kind}", host)
        if not isinstance(packed, np.ndarray) or packed.dtype != np.uint8 or packed.ndim != 2:
            raise PartyMessageError(f"{host} has sent directions of another form", party=host.id)
        directions[str(host)] = np.unpackbits(packed, axis=1, count=len(frame)).astype(bool)
    outputs = int(model["outputs"])
    scores = np.full((len(frame), outputs), float(model["start"]))
    for at, nodes in enumerate(model["trees"]):
        scores[:, at % outputs] += _walk(nodes, matrix, names, directions)
    if not model["classes"]:
        return regression_frame(frame, scores[:, 0], kind)
    chances = _probabilities(scores)
    chances = np.hstack([1 - chances, chances]) if outputs == 1 else chances
    threshold = float(group(part, "predict_param").get("threshold", 0.5))
    return class_frame(frame, chances, list(model["classes"]), kind, threshold=threshold)


def _walk(
    nodes: Sequence[Mapping[str, Any]], matrix: Array, names: Sequence[str], directions: Mapping[str, Array]
) -> Array:
    """Return the value of the leaf of each row."""
    found, waiting = np.zeros(len(matrix)), [(0, np.arange(len(matrix)))]
    while waiting:
        at, rows = waiting.pop()
        node = nodes[at]
        if "weight" in node:
            found[rows] = node["weight"]
            continue
        if "split" in node:
            left = directions[node["party"]][node["split"], rows]
        else:
            left = matrix[rows, names.index(node["feature"])] <= float(node["at_most"])
        waiting += [(node["left"], rows[left]), (node["right"], rows[~left])]
    return found
