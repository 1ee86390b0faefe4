"""HomoNN: a neural network over the rows of guest and hosts, which have the same columns, with an arbiter.

Each data party takes steps over its own batches; after `aggregate_every_n_epoch` epochs the parameters become the mean
of theirs by row counts (federated averaging, McMahan and others 2017). A party that has PyTorch (`torch_training`)
takes its steps with it, others on NumPy (`networks`), and all may mix; a network with layers or an optimizer that NumPy
does not run needs PyTorch at all parties. What descriptions may have: see `network_files`. Predictions are local.

Who learns what: see `horizontal`. All data parties have the whole network. With one guest and one host, each can
compute the parameters of the other in each round, from which rows of the training may be guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.homo_training import (
    LocalPlan,
    LocalTraining,
    apart,
    flat,
    local_training,
    network_outputs,
)
from weft.frontends.federated.components.horizontal import HorizontalSums, arbitrate
from weft.frontends.federated.components.inputs import (
    columns_of,
    group,
    labels_of,
    only_frame,
    refuse,
    refuse_weights,
    threshold_of,
)
from weft.frontends.federated.components.network_files import DescriptionReader, check_dataset
from weft.frontends.federated.components.network_outputs import check_end, output_frame, target_of
from weft.frontends.federated.components.networks import BINARY, LOSSES, MULTI, REGRESSION
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, joined
from weft.frontends.federated.components.programs import provided_version
from weft.frontends.federated.components.torch_names import needs_torch
from weft.frontends.federated.components.warm_start import Beginning, beginning_of, check_features, classes_before
from weft.frontends.federated.providers import TORCH
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

_SHAPE: Final = ("kind", "in", "out", "bias", "torch")
_TRAINER: Final = "fedavg_trainer"
_TRAINER_OFF: Final = ("cuda", "checkpoint_save_freqs", "save_to_local_dir", "collate_fn", "collate_fn_params")
_TRAINER_ANY: Final = ("pin_memory", "data_loader_worker", "secure_aggregate", "validation_freqs")
Array = np.ndarray[Any, Any]


class _Averaging(Struct, frozen=True, kw_only=True):
    """The parameters of federated averaging, by their names in files. `early_stop` is "", diff or abs."""

    epochs: int
    batch_size: int
    aggregate_every_n_epoch: int
    early_stop: str
    tol: float
    weighted_aggregation: bool
    shuffle: bool
    task_type: str
    seed: int


def run(part: ComponentPart) -> PartOutput:
    """Train, or predict with a model. UsageError: a parameter, a layer or a label is not possible."""
    refuse(part, {"cv_param": "need_cv", "callback_param": "early_stopping_rounds"}, ("ds_config",))
    begin = beginning_of(part, lambda model: [model.get("epochs", len(model["losses"]))])
    if not begin.trains:
        if part.here.role == ARBITER:
            return PartOutput()
        frame = only_frame(part, "test_data", "eval_data", "validate_data", "data")
        return PartOutput(data=(_predicted(part, frame, begin.model, TEST),))
    averaging, reader = _averaging_of(part), DescriptionReader(part, by_torch=True)
    if part.here.role == ARBITER:
        arbitrate(part)
        return PartOutput()
    frame = only_frame(part, "train_data", "data")
    refuse_weights(part, frame)
    model = _fit(part, frame, averaging, reader, begin)
    found = [_predicted(part, frame, model, TRAIN)]
    if part.data.get("validate_data"):
        found.append(_predicted(part, part.data["validate_data"][0], model, VALIDATE))
    return PartOutput(data=(joined(found),), model=model)


# ---------------------------------------------------------------------------------------------------------- parameters


def _averaging_of(part: ComponentPart) -> _Averaging:
    """Return the parameters: those of a trainer (FATE 1.10 and later), or of the component itself (before)."""
    given = part.parameters
    trainer = group(part, "trainer")
    if trainer:
        if str(trainer.get("trainer_name") or _TRAINER) != _TRAINER:
            raise UsageError(
                f"{part.component}: trainer.trainer_name is {trainer['trainer_name']!r}", hint=f"Use {_TRAINER}."
            )
        fields: dict[str, Any] = {"epochs": 10, "batch_size": 512} | dict(trainer.get("param") or {})
        stop: Any = {"early_stop": fields.pop("early_stop", None), "eps": fields.pop("tol", 1e-4)}
    else:
        fields = {"epochs": given.get("max_iter") or 100, "batch_size": given.get("batch_size") or -1}
        fields["aggregate_every_n_epoch"] = given.get("aggregate_every_n_epoch")
        stop = given.get("early_stop") or "diff"
        stop = dict(stop) if isinstance(stop, Mapping) else {"early_stop": stop}
    check_dataset(part)
    threshold_of(part)
    word = stop.get("early_stop") or stop.get("converge_func") or ""
    if word not in ("", "diff", "abs"):
        raise UsageError(f"{part.component}: early_stop is {word!r}", hint="Use diff, abs or null.")
    tol = stop.get("eps", 1e-4)
    if isinstance(tol, bool) or not isinstance(tol, (int, float)) or tol < 0:
        raise UsageError(f"{part.component}: the tolerance of early_stop is {tol!r}; it must be a number from 0 on")
    task = str(fields.pop("task_type", None) or "auto").lower()
    if task not in ("auto", BINARY, MULTI, REGRESSION):
        raise UsageError(f"{part.component}: task_type is {task!r}", hint="Use auto, binary, multi or regression.")
    found = _Averaging(
        epochs=_whole(part, "epochs", fields.pop("epochs"), least=1),
        batch_size=_whole(part, "batch_size", fields.pop("batch_size"), least=-1),
        aggregate_every_n_epoch=_whole(
            part, "aggregate_every_n_epoch", fields.pop("aggregate_every_n_epoch", None) or 1, least=1
        ),
        early_stop=word,
        tol=float(tol),
        weighted_aggregation=fields.pop("weighted_aggregation", True) is not False,
        shuffle=fields.pop("shuffle", True) is not False,
        task_type=task,
        seed=_whole(part, "torch_seed", given.get("torch_seed", 100), least=0),
    )
    for name, value in fields.items():
        if name not in _TRAINER_ANY and (value or name not in _TRAINER_OFF):
            raise UsageError(f"{part.component}: trainer.param.{name} is not supported", hint="Leave it out.")
    return found


def _whole(part: ComponentPart, name: str, value: Any, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{part.component}: {name} is {value!r}; it must be a whole number from {least} on")
    return value


def _notes_of(part: ComponentPart) -> list[str]:
    """Return what is done otherwise than the files say."""
    given, trainer = part.parameters, dict(group(part, "trainer").get("param") or {})
    found = []
    if trainer.get("validation_freqs"):
        found.append("validation_freqs has no effect: the network is validated once, when it is trained")
    if False in (trainer.get("secure_aggregate"), given.get("secure_aggregate")):
        found.append("secure_aggregate has no effect: updates travel under masks in any case")
    if given.get("metrics"):
        found.append("metrics has no effect: put an Evaluation behind the component")
    return found


# ------------------------------------------------------------------------------------------------------------ training


def _fit(
    part: ComponentPart, frame: PartyFrame, averaging: _Averaging, reader: DescriptionReader, begin: Beginning
) -> dict[str, Any]:
    y = labels_of(part, frame)
    loss, number = reader.loss()
    steps, task = reader.optimizer(), LOSSES[loss].task
    if averaging.task_type not in ("auto", task):
        raise UsageError(f"{part.component}: task_type is {averaging.task_type}, and the loss {loss} is for {task}")
    layers = reader.layers(len(frame.features))
    check_end(part, layers, loss, "nn_define")
    by_torch = _has_torch(part, needs_torch(layers, steps))
    sums = HorizontalSums(part)
    sums.compare(asdict(averaging) | {"loss": [loss, number], "optimizer": steps, "nn_define": layers})
    features, matrix = sums.matrix(frame)
    classes = [] if task == REGRESSION else sums.classes(frame)
    if begin.goes_on:
        _check_before(part, frame, begin.model, layers)
        classes = classes_before(part, frame, begin.model) if classes else []
    target = target_of(part, y, classes, task, layers)
    share = sums.share(len(matrix))[1]
    if not averaging.weighted_aggregation:
        share = 1.0 / (len(part.all_of(GUEST)) + len(part.all_of(HOST)))
    role = [GUEST, HOST].index(part.here.role), part.all_of(part.here.role).index(part.here)
    seeds = (averaging.seed, part.seed, *role)
    plan = LocalPlan(layers, (loss, number), steps, averaging.batch_size, averaging.shuffle, seeds)
    with local_training(part, plan, matrix, target, by_torch=by_torch) as work:
        power = 2 * sums.powers(target)[0] if task == REGRESSION else 0
        parameters, losses, converged, epochs = _average(sums, work, averaging, share, power, begin)
    sums.close()
    notes = _notes_of(part)
    for note in notes:
        part.tracker.log(note)
    points = [(float(at), one) for at, one in enumerate(losses)]
    part.tracker.curve("train", "loss", points, kind="LOSS")
    part.tracker.summary(
        {
            "loss": losses,
            "is_converged": converged,
            "encryption": "pairwise masks",
            "backend": f"torch {provided_version(TORCH)}" if by_torch else "numpy",
            "notes": notes,
        }
    )
    return {
        "kind": part.module,
        "features": features,
        "classes": classes,
        "loss": loss,
        "layers": layers,
        "parameters": [one.tolist() for one in parameters],
        "losses": losses,
        "converged": converged,
        "epochs": epochs,
    }


def _check_before(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], layers: list[dict[str, Any]]) -> None:
    """UsageError: a training cannot go on with a network, since the file has another one, or the rows other columns."""
    check_features(part, frame.features, model)
    kinds, before = ([[one.get(name) for name in _SHAPE] for one in each] for each in (layers, model["layers"]))
    if kinds != before:
        raise UsageError(
            f"{part.component}: nn_define has other layers than the model", hint="A training goes on with its network."
        )


def _has_torch(part: ComponentPart, needed: str) -> bool:
    """Return whether this party has PyTorch. UsageError: it has none, and something is needed that NumPy lacks."""
    found = bool(provided_version(TORCH))
    if needed and not found:
        raise UsageError(
            f"{part.component}: the network has {needed}, which needs PyTorch, and {part.here} has none",
            hint=f"Make its environment (make providers), and set {TORCH.variable} for the server of this party.",
        )
    return found


def _average(
    sums: HorizontalSums, work: LocalTraining, averaging: _Averaging, share: float, power: int, begin: Beginning
) -> tuple[list[Array], list[float], bool, int]:
    """Train, and return the parameters, the loss of each round, whether it converged, and the number of epochs.

    A loss is below `2^power` times a moderate number. Epochs of an earlier training count in `max_iter`, and not in the
    `epochs` of a trainer, as in FATE.
    """
    losses: list[float] = list(begin.model["losses"]) if begin.goes_on else []
    vector = _start(sums, work, averaging, begin)
    epoch = begin.done()
    end = averaging.epochs + (epoch if group(sums.part, "trainer") else 0)
    still = False
    while epoch < end and not still:
        last = min(epoch + averaging.aggregate_every_n_epoch, end)
        vector, loss = work.train(vector, last - epoch)
        epoch = last
        total = sums.total(share * np.append(vector, np.ldexp(loss, -power)))
        vector = total[:-1]
        losses.append(float(np.ldexp(total[-1], power)))
        sums.part.tracker.progress(epoch, end)
        still = averaging.early_stop == "abs" and abs(losses[-1]) < averaging.tol
        if averaging.early_stop == "diff" and len(losses) > 1:
            still = abs(losses[-1] - losses[-2]) < averaging.tol
        still = sums.same("converged", still, bool)
    return apart(vector, work.shapes), losses, still, epoch


def _start(sums: HorizontalSums, work: LocalTraining, averaging: _Averaging, begin: Beginning) -> Array:
    """Return the parameters of the guest before training. PartyMessageError: it has sent others."""
    own = work.start(np.random.default_rng([averaging.seed, sums.part.seed]))
    if begin.goes_on:
        own = flat([np.array(one, dtype=float) for one in begin.model["parameters"]])
    found = sums.same("start", own, Any)
    if not isinstance(found, np.ndarray) or found.shape != own.shape or found.dtype != own.dtype:
        raise PartyMessageError("the guest has sent parameters of another network")
    return found


# ---------------------------------------------------------------------------------------------------------- prediction


def _predicted(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame:
    """Return the predictions for the rows of a frame."""
    matrix = columns_of(part, frame, model)
    parameters = [np.array(one, dtype=float) for one in model["parameters"]]
    needed = needs_torch(model["layers"], {})
    by_torch = bool(needed) and _has_torch(part, needed)
    outputs = network_outputs(part, model["layers"], parameters, matrix, by_torch=by_torch)
    return output_frame(part, frame, outputs, model["loss"], model["layers"][-1]["kind"], model["classes"], kind)
