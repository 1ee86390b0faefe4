"""Encryption and the intersection of sets, in one process."""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import gmpy2
import numpy as np

from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.crypto.paillier import generate
from weft.frontends.federated.providers import SPU
from weft.frontends.federated.schema import Party
from weft.testing.parts import PartInputs, run_parts

BITS = 2048
MANY, FEW = 4_000, 200
IDS = 100_000
_TRACES = "psi_*.trace"
ROWS, EPOCHS = 30_000, 10


def encrypt() -> dict[str, float]:
    """Encrypt numbers, and return the seconds for one."""
    key = generate(BITS).public
    values = np.random.default_rng(0).normal(size=MANY)
    key.encrypt(values[:1])  # the table of powers is made once for each key
    begin = time.perf_counter()
    key.encrypt(values)
    return {"seconds": (time.perf_counter() - begin) / MANY}


def encrypt_by_the_book() -> dict[str, float]:
    """Encrypt numbers as in the paper of Paillier, and return the seconds for one."""
    key = generate(BITS).public
    begin = time.perf_counter()
    for value in range(FEW):
        r = gmpy2.mpz(secrets.randbelow(int(key.n)))
        (1 + value * key.n) * gmpy2.powmod(r, key.n, key.n2) % key.n2
    return {"seconds": (time.perf_counter() - begin) / FEW}


def credit_by_the_book() -> dict[str, float]:
    """Return the seconds of the encryptions alone of a logistic regression in the shape of FATE.

    Both parties encrypt a number for each row in each of 10 epochs. A sample is measured.
    """
    return {"seconds": encrypt_by_the_book()["seconds"] * ROWS * EPOCHS}


def intersect() -> dict[str, float]:
    """Intersect two sets of ids, half of which are common."""
    frames = [
        PartyFrame(np.array([f"client-{at}" for at in range(first, first + IDS)], dtype=object))
        for first in (0, IDS // 2)
    ]
    parties = (Party("guest", "1"), Party("host", "2"))
    given = {one: PartInputs({}, {"data": [frame]}) for one, frame in zip(parties, frames, strict=True)}
    begin = time.perf_counter()
    ran = run_parts("Intersection", given)
    seconds = time.perf_counter() - begin
    kept = ran.outputs[parties[0]].data[0]
    assert kept is not None
    assert len(kept) == IDS // 2
    return {"seconds": seconds}


def _spu() -> Path:
    found = Path(os.environ.get("WEFT_SPU") or Path(__file__).parents[2] / ".providers" / "spu")
    if not found.exists():
        raise RuntimeError(f"no SPU in {found}: make providers")
    return found.absolute()


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def intersect_with_spu() -> dict[str, float]:
    """Intersect two sets of ids as `intersect`, with SPU for both parts, and return the seconds of CPU of both."""
    os.environ["WEFT_SPU"] = str(_spu())
    before, here = _cpu_s(), os.getcwd()
    with TemporaryDirectory() as name:
        os.chdir(name)
        try:
            intersect()
        finally:
            os.chdir(here)
            del os.environ["WEFT_SPU"]
    return {"cpu": _cpu_s() - before}


def spu_alone() -> dict[str, float]:
    """Intersect the same sets by two processes of SPU that connect to each other, and return their seconds of CPU."""
    before, traces = _cpu_s(), set(Path("/tmp").glob(_TRACES))
    with TemporaryDirectory() as name:
        folders = [Path(name) / str(rank) for rank in range(2)]
        for rank, folder in enumerate(folders):
            folder.mkdir()
            (folder / "peer.sock").symlink_to(folders[1 - rank] / "own.sock")
            first = rank * IDS // 2
            with (folder / "ids.csv").open("w") as file:
                file.write("id\n")
                file.writelines(f"client-{at}\n" for at in range(first, first + IDS))
        programs = [
            subprocess.Popen(
                [_spu() / "bin" / "python", "-I", SPU.program, "intersect_both", folder, str(rank)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for rank, folder in enumerate(folders)
        ]
        assert [one.wait() for one in programs] == [0, 0]
        assert len((folders[0] / "common.csv").read_text().splitlines()) == IDS // 2 + 1
    for trace in set(Path("/tmp").glob(_TRACES)) - traces:  # SPU writes them there whatever TMPDIR says
        trace.unlink()
    return {"cpu": _cpu_s() - before}


CASES = {
    "encrypt": encrypt,
    "encrypt_by_the_book": encrypt_by_the_book,
    "credit_by_the_book": credit_by_the_book,
    "intersect": intersect,
    "intersect_with_spu": intersect_with_spu,
    "spu_alone": spu_alone,
}
