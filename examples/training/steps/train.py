"""Fit a line with gradients from all replicas, without a framework: each has a part of the points, the master adds up.

The variables are those of a PyTorchJob: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. The master writes the model.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from weft.training import checkpoint_dir, report

RATE = 0.5
PATIENCE_S = 60.0


def part_of(path: str, rank: int, size: int) -> list[list[float]]:
    """Return the points of a replica; every third point is for the evaluation."""
    with open(path) as file:
        points = [[float(word) for word in line.split()] for line in file]
    return [point for number, point in enumerate(points) if number % 3][rank::size]


def gradient(model: list[float], points: list[list[float]]) -> list[float]:
    """Return the sums of the derivatives by slope and offset, and the number of points."""
    errors = [(model[0] * x + model[1] - y, x) for x, y in points]
    return [sum(error * x for error, x in errors), sum(error for error, _ in errors), len(points)]


def connect(host: str, port: int) -> socket.socket:
    """Connect to the master, which may start later."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((host, port))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def lead(points: list[list[float]], size: int, port: int, epochs: int) -> list[float]:
    """Run the master: send the model of each epoch, add up what comes back, and return the last model."""
    saved = checkpoint_dir() / "model.json"
    begin, model = json.loads(saved.read_text()) if saved.exists() else (0, [0.0, 0.0])
    if begin:
        print(f"continuing at epoch {begin}", flush=True)
    with socket.create_server(("", port)) as server:
        others = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
    for epoch in range(begin, epochs):
        for other in others:
            print(json.dumps(model), file=other, flush=True)
        sums = [gradient(model, points), *(json.loads(other.readline()) for other in others)]
        slope, offset, count = (sum(column) for column in zip(*sums, strict=True))
        model = [model[0] - RATE * slope / count, model[1] - RATE * offset / count]
        report(step=epoch + 1, progress=(epoch + 1) / epochs, slope=model[0], offset=model[1])
        saved.with_suffix(".new").write_text(json.dumps([epoch + 1, model]))
        saved.with_suffix(".new").replace(saved)
    return model


def models(host: str, port: int) -> Iterator[tuple[list[float], object]]:
    """Yield the models that the master sends, each with the place for the answer, until it ends."""
    with connect(host, port) as connection, connection.makefile("rw") as stream:
        for line in stream:
            yield json.loads(line), stream


def main() -> None:
    path, model_path = sys.argv[1:]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    points = part_of(path, rank, size)
    print(f"rank {rank} of {size} has {len(points)} points", flush=True)
    if rank:
        for model, stream in models(host, port):
            print(json.dumps(gradient(model, points)), file=stream, flush=True)
        return
    model = lead(points, size, port, int(os.environ["EPOCHS"]))
    Path(model_path).write_text(json.dumps({"slope": model[0], "offset": model[1]}))


if __name__ == "__main__":
    main()
