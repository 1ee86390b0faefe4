"""HeteroKmeans: clusters of rows over the columns of a guest and hosts, with an arbiter (Lloyd's algorithm).

Each party has its part of each centre. In each round the parties send their squared distances of rows and centres under
masks (`crypto.masks`) to the arbiter, which adds them, and tells which centre is nearest to each row.

At the end the arbiter has the index of Davies and Bouldin (1979): how wide clusters are by how far apart, for the
centres of the model. Evaluation compares clusters with labels at the guest.

Who learns what: all parties learn the cluster of each row. The arbiter sees the sums of squared distances, of rows
without ids and between centres, and how far the centres move; no part of a distance and no value. With one host, guest
and host learn nothing else of each other. Guest and hosts do not see the sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.horizontal import agree_on_masks
from weft.frontends.federated.components.inputs import (
    check_parties,
    columns_of,
    compare_settings,
    complete_matrix,
    number,
    only_frame,
    only_model,
    whole_number,
)
from weft.frontends.federated.components.predictions import TEST, TRAIN, class_frame
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.vertical import check_rows
from weft.frontends.federated.crypto.masks import sum_of_covered
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

Array = np.ndarray[Any, Any]
_CLUSTERS: Final = 5
_ROUNDS: Final = 300
_TOLERANCE: Final = 0.001
_SPREADS: Final = {f"spread/{kind}": kind for kind in (TRAIN, TEST)}
_SCALE: Final = 32
"""The binary digits behind the point of distances: values below 10^8 have room at ten parties."""


def run(part: ComponentPart) -> PartOutput:
    """Find clusters, or the nearest centres of a model.

    UsageError: a parameter or a value is not possible, or there are fewer rows than clusters.
    """
    check_parties(part, arbiter=True)
    if part.here.role == ARBITER:
        _arbitrate(part)
        return PartOutput()
    model = only_model(part)
    trains = model is None
    frame = only_frame(part, *(("train_data", "data") if trains else ("test_data", "eval_data", "data")))
    check_rows(part, len(frame))
    rounds = _Rounds(part)
    if model is None:
        model = _fit(part, rounds, frame)
        matrix = complete_matrix(part, frame)
    else:
        matrix = columns_of(part, frame, model)
    centers = np.array(model["centers"], dtype=float).reshape(model["k"], matrix.shape[1])
    nearest = rounds.nearest(matrix, centers)
    rounds.show_spread(centers, TRAIN if trains else TEST)
    rounds.close()
    counts = np.bincount(nearest, minlength=model["k"]).tolist()
    part.tracker.summary({"clusters": counts, "rounds": model["rounds"], "is_converged": model["converged"]})
    if part.here.role == HOST:
        return PartOutput(model=model if trains else None)
    chances = np.eye(model["k"])[nearest]
    found = class_frame(frame, chances, list(range(model["k"])), TRAIN if trains else TEST)
    return PartOutput(data=(found,), model=model if trains else None)


def _fit(part: ComponentPart, rounds: _Rounds, frame: PartyFrame) -> dict[str, Any]:
    k, most = (whole_number(part, name, usual, least=0) for name, usual in (("k", _CLUSTERS), ("max_iter", _ROUNDS)))
    tolerance = number(part, "tol", _TOLERANCE, least=0)
    if k < 2 or k > len(frame):
        raise UsageError(f"{part.component}: k is {k}, and there are {len(frame)} rows", hint="Use 2 or more clusters.")
    rounds.compare({"k": k, "max_iter": most, "tol": tolerance})
    matrix = complete_matrix(part, frame)
    centers, converged, done = matrix[rounds.first_rows(len(frame), k)], False, 0
    while done < most and not converged:
        nearest = rounds.nearest(matrix, centers)
        moved = centers.copy()
        for at in np.unique(nearest):  # a centre that is nearest to no row stays
            moved[at] = matrix[nearest == at].mean(axis=0)
        converged = rounds.have_settled(float(((moved - centers) ** 2).sum()), tolerance)
        centers, done = moved, done + 1
        part.tracker.progress(done, most)
    return {
        "kind": part.module,
        "k": k,
        "features": list(frame.features),
        "centers": centers.tolist(),
        "rounds": done,
        "converged": converged,
    }


class _Rounds:
    """The end of a data party. All data parties ask for the same sums in the same order."""

    def __init__(self, part: ComponentPart) -> None:
        self._part, self._arbiter = part, part.all_of(ARBITER)[0]
        self._masks = agree_on_masks(part)

    def compare(self, settings: dict[str, Any]) -> None:
        """Compare the settings of a host with those of the guest. UsageError: one differs."""
        part = self._part
        if part.here.role == GUEST:
            part.channel.send("settings", settings, part.all_of(HOST))
            return
        guest = part.all_of(GUEST)[0]
        theirs = message_as(dict[str, Any], part.channel.receive("settings", guest), guest)
        compare_settings(part, settings, theirs, guest)

    def first_rows(self, rows: int, k: int) -> Array:
        """Return the rows that are the first centres; the guest draws them."""
        part = self._part
        if part.here.role == GUEST:
            generator = np.random.default_rng(whole_number(part, "random_stat", part.seed, least=0))
            chosen: Array = generator.choice(rows, k, replace=False)
            part.channel.send("first_rows", chosen, part.all_of(HOST))
            return chosen
        guest = part.all_of(GUEST)[0]
        found = part.channel.receive("first_rows", guest)
        if not _are_below(found, k, rows):
            raise PartyMessageError(f"{guest} has sent no rows for the first centres", party=guest.id)
        return np.asarray(found)

    def nearest(self, matrix: Array, centers: Array) -> Array:
        """Return the nearest centre of each row, over the columns of all parties."""
        found = self._sum("nearest", _squares(matrix, centers))
        if not _are_below(found, len(matrix), len(centers)):
            raise PartyMessageError(f"{self._arbiter} has sent no centres of rows", party=self._arbiter.id)
        return np.asarray(found)

    def have_settled(self, moved: float, tolerance: float) -> bool:
        """Whether the centres have moved by less than the tolerance, squared and summed over all parties."""
        return bool(self._sum("settled", np.array([moved]), tolerance))

    def show_spread(self, centers: Array, kind: str) -> None:
        """Let the arbiter judge the clusters of the rows that were asked for last."""
        self._sum(f"spread/{kind}", _squares(centers, centers))

    def _sum(self, what: str, own: Array, bound: float = 0.0) -> Any:
        try:
            covered = self._masks.cover(own, scale=_SCALE)
        except UsageError as error:
            raise UsageError(
                f"{self._part.component}: {error}", hint="Put a FeatureScale before it: distances are too large."
            ) from None
        self._part.channel.send("covered", [what, bound, covered], self._arbiter)
        return self._part.channel.receive(what, self._arbiter)

    def close(self) -> None:
        """Let the arbiter end; all data parties call it after their last question."""
        if self._part.here.role == GUEST:
            self._part.channel.send("covered", None, self._arbiter)


def _arbitrate(part: ComponentPart) -> None:
    """Add what the parties send, and tell the nearest centres, until the guest ends."""
    parties, count = [*part.all_of(GUEST), *part.all_of(HOST)], 0
    distances = np.empty((0, 0))
    while (first := part.channel.receive("covered", parties[0])) is not None:
        sent = {parties[0]: first} | {one: part.channel.receive("covered", one) for one in parties[1:]}
        for party, value in sent.items():
            if not isinstance(value, (list, tuple)) or len(value) != 3 or list(value[:2]) != list(first[:2]):
                raise PartyMessageError(f"{party} asks for another sum than {parties[0]}", party=party.id)
        what, bound = first[:2]
        total = sum_of_covered({party: value[2] for party, value in sent.items()}, parties)
        if what == "nearest" and total.ndim == 2:
            distances = total
            part.channel.send("nearest", total.argmin(axis=1), parties)
        elif what == "settled" and isinstance(bound, (int, float)):
            part.channel.send("settled", bool(total.sum() <= bound), parties)
        elif isinstance(what, str) and what in _SPREADS and distances.size and total.shape == distances.shape[1:] * 2:
            _judge(part, _SPREADS[what], distances, total)
            part.channel.send(what, True, parties)
        else:
            raise PartyMessageError(f"{parties[0]} asks for a sum that does not exist", party=parties[0].id)
        count += 1
    part.tracker.summary({"sums": count})


def _judge(part: ComponentPart, kind: str, distances: Array, between: Array) -> None:
    found = davies_bouldin_index(distances, between)
    if found is None:
        part.tracker.log(
            "the rows are in one cluster, or centres are the same: there is no index of Davies and Bouldin"
        )
        return
    part.tracker.metric(kind, "davies_bouldin_index", found)
    part.tracker.summary({"davies_bouldin_index": found})


def davies_bouldin_index(distances: Array, between: Array) -> float | None:
    """Return the index for squared distances of rows and centres, and between centres; the less, the better.

    None: fewer than two centres have rows, or two of those are the same.
    """
    nearest = distances.argmin(axis=1)
    used, places, counts = np.unique(nearest, return_inverse=True, return_counts=True)
    apart = np.sqrt(np.maximum(between[np.ix_(used, used)], 0))
    np.fill_diagonal(apart, np.inf)
    if len(used) < 2 or not apart.all():
        return None
    own = np.sqrt(np.maximum(distances[np.arange(len(nearest)), nearest], 0))
    widths = np.bincount(places, own) / counts
    return float(((widths[:, None] + widths[None, :]) / apart).max(axis=1).mean())


def _squares(rows: Array, centers: Array) -> Array:
    """Return the squared distances of rows and centres, over the columns of one party."""
    found = np.empty((len(rows), len(centers)))
    for at, center in enumerate(centers):  # all at once would take rows x centres x columns
        found[:, at] = ((rows - center) ** 2).sum(axis=1)
    return found


def _are_below(found: Any, count: int, bound: int) -> bool:
    if not isinstance(found, np.ndarray) or found.dtype.kind != "i" or found.shape != (count,):
        return False
    return not count or (int(found.min()) >= 0 and int(found.max()) < bound)
