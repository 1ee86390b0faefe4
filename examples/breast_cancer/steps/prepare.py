"""Split the data by a seed and standardise it with the statistics of the training part alone."""

import argparse
from pathlib import Path

import numpy as np
from table import Table, read_table, write_table


def split(table: Table, test_fraction: float, seed: int) -> tuple[Table, Table]:
    """Return a training and a test part; each class is split alike."""
    rng = np.random.default_rng(seed)
    is_test = np.zeros(len(table.y), dtype=bool)
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(table.y == label))
        is_test[rows[: round(test_fraction * len(rows))]] = True
    train, test = (Table(table.features, table.x[rows], table.y[rows]) for rows in (~is_test, is_test))
    return train, test


def standardise(train: Table, test: Table) -> tuple[Table, Table]:
    """Shift and scale both parts so that every feature of the training part has mean 0 and deviation 1."""
    mean, deviation = train.x.mean(axis=0), train.x.std(axis=0)
    train, test = (Table(part.features, (part.x - mean) / deviation, part.y) for part in (train, test))
    return train, test


def main() -> None:
    """Read the arguments and write both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("train_data", type=Path, help="written")
    parser.add_argument("test_data", type=Path, help="written")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test-fraction", type=float, default=0.2)
    args = parser.parse_args()

    train, test = standardise(*split(read_table(args.data), args.test_fraction, args.seed))
    write_table(args.train_data, train)
    write_table(args.test_data, test)
    print(f"{len(train.y)} rows to train on, {len(test.y)} to test on, {len(train.features)} features")


if __name__ == "__main__":
    main()
