"""Read and write the tables that the steps hand on: CSV with a header, the class first, then the features."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

POSITIVE = "malignant"


@dataclass(frozen=True)
class Table:
    """Rows with a class: `x` is (rows, features), `y` is (rows,) with 1 where the tumour is malignant."""

    features: list[str]
    x: NDArray[np.float64]
    y: NDArray[np.int64]


def read_table(path: Path) -> Table:
    """Read a table; the first column is the class."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    x = np.array([row[1:] for row in rows], dtype=np.float64)
    y = np.array([row[0] == POSITIVE for row in rows], dtype=np.int64)
    return Table(header[1:], x, y)


def write_table(path: Path, table: Table) -> None:
    """Write a table so that `read_table` returns the same numbers."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["diagnosis", *table.features])
        for label, row in zip(table.y, table.x.tolist(), strict=True):
            writer.writerow([POSITIVE if label else "benign", *row])
