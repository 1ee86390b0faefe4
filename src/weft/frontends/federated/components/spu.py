"""Programs of SPU, in an environment of its own: the variable WEFT_SPU names it.

SPU is used if both parts have the same version. The programs of both parts meet through a tunnel. Its intersection is
ECDH on Curve25519 as in `crypto.psi`, and faster by vector instructions.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.federated.components.tunnels import PartTunnel
from weft.frontends.federated.providers import SPU_PROGRAMS
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.frontends.federated.components.base import ComponentPart
    from weft.frontends.federated.schema import Party

VARIABLE: Final = "WEFT_SPU"
_LOG: Final = "spu.log"
_PREFIX: Final = "spu-"
_TAIL: Final = 4_000
_TRACE: Final = re.compile(r"Trace has been written to (/tmp/psi_[\w-]+\.trace)")


def spu_version() -> str:
    """Return the version of SPU that this party has, "" if it has none. UsageError: WEFT_SPU names no environment."""
    home = os.environ.get(VARIABLE, "")
    if not home:
        return ""
    found = next(iter(sorted(Path(home).glob("lib/python3*/site-packages/spu-*.dist-info"))), None)
    if found is None or not (Path(home) / "bin" / "python").exists():
        raise UsageError(f"{VARIABLE} names an environment without spu", hint="Make one: make providers")
    return found.name.removeprefix("spu-").removesuffix(".dist-info")


def agree_on_spu(part: ComponentPart, peer: Party, *, fits: bool, same: Any = None) -> bool:
    """Return whether both parts use SPU: it fits what each has, and both have `same`, a value that travels."""
    offer = [spu_version() if fits else "", same]
    part.channel.send("engine", offer, peer)
    theirs = part.channel.receive("engine", peer)
    return bool(offer[0]) and theirs == offer


@contextmanager
def spu_folder() -> Iterator[Path]:
    """Yield a folder for a program, which is removed with all that the program leaves."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="."))
    try:
        yield folder
    finally:
        _remove(folder)


def sweep_spu(attempt: Path) -> None:
    """Remove what a killed process of a part has left in its folder: such a folder has the ids of its rows."""
    for folder in attempt.glob(f"{_PREFIX}*/"):
        _remove(folder)


def run_spu(part: ComponentPart, peer: Party, folder: Path, name: str, rank: int) -> None:
    """Run a program of SPU at this part, and its connections to that of another part, to their end.

    The ranks of both parts are 0 and 1. The summary tells that SPU runs.

    UsageError: SPU has failed. PartyMessageError, RunCancelledError: see `ComponentChannel.receive`.
    """
    part.tracker.summary({"engine": f"spu {spu_version()}"})
    worker = _start(folder, name, rank)
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
        part.tracker.log((folder / _LOG).read_text(errors="replace")[-_TAIL:])
        how = _ended_by(-code) if code < 0 else f"has failed with exit code {code}"
        raise UsageError(f"{part.component}: SPU {how} at {part.here}", hint="Its messages are in the log there.")


def common_ids(part: ComponentPart, ids: list[str], peer: Party, *, receives: bool, both: bool) -> list[str]:
    """Return the common ids in an order that both parts have; none to a part that does not get them.

    Errors: see `run_spu`.
    """
    with spu_folder() as folder:
        with (folder / "ids.csv").open("w") as file:
            file.write("id\n")
            file.writelines(f"{one.encode().hex()}\n" for one in ids)
        run_spu(part, peer, folder, "intersect_both" if both else "intersect", 0 if receives else 1)
        return _read(folder / "common.csv", peer) if receives or both else []


def _remove(folder: Path) -> None:
    """Remove what SPU has left: its folder, and the trace that it writes to /tmp whatever TMPDIR says."""
    with suppress(OSError):
        for trace in _TRACE.findall((folder / _LOG).read_text(errors="replace")):
            Path(trace).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, name: str, rank: int) -> subprocess.Popen[Any]:
    python = Path(os.environ[VARIABLE]).absolute() / "bin" / "python"
    command = [str(python), "-I", str(SPU_PROGRAMS), name, str(folder.absolute()), str(rank)]
    environment = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    environment["TMPDIR"] = str(folder.absolute())
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def _ended_by(number: int) -> str:
    """Return in words that a signal has ended a program."""
    full = ", perhaps since the memory was full," if number == signal.SIGKILL else ""
    return f"was ended by {signal.Signals(number).name}{full}"


def _read(path: Path, peer: Party) -> list[str]:
    with path.open() as file:
        next(file, None)
        try:
            return sorted(bytes.fromhex(line.strip().strip('"')).decode() for line in file)
        except ValueError:
            raise PartyMessageError(f"{peer} has made SPU write ids that are none", party=peer.id) from None
