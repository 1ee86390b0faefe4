"""What is measured and how: rows, their two sides, and rounds that alternate between them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from benchmarks.calibration import Calibration, calibrate, slowness

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

    With a peer, `target` bounds ours over the peer's; without one, the value itself, from below if `at_least`. A time
    or a rate without a peer names the piece of `calibration.WORK` that its case resembles in `scaled_by`: its target
    then bounds the value scaled to the reference phase.
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
    scaled_by: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row. `ratio` is ours over the peer's, smaller is better; None where `target` is absolute.

    `scaled` is the value on the reference phase, None where the row is not scaled. `spread` is the least and the
    greatest round of the figure that the target bounds: ratio, scaled value or value. A row that could not be measured
    has the reason in `failed`, and no value.
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
    scaled: float | None = None
    spread: tuple[float, float] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the row as an object with exactly its eleven fields."""
        return asdict(self)


Ask = Callable[[Side], Figures]
"""Run a case once and return what it measured."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a row: the calibration before it, and the figures of our side and then of the peer."""

    calibration: Calibration
    figures: tuple[Figures, ...]


def measure(
    specs: Iterable[Spec],
    rounds: int,
    ask: Ask,
    calibration: Callable[[], Calibration] = calibrate,
    *,
    finished: Mapping[str, Row] = MappingProxyType({}),
) -> Iterator[Row]:
    """Yield a row for each spec: medians over `rounds` rounds, each a calibration and one run of both sides.

    Rows of one case share its runs, and its failure: one without a peer those of one with. A process that stays alive
    is warmed up by one run that is not counted. Rows in `finished` are yielded as they are.
    """
    from weft.model.errors import WeftError  # peers, which import this file, have no Weft

    measured: dict[tuple[Side, Side | None], list[Round] | str] = {}
    for spec in specs:
        if spec.name in finished:
            yield finished[spec.name]
            continue
        shared = [found for (ours, peer), found in measured.items() if ours == spec.ours and spec.peer in (None, peer)]
        runs = shared[0] if shared else None
        if runs is None:
            try:
                sides = [spec.ours] if spec.peer is None else [spec.ours, spec.peer]
                runs = _runs(sides, rounds, ask, calibration)
            except WeftError as error:
                runs = error.message
            measured[spec.ours, spec.peer] = runs
        if isinstance(runs, str):
            peer = None if spec.peer is None else spec.peer.label
            yield Row(spec.name, None, spec.unit, peer, None, None, spec.target, ok=False, failed=runs)
        else:
            yield row_of(spec, runs)


def _runs(sides: Sequence[Side], rounds: int, ask: Ask, calibration: Callable[[], Calibration]) -> list[Round]:
    for side in sides:
        if not side.fresh:
            ask(side)
    return [Round(calibration(), tuple(ask(side) for side in sides)) for _ in range(rounds)]


def row_of(spec: Spec, rounds: Sequence[Round]) -> Row:
    """Return the row that these rounds make."""
    values = [one.figures[0][spec.figure] * spec.scale for one in rounds]
    value = median(values)
    if spec.peer is not None:
        theirs = [one.figures[1][spec.figure] * spec.scale for one in rounds]
        ratios = [ours / their for ours, their in zip(values, theirs, strict=True)]
        ratio = value / median(theirs)
        ok = ratio <= spec.target
        spread = min(ratios), max(ratios)
        return Row(spec.name, value, spec.unit, spec.peer.label, median(theirs), ratio, spec.target, ok, spread=spread)
    scaled = None
    if spec.scaled_by:
        values = [_scaled(spec, figure, one.calibration) for figure, one in zip(values, rounds, strict=True)]
        scaled = median(values)
    bounded = value if scaled is None else scaled
    ok = bounded >= spec.target if spec.at_least else bounded <= spec.target
    spread = min(values), max(values)
    return Row(spec.name, value, spec.unit, None, None, None, spec.target, ok, scaled=scaled, spread=spread)


def _scaled(spec: Spec, value: float, calibration: Calibration) -> float:
    """Return a time, or a rate (`at_least`), as the reference phase would give it."""
    factor = slowness(calibration, spec.scaled_by)
    return value * factor if spec.at_least else value / factor


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


def started(program: str, wanted: bytes) -> dict[str, float]:
    """Time a program of Python from the start of an interpreter to the line that it prints, which is `wanted`."""
    begin = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.perf_counter() - begin
    expect((line, process.returncode), (wanted, 0))
    return {"seconds": took}


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
