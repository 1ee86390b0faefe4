"""Trains a network with PyTorch over the rows of one party: `python -I torch_program.py FOLDER`.

The folder has `network.json` and `rows.npy` (rows, columns), and for a training `target.npy` (rows, outputs). The
program reads one command of JSON a line, and answers each with a line: what it asks for, or `{"error": ...}`.

`{"do": "start", "seed": 1}` draws parameters into `parameters.npy`, one vector, and answers their names and shapes.
`{"do": "train", "epochs": 1}` takes steps from `parameters.npy`, writes it anew, and answers the mean loss of the last
epoch. `{"do": "outputs"}` writes `outputs.npy` (rows, outputs), without dropout. The program ends with its input.

Numbers have 64 bits, as those of the parties. The vector has all parameters and the running means and variances of
normalizing layers, so that all parties go on with the same network.

Source: the API of PyTorch 2, `torch.nn` and `torch.optim`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

_LEAST = 1e-12
_COUNTER = "num_batches_tracked"
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)


def layer_of(one: dict[str, Any]) -> Any:
    """Return a layer. TypeError, ValueError, RuntimeError: its arguments do not fit."""
    kind = one["kind"]
    if kind == "Linear":
        return torch.nn.Linear(one["in"], one["out"], bias=one["bias"])
    if "torch" in one:
        return getattr(torch.nn, kind)(**one["torch"])  # the name is one of a list, see `torch_names`
    if kind == "Dropout":
        return torch.nn.Dropout(one["number"])
    names = {"LeakyReLU": "negative_slope", "ELU": "alpha", "Softplus": "beta"}
    if kind in names:
        return getattr(torch.nn, kind)(**{names[kind]: one["number"]})
    return getattr(torch.nn, kind)(dim=1) if kind in ("Softmax", "LogSoftmax") else getattr(torch.nn, kind)()


def categorical(outputs: Any, target: Any) -> Any:
    """Return the categorical cross-entropy of Keras, which divides outputs by their sum."""
    shares = outputs / outputs.sum(dim=1, keepdim=True)
    return -(target * shares.clamp(_LEAST, 1.0).log()).sum(dim=1).mean()


def loss_of(name: str, number: float, outputs: Any, target: Any) -> Any:
    """Return the mean loss of outputs, shape (rows, outputs)."""
    losses = {
        "BCELoss": lambda: functional.binary_cross_entropy(outputs, target),
        "BCEWithLogitsLoss": lambda: functional.binary_cross_entropy_with_logits(outputs, target),
        "CrossEntropyLoss": lambda: functional.cross_entropy(outputs, target),
        "NLLLoss": lambda: -(outputs * target).sum(dim=1).mean(),
        "CategoricalCrossentropy": lambda: categorical(outputs, target),
        "SoftMarginLoss": lambda: functional.soft_margin_loss(outputs, 2 * target - 1),
        "MSELoss": lambda: functional.mse_loss(outputs, target),
        "L1Loss": lambda: functional.l1_loss(outputs, target),
        "SmoothL1Loss": lambda: functional.smooth_l1_loss(outputs, target, beta=number),
        "HuberLoss": lambda: functional.huber_loss(outputs, target, delta=number),
    }
    return losses[name]()


class FolderTraining:
    """The network of a folder, and its optimizer, which goes on from one command to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given: dict[str, Any] = json.loads((folder / "network.json").read_text())
        self._rows = torch.from_numpy(np.load(folder / "rows.npy", allow_pickle=False))
        target = folder / "target.npy"
        self._target: Any = torch.from_numpy(np.load(target, allow_pickle=False)) if target.exists() else None
        self._random = np.random.default_rng(self._given["seeds"])
        torch.manual_seed(int(np.random.default_rng(self._given["seeds"]).integers(1 << 62)))
        self._network = torch.nn.Sequential(*map(layer_of, self._given["layers"])).double()
        self._normalizes = any(isinstance(one, _NORMS) for one in self._network)
        steps = dict(self._given["optimizer"])
        kind = steps.pop("kind", "")
        self._optimizer: Any = getattr(torch.optim, kind)(self._network.parameters(), **steps) if kind else None
        self._check()

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what a command says, and return the answer."""
        if command["do"] == "start":
            torch.manual_seed(command["seed"])
            for layer in self._network:
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
            self._write()
            return {"shapes": [[name, list(value.shape)] for name, value in self._values()]}
        self._read()
        if command["do"] == "train":
            loss = 0.0
            for _ in range(command["epochs"]):
                loss = self._epoch()
            self._write()
            return {"loss": loss}
        self._network.eval()
        with torch.no_grad():
            np.save(self._folder / "outputs.npy", self._network(self._rows).numpy())
        return {}

    def _check(self) -> None:
        """ValueError: the outputs have another shape than the targets. RuntimeError: layers do not fit each other."""
        self._network.eval()
        with torch.no_grad():
            found = tuple(self._network(torch.zeros(2, self._rows.shape[1], dtype=torch.float64)).shape)
        wanted = (2, self._given["outputs"])
        if found != wanted:
            raise ValueError(f"two rows have outputs of shape {found}, and the labels need {wanted}")

    def _values(self) -> list[tuple[str, Any]]:
        return [(name, one) for name, one in self._network.state_dict().items() if not name.endswith(_COUNTER)]

    def _write(self) -> None:
        values = [one.detach().numpy().ravel() for _, one in self._values()]
        np.save(self._folder / "parameters.npy", np.concatenate(values))

    def _read(self) -> None:
        vector, at = torch.from_numpy(np.load(self._folder / "parameters.npy", allow_pickle=False)), 0
        with torch.no_grad():
            for _, one in self._values():
                one.copy_(vector[at : at + one.numel()].reshape(one.shape))
                at += one.numel()

    def _epoch(self) -> float:
        """Take a step for each batch, and return the mean loss before the steps."""
        self._network.train()
        total = 0.0
        name, number = self._given["loss"]
        for rows in self._batches():
            self._optimizer.zero_grad()
            target = self._target[rows]
            loss = loss_of(name, number, self._network(self._rows[rows]), target)
            loss.backward()
            self._optimizer.step()
            total += float(loss) * len(target)
        return total / max(1, len(self._rows))

    def _batches(self) -> list[Any]:
        """Return the rows of each batch, as NumPy's training takes them."""
        rows, size = len(self._rows), self._given["batch_size"]
        if rows and (size <= 0 or size >= rows):
            return [slice(None)]
        order = self._random.permutation(rows) if self._given["shuffle"] else np.arange(rows)
        size = max(1, size)
        found = [torch.from_numpy(order[at : at + size]) for at in range(0, rows, size)]
        if self._normalizes and len(found) > 1 and len(found[-1]) == 1:  # one row has no variance
            found[-2:] = [torch.cat(found[-2:])]
        return found


def main(folder: Path) -> None:
    """Answer the commands until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    torch.set_num_threads(1)
    training: FolderTraining | None = None
    for line in sys.stdin:
        try:
            training = training or FolderTraining(folder)
            answer = training.answer(json.loads(line))
        except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
            answer = {"error": (str(error) or type(error).__name__).splitlines()[0][:500]}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
