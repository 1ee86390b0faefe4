"""The training of a model without an arbiter on SPU: the steps of `shared_models`, under the protocol Cheetah.

The guest sees the loss of each epoch, and each party its own weights at the end. Numbers are in fixed point with 18
binary digits behind the point and 28 before it, so columns must be of moderate size.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.optimizers import L1, L2, NESTEROV, SGD, Training
from weft.frontends.federated.components.programs import program_folder
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.spu import run_spu
from weft.frontends.federated.components.vertical import Fitted
from weft.frontends.federated.providers import SPU

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
_MOST_SUM: Final = 1 << 22
"""The largest number of rows of a batch times largest value of a column: with residuals below 16 nothing overflows."""
_MOST_SQUARES: Final = 1 << 20


def fits_spu(training: Training, matrix: Array) -> bool:
    """Whether SPU can take the steps of a training over columns of shape (rows, columns)."""
    largest = float(np.abs(matrix).max(initial=0.0))
    steps = training.optimizer in (SGD, NESTEROV) and training.penalty != L1 and training.early_stop != "weight_diff"
    return steps and len(matrix) > 0 and _batch(training, len(matrix)) * max(largest, 1.0) <= _MOST_SUM


def fit_with_spu(
    part: ComponentPart,
    peer: Party,
    training: Training,
    matrix: Array,
    y: Array | None,
    first: Array,
    done: int = 0,
) -> Fitted:
    """Train, and return the weights of this party; the guest has the labels `y`, -1 or 1.

    `first` are the weights before the first step, `done` how many epochs they have had. Errors: see `run_spu`.
    """
    if done >= training.max_iter:
        return Fitted(first, [], converged=False, epochs=done)
    guest = y is not None
    rows = len(matrix)
    shrinks = [1.0 + training.decay * epoch for epoch in range(done, training.max_iter)]
    settings = {
        "batch_size": _batch(training, rows),
        "rates": [training.rate / (one**0.5 if training.decay_sqrt else one) for one in shrinks],
        "l2": training.alpha if training.penalty == L2 else 0.0,
        "nesterov": training.optimizer == NESTEROV,
        "intercept": training.intercept,
        "early_stop": training.early_stop,
        "tol": training.tol,
        # the sum of all squares must stay below 2^20, too
        "square_scale": 2.0 ** -max(0, (16 * rows // _MOST_SQUARES).bit_length()),
    }
    with program_folder(SPU) as folder:
        np.save(folder / "matrix.npy", matrix.astype(np.float32))
        np.save(folder / "first.npy", first.astype(np.float32))
        if guest:
            np.save(folder / "y.npy", np.asarray(y, np.float32))
        (folder / "settings.json").write_text(json.dumps(settings))
        run_spu(part, peer, folder, "train", 0 if guest else 1)
        weights = np.load(folder / "weights.npy", allow_pickle=False).astype(float)
        history = json.loads((folder / "history.json").read_text()) if guest else None
    if history is None:
        converged, epochs = message_as(tuple[bool, int], part.channel.receive("converged", peer), peer)
        return Fitted(weights, [], converged, epochs)
    epochs = done + len(history["losses"])
    part.channel.send("converged", [history["converged"], epochs], peer)
    return Fitted(weights, history["losses"], history["converged"], epochs)


def _batch(training: Training, rows: int) -> int:
    return rows if training.batch_size <= 0 else min(rows, training.batch_size)
