"""Fit a logistic regression by gradient descent."""

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from table import read_table

Vector = NDArray[np.float64]


def sigmoid(z: Vector) -> Vector:
    """Return 1 / (1 + exp(-z)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def log_loss(probability: Vector, y: NDArray[np.int64]) -> float:
    """Return the mean negative log-likelihood of the true classes."""
    of_truth = np.where(y == 1, probability, 1.0 - probability)
    return float(-np.log(np.clip(of_truth, 1e-12, 1.0)).mean())


def fit(x: Vector, y: NDArray[np.int64], epochs: int, learning_rate: float, l2: float) -> tuple[Vector, float]:
    """Return weights (features,) and bias that minimise log loss + l2/2 · |weights|²."""
    weights, bias = np.zeros(x.shape[1]), 0.0
    for epoch in range(1, epochs + 1):
        probability = sigmoid(x @ weights + bias)
        error = probability - y
        weights -= learning_rate * (x.T @ error / len(y) + l2 * weights)
        bias -= learning_rate * float(error.mean())
        if epoch % max(1, epochs // 10) == 0:
            print(f"epoch {epoch:4d}  log loss {log_loss(probability, y):.4f}")
    return weights, bias


def main() -> None:
    """Read the arguments, fit, and write the model as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train_data", type=Path)
    parser.add_argument("model", type=Path, help="written")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--learning-rate", type=float, default=0.5)
    parser.add_argument("--l2", type=float, default=0.01)
    args = parser.parse_args()

    table = read_table(args.train_data)
    weights, bias = fit(table.x, table.y, args.epochs, args.learning_rate, args.l2)
    model = {"features": table.features, "weights": weights.tolist(), "bias": bias}
    args.model.write_text(json.dumps(model, indent=2) + "\n")


if __name__ == "__main__":
    main()
