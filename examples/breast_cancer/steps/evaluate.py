"""Measure a model on rows it has not seen: accuracy, ROC AUC, confusion matrix."""

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from table import read_table


def roc_auc(score: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """Return the chance that a malignant row scores above a benign one; ties count half."""
    above = score[y == 1][:, None] - score[y == 0][None, :]
    return float((above > 0).mean() + 0.5 * (above == 0).mean())


def main() -> None:
    """Read the arguments, print the metrics and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("test_data", type=Path)
    parser.add_argument("metrics", type=Path, help="written")
    args = parser.parse_args()

    model = json.loads(args.model.read_text())
    table = read_table(args.test_data)
    score = table.x @ np.array(model["weights"]) + model["bias"]
    predicted = (score > 0).astype(np.int64)  # a score above 0 is a probability above one half
    metrics = {
        "rows": len(table.y),
        "accuracy": float((predicted == table.y).mean()),
        "roc_auc": roc_auc(score, table.y),
        "confusion": {
            "true_malignant": int(((predicted == 1) & (table.y == 1)).sum()),
            "false_malignant": int(((predicted == 1) & (table.y == 0)).sum()),
            "false_benign": int(((predicted == 0) & (table.y == 1)).sum()),
            "true_benign": int(((predicted == 0) & (table.y == 0)).sum()),
        },
    }
    text = json.dumps(metrics, indent=2)
    args.metrics.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
