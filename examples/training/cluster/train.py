"""Data-parallel training in plain Python: each replica has a part of the data, and the master adds the gradients.

The model is a line through points of y = 3 x + 2. All replicas know the master by MASTER_ADDR and MASTER_PORT, on one
machine as on many. The master keeps a checkpoint, from which all go on after a restart.
"""

import json
import os
import socket
import time

from weft.training import checkpoint_dir, report

STEPS, RATE, POINTS = 200, 0.7, 1000
RANK, REPLICAS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
MODEL = checkpoint_dir() / "model.json"


def gradient(slope: float, offset: float) -> tuple[float, float, float]:
    """Return the gradient of the loss at the points of this replica, and the loss."""
    by_slope = by_offset = loss = 0.0
    for point in range(RANK, POINTS, REPLICAS):
        x = point / POINTS
        error = slope * x + offset - (3 * x + 2)
        by_slope, by_offset, loss = by_slope + 2 * error * x, by_offset + 2 * error, loss + error * error
    return by_slope / POINTS, by_offset / POINTS, loss / POINTS


def connect() -> list:
    """Return the connections to the others as files: those of the workers at the master, that to the master at them."""
    if RANK == 0:
        with socket.create_server(("", MASTER[1])) as server:
            return [server.accept()[0].makefile("rw") for _ in range(REPLICAS - 1)]
    while True:
        try:
            return [socket.create_connection(MASTER).makefile("rw")]
        except ConnectionRefusedError:
            time.sleep(0.05)  # the master is about to start


def send(connection, value) -> None:
    connection.write(json.dumps(value) + "\n")
    connection.flush()


def summed(mine: tuple[float, ...], others: list) -> tuple[float, ...]:
    """Return the sum of what all replicas have, at each of them."""
    if RANK:
        send(others[0], mine)
        return tuple(json.loads(others[0].readline()))
    total = tuple(map(sum, zip(mine, *(json.loads(other.readline()) for other in others), strict=True)))
    for other in others:
        send(other, total)
    return total


def main() -> None:
    others = connect()
    if RANK:
        first, slope, offset = json.loads(others[0].readline())
    else:
        first, slope, offset = json.loads(MODEL.read_text()) if MODEL.exists() else (0, 0.0, 0.0)
        for other in others:
            send(other, (first, slope, offset))
    for step in range(first, STEPS):
        by_slope, by_offset, loss = summed(gradient(slope, offset), others)
        slope, offset = slope - RATE * by_slope, offset - RATE * by_offset
        report(step=step + 1, progress=(step + 1) / STEPS, loss=loss)
        if RANK == 0 and (step + 1) % 10 == 0:
            new = MODEL.with_suffix(".new")
            new.write_text(json.dumps((step + 1, slope, offset)))
            new.replace(MODEL)
    print(f"rank {RANK} of {REPLICAS}: y = {slope:.2f} x + {offset:.2f}", flush=True)


main()
