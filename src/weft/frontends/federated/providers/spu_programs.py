"""What two parties compute with SPU: `python -I spu_programs.py NAME FOLDER RANK`, in an environment that has `spu`.

The folder is that of one party, of rank 0 or 1. Sockets lie there: `own.sock` of this party, and `peer.sock`, behind
which the other one is.

`intersect` (`intersect_both`) intersects ids, by ECDH. `ids.csv` has a column `id`; `common.csv` becomes the common ids
at the party of rank 0 (at both).

`train` trains a linear model. The party of rank 0, the guest, has labels of -1 and 1, and the residual is
`score / 4 - y / 2`, the gradient of the Taylor polynomial of the logistic loss. The folder has `matrix.npy` (rows,
columns), `first.npy` (the weights before the first step), `settings.json`, and at the guest `y.npy`. It gets
`weights.npy`, of this party alone, and at the guest `history.json`: the losses by epoch, and whether the training
converged. The protocol is Cheetah (Huang and others 2022) for two parties that follow it, in fixed point of 18 binary
digits.

Source: the API of spu 0.9.5, `spu.libpsi`, `spu.libspu` and `spu.utils.frontend`.
"""

import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import spu
import spu.libpsi as psi
import spu.libspu as library
from spu.utils import frontend

_PATIENCE_MS = 24 * 3600 * 1000
_RETRIES, _RETRY_MS = 600, 100
_FRACTION_BITS = 18
_SECRET, _PUBLIC = library.Visibility.VIS_SECRET, library.Visibility.VIS_PUBLIC
_HEAD = 8


def connected(rank: int) -> Any:
    """Return the link to the other party, by the sockets in the current folder. RuntimeError: it is not there."""
    desc = library.link.Desc()
    for at in range(2):
        desc.add_party(f"party{at}", "unix:own.sock" if at == rank else "unix:peer.sock")
    desc.recv_timeout_ms = desc.http_timeout_ms = _PATIENCE_MS
    desc.connect_retry_times, desc.connect_retry_interval_ms = _RETRIES, _RETRY_MS
    return library.link.create_brpc(desc, rank)


def intersect(rank: int, *, both: bool) -> None:
    """Intersect. RuntimeError: the other party is gone."""
    link = connected(rank)
    config = psi.PsiExecuteConfig(
        protocol_conf=psi.PsiProtocolConfig(
            protocol=psi.PsiProtocol.PROTOCOL_ECDH,
            receiver_rank=0,
            broadcast_result=both,
            ecdh_params=psi.EcdhParams(curve=psi.EllipticCurveType.CURVE_25519),
        ),
        input_params=psi.InputParams(path=os.path.abspath("ids.csv"), selected_keys=["id"], keys_unique=True),
        output_params=psi.OutputParams(path=os.path.abspath("common.csv")),
    )
    psi.psi_execute(config, link)
    link.stop_link()


def packed(share: Any) -> bytes:
    """Return a share as bytes: its description and its chunks, each behind its length."""
    pieces = [share.meta, *share.share_chunks]
    return b"".join(len(one).to_bytes(_HEAD, "little") + one for one in pieces)


def unpacked(data: bytes) -> Any:
    """Return the share in such bytes. ValueError: they are none."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + _HEAD], "little")
        pieces.append(data[at + _HEAD : at + _HEAD + size])
        at += _HEAD + size
    if at != len(data) or not pieces:
        raise ValueError("the other party has sent a share that is none")
    share = library.Share()
    share.meta, share.share_chunks = pieces[0], pieces[1:]
    return share


class SpuMachine:
    """The virtual machine of SPU at one of two parties."""

    def __init__(self, rank: int) -> None:
        config = library.RuntimeConfig(protocol=library.ProtocolKind.CHEETAH, field=library.FieldType.FM64)
        config.fxp_fraction_bits = _FRACTION_BITS
        config.experimental_enable_colocated_optimization = True
        self.rank, self.link = rank, connected(rank)
        self._io, self._runtime = spu.Io(2, config), spu.Runtime(self.link, config)
        self._shapes: dict[str, tuple[tuple[int, ...], Any]] = {}

    def share(self, name: str, owner: int, array: Any, shape: tuple[int, ...]) -> None:
        """Make an array of one party a secret of both."""
        self._shapes[name] = (shape, _SECRET)
        if self.rank != owner:
            self._runtime.set_var(name, unpacked(self.link.recv(owner)))
            return
        shares = self._io.make_shares(np.asarray(array, np.float32), _SECRET, owner)
        self.link.send(1 - owner, packed(shares[1 - owner]))
        self._runtime.set_var(name, shares[owner])

    def public(self, name: str, value: float) -> None:
        """Set a number that both parties know."""
        self._shapes[name] = ((), _PUBLIC)
        self._runtime.set_var(name, self._io.make_shares(np.asarray(value, np.float32), _PUBLIC)[self.rank])

    def compiled(self, function: Callable[..., Any], inputs: list[str], outputs: list[str]) -> Any:
        """Return a function of variables as a program."""
        arrays = [np.zeros(self._shapes[name][0], np.float32) for name in inputs]
        seen = [self._shapes[name][1] for name in inputs]
        options = library.CompilerOptions()
        found, _ = frontend.compile(
            frontend.Kind.JAX, function, arrays, {}, inputs, seen, lambda _: list(outputs), copts=options
        )
        return found

    def run(self, program: Any) -> None:
        """Run a program."""
        self._runtime.run(program)

    def shown(self, name: str, to: int) -> Any:
        """Return a secret at the party that may see it; None at the other."""
        share = self._runtime.get_var(name)
        if self.rank != to:
            self.link.send(to, packed(share))
            return None
        shares = [share, share]
        shares[1 - self.rank] = unpacked(self.link.recv(1 - to))
        return self._io.reconstruct(shares)


def over(program: Any, inputs: list[str]) -> Any:
    """Return a program over other variables, which have the same shapes."""
    return library.Executable(
        name=program.name, input_names=inputs, output_names=program.output_names, code=program.code
    )


def step(settings: dict[str, Any], counts: list[int], rows: int) -> Callable[..., Any]:
    """Return a step along the gradient of a batch as a function of secrets."""
    # 1 / rows is too small for the fixed point: a power of two is exact, and what is left is at least 1.
    power = 2.0 ** -math.ceil(math.log2(rows))
    rest = 1.0 / rows / power
    kept = [np.ones(count, np.float32) for count in counts]
    if settings["intercept"]:
        kept[0][-1] = 0.0

    def moved(weights: Any, speed: Any, gradient: Any, rate: Any, keeps: Any) -> tuple[Any, Any]:
        gradient = gradient * power * rest
        if settings["l2"]:
            gradient = gradient + settings["l2"] * weights * keeps
        if not settings["nesterov"]:
            return weights - rate * gradient, speed
        now = 0.9 * speed - rate * gradient
        return weights - 0.9 * speed + 1.9 * now, now

    def one(x0: Any, x1: Any, y: Any, w0: Any, w1: Any, v0: Any, v1: Any, rate: Any, squares: Any) -> Any:
        residual = 0.25 * (x0 @ w0 + x1 @ w1) - 0.5 * y
        (n0, s0), (n1, s1) = (
            moved(w, v, residual @ x, rate, keeps) for w, v, x, keeps in ((w0, v0, x0, kept[0]), (w1, v1, x1, kept[1]))
        )
        return n0, n1, s0, s1, squares + (residual * residual).sum() * settings["square_scale"]

    return one


def train(rank: int) -> None:
    """Train. RuntimeError: the other party is gone. ValueError: it has sent something else."""
    with open("settings.json", encoding="utf-8") as file:
        settings = json.load(file)
    matrix, first = np.load("matrix.npy"), np.load("first.npy")
    machine = SpuMachine(rank)
    machine.link.send(1 - rank, str(matrix.shape[1]))
    counts = [matrix.shape[1], matrix.shape[1]]
    counts[1 - rank] = int(machine.link.recv(1 - rank))
    rows, size = len(matrix), settings["batch_size"]
    batches = [slice(at, min(rows, at + size)) for at in range(0, rows, size)]
    y = np.load("y.npy") if rank == 0 else None
    for at, batch in enumerate(batches):
        count = batch.stop - batch.start
        for owner in range(2):
            machine.share(f"x{owner}_{at}", owner, matrix[batch] if owner == rank else None, (count, counts[owner]))
        machine.share(f"y_{at}", 0, None if y is None else y[batch], (count,))
    for owner in range(2):
        machine.share(f"w{owner}", owner, first if owner == rank else None, (counts[owner],))
        zeros = np.zeros(counts[owner], np.float32) if owner == rank else None
        machine.share(f"v{owner}", owner, zeros, (counts[owner],))
    machine.share("squares", 0, 0.0 if rank == 0 else None, ())
    machine.public("rate", settings["rates"][0])
    names = ["w0", "w1", "v0", "v1"]
    known: dict[int, Any] = {}
    programs: list[Any] = []
    for at, batch in enumerate(batches):
        count, inputs = batch.stop - batch.start, [f"x0_{at}", f"x1_{at}", f"y_{at}", *names, "rate", "squares"]
        if count not in known:
            known[count] = machine.compiled(step(settings, counts, count), inputs, [*names, "squares"])
        programs.append(over(known[count], inputs))
    losses, converged = iterate(machine, settings, programs, rows)
    for owner in range(2):
        found = machine.shown(f"w{owner}", owner)
        if found is not None:
            np.save("weights.npy", found)
    if rank == 0:
        with open("history.json", "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "converged": converged}, file)
    machine.link.stop_link()


def iterate(machine: SpuMachine, settings: dict[str, Any], programs: list[Any], rows: int) -> tuple[list[float], bool]:
    """Run the epochs; the guest sees the loss of each, and decides when to stop."""
    losses: list[float] = []
    before = math.inf
    for rate in settings["rates"]:
        machine.public("rate", rate)
        machine.share("squares", 0, 0.0 if machine.rank == 0 else None, ())
        for program in programs:
            machine.run(program)
        squares = machine.shown("squares", 0)
        if machine.rank != 0:
            if machine.link.recv(0) == b"end":
                return losses, True
            continue
        losses.append(math.log(2) - 0.5 + 2 * float(squares) / settings["square_scale"] / rows)
        change = abs(losses[-1]) if settings["early_stop"] == "abs" else abs(before - losses[-1])
        before = losses[-1]
        machine.link.send(1, "end" if change < settings["tol"] else "on")
        if change < settings["tol"]:
            return losses, True
    return losses, False


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    if sys.argv[1] == "train":
        train(int(sys.argv[3]))
    else:
        intersect(int(sys.argv[3]), both=sys.argv[1] == "intersect_both")
    sys.stdout.flush()
    os._exit(0)  # all is written, and the threads of the library need some time to end
