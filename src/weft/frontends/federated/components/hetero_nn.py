"""HeteroNN: a neural network over the columns of guest and hosts (split learning), without an arbiter.

Each party has a network of its own columns, the bottom one; the guest may have no columns. The guest adds their outputs
up by the weights of the interactive layer (`interactive`), and its top network predicts the labels. Each network takes
steps of the optimizer, the layer those of plain descent by `interactive_layer_lr`; all gradients are those of the mean
loss of a batch. Networks run on NumPy (`networks`). Rows are in the order of the guest, without shuffling, as in FATE.

Who learns what: see `interactive`. With encryption, parties draw their first parameters from the operating system, so
that others cannot know them: two trainings differ. Without it they follow from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.cross_validation import cross_validated
from weft.frontends.federated.components.hetero_networks import GuestNetworks, HostNetworks, NetworkSchedule
from weft.frontends.federated.components.inputs import (
    check_parties,
    classes_of,
    columns_of,
    complete_matrix,
    group,
    labels_of,
    number,
    only_frame,
    only_model,
    refuse,
    refuse_weights,
    validation_frame,
    whole_number,
    word,
)
from weft.frontends.federated.components.network_files import DescriptionReader, check_dataset
from weft.frontends.federated.components.network_outputs import check_end, output_frame, probabilities_of, target_of
from weft.frontends.federated.components.networks import BINARY, LOSSES, MULTI, REGRESSION
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, joined
from weft.frontends.federated.components.vertical import check_rows
from weft.frontends.federated.components.vertical_validation import EpochPlan
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.components.validation import ValidationRows

Array = np.ndarray[Any, Any]
_PRECISION, _LEAST_BITS, _MOST_BITS = 23, 16, 40
_LAYER: Final = "interactive_layer_define"


class _Networks(Protocol):
    def outputs(self, matrix: Array) -> Array | None: ...


@cross_validated()
def run(part: ComponentPart) -> PartOutput:
    """Train, or predict with a model. UsageError: a parameter, a layer or a label is not possible."""
    check_parties(part)
    model = only_model(part)
    if model is not None:
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        matrix = columns_of(part, frame, model)
        check_rows(part, len(frame))
        kept: _Networks = (GuestNetworks if part.here.role == GUEST else HostNetworks).restored(part, model)
        return PartOutput(data=(_predicted(part, frame, model, kept.outputs(matrix), TEST),))
    refuse(part, {"selector_param": "method", "coae_param": "enable"})
    check_dataset(part)
    frame = only_frame(part, "train_data", "data")
    refuse_weights(part, frame)
    check_rows(part, len(frame))
    if not len(frame):
        raise UsageError(
            f"{part.component}: there are no rows at {part.here}",
            hint="Compare the ids of the parties: the Intersection has found no common one.",
        )
    networks: _Networks
    networks, model = _guest_fit(part, frame) if part.here.role == GUEST else _host_fit(part, frame)
    found = [_predicted(part, frame, model, networks.outputs(complete_matrix(part, frame)), TRAIN)]
    validate = validation_frame(part)
    if validate is not None:
        check_rows(part, len(validate))
        outputs = networks.outputs(columns_of(part, validate, model))
        found.append(_predicted(part, validate, model, outputs, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


# ---------------------------------------------------------------------------------------------------------- parameters


def _schedule_of(part: ComponentPart, layer: Mapping[str, Any]) -> NetworkSchedule:
    """Return the parameters of a training, which the guest tells the hosts."""
    word(part, "early_stop", "diff", "diff")
    rate, keep = number(part, "interactive_layer_lr", 0.9), number(part, "drop_out_keep_rate", 1.0, least=0)
    keep = keep * (1.0 - layer["dropout"])
    if rate <= 0 or not 0 < keep <= 1:
        raise UsageError(
            f"{part.component}: interactive_layer_lr is {rate:g} and the share that drop-out keeps is {keep:g}",
            hint="Use a rate above 0, and a share from above 0 to 1.",
        )
    size = whole_number(part, "batch_size", -1, least=-1)
    return NetworkSchedule(
        epochs=whole_number(part, "epochs", 100, least=1),
        batch_size=size if size > 0 else -1,
        rate=float(rate),
        units=layer["units"],
        bits=_precision(part),
        tol=float(number(part, "tol", 1e-5, least=0)),
        keep=float(keep),
    )


def _precision(part: ComponentPart) -> int:
    """Return the binary digits behind the point of numbers that are encrypted."""
    given = part.parameters.get("floating_point_precision", _PRECISION)
    if given is None:
        return _MOST_BITS
    bits = whole_number(part, "floating_point_precision", _PRECISION, least=0)
    return min(max(bits, _LEAST_BITS), _MOST_BITS)


def _layer_of(part: ComponentPart) -> dict[str, Any]:
    """Return the units of the interactive layer, its linear layer, its activation, and what it drops.

    UsageError: it is not one linear layer with or without an activation.
    """
    given = part.parameters.get(_LAYER)
    found = next((one for one in _objects(given) if str(one.get("layer")).lower() == "interactivelayer"), None)
    if found is not None:
        word_of = found.get("activation", "relu")
        given = [
            {"layer": "Linear", "out_features": found.get("out_dim"), "bias": found.get("guest_bias") is not False}
        ]
        given += [{"layer": str(word_of)}] if word_of else []
    reader = DescriptionReader(msgspec.structs.replace(part, parameters={_LAYER: given}), _LAYER)
    layers = reader.layers(1, any_width=True)
    if layers[0]["kind"] != "Linear" or len(layers) > 2 or ("out" in layers[-1] and len(layers) == 2):
        raise UsageError(
            f"{part.component}: {_LAYER} has {len(layers)} layers", hint="Use one linear layer and an activation."
        )
    dropout = 0.0 if found is None else found.get("dropout") or 0.0
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise UsageError(f"{part.component}: {_LAYER} drops {dropout!r}", hint="Use a share from 0 to below 1.")
    without = found is not None and found.get("need_guest") is False
    return {"units": layers[0]["out"], "linear": layers[0], "after": layers[1:], "dropout": dropout, "without": without}


def _objects(given: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a description: itself, or its members."""
    if isinstance(given, Mapping) and "layer" not in given:
        return [one for one in given.values() if isinstance(one, Mapping)]
    return [one for one in (given if isinstance(given, list) else [given]) if isinstance(one, Mapping)]


def _notes_of(part: ComponentPart, bits: int) -> list[str]:
    """Return what is done otherwise than the files say."""
    given, found = part.parameters, []
    if given.get("floating_point_precision", _PRECISION) not in (None, bits):
        found.append(f"floating_point_precision is {given['floating_point_precision']}: {bits} digits are used")
    if "ModelCheckpoint" in (group(part, "callback_param").get("callbacks") or ()):
        found.append("ModelCheckpoint has no effect: the model is kept when the training has ended")
    return found


# ------------------------------------------------------------------------------------------------------------ training


def _guest_fit(part: ComponentPart, frame: PartyFrame) -> tuple[GuestNetworks, dict[str, Any]]:
    y, layer = labels_of(part, frame), _layer_of(part)
    schedule = _schedule_of(part, layer)
    top = DescriptionReader(part, "top_nn_define")
    loss, loss_number = top.loss()
    steps, task = top.optimizer(), LOSSES[loss].task
    asked = word(part, "task_type", "", "", "classification", REGRESSION)
    if asked and (asked == REGRESSION) != (task == REGRESSION):
        raise UsageError(f"{part.component}: task_type is {asked}, and the loss {loss} is for {task}")
    layers = top.layers(schedule.units)
    check_end(part, layers, loss, "top_nn_define")
    classes = [] if task == REGRESSION else classes_of(part, frame)
    target = target_of(part, y, classes, task, layers)
    matrix = complete_matrix(part, frame)
    bottom: list[dict[str, Any]] = []
    if frame.features and not layer["without"]:
        bottom = DescriptionReader(part, "bottom_nn_define").layers(len(frame.features))
    part.channel.send("schedule", msgspec.to_builtins(schedule), part.all_of(HOST))
    networks = GuestNetworks.started(part, schedule, layer, bottom, layers, steps, (loss, loss_number))
    kind = BINARY if task == BINARY else MULTI if task == MULTI else REGRESSION
    plan = EpochPlan.of(part, kind, frame.features, intercept=False)
    watch = None if plan is None else plan.watch("", "", partial(_truth, loss, layers[-1]["kind"], classes))
    losses: list[float] = []
    converged = False
    for epoch in range(schedule.epochs):
        losses.append(networks.epoch(matrix, target))
        halts = watch is not None and watch.look(epoch, networks.state, networks.outputs)
        converged = epoch > 0 and abs(losses[-1] - losses[-2]) < schedule.tol
        part.channel.send("end", converged or halts, part.all_of(HOST))
        part.tracker.progress(epoch + 1, schedule.epochs)
        if converged or halts:
            break
    if watch is not None:
        networks.state = watch.chosen(networks.state)
    notes = _notes_of(part, schedule.bits)
    for note in notes:
        part.tracker.log(note)
    part.tracker.curve("train", "loss", [(float(at), one) for at, one in enumerate(losses)], kind="LOSS")
    part.tracker.summary({"history_loss": losses, "is_converged": converged, "backend": "numpy", "notes": notes})
    part.tracker.summary({} if watch is None else watch.close())
    model = {"kind": part.module, "features": list(frame.features), "classes": classes, "loss": loss}
    return networks, model | {"losses": losses, "converged": converged, **networks.kept()}


def _host_fit(part: ComponentPart, frame: PartyFrame) -> tuple[HostNetworks, dict[str, Any]]:
    guest = part.all_of(GUEST)[0]
    matrix = complete_matrix(part, frame)
    reader = DescriptionReader(part, "bottom_nn_define")
    layers, steps = reader.layers(len(frame.features)), reader.optimizer()
    schedule = NetworkSchedule.read(part.channel.receive("schedule", guest), guest)
    networks = HostNetworks.started(part, schedule, layers, steps)
    plan = EpochPlan.of(part, "", frame.features, intercept=False)
    watch = None if plan is None else plan.watch("", "", partial(_truth, "", "", []))
    for epoch in range(schedule.epochs):
        networks.epoch(matrix)
        if watch is not None:
            watch.look(epoch, networks.state, networks.outputs)
        part.tracker.progress(epoch + 1, schedule.epochs)
        ended = part.channel.receive("end", guest)
        if not isinstance(ended, bool):
            raise PartyMessageError(f"{guest} has sent no end of an epoch", party=guest.id)
        if ended:
            break
    if watch is not None:
        networks.state = watch.chosen(networks.state)
    for note in networks.notes:
        part.tracker.log(note)
    part.tracker.summary({"notes": networks.notes})
    return networks, {"kind": part.module, "features": list(frame.features), **networks.kept()}


def _truth(loss: str, last: str, classes: list[Any], rows: ValidationRows, outputs: Array) -> tuple[Array, Array]:
    """Return truth and values of the rows that validate, as `Validation.measure` takes them."""
    if not classes:
        return rows.labels.astype(float), outputs[:, 0]
    found = probabilities_of(outputs, loss, last)
    if len(classes) == 2:
        return rows.truth(classes[1]), found[:, 1]
    return rows.labels, np.asarray(classes)[found.argmax(axis=1)]


def _predicted(
    part: ComponentPart, frame: PartyFrame, model: dict[str, Any], outputs: Array | None, kind: str
) -> PartyFrame | None:
    """Return the predictions for the rows of a frame at the guest; None at hosts."""
    if outputs is None:
        return None
    return output_frame(part, frame, outputs, model["loss"], model["top"][-1]["kind"], model["classes"], kind)
