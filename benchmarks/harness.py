"""What is measured and how: rows, their two sides, and rounds that alternate between them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

QUIET_CORES = 0.3
"""The machine counts as quiet while all that runs on it uses fewer cores than this."""
PATIENCE_S = 60.0
"""How long to wait for that."""

Figures = Mapping[str, float]
"""What one run of a case has measured, by name: `seconds` for most."""


@dataclass(frozen=True, slots=True)
class Side:
    """One contestant: a case of a module that has `CASES`, run in Weft's environment or in the peers'.

    A `fresh` one gets a process of its own for each round, so that its peak of memory is its own. One run of it may
    take `longest_s` seconds.
    """

    label: str
    module: str
    case: str
    peer: bool = False
    fresh: bool = False
    longest_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Spec:
    """One row: `figure` of our side times `scale` is its value, in `unit`.

    With a peer, `target` bounds ours over the peer's; without one, the value itself, from below if `at_least`.
    """

    name: str
    unit: str
    ours: Side
    target: float
    about: str
    peer: Side | None = None
    figure: str = "seconds"
    scale: float = 1.0
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row. `ratio` is ours over the peer's, smaller is better; None where `target` is absolute.

    Of a row that could not be measured `failed` says why, and there is no value.
    """

    name: str
    value: float | None
    unit: str
    peer: str | None
    peer_value: float | None
    ratio: float | None
    target: float
    ok: bool
    failed: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the row as an object with exactly its nine fields."""
        return asdict(self)


Ask = Callable[[Side], Figures]
"""Run a case once and return what it measured."""


def measure(specs: Iterable[Spec], rounds: int, ask: Ask) -> Iterator[Row]:
    """Yield a row for each spec: medians over `rounds` rounds, in each of which both sides run once.

    Rows of one case share its runs, and its failure: one without a peer those of one with. A process that stays alive
    is warmed up by one run that is not counted.
    """
    from weft.model.errors import WeftError  # peers, which import this file, have no Weft

    measured: dict[tuple[Side, Side | None], list[list[Figures]] | str] = {}
    for spec in specs:
        shared = [found for (ours, peer), found in measured.items() if ours == spec.ours and spec.peer in (None, peer)]
        runs = shared[0] if shared else None
        if runs is None:
            try:
                runs = _runs([spec.ours] if spec.peer is None else [spec.ours, spec.peer], rounds, ask)
            except WeftError as error:
                runs = error.message
            measured[spec.ours, spec.peer] = runs
        if isinstance(runs, str):
            peer = None if spec.peer is None else spec.peer.label
            yield Row(spec.name, None, spec.unit, peer, None, None, spec.target, ok=False, failed=runs)
        else:
            yield row_of(spec, runs)


def _runs(sides: Sequence[Side], rounds: int, ask: Ask) -> list[list[Figures]]:
    for side in sides:
        if not side.fresh:
            ask(side)
    return [[ask(side) for side in sides] for _ in range(rounds)]


def row_of(spec: Spec, runs: Sequence[Sequence[Figures]]) -> Row:
    """Return the row that `runs` (for each round, what our side and then the peer measured) make."""
    value = median(figures[0][spec.figure] for figures in runs) * spec.scale
    if spec.peer is None:
        ok = value >= spec.target if spec.at_least else value <= spec.target
        return Row(spec.name, value, spec.unit, None, None, None, spec.target, ok)
    theirs = median(figures[1][spec.figure] for figures in runs) * spec.scale
    ratio = value / theirs
    return Row(spec.name, value, spec.unit, spec.peer.label, theirs, ratio, spec.target, ratio <= spec.target)


def timed(run: Callable[[], Any], check: Callable[[Any], None], *, rehearse: bool = False) -> dict[str, float]:
    """Time `run()`, then hand what it returned to `check`, which raises AssertionError if it is wrong.

    With `rehearse` it runs once more before that: for gigabytes, which a virtual machine may give back to its host
    while the other side has its turn, and gets again slowly.
    """
    if rehearse:
        check(run())
    begin = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - begin
    check(found)
    return {"seconds": seconds}


def expect(found: object, wanted: object) -> None:
    """Raise AssertionError unless both are equal. Not an `assert`: a check must not be optimised away."""
    if found != wanted:
        raise AssertionError(f"a wrong result: {_short(found)}, not {_short(wanted)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


# ------------------------------------------------------------------------------------------------------ the machine


def peak_gb() -> float:
    """Return the most memory this process has held since it began, in GB (10^9 bytes)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e9
    raise AssertionError("the kernel does not say how much memory a process has used")


def busy_cores(over_s: float = 1.0) -> float:
    """Return how many cores the whole machine uses, measured over `over_s` seconds."""
    begin, before = time.monotonic(), _busy_s()
    time.sleep(over_s)
    return (_busy_s() - before) / (time.monotonic() - begin)


def _busy_s() -> float:
    """Return the seconds that all cores together have worked since the machine was started."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq = map(int, line[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(
    patience_s: float = PATIENCE_S,
    *,
    busy: Callable[[], float] = busy_cores,
    now: Callable[[], float] = time.monotonic,
    say: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True),
) -> bool:
    """Wait until the machine is quiet; after `patience_s` seconds say that it is not, and return False."""
    until = now() + patience_s
    while (cores := busy()) >= QUIET_CORES:
        if now() >= until:
            say(f"the machine is not quiet ({cores:.1f} cores are busy): figures are worse than they could be")
            return False
    return True
