"""Train a classifier of digits with parameter servers: the chief coordinates, the workers compute.

TF_CONFIG names the processes. Each step reads the variables from the parameter servers and adds its gradients to them.
"""

import argparse
import time

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

HIDDEN = 64
BATCH = 64
TEST = 360


def digits():
    """Return train images (rows, 64), train labels, test images and test labels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] / 16).astype("float32"), labels[order].astype("int64")
    return images[TEST:], labels[TEST:], images[:TEST], labels[:TEST]


def coordinate(resolver, steps, rate):
    """Train on the workers of the cluster; print the accuracy on the test images."""
    servers = resolver.cluster_spec().num_tasks("ps")
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        random = tf.random.Generator.from_seed(1)
        first = tf.Variable(random.normal((64, HIDDEN), stddev=0.1), name="first")
        second = tf.Variable(random.normal((HIDDEN, 10), stddev=0.1), name="second")
    variables = [first, second]
    train_images, train_labels, test_images, test_labels = digits()

    def logits(images):
        return tf.nn.relu(images @ tf.convert_to_tensor(first)) @ tf.convert_to_tensor(second)

    def dataset():
        rows = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
        return rows.shuffle(len(train_labels)).repeat().batch(BATCH)

    @tf.function
    def step(rows):
        images, labels = next(rows)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits(images))
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(rate * gradient)
        return loss

    rows = iter(coordinator.create_per_worker_dataset(dataset))
    begin = time.perf_counter()
    for done in range(0, steps, 100):
        losses = [coordinator.schedule(step, args=(rows,)) for _ in range(min(100, steps - done))]
        coordinator.join()
        print(f"step {done + len(losses)} loss {losses[-1].fetch():.3f}", flush=True)
    seconds = time.perf_counter() - begin
    accuracy = np.mean(np.argmax(logits(test_images), axis=1) == test_labels)
    print(f"{steps} steps in {seconds:.1f} s")
    print(f"accuracy {accuracy:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--learning-rate", type=float, default=0.3)
    args = parser.parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        coordinate(resolver, args.steps, args.learning_rate)
        return
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()


if __name__ == "__main__":
    main()
