"""Random bubbles that stream through narrow windows never hang, and give what the same graph gives when it stores.

Tasks read their inputs one after the other in any order, or in turns, write while they read, and may stop early: what
they bring depends on nothing but what they read, so a stored run is the oracle.
"""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from weft.backends.processes import Processes
from weft.backends.threads import Threads
from weft.graph.builder import Graph, InputSpec, VertexHandle, gather, one_to_one, shuffle
from weft.graph.logical import Storage
from weft.runtime.session import EngineSession
from weft.store.blocks import BlockManager
from weft.store.folders import RunFolders, shm_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

CASES = 40
TIMEOUT_S = 180.0
WORKERS = 12
OPTIONS: Any = {"concurrent": True, "storage": Storage.EPHEMERAL}


def told(ctx: Any, inputs: Any, rng: random.Random) -> Iterator[Any]:
    """Yield what the inputs bring, in an order of the task's own."""
    names = sorted(inputs)
    rng.shuffle(names)
    if rng.random() < 0.5:
        for name in names:
            yield from inputs[name]
        return
    going = [iter(inputs[name]) for name in names]
    while going:
        for one in list(going):
            for _ in range(rng.choice([1, 1, 5])):
                try:
                    yield next(one)
                except StopIteration:
                    going.remove(one)
                    break


def body(ctx: Any, inputs: Any) -> int | None:
    """Write to random edges and partitions while reading; a task that nobody reads returns a digest."""
    rng = random.Random(f"{ctx.params['seed']} {ctx.vertex} {ctx.index}")
    digest = 0
    enough = rng.randrange(200) if rng.random() < 0.2 else 1 << 30
    outputs = ctx.params["outputs"]

    def say(known: int) -> None:
        for edge, parts in outputs:
            for _ in range(rng.choice([0, 1, 2])):
                ctx.out(edge).write(rng.randrange(parts), (known, bytes(rng.choice([0, 10, 3000]))))

    for count, (known, padding) in enumerate(told(ctx, inputs, rng)):
        digest = zlib.crc32(f"{digest} {known} {len(padding)}".encode())
        if rng.random() < ctx.params["rate"]:
            say(digest)
        if count >= enough:
            break
    for at in range(rng.choice([0, 3, 30] if inputs else [40, 80])):
        say(zlib.crc32(f"{digest} {at}".encode()))
    return None if outputs else digest


def random_bubble(rng: random.Random, *, live: bool) -> Graph:
    """Return a graph of a few vertices, all in one bubble if it is `live`, else the same without streams."""
    graph = Graph("bubble")
    nodes: list[VertexHandle] = []
    sizes: list[int] = []
    outputs: list[list[tuple[str, int]]] = []
    seed = rng.random()
    left = WORKERS
    for number in range(rng.randint(2, 5)):
        n = min(left, rng.choice([1, 1, 2, 3]))
        if not n:
            break
        left -= n
        links: list[InputSpec] = []
        for at in sorted(rng.sample(range(number), min(number, rng.choice([1, 1, 2])))):
            for _ in range(rng.choice([1, 1, 1, 2])):
                name = f"e{at}-{number}-{len(links)}"
                options = {"name": name, **(OPTIONS if live else {})}
                kind = rng.choice(["one_to_one", "gather", "shuffle", "shuffle"])
                parts = 1
                if kind == "one_to_one" and sizes[at] == n:
                    links.append(one_to_one(nodes[at], **options))
                elif kind == "shuffle":
                    links.append(shuffle(nodes[at], n, **options))
                    parts = n
                else:
                    links.append(gather(nodes[at], **options))
                outputs[at].append((name, parts))
        outputs.append([])
        params = {"seed": seed, "outputs": outputs[number], "rate": rng.choice([0.1, 0.5, 0.9])}
        nodes.append(graph.task(body, *links, n=n, name=f"v{number}", params=params))
        sizes.append(n)
    if live:
        graph.bubble(*nodes)
    return graph


def check(session: EngineSession, stored: EngineSession, rng: random.Random) -> None:
    state = rng.getstate()
    expected = stored.run(random_bubble(rng, live=False), timeout_s=TIMEOUT_S)
    rng.setstate(state)
    found = session.run(random_bubble(rng, live=True), timeout_s=TIMEOUT_S)
    assert {name: found[name] for name in found} == {name: expected[name] for name in expected}


@pytest.fixture(scope="module")
def stored() -> Iterator[EngineSession]:
    store = BlockManager(1 << 28)
    with EngineSession(Threads(2, store), store) as session:
        yield session


@pytest.mark.parametrize("case", range(CASES))
def test_threads_stream_without_hanging(case: int, seed: int, stored: EngineSession, tmp_path: Path) -> None:
    rng = random.Random(seed * 1000 + case)
    store = BlockManager(rng.choice([100_000, 1 << 28]), spill=tmp_path)
    with EngineSession(Threads(WORKERS, store, window=rng.choice([1, 1000, 20_000])), store) as session:
        check(session, stored, rng)
    assert not any(tmp_path.iterdir())


def test_processes_stream_without_hanging(seed: int, stored: EngineSession, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with RunFolders(f"streams-{tmp_path.name}", shm_root(), tmp_path) as run:
        store = BlockManager(1_000_000, shm=run.shm, spill=run.spill)
        with EngineSession(Processes(WORKERS, store, run.shm, spill=run.spill, window=2000), store) as session:
            for _ in range(10):
                check(session, stored, rng)
