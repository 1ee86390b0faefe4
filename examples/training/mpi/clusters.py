"""Find clusters of digits by k-means; each process holds a part of the images, and all share the sums of clusters."""

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

CLUSTERS = 10
ROUNDS = 30


def main():
    world = MPI.COMM_WORLD
    print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}", flush=True)
    images, labels = load_digits(return_X_y=True)
    centres = images[np.random.default_rng(0).choice(len(images), CLUSTERS, replace=False)]
    own, truth = images[world.rank :: world.size], labels[world.rank :: world.size]
    for _ in range(ROUNDS):
        distances = ((own[:, None, :] - centres[None]) ** 2).sum(-1)
        nearest = distances.argmin(1)
        members = np.eye(CLUSTERS)[nearest]
        sums, counts = world.allreduce(members.T @ own), world.allreduce(members.sum(0))
        centres = sums / np.maximum(counts, 1)[:, None]
    digits_in_clusters = world.allreduce(members.T @ np.eye(10)[truth])
    inertia = world.allreduce(distances.min(1).sum())
    if world.rank == 0:
        print(f"inertia {inertia:.0f}")
        print(f"purity {digits_in_clusters.max(1).sum() / len(images):.3f}", flush=True)


if __name__ == "__main__":
    main()
