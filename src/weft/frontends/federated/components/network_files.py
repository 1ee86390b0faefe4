"""Descriptions of networks in the files of FATE: layers, loss and optimizer, from lists of what is allowed.

Three forms are read: `nn_define` of FATE 1.10 and later (an object of PyTorch layers by place, "0-0"), of config_type
`pytorch` (a list of layers), and of config_type `keras` or `nn` (a Keras Sequential, or a list of Keras layers). A
description never names code: what is not in the lists, here and in `torch_names`, is refused. The first layer of a
Keras description takes as many inputs as there are, whatever it says, as in FATE.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.federated.components.inputs import group
from weft.frontends.federated.components.networks import (
    ACTIVATIONS,
    DROPOUT,
    LINEAR,
    LOSSES,
    SIGMOID,
    SOFTMAX,
)
from weft.frontends.federated.components.torch_names import FLATTEN, TORCH_LAYERS, TORCH_STEPS, keeps_width
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart

_OFF: Final[Sequence[Any]] = (None, False, {}, [], "", 0)
_SAME: Final = frozenset(
    {"layer", "name", "type", "inplace", "dtype", "trainable", "loss_fn", "optimizer", "config_type"}
)
_KERAS_WORDS: Final = {
    "linear": "Identity",
    "relu": "ReLU",
    "elu": "ELU",
    "softplus": "Softplus",
    "tanh": "Tanh",
    "sigmoid": SIGMOID,
    "softmax": SOFTMAX,
}
_STARTS: Final[Mapping[str, Sequence[Any]]] = {
    "glorotuniform": ("uniform", 0, "glorot"),
    "glorotnormal": ("normal", 0, "glorot"),
    "heuniform": ("uniform", 0, "he"),
    "henormal": ("normal", 0, "he"),
    "lecununiform": ("uniform", 0, "lecun"),
    "zeros": ("constant", 0.0, 0.0),
    "ones": ("constant", 1.0, 0.0),
}
_TORCH_START: Final = ("uniform", 0, "torch")
_TORCH_STARTS: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {
    "uniform": ("uniform", {"a": 0.0, "b": 1.0}),
    "normal": ("normal", {"mean": 0.0, "std": 1.0}),
    "constant": ("constant", {"val": 0.0}),
    "zeros": ("constant", {}),
    "ones": ("constant", {}),
}
"""Initializers of PyTorch by the names of FATE: their kind, and their numbers with defaults."""
_LOSS_WORDS: Final = {
    "binary_crossentropy": "BCELoss",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "sparse_categorical_crossentropy": "CategoricalCrossentropy",
    "mean_squared_error": "MSELoss",
    "mse": "MSELoss",
    "mean_absolute_error": "L1Loss",
    "mae": "L1Loss",
}
_STEPS: Final[Mapping[str, Mapping[str, Any]]] = {
    "SGD": {"lr": 0.01, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0},
    "Adam": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
    "AdamW": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
    "RMSprop": {"lr": 0.01, "alpha": 0.99, "eps": 1e-8, "momentum": 0.0, "weight_decay": 0.0},
    "Adagrad": {"lr": 0.01, "lr_decay": 0.0, "eps": 1e-10, "initial_accumulator_value": 0.0, "weight_decay": 0.0},
}
"""The optimizers, with their numbers and defaults in PyTorch."""
_DATASET_ANY: Final = ("flatten_label", "label_dtype", "feature_dtype", "label_shape")
_STEP_WORDS: Final = {"learning_rate": "lr", "epsilon": "eps", "rho": "alpha"}


class DescriptionReader:
    """Reads the network of one component at one party, from the parameter `define`.

    `by_torch` lets it have what PyTorch alone runs, see `torch_names`.
    """

    def __init__(self, part: ComponentPart, define: str = "nn_define", *, by_torch: bool = False) -> None:
        self._part, self._define, self._by_torch = part, define, by_torch

    def layers(self, features: int, *, any_width: bool = False) -> list[dict[str, Any]]:
        """Return the layers for rows of so many features, as `networks` wants them. UsageError: one is not allowed.

        `any_width` says that the first one takes them whatever it says.
        """
        given = self._part.parameters.get(self._define)
        if not given:
            raise self._wrong(f"{self._define} is missing", "Describe the network: a list of layers.")
        found: list[dict[str, Any]] = []
        for one in self._flat(given):
            name = one.get("class_name") or one.get("layer")
            if str(name).lower() in ("dense", "activation", "inputlayer") or "class_name" in one:
                layers = self._keras(str(name), one.get("config", one))
                if layers and layers[0]["kind"] == LINEAR and not any(layer["kind"] == LINEAR for layer in found):
                    layers[0]["in"] = None
                found += layers
            else:
                found += self._torch(str(name), one)
        if not any(one["kind"] in TORCH_LAYERS and one["kind"] != FLATTEN for one in found):
            found = [one for one in found if one["kind"] != FLATTEN]  # rows are flat
        found = _image(found, features)
        width: int | None = features
        for layer in found:
            if not keeps_width(layer["kind"]) and layer["kind"] != LINEAR:
                width = None
            if layer["kind"] == LINEAR:
                if width is None and layer["in"] is None:
                    raise self._wrong(f"{self._define} has a Linear layer without in_features", "Give their number.")
                if width is not None and layer["in"] not in (None, width) and not any_width:
                    raise self._wrong(
                        f"{self._define} has a layer for {layer['in']} inputs, and there are {width}",
                        "Give the first layer the number of features.",
                    )
                layer["in"], width, any_width = width or layer["in"], layer["out"], False
        if not any(one["kind"] == LINEAR for one in found):
            raise self._wrong(f"{self._define} has no layer with weights", "Add a Linear layer.")
        return found

    def loss(self) -> tuple[str, float]:
        """Return the name of the loss, and its number. UsageError: it is not allowed."""
        given = self._part.parameters.get("loss")
        named = dict(given) if isinstance(given, Mapping) else {"loss_fn": given}
        word = str(named.get("loss_fn") or "")
        name = _LOSS_WORDS.get(word.lower()) or _matched(word, LOSSES)
        if name is None:
            raise self._wrong(f"loss is {word!r}", f"Use one of {', '.join(LOSSES)}.")
        known = LOSSES[name]
        fields = {name: value for name, value in named.items() if name not in _SAME}
        if fields.pop("reduction", "mean") != "mean" or fields.pop("size_average", None) is False:
            raise self._wrong("loss.reduction must be mean", "Leave it out.")
        fields.pop("reduce", None)
        fields.pop("ignore_index", None)
        number = self._number(f"loss.{known.name}", fields.pop(known.name, known.default) if known.name else 0.0)
        self._nothing_else("loss", fields)
        if known.name and number <= 0:
            raise self._wrong(f"loss.{known.name} must be positive", "Leave it out.")
        return name, number

    def optimizer(self) -> dict[str, Any]:
        """Return the kind of the optimizer and its numbers. UsageError: one is not allowed."""
        given = self._part.parameters.get("optimizer") or "SGD"
        fields = dict(given) if isinstance(given, Mapping) else {"optimizer": given}
        word = str(fields.get("optimizer") or "SGD")
        known = {**_STEPS, **TORCH_STEPS} if self._by_torch else _STEPS
        kind = _matched(word, known)
        if kind is None:
            raise self._wrong(f"optimizer is {word!r}", f"Use one of {', '.join(known)}.")
        found: dict[str, Any] = {"kind": kind} | dict(known[kind])
        if self._by_torch and kind in ("Adam", "AdamW"):
            found["amsgrad"] = False
        betas = list(found.get("betas", ()))
        rest = {}
        for name, value in fields.items():
            field = name if name in found else _STEP_WORDS.get(name, name)
            if name in ("beta_1", "beta_2") and betas:
                betas[int(name[-1]) - 1] = self._number(f"optimizer.{name}", value)
            elif name == "betas" and betas and isinstance(value, (list, tuple)) and len(value) == 2:
                betas = [self._number("optimizer.betas", one) for one in value]
            elif field in ("nesterov", "amsgrad") and field in found and isinstance(value, bool):
                found[field] = value
            elif field in found and field != "betas" and value is not None:
                found[field] = self._number(f"optimizer.{name}", value)
            elif name not in _SAME:
                rest[name] = value
        self._nothing_else("optimizer", rest)
        if betas:
            found["betas"] = betas
        if not all(0 <= one < 1 for one in betas) or found["lr"] < 0:
            raise self._wrong("optimizer has a rate below 0, or betas outside 0 to 1", "Correct them.")
        return found

    # ------------------------------------------------------------------------------------------------------ layers

    def _flat(self, given: Any) -> list[Mapping[str, Any]]:
        """Return the layers of a description in order, those of a Sequential in its place."""
        if isinstance(given, Mapping) and str(given.get("class_name") or given.get("layer")).lower() == "sequential":
            inner = given.get("config", {key: one for key, one in given.items() if isinstance(one, Mapping)})
            return self._flat(inner.get("layers", inner) if isinstance(inner, Mapping) else inner)
        if isinstance(given, Mapping) and not ("layer" in given or "class_name" in given):
            keys = list(given)
            if not all(str(key).split("-")[0].isdigit() for key in keys):
                raise self._wrong(f"{self._define} has {keys[0]!r}, which is no layer", "Write a list of layers.")
            return self._flat([given[key] for key in sorted(keys, key=lambda key: int(str(key).split("-")[0]))])
        if isinstance(given, Mapping):
            return [given]
        if not isinstance(given, list) or len(given) > 1000:
            raise self._wrong(f"{self._define} is no list of layers", "Write a list of layers.")
        return [layer for one in given for layer in self._flat(one)]

    def _torch(self, word: str, layer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a layer of PyTorch. `config` has the first arguments in their order, if it is there."""
        known = [LINEAR, DROPOUT, *ACTIVATIONS]
        kind = _matched(word, [*known, *(TORCH_LAYERS if self._by_torch else [FLATTEN])])
        if kind is None:
            known += [one for one in TORCH_LAYERS if self._by_torch]
            raise self._wrong(f"{self._define} has a layer {word!r}", f"Use one of {', '.join(known)}.")
        config = layer.get("config")
        names = list({LINEAR: ["in_features", "out_features", "bias"], DROPOUT: ["p"], **TORCH_LAYERS}.get(kind, ()))
        names = names or ([ACTIVATIONS[kind].name] if kind in ACTIVATIONS and ACTIVATIONS[kind].name else ["dim"])
        fields = {name: value for name, value in layer.items() if name != "config"}
        if isinstance(config, Mapping):
            fields |= config
        elif isinstance(config, list):
            if len(config) > len(names):
                raise self._wrong(f"{self._define} has {len(config)} arguments for {word}", f"Use {', '.join(names)}.")
            fields |= dict(zip(names, config, strict=False))
        fields = {name: value for name, value in fields.items() if name not in _SAME}
        return self._built(kind, fields)

    def _built(self, kind: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
        if kind == LINEAR:
            inputs = fields.pop("in_features", None)
            starts = fields.pop("initializer", None) or {}
            if not isinstance(starts, Mapping) or not all(name in ("weight", "bias") for name in starts):
                raise self._wrong(f"{self._define} has an initializer {starts!r}", "Leave it out.")
            outputs, bias = self._whole("out_features", fields.pop("out_features", None)), fields.pop("bias", True)
            self._nothing_else(f"{self._define}.Linear", fields)
            inputs = None if inputs is None else self._whole("in_features", inputs)
            first, second = self._torch_start(starts.get("weight")), self._torch_start(starts.get("bias"))
            return [_linear(inputs, outputs, bool(bias), first, second)]
        if kind == DROPOUT:
            share = self._number(f"{self._define}.Dropout.p", fields.pop("p", 0.5))
            self._nothing_else(f"{self._define}.Dropout", fields)
            if not 0 <= share < 1:
                raise self._wrong(f"{self._define} has a Dropout of {share:g}", "Use a share from 0 to below 1.")
            return [{"kind": DROPOUT, "number": share}]
        if kind in TORCH_LAYERS:
            return [{"kind": kind, "torch": self._arguments(kind, fields)}]
        known = ACTIVATIONS[kind]
        number = self._number(f"{self._define}.{kind}.{known.name}", fields.pop(known.name, known.default))
        if fields.pop("dim", None) not in (None, 1, -1):
            raise self._wrong(f"{self._define} has a {kind} with another dim than 1", "Use 1: one row, one prediction.")
        if kind == "Softplus" and (fields.pop("threshold", 20) != 20 or number <= 0):
            raise self._wrong(
                f"{self._define} has a Softplus with another threshold than 20, or beta below 0", "Leave it out."
            )
        self._nothing_else(f"{self._define}.{kind}", fields)
        return [{"kind": kind, "number": number}]

    def _arguments(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a layer that PyTorch runs: numbers, words, or flat lists of numbers."""
        found = {}
        for name in TORCH_LAYERS[kind]:
            value = fields.pop(name, None)
            flat = value if isinstance(value, list) and len(value) <= 8 else [value]
            if not all(one is None or isinstance(one, (bool, int, float, str)) for one in flat):
                raise self._wrong(f"{self._define}.{kind}.{name} is {value!r}", "Use a number, or a list of numbers.")
            if value is not None and name != "return_indices":
                found[name] = value
        self._nothing_else(f"{self._define}.{kind}", fields)
        return found

    def _torch_start(self, given: Any) -> Sequence[Any]:
        """Return how numbers are drawn, by `init_func` and `param` of an initializer of PyTorch."""
        if not given:
            return _TORCH_START
        word = str(given.get("init_func") if isinstance(given, Mapping) else given)
        fields = dict(given.get("param") or {}) if isinstance(given, Mapping) else {}
        if word in ("xavier_uniform", "xavier_normal") and fields.pop("gain", 1.0) == 1.0:
            self._nothing_else(f"{self._define}.initializer", fields)
            return (word.removeprefix("xavier_"), 0, "glorot")
        if word not in _TORCH_STARTS:
            raise self._wrong(
                f"{self._define} has the initializer {word!r}",
                f"Use one of {', '.join(_TORCH_STARTS)}, xavier_uniform or xavier_normal with a gain of 1.",
            )
        kind, known = _TORCH_STARTS[word]
        numbers = [self._number(f"initializer.{name}", fields.pop(name, value)) for name, value in known.items()]
        self._nothing_else(f"{self._define}.initializer", fields)
        numbers = numbers or [1.0 if word == "ones" else 0.0]
        return (kind, *numbers, *[0.0] * (2 - len(numbers)))

    def _keras(self, word: str, config: Any) -> list[dict[str, Any]]:
        fields = {name: one for name, one in config.items() if name not in _SAME} if isinstance(config, Mapping) else {}
        shape = fields.pop("batch_input_shape", fields.pop("batch_shape", fields.pop("input_shape", None)))
        fields.pop("input_dim", None)
        kind = word.lower()
        if kind == "inputlayer" or kind == "flatten":
            return []
        if kind == "dropout":
            return self._built(DROPOUT, {"p": fields.get("rate", 0.5)})
        after = self._activation(fields.pop("activation", None))
        if kind in ("activation", *_KERAS_WORDS):
            return after if kind == "activation" else self._activation(kind)
        if kind != "dense":
            raise self._wrong(f"{self._define} has a layer {word!r}", "Use Dense, Activation, Dropout or Flatten.")
        inputs = shape[-1] if isinstance(shape, list) and shape and isinstance(shape[-1], int) else None
        outputs = self._whole("units", fields.pop("units", None))
        start = self._start(fields.pop("kernel_initializer", "glorotuniform"))
        bias = self._start(fields.pop("bias_initializer", "zeros"))
        layer = _linear(inputs, outputs, fields.pop("use_bias", True) is not False, start, bias)
        self._nothing_else(f"{self._define}.Dense", fields)
        return [layer, *after]

    def _activation(self, word: Any) -> list[dict[str, Any]]:
        if word is None:
            return []
        kind = _KERAS_WORDS.get(str(word).lower())
        if kind is None:
            raise self._wrong(f"{self._define} has the activation {word!r}", f"Use one of {', '.join(_KERAS_WORDS)}.")
        return [] if kind == "Identity" else [{"kind": kind, "number": ACTIVATIONS[kind].default}]

    def _start(self, given: Any) -> Sequence[Any]:
        word = given.get("class_name") if isinstance(given, Mapping) else given
        config = given.get("config") if isinstance(given, Mapping) else None
        config = config if isinstance(config, Mapping) else {}
        kind = str(word).lower().replace("_", "")
        if kind in _STARTS:
            return _STARTS[kind]
        if kind == "constant":
            return ("constant", self._number("initializer.value", config.get("value", 0.0)), 0.0)
        names = {"randomuniform": ("uniform", "minval", "maxval"), "randomnormal": ("normal", "mean", "stddev")}.get(
            kind
        )
        if names is None:
            raise self._wrong(f"{self._define} has the initializer {word!r}", f"Use one of {', '.join(_STARTS)}.")
        first = self._number(names[1], config.get(names[1], -0.05 if kind == "randomuniform" else 0.0))
        return (names[0], first, self._number(names[2], config.get(names[2], 0.05)))

    # ------------------------------------------------------------------------------------------------------ values

    def _whole(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 20:
            raise self._wrong(f"{self._define} has {name} {value!r}", "Use a whole number from 1 on.")
        return value

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(f"{name} is {value!r}", "Use a number.")
        return float(value)

    def _nothing_else(self, where: str, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            if value not in _OFF:
                raise self._wrong(f"{where}.{name} is not supported", "Leave it out.")

    def _wrong(self, text: str, hint: str) -> UsageError:
        return UsageError(f"{self._part.component}: {text}", hint=hint)


def _image(layers: list[dict[str, Any]], features: int) -> list[dict[str, Any]]:
    """Return layers that read the values of a row as a square image, channel by channel, if the first one takes images.

    FATE has a data set for images; a table has their values in columns.
    """
    first = layers[0] if layers else {}
    channels = first.get("torch", {}).get("in_channels")
    if first.get("kind") != "Conv2d" or not isinstance(channels, int) or channels <= 0:
        return layers
    side = math.isqrt(features // channels)
    if channels * side * side != features:
        return layers
    return [{"kind": "Unflatten", "torch": {"dim": 1, "unflattened_size": [channels, side, side]}}, *layers]


def _linear(
    inputs: int | None, outputs: int, bias: bool, start: Sequence[Any], bias_start: Sequence[Any]
) -> dict[str, Any]:
    return {
        "kind": LINEAR,
        "in": inputs,
        "out": outputs,
        "bias": bias,
        "start": list(start),
        "bias_start": list(bias_start),
    }


def _matched(word: str, names: Any) -> str | None:
    for one in names:
        if one.lower() == word.lower():
            return str(one)
    return None


def check_dataset(part: ComponentPart) -> None:
    """UsageError: `dataset` of a component asks for another form of rows than a table."""
    dataset = group(part, "dataset")
    if str(dataset.get("dataset_name") or "table") != "table":
        raise UsageError(f"{part.component}: dataset.dataset_name is {dataset['dataset_name']!r}", hint="Use table.")
    for name, value in dict(dataset.get("param") or {}).items():
        if value and name not in _DATASET_ANY:
            raise UsageError(f"{part.component}: dataset.param.{name} is not supported", hint="Leave it out.")
