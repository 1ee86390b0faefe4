"""Print the model and its error on the points that were kept for this."""

import json
import sys
from pathlib import Path


def main() -> None:
    points, path = sys.argv[1:]
    model = json.loads(Path(path).read_text())
    with open(points) as file:
        kept = [[float(word) for word in line.split()] for number, line in enumerate(file) if not number % 3]
    error = sum((model["slope"] * x + model["offset"] - y) ** 2 for x, y in kept) / len(kept)
    print(f"slope {model['slope']:.2f}, offset {model['offset']:.2f}, squared error {error:.4f}")


if __name__ == "__main__":
    main()
