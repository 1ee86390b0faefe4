"""A parameter server and its workers in plain Python: logistic regression on points that are made.

Each worker asks the server for the weights, computes a gradient of its own points, and sends it. The job ends when the
first worker has done its steps. Reports tell the steps, so that trials of several numbers of workers can be compared.
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import socketserver
import sys
import threading
import time

from weft.training import checkpoint_dir, report

FEATURES = 20
BATCH = 100
RATE = 0.5
CLUSTER = json.loads(os.environ["TF_CONFIG"])


def serve(port: int) -> None:
    """Hold the weights, and add what workers send."""
    weights, lock = [0.0] * FEATURES, threading.Lock()

    class Worker(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                with lock:
                    for at, change in enumerate(json.loads(line)):
                        weights[at] -= RATE * change
                    answer = json.dumps(weights)
                self.wfile.write(answer.encode() + b"\n")

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("", port), Worker) as server:
        server.serve_forever()


def gradient(weights: list[float], dice: random.Random) -> tuple[list[float], float]:
    """Return the gradient and the loss of a batch; the first half of the features decides."""
    total, loss = [0.0] * FEATURES, 0.0
    for _ in range(BATCH):
        point = [dice.uniform(-1, 1) for _ in range(FEATURES)]
        label = 1.0 if sum(point[: FEATURES // 2]) > 0 else 0.0
        guess = 1 / (1 + math.exp(-sum(w * x for w, x in zip(weights, point, strict=True))))
        loss -= math.log(max(guess if label else 1 - guess, 1e-9)) / BATCH
        for at, x in enumerate(point):
            total[at] += (guess - label) * x / BATCH
    return total, loss


def connect(address: str) -> socket.socket:
    """Connect to the server, which may start later than its workers."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=60)
        except OSError:
            time.sleep(0.05)


def train(address: str, index: int, steps: int) -> None:
    """Do the steps of a worker."""
    dice, weights = random.Random(index), [0.0] * FEATURES
    with connect(address).makefile("rw") as server:
        for step in range(steps):
            change, loss = gradient(weights, dice)
            server.write(json.dumps(change) + "\n")
            server.flush()
            weights = json.loads(server.readline())
            report(step=step, progress=(step + 1) / steps, loss=loss)
    (checkpoint_dir() / f"weights-{index}.json").write_text(json.dumps(weights))
    print(f"loss {loss:.3f} after {steps} steps")


if __name__ == "__main__":
    addresses, task = CLUSTER["cluster"], CLUSTER["task"]
    if task["type"] == "ps":
        serve(int(addresses["ps"][0].rpartition(":")[2]))
    else:
        train(addresses["ps"][0], task["index"], int(sys.argv[1]))
