"""Gangs of a simulated cluster: tasks that exchange values while they run, and what a plain program would compute."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

from weft.graph.builder import Graph, Reads, VertexHandle, gather, one_to_one, shuffle
from weft.graph.logical import LogicalGraph, MovementKind, Retry, Storage
from weft.graph.order import topological
from weft.graph.routing import bind
from weft.graph.task import resolve

SMALL = 64
OFTEN = Retry(infrastructure=1_000, crash=1_000)


def told(values: Any, *, size: int, salt: str) -> bytes:
    """Return bytes that tell of all values."""
    found = hashlib.blake2b(salt.encode(), digest_size=8)
    for value in values:
        found.update(value[:8] + value[-8:])
    return found.digest() * (size // 8)


def passes_on(ctx: Any, inputs: Mapping[str, Any]) -> bytes | None:
    """Write blocks while it reads those of others; return what tells of all of them, unless it has written pieces."""
    own = f"{ctx.params['name']}[{ctx.index}]"
    seen = [told([], size=8, salt="".join(ctx.endpoints(name))) for name in ctx.params["services"]]
    outputs: dict[str, int] = ctx.params["outputs"]

    def write(at: int) -> None:
        for edge, parts in outputs.items():
            size = ctx.params["sizes"][at % len(ctx.params["sizes"])]
            ctx.out(edge).write(at % max(1, parts), told(seen, size=size, salt=f"{own}{at}"))

    at = 0
    for edge in ctx.params["inputs"]:
        for value in inputs[edge]:
            seen.append(value)
            write(at)
            at += 1
    for more in range(ctx.params["blocks"]):
        write(at + more)
    return None if any(outputs.values()) else told(seen, size=ctx.params["sizes"][0], salt=own)


def serves(ctx: Any, inputs: Mapping[str, Any]) -> None:
    """Be there until nobody needs it."""
    ctx.emit("endpoint", f"{ctx.index}")
    while not ctx.cancelled():
        ctx.host.rest(1.0)


def random_gang(rng: random.Random, name: str, most: int) -> Graph:
    """Return a graph whose bubble of at most `most` tasks exchanges values, with tasks before and behind it."""
    graph = Graph(name)
    services: list[VertexHandle] = []
    members: list[VertexHandle] = []
    left = most
    if left > 2 and rng.random() < 0.3:
        left -= 1
        services.append(graph.service(serves, n=1, name=f"{name}s", retry=OFTEN))
    layers = [rng.randint(1, 2) for _ in range(rng.randint(2, 3))]
    while sum(layers) > left:
        layers.remove(max(layers))
    for at, n in enumerate(layers):
        params: dict[str, Any] = {"name": f"{name}g{at}", "outputs": {}, "inputs": [], "services": []}
        params["sizes"] = [rng.choice([SMALL, 70_000, 200_000]) for _ in range(rng.randint(1, 3))]
        params["blocks"] = rng.choice([1, 1, 3, 10])
        inputs: list[Reads] = []
        if services and (not at or rng.random() < 0.3):
            inputs.append(services[0])
            params["services"].append(services[0].id)
        if at:
            inputs.append(_link(rng, members[-1], layers[at - 1], n, f"{name}e{at}"))
            params["inputs"].append(f"{name}e{at}")
        members.append(graph.task(passes_on, *inputs, n=n, name=f"{name}g{at}", params=params, retry=OFTEN))
    graph.bubble(*services, *members)
    members[-1].keep()
    return graph


def _link(rng: random.Random, source: VertexHandle, m: int, n: int, name: str) -> Reads:
    """Let `n` tasks read `m` others while these run."""
    outputs: dict[str, int] = source.vertex.program.params["outputs"]
    if rng.random() < 0.2:
        return gather(source, name=name, concurrent=True)  # values of ended tasks
    kind = rng.choice([gather, shuffle, one_to_one if m == n else gather])
    outputs[name] = n if kind is shuffle else 0
    if kind is shuffle:
        return shuffle(source, n, name=name, concurrent=True, storage=Storage.EPHEMERAL)
    return kind(source, name=name, concurrent=True, storage=Storage.EPHEMERAL)


class _Alone:
    """The context of a task whose inputs are complete."""

    def __init__(self, vertex: Any, index: int, endpoints: Mapping[str, list[Any]]) -> None:
        self.params, self.index, self.endpoints = vertex.program.params, index, endpoints.__getitem__
        self.written: dict[str, dict[int, list[Any]]] = {}
        self._edge = ""

    def out(self, edge: str) -> Any:
        self._edge = edge
        return self

    def write(self, part: int, value: Any) -> None:
        self.written.setdefault(self._edge, {}).setdefault(part, []).append(value)


def values_of(graph: LogicalGraph) -> dict[str, list[Any]]:
    """Return the values of a gang, computed one task after the other."""
    values: dict[str, list[Any]] = {}
    written: dict[str, list[_Alone]] = {}
    sizes = {vertex.id: n for vertex in graph.vertices.values() if isinstance(n := vertex.parallelism, int)}
    endpoints = {name: [f"{at}" for at in range(n)] for name, n in sizes.items()}
    for name in topological(graph):
        vertex = graph.vertices[name]
        fn = resolve(vertex.program)
        if fn is serves:
            continue
        values[name], written[name] = [], []
        for index in range(sizes[name]):
            inputs = {
                edge.id: list(_read(edge, index, written, values, sizes))
                for edge in graph.edges
                if edge.dst == name and edge.movement.move is not MovementKind.NONE
            }
            context = _Alone(vertex, index, endpoints)
            values[name].append(fn(context, inputs))
            written[name].append(context)
    return values


def _read(edge: Any, index: int, written: Any, values: Any, sizes: Any) -> Iterator[Any]:
    router = bind(edge, sizes[edge.src], sizes[edge.dst])
    assert router is not None
    for lo, hi, part_lo, part_hi in router.inputs(index):
        for source in range(lo, hi):
            if edge.storage is not Storage.EPHEMERAL:
                yield values[edge.src][source]
                continue
            for part in range(part_lo, part_hi):
                yield from written[edge.src][source].written.get(edge.id, {}).get(part, [])
