"""Train a classifier of digits on the devices of several processes; COORDINATOR_* and PROCESS_ID name them."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

TEST = 357
STEPS = 200


def loss(weights, images, labels):
    """Return the mean cross entropy of a network with one hidden layer."""
    scores = jax.nn.log_softmax(jax.nn.relu(images @ weights["first"]) @ weights["second"])
    return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()


@jax.jit
def step(weights, images, labels):
    """Return the weights after one step of gradient descent, and the loss before it."""
    value, gradients = jax.value_and_grad(loss)(weights, images, labels)
    return jax.tree.map(lambda weight, gradient: weight - 0.5 * gradient, weights, gradients), value


def main():
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
        num_processes=int(os.environ["NUM_PROCESSES"]),
        process_id=int(os.environ["PROCESS_ID"]),
    )
    rank, world = jax.process_index(), jax.process_count()
    print(f"process {rank} of {world}, {jax.local_device_count()} of {jax.device_count()} devices", flush=True)

    mesh = Mesh(np.array(jax.devices()), ("rows",))
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    by_rows = NamedSharding(mesh, PartitionSpec("rows"))
    own = slice(TEST + rank, None, world)
    rows = jax.make_array_from_process_local_data(by_rows, images[own])
    classes = jax.make_array_from_process_local_data(by_rows, labels[own])
    random = np.random.default_rng(0)
    weights = {
        "first": random.normal(0, 0.1, (64, 64)).astype("float32"),
        "second": random.normal(0, 0.1, (64, 10)).astype("float32"),
    }
    weights = jax.device_put(weights, NamedSharding(mesh, PartitionSpec()))
    for done in range(1, STEPS + 1):
        weights, value = step(weights, rows, classes)
        if rank == 0 and done % 50 == 0:
            print(f"step {done} loss {value:.3f}", flush=True)
    found = multihost_utils.global_array_to_host_local_array(weights, mesh, PartitionSpec())
    if rank == 0:
        scores = np.maximum(images[:TEST] @ np.asarray(found["first"]), 0) @ np.asarray(found["second"])
        print(f"accuracy {np.mean(scores.argmax(1) == labels[:TEST]):.3f}", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
