"""Programs of SPU, in an environment of its own: the variable WEFT_SPU names it.

SPU is used if both parts have the same version. The programs of both parts meet through a tunnel. Its intersection is
ECDH on Curve25519 as in `crypto.psi`, and faster by vector instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.frontends.federated.components.programs import (
    program_end,
    program_folder,
    program_log,
    provided_version,
    start_program,
)
from weft.frontends.federated.components.tunnels import PartTunnel
from weft.frontends.federated.providers import SPU
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.schema import Party


def agree_on_spu(part: ComponentPart, peer: Party, *, fits: bool, same: Any = None) -> bool:
    """Return whether both parts use SPU: it fits what each has, and both have `same`, a value that travels."""
    offer = [provided_version(SPU) if fits else "", same]
    part.channel.send("engine", offer, peer)
    theirs = part.channel.receive("engine", peer)
    return bool(offer[0]) and theirs == offer


def run_spu(part: ComponentPart, peer: Party, folder: Path, name: str, rank: int) -> None:
    """Run a program of SPU at this part, and its connections to that of another part, to their end.

    The ranks of both parts are 0 and 1. The summary tells that SPU runs.

    UsageError: SPU has failed. PartyMessageError, RunCancelledError: see `ComponentChannel.receive`.
    """
    part.tracker.summary({"engine": f"spu {provided_version(SPU)}"})
    worker = start_program(SPU, folder, name, str(folder.absolute()), str(rank))
    tunnel = PartTunnel(part.channel, peer, entry=folder / "peer.sock", exit=folder / "own.sock", failed=worker.kill)
    try:
        code = worker.wait()
        if code == 0 and tunnel.error is None:  # else the job stops the other part, whose program would wait
            tunnel.close()
    finally:
        worker.kill()
        worker.wait()
        tunnel.shut()
    if tunnel.error is not None:
        raise tunnel.error
    if code:
        part.tracker.log(program_log(folder))
        raise UsageError(
            f"{part.component}: SPU {program_end(code)} at {part.here}", hint="Its messages are in the log there."
        )


def common_ids(part: ComponentPart, ids: list[str], peer: Party, *, receives: bool, both: bool) -> list[str]:
    """Return the common ids in an order that both parts have; none to a part that does not get them.

    Errors: see `run_spu`.
    """
    with program_folder(SPU) as folder:
        with (folder / "ids.csv").open("w") as file:
            file.write("id\n")
            file.writelines(f"{one.encode().hex()}\n" for one in ids)
        run_spu(part, peer, folder, "intersect_both" if both else "intersect", 0 if receives else 1)
        return _read(folder / "common.csv", peer) if receives or both else []


def _read(path: Path, peer: Party) -> list[str]:
    with path.open() as file:
        next(file, None)
        try:
            return sorted(bytes.fromhex(line.strip().strip('"')).decode() for line in file)
        except ValueError:
            raise PartyMessageError(f"{peer} has made SPU write ids that are none", party=peer.id) from None
