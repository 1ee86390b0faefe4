"""Search for the learning rate at which a classifier of tumours does best.

The same data as run.yaml, as a pipeline in Python: `weft run search.py`, or `python search.py`. A second run takes
everything from the cache; after a change of `fit`, or of a function that it uses, it runs again and `prepare` does not.
"""

import csv
import json
from pathlib import Path

import numpy as np

import weft

DATA = Path("breast_cancer.csv")
RATES = [0.003, 0.03, 0.3, 3.0]


def standardise(x, mean, deviation):
    """Shift and scale the features, so that those of the training rows have mean 0 and deviation 1."""
    return (x - mean) / deviation


def probability(x, weights):
    """Return how sure the model is of each row that it is malignant; the first weight is the bias."""
    return 1 / (1 + np.exp(-(x @ weights[1:] + weights[0])))


@weft.step(cache=weft.CacheOptions(fs_scope=[{"name": "example", "path": str(DATA)}]))
def prepare(train: weft.Output, test: weft.Output, test_fraction: float = 0.2, seed: int = 1):
    """Split the rows by a seed, and standardise them."""
    with DATA.open() as file:
        _, *rows = csv.reader(file)
    x = np.array([row[1:] for row in rows], dtype=float)
    y = np.array([row[0] == "malignant" for row in rows])
    is_test = np.random.default_rng(seed).random(len(y)) < test_fraction
    mean, deviation = x[~is_test].mean(axis=0), x[~is_test].std(axis=0)
    for path, chosen in ((train, ~is_test), (test, is_test)):
        with path.open("wb") as file:
            np.savez(file, x=standardise(x[chosen], mean, deviation), y=y[chosen])


@weft.step
def fit(data: weft.Input, model: weft.Output, rate: float, epochs: int = 200):
    """Fit a logistic regression by gradient descent."""
    table = np.load(data)
    x, y = table["x"], table["y"]
    weights = np.zeros(x.shape[1] + 1)
    for _ in range(epochs):
        error = probability(x, weights) - y
        weights -= rate * np.concatenate([[error.mean()], x.T @ error / len(y)])
    print(f"rate {rate}: {np.abs(error).mean():.4f} off, on average")
    model.write_text(json.dumps({"rate": rate, "weights": weights.tolist()}))


@weft.step
def choose(models: list[weft.Input], test: weft.Input, best: weft.Output):
    """Measure every model on rows that it has not seen, and keep the best."""
    table = np.load(test)
    found = []
    for path in models:
        model = json.loads(path.read_text())
        right = (probability(table["x"], np.array(model["weights"])) > 0.5) == table["y"]
        found.append({"accuracy": float(right.mean()), **model})
        print(f"rate {model['rate']}: {found[-1]['accuracy']:.4f}")
    best.write_text(json.dumps(max(found, key=lambda one: one["accuracy"])))


@weft.command
def show(best: weft.Input):
    """Print the rate and the accuracy."""
    return f"""grep -o '"accuracy": [0-9.]*, "rate": [0-9.]*' {best}"""


@weft.pipeline(cache=True, main_fs={"name": "example"})
def search(rates: list[float] = RATES, epochs: int = 200):
    """Fit a model for each rate, and keep the best."""
    made = prepare()
    fitted = fit(made.train, rate=weft.each(rates), epochs=epochs)
    chosen = choose(fitted.model, made.test)
    show(chosen.best)


if __name__ == "__main__":
    result = search.run()
    print(result.run_id, result.state, json.loads(result.outputs["choose.best"].read_text())["accuracy"])
