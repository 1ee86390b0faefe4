"""Write what came out as a page for people."""

import argparse
import json
from pathlib import Path

SHOWN = 8

PAGE = """\
# {title}

Accuracy **{accuracy:.3f}** and ROC AUC **{roc_auc:.4f}** on {rows} rows that the model has not seen.

| | is malignant | is benign |
|---|---:|---:|
| **predicted malignant** | {true_malignant} | {false_malignant} |
| **predicted benign** | {false_benign} | {true_benign} |

## What the model looks at

Weights of the {shown} strongest features, per standard deviation. Positive speaks for malignant.

| feature | weight |
|---|---:|
{weights}
"""


def main() -> None:
    """Read the arguments and write the report as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("metrics", type=Path)
    parser.add_argument("report", type=Path, help="written")
    parser.add_argument("--title", default="Breast cancer diagnosis")
    args = parser.parse_args()

    model, metrics = json.loads(args.model.read_text()), json.loads(args.metrics.read_text())
    pairs = zip(model["features"], model["weights"], strict=True)
    strongest = sorted(pairs, key=lambda pair: -abs(pair[1]))[:SHOWN]
    weights = "\n".join(f"| {feature.replace('_', ' ')} | {weight:+.2f} |" for feature, weight in strongest)
    page = PAGE.format(title=args.title, shown=SHOWN, weights=weights, **metrics, **metrics["confusion"])
    args.report.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
