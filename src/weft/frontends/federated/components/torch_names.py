"""What a description of a network may name if PyTorch runs it, beside what NumPy runs (`networks`).

A layer of PyTorch is JSON here: its kind, and under `torch` its arguments by name. The program of the provider makes
the class of that name with these arguments. Source: `torch.nn` and `torch.optim` of PyTorch 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft.frontends.federated.components.networks import ACTIVATIONS, DROPOUT, LINEAR

FLATTEN: Final = "Flatten"
_CONV: Final = (
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "padding",
    "dilation",
    "groups",
    "bias",
    "padding_mode",
)
_MAX_POOL: Final = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
_AVG_POOL: Final = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_BATCH_NORM: Final = ("num_features", "eps", "momentum", "affine")
_KEEPS_WIDTH: Final[Mapping[str, Sequence[str]]] = {
    "BatchNorm1d": _BATCH_NORM,
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "GroupNorm": ("num_groups", "num_channels", "eps", "affine"),
    "AlphaDropout": ("p",),
    "CELU": ("alpha",),
    "GELU": ("approximate",),
    "Hardshrink": ("lambd",),
    "Hardsigmoid": (),
    "Hardswish": (),
    "Hardtanh": ("min_val", "max_val"),
    "LogSigmoid": (),
    "Mish": (),
    "PReLU": ("num_parameters", "init"),
    "ReLU6": (),
    "RReLU": ("lower", "upper"),
    "SELU": (),
    "SiLU": (),
    "Softmin": ("dim",),
    "Softshrink": ("lambd",),
    "Softsign": (),
    "Tanhshrink": (),
    "Threshold": ("threshold", "value"),
}
TORCH_LAYERS: Final[Mapping[str, Sequence[str]]] = {
    **_KEEPS_WIDTH,
    FLATTEN: ("start_dim", "end_dim"),
    "Unflatten": ("dim", "unflattened_size"),
    "Conv1d": _CONV,
    "Conv2d": _CONV,
    "MaxPool1d": _MAX_POOL,
    "MaxPool2d": _MAX_POOL,
    "AvgPool1d": _AVG_POOL,
    "AvgPool2d": _AVG_POOL,
    "AdaptiveAvgPool1d": ("output_size",),
    "AdaptiveAvgPool2d": ("output_size",),
    "AdaptiveMaxPool1d": ("output_size",),
    "AdaptiveMaxPool2d": ("output_size",),
    "BatchNorm2d": _BATCH_NORM,
    "Dropout1d": ("p",),
    "Dropout2d": ("p",),
    "GLU": ("dim",),
}
"""The layers, with the names of their arguments in order."""
TORCH_STEPS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Adadelta": {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0},
    "Adamax": {"lr": 2e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
    "ASGD": {"lr": 0.01, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6, "weight_decay": 0.0},
    "NAdam": {"lr": 2e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "momentum_decay": 4e-3},
    "RAdam": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
    "Rprop": {"lr": 0.01},
}
"""The optimizers, with their numbers and defaults."""


def keeps_width(kind: str) -> bool:
    """Whether the rows behind a layer have as many values as before it."""
    return kind in ACTIVATIONS or kind == DROPOUT or kind in _KEEPS_WIDTH


def needs_torch(layers: Sequence[Mapping[str, Any]], steps: Mapping[str, Any]) -> str:
    """Return what of a network NumPy does not run, in words; "": nothing."""
    for one in layers:
        if one["kind"] != LINEAR and "torch" in one:
            return f"a layer {one['kind']!r}"
    if steps.get("kind") in TORCH_STEPS:
        return f"the optimizer {steps['kind']}"
    return "optimizer.amsgrad" if steps.get("amsgrad") else ""
