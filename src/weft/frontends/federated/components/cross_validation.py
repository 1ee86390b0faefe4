"""Cross-validation around a component that trains: `cv_param.need_cv` of FATE.

Each fold is a training of its own, with the rows of the fold as `validate_data`. The component returns the predictions
of all folds and no model, and tells the metrics of each fold and their means. Folds are those of scikit-learn's
`KFold`. The fields `mode` and `role` follow from the module and the party, as in FATE.

Who learns what: where the parties share their rows, the hosts learn the positions of the rows of each fold, and the
guest learns from each fold what it learns from a training. Otherwise nothing but the number of folds is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart, PartOutput, Run
from weft.frontends.federated.components.evaluation import metrics_of
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.inputs import group, only_frame
from weft.frontends.federated.components.predictions import TYPE, joined, read_predictions
from weft.frontends.federated.components.repetitions import RepeatedChannel, RepeatedTracker
from weft.frontends.federated.components.secure_trees import message_as
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_CV, _SCORE, _INSTANCE = "cv_param", "score", "instance"


class _Folds(msgspec.Struct, frozen=True):
    """What the guest tells: the number of folds, and with shared rows their number and the positions of each fold."""

    count: int
    rows: int
    tests: list[Any]


class _Plan(msgspec.Struct, frozen=True):
    """The parameters of `cv_param`, with the defaults of FATE."""

    n_splits: int = 5
    shuffle: bool = True
    random_seed: int | None = 1
    output_fold_history: bool = True
    history_value_type: str = _SCORE


def cross_validated(*, own_rows: bool = False) -> Callable[[Run], Run]:
    """Let a component do cross-validation where its parameters ask for it, and train or predict where they do not.

    `own_rows` says that each party has rows of its own, and divides them itself.
    """

    def wrap(run: Run) -> Run:
        @wraps(run)
        def wrapped(part: ComponentPart) -> PartOutput:
            if part.models.get("model") or not group(part, _CV).get("need_cv"):
                return run(part)
            return _validated(part, run, own_rows=own_rows)

        return wrapped

    return wrap


def fold_rows(count: int, folds: int, seed: int | None) -> list[Array]:
    """Return the positions of the rows of each fold, ascending. A seed shuffles rows first; None keeps their order."""
    order = np.arange(count)
    if seed is not None:
        np.random.RandomState(seed).shuffle(order)
    return [np.sort(one) for one in np.array_split(order, folds)]


def _validated(part: ComponentPart, run: Run, *, own_rows: bool) -> PartOutput:
    plan = _plan_of(part)
    frame = None if part.here.role == ARBITER else only_frame(part, "train_data", "data")
    tests = _tests(part, plan, frame, own_rows=own_rows)
    history: list[PartyFrame | None] = []
    found: dict[str, dict[str, list[float]]] = {}
    summary: dict[str, Any] = {"fold_num": len(tests)}
    for at, test in enumerate(tests):
        tracker = RepeatedTracker(part.tracker, f"fold_{at}", (at, len(tests)))
        parameters = {name: value for name, value in part.parameters.items() if name != _CV}
        channel = RepeatedChannel(part.channel, f"/fold{at}")
        one = replace(part, parameters=parameters, channel=channel, tracker=tracker, data={})
        if frame is None:
            run(one)
            continue
        train = frame.take(np.setdiff1d(np.arange(len(frame)), test))
        one = replace(one, data={"train_data": [train], "validate_data": [frame.take(test)]})
        output = run(one).data
        predictions = output[0] if output else None
        if predictions is not None:
            _tell(part, predictions, at, found)
        history.append(_history(plan, one, predictions, at))
        summary[f"fold_{at}"] = tracker.told
    for kind, metrics in found.items():
        for name, values in metrics.items():
            part.tracker.metric(f"{kind}_mean", name, float(np.mean(values)))
    part.tracker.summary(summary)
    if frame is None:
        return PartOutput()
    return PartOutput(data=(joined(history) if plan.output_fold_history else frame,))


def _plan_of(part: ComponentPart) -> _Plan:
    """Return the parameters. UsageError: one is not possible."""
    fields = _Plan.__struct_fields__
    given = {name: value for name, value in group(part, _CV).items() if value is not None or name == "random_seed"}
    try:
        plan = msgspec.convert({name: value for name, value in given.items() if name in fields}, _Plan, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{part.component}: {_CV} is not possible: {error}") from None
    if plan.n_splits < 2:
        raise UsageError(f"{part.component}: {_CV}.n_splits is {plan.n_splits}; it must be at least 2")
    if plan.random_seed is not None and not 0 <= plan.random_seed < 2**32:
        raise UsageError(f"{part.component}: {_CV}.random_seed is {plan.random_seed}; it must be from 0 to 2^32 - 1")
    if plan.history_value_type.lower() not in (_SCORE, _INSTANCE):
        raise UsageError(
            f"{part.component}: {_CV}.history_value_type is {plan.history_value_type!r}",
            hint=f"Use {_SCORE} or {_INSTANCE}.",
        )
    return plan


# ----------------------------------------------------------------------------------------------------------------- rows


def _tests(part: ComponentPart, plan: _Plan, frame: PartyFrame | None, *, own_rows: bool) -> Sequence[Array]:
    """Return the positions of the rows of each fold here; empty arrays at the arbiter.

    UsageError: there are fewer rows than folds, or other rows than at the guest. PartyMessageError: what the guest has
    sent are no folds.
    """
    guests = part.all_of(GUEST)
    if len(guests) != 1:
        raise UsageError(f"{part.component} needs one guest")
    if part.here == guests[0]:
        assert frame is not None
        tests = _own_tests(part, plan, plan.n_splits, frame)
        told = _Folds(len(tests), len(frame), [])
        part.channel.send("folds", msgspec.to_builtins(told), part.others(ARBITER, *([HOST] if own_rows else [])))
        if not own_rows:
            part.channel.send("folds", {"count": len(tests), "rows": len(frame), "tests": tests}, part.others(HOST))
        return tests
    sent = message_as(_Folds, part.channel.receive("folds", guests[0]), guests[0])
    if not 2 <= sent.count <= max(2, sent.rows):
        raise PartyMessageError(f"{guests[0]} has sent a number of folds that is not possible", party=guests[0].id)
    if frame is None:
        return [np.empty(0, dtype=int)] * sent.count
    return _own_tests(part, plan, sent.count, frame) if own_rows else _shared_tests(part, sent, frame, guests[0])


def _own_tests(part: ComponentPart, plan: _Plan, count: int, frame: PartyFrame) -> list[Array]:
    if len(frame) < count:
        raise UsageError(
            f"{part.component}: {part.here} has {len(frame)} rows, which are too few for {count} folds",
            hint=f"Lower {_CV}.n_splits.",
        )
    seed = plan.random_seed
    if plan.shuffle and seed is None:
        seed = part.seed % 2**32
    return fold_rows(len(frame), count, seed if plan.shuffle else None)


def _shared_tests(part: ComponentPart, sent: _Folds, frame: PartyFrame, guest: Party) -> list[Array]:
    if sent.rows != len(frame):
        raise UsageError(
            f"{part.component}: {part.here} and {guest} have different numbers of rows",
            hint="Put an Intersection before it.",
        )
    arrays = all(isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype.kind == "i" for one in sent.tests)
    if (
        not arrays
        or len(sent.tests) != sent.count
        or not np.array_equal(np.sort(np.concatenate(sent.tests)), np.arange(len(frame)))
    ):
        raise PartyMessageError(f"{guest} has sent folds that do not divide the rows", party=guest.id)
    return sent.tests


# -------------------------------------------------------------------------------------------------------------- results


def _tell(part: ComponentPart, predictions: PartyFrame, at: int, found: dict[str, dict[str, list[float]]]) -> None:
    """Tell the metrics of a fold, and keep them in `found` by type and name."""
    for one in read_predictions(predictions):
        metrics = metrics_of(one)
        if not metrics:
            part.tracker.log(
                f"fold {at}: all labels of its {one.kind} rows are the same, and nothing can be told apart"
            )
        for name, value in metrics.items():
            part.tracker.metric(f"{one.kind}_fold_{at}", name, value)
            found.setdefault(one.kind, {}).setdefault(name, []).append(value)


def _history(plan: _Plan, one: ComponentPart, predictions: PartyFrame | None, at: int) -> PartyFrame | None:
    """Return the rows of a fold with the ids of FATE, `ID#foldNUMBER#TYPE`: predictions, or the rows themselves.

    Where a party has no predictions, a column has the number of the fold.
    """
    if not plan.output_fold_history:
        return None
    if plan.history_value_type.lower() == _SCORE and predictions is not None:
        return replace(predictions, ids=_fold_ids(predictions.ids, at, predictions.columns[TYPE].tolist()))
    rows = []
    for kind in ("train", "validate"):
        frame = one.data[f"{kind}_data"][0]
        ids = _fold_ids(frame.ids, at, [kind] * len(frame))
        if plan.history_value_type.lower() == _SCORE:
            rows.append(PartyFrame(ids, {"fold_num": np.full(len(ids), at)}))
        else:
            rows.append(replace(frame, ids=ids))
    return joined(rows)


def _fold_ids(ids: Array, at: int, kinds: Sequence[str]) -> Array:
    return np.array([f"{id}#fold{at}#{kind}" for id, kind in zip(ids, kinds, strict=True)], dtype=object)
