"""HomoNN: a neural network over the rows of guest and hosts, which have the same columns, with an arbiter.

Each data party takes steps over its own batches; after `aggregate_every_n_epoch` epochs the parameters become the mean
of theirs by row counts (federated averaging, McMahan and others 2017). Networks run on NumPy (`networks`), so PyTorch
and Keras are not needed; what their descriptions may have: see `network_files`. Predictions are local.

Who learns what: see `horizontal`. All data parties have the whole network. With one guest and one host, each can
compute the parameters of the other in each round, from which rows of the training may be guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from weft.frontends.federated.components.base import ARBITER, GUEST, HOST, ComponentPart, PartOutput
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
from weft.frontends.federated.components.networks import (
    BINARY,
    LOSSES,
    MULTI,
    REGRESSION,
    DenseNetwork,
    Stepper,
)
from weft.frontends.federated.components.predictions import TEST, TRAIN, VALIDATE, joined
from weft.frontends.federated.components.warm_start import Beginning, beginning_of, check_features, classes_before
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame

_SHAPE: Final = ("kind", "in", "out", "bias")
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
    averaging, reader = _averaging_of(part), DescriptionReader(part)
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
    network = DenseNetwork(layers)
    work = _Local(network, averaging, steps, (loss, number), matrix, target, part)
    parameters, losses, converged, epochs = _average(sums, work, averaging, share, begin)
    sums.close()
    notes = _notes_of(part)
    for note in notes:
        part.tracker.log(note)
    points = [(float(at), one) for at, one in enumerate(losses)]
    part.tracker.curve("train", "loss", points, kind="LOSS")
    part.tracker.summary(
        {"loss": losses, "is_converged": converged, "encryption": "pairwise masks", "backend": "numpy", "notes": notes}
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


def _average(
    sums: HorizontalSums, work: _Local, averaging: _Averaging, share: float, begin: Beginning
) -> tuple[list[Array], list[float], bool, int]:
    """Train, and return the parameters, the loss of each round, whether it converged, and the number of epochs.

    Those of an earlier training count in `max_iter`, and not in the `epochs` of a trainer, as in FATE.
    """
    losses: list[float] = list(begin.model["losses"]) if begin.goes_on else []
    parameters = work.unpacked(_start(sums, work, averaging, begin))
    power = 2 * sums.powers(work.target)[0] if work.task == REGRESSION else 0
    epoch = begin.done()
    end = averaging.epochs + (epoch if group(sums.part, "trainer") else 0)
    while epoch < end:
        last = min(epoch + averaging.aggregate_every_n_epoch, end)
        for _ in range(epoch, last):
            parameters, loss = work.epoch(parameters)
        epoch = last
        total = sums.total(share * np.append(work.packed(parameters), np.ldexp(loss, -power)))
        parameters = work.unpacked(total[:-1])
        losses.append(float(np.ldexp(total[-1], power)))
        sums.part.tracker.progress(epoch, end)
        still = averaging.early_stop == "abs" and abs(losses[-1]) < averaging.tol
        if averaging.early_stop == "diff" and len(losses) > 1:
            still = abs(losses[-1] - losses[-2]) < averaging.tol
        if sums.same("converged", still, bool):
            return parameters, losses, True, epoch
    return parameters, losses, False, epoch


def _start(sums: HorizontalSums, work: _Local, averaging: _Averaging, begin: Beginning) -> Array:
    """Return the parameters of the guest before training. PartyMessageError: it has sent others."""
    random = np.random.default_rng([averaging.seed, sums.part.seed])
    own = work.packed(work.network.start(random))
    if begin.goes_on:
        own = work.packed([np.array(one, dtype=float) for one in begin.model["parameters"]])
    found = sums.same("start", own, Any)
    if not isinstance(found, np.ndarray) or found.shape != own.shape or found.dtype != own.dtype:
        raise PartyMessageError("the guest has sent parameters of another network")
    return found


class _Local:
    """The training at one party over its own rows."""

    def __init__(
        self,
        network: DenseNetwork,
        averaging: _Averaging,
        steps: Mapping[str, Any],
        loss: tuple[str, float],
        matrix: Array,
        target: Array,
        part: ComponentPart,
    ) -> None:
        self.network, self.target, self.task = network, target, LOSSES[loss[0]].task
        self._averaging, self._loss, self._matrix = averaging, loss, matrix
        self._stepper = Stepper(steps, network.shapes)
        role = [GUEST, HOST].index(part.here.role), part.all_of(part.here.role).index(part.here)
        self._random = np.random.default_rng([averaging.seed, part.seed, *role])

    def packed(self, parameters: list[Array]) -> Array:
        """Return parameters as one array."""
        return np.concatenate([one.ravel() for one in parameters])

    def unpacked(self, values: Array) -> list[Array]:
        """Return the parameters of `packed`."""
        shapes = self.network.shapes
        ends = np.cumsum([int(np.prod(one)) for one in shapes])[:-1]
        return [one.reshape(shape) for one, shape in zip(np.split(values, ends), shapes, strict=True)]

    def epoch(self, parameters: list[Array]) -> tuple[list[Array], float]:
        """Take a step for each batch, and return the parameters and the mean loss before the steps."""
        name, number = self._loss
        total = 0.0
        for rows in self._batches():
            target = self.target[rows]

            def loss(outputs: Array, target: Array = target) -> tuple[float, Array]:
                return LOSSES[name].both(outputs, target, number)

            found, gradients = self.network.gradients(parameters, self._matrix[rows], loss, self._random)
            parameters = self._stepper.step(parameters, gradients)
            total += found * len(target)
        return parameters, total / max(1, len(self.target))

    def _batches(self) -> Iterator[Any]:
        rows, size = len(self.target), self._averaging.batch_size
        if rows and (size <= 0 or size >= rows):
            yield slice(None)
            return
        order = self._random.permutation(rows) if self._averaging.shuffle else np.arange(rows)
        for begin in range(0, rows, max(1, size)):
            yield order[begin : begin + size]


# ---------------------------------------------------------------------------------------------------------- prediction


def _predicted(part: ComponentPart, frame: PartyFrame, model: dict[str, Any], kind: str) -> PartyFrame:
    """Return the predictions for the rows of a frame."""
    matrix = columns_of(part, frame, model)
    network = DenseNetwork(model["layers"])
    outputs = network.outputs([np.array(one, dtype=float) for one in model["parameters"]], matrix)
    return output_frame(part, frame, outputs, model["loss"], model["layers"][-1]["kind"], model["classes"], kind)
