"""Leaves of rows in trees whose splits belong to several parties (`hetero_secureboost`).

The guest asks, level by level and for all trees at once, which of the rows at a node go left; so it learns no more
sides than it needs, and the hosts learn which rows reach their nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST
from weft.frontends.federated.components.boosting import tree_matrix
from weft.frontends.federated.components.columns import checked_columns
from weft.frontends.federated.components.predictions import TEST
from weft.frontends.federated.components.secure_trees import bits_of, mask_of, message_as
from weft.frontends.federated.components.vertical import check_rows
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]


def leaf_weights(trees: Sequence[list[dict[str, Any]]], leaves: Array, outputs: int) -> Array:
    """Return the sums of the weights of leaves, shape (rows, outputs). `leaves` has shape (rows, trees)."""
    found = np.zeros((len(leaves), outputs))
    for tree, nodes in enumerate(trees):
        weights = np.array([node.get("weight", 0.0) for node in nodes])
        found[:, tree % outputs] += weights[leaves[:, tree]]
    return found


class _SplitsOf:
    """The splits of a party over the rows of a frame."""

    def __init__(self, part: ComponentPart, frame: PartyFrame, model: dict[str, Any]) -> None:
        self.rows, self._part, self._splits = len(frame), part, model["splits"]
        names = list(dict.fromkeys(name for name, *_ in self._splits))
        checked_columns(part, frame, names)
        stacked = np.column_stack([frame.columns[name] for name in names] or [np.empty((len(frame), 0))])
        kept = frame.with_features(names, stacked)
        use, zero = model.get("use_missing", False), model.get("zero_as_missing", False)
        matrix = tree_matrix(part, kept, use_missing=use, zero_as_missing=zero)
        self._columns = dict(zip(names, matrix.T, strict=True))

    def left(self, split: int, rows: Array) -> Array:
        """Return which of the rows go left. PartyMessageError: there is no such split."""
        if not 0 <= split < len(self._splits):
            guest = self._part.all_of(GUEST)[0]
            raise PartyMessageError(f"{guest} asks for a split that {self._part.here} does not have", party=guest.id)
        name, threshold, *missing_left = self._splits[split]
        values = self._columns[name][rows]
        found: Array = values <= threshold
        return found | np.isnan(values) if any(missing_left) else found


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
