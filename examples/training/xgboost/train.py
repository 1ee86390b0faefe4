"""Train boosted trees on digits; the master runs the tracker of XGBoost, and each process holds a part of the rows.

MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE name the processes. The master asks for each worker at WORKER_ADDRS, where
all of them listen at the same WORKER_PORT, before it starts.
"""

import os
import socket
import time

import numpy as np
import xgboost
from sklearn.datasets import load_digits
from xgboost import collective
from xgboost.tracker import RabitTracker

TEST = 360
PATIENCE_S = 120


def meet(rank):
    """Return on the master once all workers listen, and on a worker once the master has called."""
    port = int(os.environ["WORKER_PORT"])
    if rank > 0:
        with socket.create_server(("", port)) as server:
            server.settimeout(PATIENCE_S)
            server.accept()[0].close()
        return
    for worker in os.environ["WORKER_ADDRS"].split(","):
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection((worker, port), timeout=PATIENCE_S).close()
                print(f"{worker}:{port} is there", flush=True)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = socket.gethostbyname(os.environ["MASTER_ADDR"])
    meet(rank)
    tracker = None
    if rank == 0:
        tracker = RabitTracker(world, address, int(os.environ["MASTER_PORT"]), sortby="task")
        tracker.start()
    images, labels = load_digits(return_X_y=True)
    train = xgboost.DMatrix(images[TEST + rank :: world], labels[TEST + rank :: world])
    test = xgboost.DMatrix(images[:TEST], labels[:TEST])
    parameters = {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "nthread": 1}
    with collective.CommunicatorContext(
        dmlc_communicator="rabit",
        dmlc_tracker_uri=address,
        dmlc_tracker_port=int(os.environ["MASTER_PORT"]),
        dmlc_task_id=f"{rank:03d}",
        dmlc_retry=10,
    ):
        print(f"rank {collective.get_rank()} of {collective.get_world_size()}", flush=True)
        model = xgboost.train(parameters, train, num_boost_round=20)
        if rank == 0:
            print(f"accuracy {np.mean(model.predict(test) == labels[:TEST]):.3f}", flush=True)
    if tracker is not None:
        tracker.wait_for()


if __name__ == "__main__":
    main()
