"""FTL: a classifier for rows of a guest that a host knows, too, by networks of both (federated transfer learning).

Each party has a network of its own columns with the same number of outputs. Those of a common row are drawn together,
and the mean of the guest's outputs by label, Phi, times the outputs of the host is the score. Source: Liu and others
2018, the loss in its second-order Taylor polynomial; steps are those of the sum over rows, as in FATE.

Who learns what: both learn the common ids. In `mode: plain`, the default of FATE, the guest sees the outputs of the
host's network for common rows, and the host Phi and sums of it and the guest's outputs, from which labels follow. In
`mode: encrypted` each party learns the gradient of its own weights, summed over rows, and the guest the loss, and the
scores that it predicts (`secure_gradients`). FATE decrypts gradients row by row, which tell the outputs of the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from weft.frontends.federated.components import intersection
from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.hetero_networks import arrays_of, private_random, seeded_random, width_of
from weft.frontends.federated.components.inputs import (
    classes_of,
    columns_of,
    compare_settings,
    complete_matrix,
    group,
    number,
    only_frame,
    only_model,
    refuse_weights,
    validation_frame,
    whole_number,
    word,
)
from weft.frontends.federated.components.links import sigmoid
from weft.frontends.federated.components.network_files import DescriptionReader
from weft.frontends.federated.components.networks import DenseNetwork, Stepper
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, class_frame, joined
from weft.frontends.federated.components.repetitions import RepeatedChannel, RepeatedTracker
from weft.frontends.federated.components.secure_gradients import SecureGradients, secure_scores
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.validation import asked_early_stop
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_PLAIN, _ENCRYPTED = "plain", "encrypted"
_ADAM: Final = {"optimizer": "Adam", "lr": 0.01}


class _TransferPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How networks are trained: what the guest tells the host."""

    mode: str
    units: int
    epochs: int
    rounds: int
    alpha: float


def run(part: ComponentPart) -> PartOutput:
    """Train, or predict with a model. UsageError: a parameter, a layer or a label is not possible."""
    if len(part.all_of(GUEST)) != 1 or len(part.all_of(HOST)) != 1:
        raise UsageError(f"{part.component} needs one guest and one host")
    model = only_model(part)
    if model is not None:
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        return PartOutput(data=(_predicted(part, frame, model, TEST),))
    if asked_early_stop(part):
        raise UsageError(f"{part.component}: early_stopping_rounds is not supported", hint="Leave it out.")
    frame = only_frame(part, "train_data", "data")
    refuse_weights(part, frame)
    common = _common(part, frame, TRAIN)
    model = _guest_fit(part, frame, common) if part.here.role == GUEST else _host_fit(part, frame, common)
    found = [_scored(part, common, model, TRAIN)]
    validate = validation_frame(part)
    if validate is not None:
        found.append(_predicted(part, validate, model, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


def _common(part: ComponentPart, frame: PartyFrame, tag: str) -> PartyFrame:
    """Return the rows that both parties have, in the order of the guest. UsageError: there are none."""
    asked = {**group(part, "intersect_param"), "sync_intersect_ids": True, "only_output_key": False}
    one = replace(
        part,
        parameters=asked | {"cardinality_only": False},
        channel=RepeatedChannel(part.channel, f"/{tag}"),
        tracker=RepeatedTracker(part.tracker, tag),
        data={"data": [frame]},
    )
    found = intersection.run(one).data[0]
    if found is None or not len(found):
        raise UsageError(
            f"{part.component}: {part.here} has no row of the other party", hint="Compare the ids of the tables."
        )
    return found


def _plan_of(part: ComponentPart, units: int) -> _TransferPlan:
    saves = part.parameters.get("communication_efficient") is True
    return _TransferPlan(
        mode=word(part, "mode", _PLAIN, _PLAIN, _ENCRYPTED),
        units=units,
        epochs=whole_number(part, "epochs", 1, least=1),
        rounds=whole_number(part, "local_round", 5, least=1) if saves else 1,
        alpha=float(number(part, "alpha", 1.0, least=0)),
    )


# ------------------------------------------------------------------------------------------------------------ training


class _OwnNetwork:
    """The network of a party, and its steps. `matrix` has shape (rows, features)."""

    def __init__(self, part: ComponentPart, matrix: Array, *, encrypted: bool) -> None:
        reader = DescriptionReader(_with_optimizer(part))
        self._steps = reader.optimizer()
        self._rate = self._steps["lr"]
        self.network, self.matrix = DenseNetwork(reader.layers(matrix.shape[1])), matrix
        self._random = private_random(part) if encrypted else seeded_random(part)
        self.parameters = self.network.start(self._random)
        self._stepper = Stepper(self._steps, self.network.shapes)

    @property
    def units(self) -> int:
        """The number of outputs."""
        return width_of(self.network.layers)

    def outputs(self) -> Array:
        """Return the outputs for all rows, shape (rows, units)."""
        return self.network.outputs(self.parameters, self.matrix)

    def gradients(self, rows: Array) -> list[Array]:
        """Return the gradient of each parameter by that of the outputs."""
        return self.network.gradients(self.parameters, self.matrix, lambda _: (0.0, rows), self._random)[1]

    def step(self, gradients: list[Array], epoch: int, plan: _TransferPlan) -> None:
        """Take a step; with several in an epoch they become shorter, as in FATE."""
        if plan.rounds > 1:
            self._steps["lr"] = self._rate / np.sqrt(epoch + 1)
        self.parameters = self._stepper.step(self.parameters, gradients)

    def kept(self) -> dict[str, Any]:
        """Return what a model keeps."""
        return {"layers": self.network.layers, "parameters": [one.tolist() for one in self.parameters]}


def _with_optimizer(part: ComponentPart) -> ComponentPart:
    given = part.parameters.get("optimizer") or _ADAM
    return replace(part, parameters={**part.parameters, "optimizer": given})


def _guest_fit(part: ComponentPart, frame: PartyFrame, common: PartyFrame) -> dict[str, Any]:
    classes = classes_of(part, frame)
    if len(classes) != 2:
        raise UsageError(f"{part.component}: there are {len(classes)} different labels, and FTL is for two")
    rest = frame.take(~np.isin(frame.ids, common.ids))
    matrix = np.vstack([complete_matrix(part, common), complete_matrix(part, rest)])
    labels = np.concatenate([_labels(one, classes) for one in (common, rest)])
    own = _OwnNetwork(part, matrix, encrypted=_plan_of(part, 1).mode == _ENCRYPTED)
    plan, host, count = _plan_of(part, own.units), part.all_of(HOST)[0], len(common)
    part.channel.send("plan", msgspec.to_builtins(plan), host)
    secure = SecureGradients.of(part, host, own.network) if plan.mode == _ENCRYPTED else None
    y, kappa, losses = labels[:count], 1.0 / plan.units, list[float]()
    tol, stops = number(part, "tol", 1e-6, least=0), part.parameters.get("n_iter_no_change") is True
    converged = False
    for epoch in range(plan.epochs):
        outputs = own.outputs()
        phi = labels @ outputs / len(labels)
        linear = -0.5 * plan.alpha * np.outer(y, phi) - kappa * outputs[:count]
        square, theirs = _exchanged(part, host, secure, np.outer(phi, phi), linear)
        for turn in range(plan.rounds):
            outputs = own.outputs()
            phi = labels @ outputs / len(labels)
            share = plan.alpha / len(labels)
            if secure is None:
                slope = 0.25 * phi @ square - 0.5 * y @ theirs
                rows = share * np.outer(labels, slope)
                rows[:count] -= kappa * theirs
                gradients, loss = own.gradients(rows), _loss(plan, y, phi, outputs[:count], square, theirs)
            else:
                gradients, loss = secure.guest_step(own.parameters, matrix, labels, phi, outputs, count, plan.alpha)
            own.step(gradients, epoch, plan)
            if turn == 0:
                losses.append(loss)
        converged = stops and epoch > 0 and abs(losses[-1] - losses[-2]) < tol
        part.channel.send("end", converged, host)
        part.tracker.progress(epoch + 1, plan.epochs)
        if converged:
            break
    phi = labels @ own.outputs() / len(labels)
    _tell(part, plan, losses, converged=converged)
    model = {"kind": part.module, "features": list(frame.features), "classes": classes, "mode": plan.mode}
    return model | {"phi": phi.tolist(), "losses": losses, "converged": converged, **own.kept()}


def _labels(frame: PartyFrame, classes: list[Any]) -> Array:
    found: Array = np.where(frame.columns[frame.label] == classes[1], 1.0, -1.0)
    return found


def _loss(plan: _TransferPlan, y: Array, phi: Array, outputs: Array, square: Array, theirs: Array) -> float:
    """Return the mean loss of the common rows."""
    label = -0.5 * y @ (theirs @ phi) + 0.125 * phi @ square @ phi + len(y) * np.log(2)
    return float((plan.alpha * label - (outputs * theirs).sum() / plan.units) / len(y))


def _host_fit(part: ComponentPart, frame: PartyFrame, common: PartyFrame) -> dict[str, Any]:
    guest, matrix = part.all_of(GUEST)[0], complete_matrix(part, common)
    own = _OwnNetwork(part, matrix, encrypted=_plan_of(part, 1).mode == _ENCRYPTED)
    plan = message_as(_TransferPlan, part.channel.receive("plan", guest), guest)
    compare_settings(part, {"mode": _plan_of(part, 1).mode}, {"mode": plan.mode}, guest)
    if plan.units != own.units or plan.epochs < 1 or plan.rounds < 1:
        raise UsageError(
            f"{part.component}: the network of {part.here} has {own.units} outputs, and that of {guest} {plan.units}",
            hint="Let the last layers have the same number.",
        )
    secure = SecureGradients.of(part, guest, own.network) if plan.mode == _ENCRYPTED else None
    for epoch in range(plan.epochs):
        outputs = own.outputs()
        square, linear = _exchanged(part, guest, secure, outputs.T @ outputs, outputs)
        for _ in range(plan.rounds):
            outputs = own.outputs()
            if secure is None:
                gradients = own.gradients(0.25 * plan.alpha * outputs @ square + linear)
            else:
                gradients = secure.host_step(own.parameters, matrix, outputs, plan.alpha)
            own.step(gradients, epoch, plan)
        part.tracker.progress(epoch + 1, plan.epochs)
        if part.channel.receive("end", guest) is True:
            break
    model = {"kind": part.module, "features": list(frame.features), "mode": plan.mode}
    return model | own.kept()


def _exchanged(
    part: ComponentPart, other: Party, secure: SecureGradients | None, square: Array, linear: Array
) -> tuple[Array, Array]:
    """Exchange numbers of shape (units, units) and (rows, units), and return those of the other party.

    With encryption they stay in `secure`. PartyMessageError: the other party has sent others.
    """
    if secure is not None:
        secure.exchange(square, linear)
        return square, linear
    part.channel.send("numbers", {"square": square, "linear": linear}, other)
    found = part.channel.receive("numbers", other)
    arrays: list[Any] = [found.get(name) if isinstance(found, dict) else None for name in ("square", "linear")]
    for one, wanted in zip(arrays, (square, linear), strict=True):
        if not isinstance(one, np.ndarray) or one.shape != wanted.shape or not np.isfinite(one).all():
            raise PartyMessageError(f"{other} has sent numbers of another shape", party=other.id)
    return arrays[0], arrays[1]


def _tell(part: ComponentPart, plan: _TransferPlan, losses: list[float], *, converged: bool) -> None:
    notes = []
    if plan.mode == _PLAIN:
        notes.append("mode is plain: outputs of networks travel in the open; encrypted hides them")
    if part.parameters.get("validation_freqs") or group(part, "callback_param").get("validation_freqs"):
        notes.append("validation_freqs has no effect: put an Evaluation behind the component")
    for note in notes:
        part.tracker.log(note)
    part.tracker.curve("train", "loss", [(float(at), one) for at, one in enumerate(losses)], kind="LOSS")
    part.tracker.summary({"loss_history": losses, "is_converged": converged, "backend": "numpy", "notes": notes})


# ---------------------------------------------------------------------------------------------------------- prediction


def _predicted(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame | None:
    """Return the predictions for common rows at the guest; None at the host."""
    return _scored(part, _common(part, frame, kind), model, kind)


def _scored(part: ComponentPart, common: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame | None:
    encrypted = model["mode"] == _ENCRYPTED
    if part.here.role == HOST:
        outputs = DenseNetwork(model["layers"]).outputs(arrays_of(model["parameters"]), columns_of(part, common, model))
        if encrypted:
            secure_scores(part, outputs)
        else:
            part.channel.send("outputs", outputs, part.all_of(GUEST)[0])
        return None
    phi, host = np.array(model["phi"]), part.all_of(HOST)[0]
    if encrypted:
        scores = secure_scores(part, phi, len(common))
    else:
        found = part.channel.receive("outputs", host)
        if not isinstance(found, np.ndarray) or found.shape != (len(common), len(phi)):
            raise PartyMessageError(f"{host} has sent outputs of another shape", party=host.id)
        scores = found @ phi
    second = sigmoid(scores)
    threshold = float(group(part, "predict_param").get("threshold", 0.5))
    return class_frame(common, np.column_stack([1 - second, second]), model["classes"], kind, threshold=threshold)
