"""The training of a network at one party by PyTorch, in the environment that WEFT_TORCH names.

The program of the provider has the rows of this party; parameters go to it and come back each time, so that what is
sent to other parties is covered here in the same way as without PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.networks import LINEAR, DenseNetwork
from weft.frontends.federated.components.programs import (
    program_end,
    program_folder,
    program_log,
    start_program,
)
from weft.frontends.federated.providers import TORCH
from weft.model.errors import UsageError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from weft.frontends.federated.components.base import ComponentPart

Array = np.ndarray[Any, Any]
_SEEDS: Final = 1 << 62
_PATIENCE_S: Final = 30.0


@contextmanager
def torch_program(
    part: ComponentPart, network: Mapping[str, Any], matrix: Array, target: Array | None = None
) -> Iterator[TorchProgram]:
    """Yield the program for a network, as its `network.json` describes it, with the rows of this party."""
    with program_folder(TORCH) as folder:
        (folder / "network.json").write_text(json.dumps(network))
        np.save(folder / "rows.npy", np.ascontiguousarray(matrix, dtype=float))
        if target is not None:
            np.save(folder / "target.npy", np.ascontiguousarray(target, dtype=float))
        process = start_program(TORCH, folder, str(folder.absolute()), talks=True)
        try:
            yield TorchProgram(part, process, folder)
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # the program has ended
                        pipe.close()
            process.kill()
            process.wait()


class TorchProgram:
    """A program that runs."""

    def __init__(self, part: ComponentPart, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._part, self._process, self._folder = part, process, folder

    def start(self, layers: Sequence[Mapping[str, Any]], random: np.random.Generator) -> list[Array]:
        """Return the parameters before training: those of Linear layers as without PyTorch, and PyTorch's of others.

        UsageError: PyTorch refuses the network, or has failed.
        """
        linear = iter(DenseNetwork(layers).start(random))
        answer = self._ask(do="start", seed=int(random.integers(_SEEDS)))
        vector, found = np.load(self._folder / "parameters.npy", allow_pickle=False), []
        for name, shape in answer["shapes"]:
            count = int(np.prod(shape))
            own, vector = vector[:count].reshape(shape), vector[count:]
            found.append(next(linear) if layers[int(name.split(".")[0])]["kind"] == LINEAR else own)
        return found

    def train(self, vector: Array, epochs: int) -> tuple[Array, float]:
        """Take the steps of some epochs; return the parameters, and the mean loss of the last epoch. Errors: `start`"""
        np.save(self._folder / "parameters.npy", vector)
        loss = float(self._ask(do="train", epochs=epochs)["loss"])
        return np.load(self._folder / "parameters.npy", allow_pickle=False), loss

    def outputs(self, vector: Array) -> Array:
        """Return the outputs for the rows, shape (rows, outputs). Errors: see `start`."""
        np.save(self._folder / "parameters.npy", vector)
        self._ask(do="outputs")
        found: Array = np.load(self._folder / "outputs.npy", allow_pickle=False)
        return found

    def _ask(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            try:
                code = self._process.wait(_PATIENCE_S)
            except TimeoutExpired:
                self._process.kill()
                code = self._process.wait()
            self._part.tracker.log(program_log(self._folder))
            raise UsageError(
                f"{self._part.component}: PyTorch {program_end(code)} at {self._part.here}",
                hint="Its messages are in the log there.",
            )
        answer = json.loads(line)
        if "error" in answer:
            raise UsageError(
                f"{self._part.component}: PyTorch refuses the network: {answer['error']}",
                hint="Correct nn_define or optimizer.",
            )
        return answer
