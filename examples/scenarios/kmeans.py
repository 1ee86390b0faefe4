"""Loop: k-means until it converges, as one graph that grows by a round at a time.

Each round is a stage of sums over all blocks of points and an expander, which computes the next centres. It adds the
next round until no centre moves. The rounds are numbered under the name of the first expander. The points are the
tumours of `examples/breast_cancer`, by radius and texture.
"""

from __future__ import annotations

import csv
from pathlib import Path

import show

import weft
from weft import gather
from weft.graph.logical import Edge, Patch

DATA = Path(__file__).parents[1] / "breast_cancer" / "breast_cancer.csv"
BLOCKS = 4

Point = list[float]
Sums = list[tuple[int, float, float]]
"""For each centre the number of its points and the sums of their coordinates."""


def points(block: int) -> list[Point]:
    """Read a block of the points."""
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = [[float(row["radius_mean"]), float(row["texture_mean"])] for row in csv.DictReader(file)]
    return rows[block::BLOCKS]


def add_up(block: list[Point], centres: list[Point]) -> Sums:
    """Assign the points of a block to their nearest centres, and add them up."""
    sums = [(0, 0.0, 0.0)] * len(centres)
    for x, y in block:
        distances = [(x - cx) ** 2 + (y - cy) ** 2 for cx, cy in centres]
        nearest = distances.index(min(distances))
        count, sum_x, sum_y = sums[nearest]
        sums[nearest] = count + 1, sum_x + x, sum_y + y
    return sums


def result(centres: list[Point], rounds: int) -> tuple[int, list[tuple[float, float]]]:
    """Return the number of rounds and the centres."""
    return rounds, [(round(x, 2), round(y, 2)) for x, y in centres]


def first_round(blocks: list[list[Point]]) -> Patch:
    """Begin with the points of the smallest and the largest radius."""
    every = [point for block in blocks for point in block]
    return next_round([min(every), max(every)], 1)


def converge(blocks: list[Sums], centres: list[Point], number: int) -> Patch:
    """Compute the centres of a round, and add the next round unless they have stayed."""
    totals = [tuple(map(sum, zip(*sums, strict=True))) for sums in zip(*blocks, strict=True)]
    moved = [
        [sum_x / count, sum_y / count] if count else old
        for (count, sum_x, sum_y), old in zip(totals, centres, strict=True)
    ]
    if moved != centres:
        return next_round(moved, number + 1)
    graph = weft.Graph("end")
    graph.add(result, name="fit/centres", params={"centres": moved, "rounds": number}, keep=True)
    return Patch.of(graph)


def next_round(centres: list[Point], number: int) -> Patch:
    """Return the patch of a round."""
    graph = weft.Graph("round")
    sums = graph.add(add_up, n=BLOCKS, name=f"fit/sums-{number}", params={"centres": centres})
    params = {"centres": centres, "number": number}
    graph.add(converge, gather(sums), name=f"fit/round-{number}", params=params, expands=True)
    return Patch.of(graph, [Edge("points", sums.id)])


def build() -> tuple[weft.Graph, str]:
    """Return the graph, whose rounds are added while it runs, and the name of the last vertex."""
    graph = weft.Graph("kmeans")
    blocks = graph.map(points, range(BLOCKS), name="points")
    graph.add(first_round, gather(blocks), name="fit", expands=True)
    return graph, "fit/centres"


if __name__ == "__main__":
    graph, centres = build()
    show.run(graph, "k-means until no centre moves, one round after another.", centres)
