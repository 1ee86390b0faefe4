"""The cases: folders with pipelines, and the command as a process of its own, as a person starts it."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from benchmarks.harness import expect, timed
from weft.runtime.cache import DECISIONS
from weft.store.digests import Digester
from weft.store.entries import CacheIndex, Claim, Entry
from weft.store.results import Recipe, ResultCache

WEFT = str(Path(sys.executable).with_name("weft"))
"""What a person types."""
DEADLINE_S = 120.0
LOOKED_UP = 1_000
KNOWN = 1_000
LATER_S = 3_600.0
"""The clock of keys runs ahead by this, so that files that were just written count as old."""


@cache
def _place() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="weft-benchmark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _folder(name: str) -> Path:
    folder = _place() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _step(command: str, output: str = "", **more: Any) -> dict[str, Any]:
    return {"command": command, **({"artifacts": {"output": [output]}} if output else {}), **more}


def _write(folder: Path, steps: Mapping[str, Any], *, enable: bool = True, parallelism: int = 20) -> Path:
    file = folder / "run.yaml"
    top = {"name": "measured", "parallelism": parallelism, "cache": {"enable": enable}, "entry_points": steps}
    file.write_text(json.dumps(top))
    return file


def _start(folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    command = [WEFT, "run", "run.yaml", "-q", *flags]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _run(folder: Path, *flags: str) -> str:
    process = _start(folder, *flags)
    said = process.communicate(timeout=DEADLINE_S)[0].decode()
    expect(process.returncode, 0)
    return said.strip()


def _outcomes(folder: Path, run: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in (folder / ".weft" / "runs" / run / DECISIONS).read_text().splitlines():
        outcome = json.loads(line)["outcome"]
        found[outcome] = found.get(outcome, 0) + 1
    return found


# ----------------------------------------------------------------------------------------------------- whole commands


def _fan(steps: int, *, output: bool = True) -> dict[str, Any]:
    wide = {
        f"s{n}": _step(f"echo {n} > {{{{out}}}}" if output else "true", "out" if output else "") for n in range(steps)
    }
    return {**wide, "last": _step("true", deps=",".join(wide))}


@cache
def _known(steps: int) -> Path:
    """A folder with a pipeline of so many steps that has run once."""
    folder = _folder(f"known-{steps}")
    if steps > 1_000:
        _write(folder, {"item": _step("echo $PF_LOOP_ARGUMENT > {{out}}", "out", loop_argument=list(range(steps)))})
    else:
        _write(folder, _fan(steps - 1))
    _run(folder)
    return folder


def _cached(steps: int) -> dict[str, float]:
    folder = _known(steps)
    return timed(lambda: _run(folder), lambda run: expect(_outcomes(folder, run), {"hit": steps}))


def _report(items: int) -> dict[str, float]:
    folder = _known(items)
    begin = time.perf_counter()
    subprocess.run([WEFT, "report", "1", "-o", "run.html"], cwd=folder, check=True, stdout=subprocess.PIPE)
    seconds = time.perf_counter() - begin
    page = (folder / "run.html").read_bytes()
    expect(f"{items:,} succeeded".encode() in page, True)
    return {"seconds": seconds, "bytes": float(len(page))}


def _chain(steps: int, *, output: bool = False) -> dict[str, Any]:
    command, name = (": {} > {{{{out}}}}", "out") if output else (": {}", "")
    return {f"s{n}": _step(command.format(n), name, **({"deps": f"s{n - 1}"} if n else {})) for n in range(steps)}


def _cold(name: str, steps: Mapping[str, Any]) -> dict[str, float]:
    folder = _folder(name)
    _write(folder, steps, enable=False)
    return timed(lambda: _run(folder), lambda _: None)


def plan_10k() -> dict[str, float]:
    """The plan of 10,000 steps: a third alone, a third in a row, a third below one step."""
    folder = _folder("plan")
    third = 3_333
    steps = {f"a{n}": _step(f"echo {n}") for n in range(third)}
    steps |= {f"b{n}": _step(f"echo {n}", **({"deps": f"b{n - 1}"} if n else {})) for n in range(third)}
    steps |= {f"c{n}": _step(f"echo {n}") for n in range(third)}
    steps["last"] = _step("true", deps=",".join(f"c{n}" for n in range(third)))
    lines = [f"  {name}: {json.dumps(step)}" for name, step in steps.items()]
    (folder / "run.yaml").write_text("\n".join(["name: measured", "entry_points:", *lines, ""]))

    def plan() -> int:
        done = subprocess.run([WEFT, "plan", "run.yaml"], cwd=folder, check=True, stdout=subprocess.PIPE)
        return len(done.stdout.splitlines())

    return timed(plan, lambda lines: expect(lines, 1 + len(steps)))


def chain_11() -> dict[str, float]:
    """11 steps in a row."""
    return _cold("chain", _chain(11))


def fanout_101() -> dict[str, float]:
    """100 steps, and one that waits for all of them."""
    return _cold("fan", _fan(100, output=False))


def step_overhead() -> dict[str, float]:
    """100 more steps in a row, their results kept, less what 100 shells cost that nobody watches."""
    return _overhead()


def step_overhead_power() -> dict[str, float]:
    """The same where each step has an output that, with the record of its end, is safe from a loss of power."""
    return _overhead("--durability", "power", output=True, kept=False)


def step_overhead_power_kept() -> dict[str, float]:
    """The same, results kept."""
    return _overhead("--durability", "power", output=True)


def power_floor(allowed_s: float = 0.002) -> dict[str, float]:
    """What is allowed, and two syncs of a file of this disk to which a block was added: medians of 50."""
    times = []
    with open(_folder("floor") / "file", "wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(4096))
            times.append(timed(lambda: os.fsync(file.fileno()), lambda _: None)["seconds"])
    return {"seconds": allowed_s + 2 * median(times)}


def _overhead(*flags: str, output: bool = False, kept: bool = True) -> dict[str, float]:
    seconds = {}
    for steps in (1, 101):
        folder = _folder("overhead")
        _write(folder, _chain(steps, output=output), enable=kept)
        seconds[steps] = timed(lambda folder=folder: _run(folder, *flags), lambda _: None)["seconds"]  # type: ignore[misc]
    command = ["sh", "-c", ": > out" if output else "true"]
    shells = timed(lambda: [subprocess.run(command, check=True, cwd=folder) for _ in range(100)], lambda _: None)
    return {"seconds": (seconds[101] - seconds[1] - shells["seconds"]) / 100}


# ----------------------------------------------------------------------------------------------------- the cache alone


def _later() -> float:
    return time.time() + LATER_S


def _recipe(folder: Path, number: int, run: str) -> Recipe:
    return Recipe(
        pipeline="measured",
        step=f"s{number}",
        run=run,
        store=str(folder / ".cas"),
        root=str(folder),
        static={"command": f"echo {number} > {{{{out}}}}", "parameter number": str(number)},
        inputs={"data": [str(folder / "data")]},
        outputs={"out": str(folder / run / f"s{number}" / "out")},
    )


def _claim(recipe: Recipe, key: str, leaves: Mapping[str, str]) -> Claim:
    return Claim(
        key=key,
        epoch=0,
        run=recipe.run,
        step=recipe.step,
        task=0,
        host="here",
        pid=os.getpid(),
        since=0.0,
        lease_until=0.0,
        leaves=leaves,
    )


@cache
def _kept() -> Path:
    folder = _folder("kept")
    (folder / "data").write_text("data")
    results = ResultCache(CacheIndex(folder / "cache.db"), _later)
    for number in range(KNOWN):
        recipe = _recipe(folder, number, "run-1")
        path = Path(recipe.outputs["out"])
        path.parent.mkdir(parents=True)
        path.write_text(f"{number}\n")
        key = results.key(recipe)
        results.index.claim(_claim(recipe, key.key, key.leaves))
        expect(results.keep(recipe, 0.0), "")
    results.index.close()
    return folder


_hit_runs = itertools.count(2)


def hit_decision() -> dict[str, float]:
    """Steps that are known, one after the other.

    Each round has a folder of its own, and none is removed before the end: file systems such as ext4 do not use the
    numbers of removed files again for a while, and look at each of them when a file is made.
    """
    folder = _kept()
    results = ResultCache(CacheIndex(folder / "cache.db"), _later)
    name = f"run-{next(_hit_runs)}"
    recipes = [_recipe(folder, number, name) for number in range(KNOWN)]

    def run() -> int:
        hits = 0
        for recipe in recipes:
            found = results.find(results.key(recipe).key)
            if found.entry is not None:
                results.take(found.entry, recipe)
                hits += 1
        results.index.flush()
        return hits

    found = timed(run, lambda hits: expect(hits, KNOWN))
    expect((folder / name / "s7" / "out").read_text(), "7\n")
    results.index.close()
    return {"seconds": found["seconds"] / KNOWN}


@cache
def _many_files() -> Path:
    folder = _folder("many")
    for at in range(500):
        below = folder / "tree" / f"d{at // 25}" / f"d{at}"
        below.mkdir(parents=True)
        for number in range(100):
            (below / f"file-{number}").write_text(f"{at} {number}")
    index = CacheIndex(folder / "cache.db")
    Digester(index, lambda: int(_later() * 1e9)).of(folder / "tree")
    index.close()
    return folder


def rekey_50000() -> dict[str, float]:
    """The digest of 50,000 files that have not changed."""
    folder = _many_files()
    index = CacheIndex(folder / "cache.db")
    digester = Digester(index, lambda: int(_later() * 1e9))
    found = timed(lambda: digester.of(folder / "tree"), lambda _: expect(digester.bytes_read, 0))
    expect(digester.files_seen >= 50_000, True)
    index.close()
    return found


@cache
def _many_entries(count: int) -> tuple[Path, tuple[str, ...]]:
    folder = _folder(f"entries-{count}")
    index = CacheIndex(folder / "cache.db")
    chance = random.Random(count)
    keys = [f"{chance.getrandbits(256):064x}" for _ in range(count)]
    one = Entry(
        key="", store=str(folder), pipeline="p", step="s", run="run-1", started=0.0, completed=0.0, expires=None
    )
    index.commit(replace(one, key=keys[0]), index.claim(_claim(_recipe(folder, 0, "run-1"), keys[0], {"command": "x"})))
    with index.database.write() as db:
        columns = "store, pipeline, step, run, started, completed, expires, used, size, pinned, leaves, outputs"
        db.many(
            f"INSERT INTO entries (key, {columns}) SELECT :key, {columns} FROM entries WHERE key = :first",
            ({"key": key, "first": keys[0]} for key in keys[1:]),
        )
    index.close()
    return folder, tuple(chance.sample(keys, LOOKED_UP))


def lookup_1e6() -> dict[str, float]:
    """A look-up among many results, and the same among few."""
    seconds = {}
    for count in (1_000, 1_000_000):
        folder, keys = _many_entries(count)
        index = CacheIndex(folder / "cache.db")
        times = []
        for key in keys:
            begin = time.perf_counter()
            entry = index.entry(key)
            times.append(time.perf_counter() - begin)
            expect(entry is not None, True)
        index.close()
        seconds[count] = median(times)
    return {"seconds": seconds[1_000_000], "ratio": seconds[1_000_000] / seconds[1_000]}


# ------------------------------------------------------------------------------------------------------- many processes


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        expect(time.monotonic() < end, True)
        time.sleep(0.002)


def single_flight_64() -> dict[str, float]:
    """64 processes that are started at once."""
    folder = _folder("together")
    _write(folder, {"one": _step("echo ran >> ../together.trace; sleep 1; echo 1 > {{out}}", "out")})
    trace = folder.parent / "together.trace"
    trace.unlink(missing_ok=True)
    processes = [_start(folder) for _ in range(64)]
    for process in processes:
        process.communicate(timeout=DEADLINE_S)
        expect(process.returncode, 0)
    return {"executions": float(len(trace.read_text().split()))}


def takeover() -> dict[str, float]:
    """One process makes a result and is killed while another waits for it."""
    folder = _folder("takeover")
    trace = folder.parent / "takeover.trace"
    trace.unlink(missing_ok=True)
    command = "echo ran >> ../takeover.trace; while [ ! -e gate ]; do sleep 0.02; done; echo 1 > {{out}}"
    _write(folder, {"one": _step(command, "out")})
    owner = _start(folder)
    _until(trace.exists)
    waiter = _start(folder)
    log = folder / ".weft" / "runs" / "run-000002" / DECISIONS
    _until(lambda: log.exists() and "waiting" in log.read_text())
    owner.kill()
    begin = time.perf_counter()
    owner.communicate()
    _until(lambda: len(trace.read_text().split()) == 2)
    seconds = time.perf_counter() - begin
    (folder / "gate").touch()
    waiter.communicate(timeout=DEADLINE_S)
    expect(waiter.returncode, 0)
    return {"seconds": seconds}


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    "cached_101": lambda: _cached(101),
    "cached_1000": lambda: _cached(1_000),
    "cached_8000": lambda: _cached(8_000),
    "report_10000": lambda: _report(10_000),
    "hit_decision": hit_decision,
    "step_overhead": step_overhead,
    "step_overhead_power": step_overhead_power,
    "step_overhead_power_kept": step_overhead_power_kept,
    "power_floor": power_floor,
    "power_kept_floor": lambda: power_floor(0.005),
    "plan_10k": plan_10k,
    "chain_11": chain_11,
    "fanout_101": fanout_101,
    "rekey_50000": rekey_50000,
    "lookup_1e6": lookup_1e6,
    "single_flight_64": single_flight_64,
    "takeover": takeover,
}
