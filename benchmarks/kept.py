"""Finished rows on disk: a long measurement that was stopped goes on with the rows that are missing."""

from __future__ import annotations

import json
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.harness import Row
from benchmarks.report import machine, weft_version
from benchmarks.sizes import FULL
from weft.model.errors import UsageError


class KeptRows:
    """The rows that one measurement has finished, one JSON object a line after a line that says what was measured.

    Rows of another commit, machine or number of rounds are dropped: figures of one page belong together. A row that
    failed is measured again.
    """

    def __init__(self, path: Path, rounds: int) -> None:
        self._path = path
        self._of = {"machine": machine(), "weft": _commit(), "rounds": rounds, "full": FULL}
        self.rows = _read(path, self._of)

    def add(self, row: Row) -> None:
        """Keep a row."""
        if not self._path.exists() or not self.rows:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._of) + "\n", encoding="utf-8")
        self.rows[row.name] = row
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row.as_json()) + "\n")

    def remove(self) -> None:
        """Drop all rows: they stand in a page."""
        self._path.unlink(missing_ok=True)
        self.rows = {}


def _read(path: Path, of: dict[str, Any]) -> dict[str, Row]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    # The last line may be half of one: the measurement was stopped.
    found = [value for line in lines if (value := _object(line))]
    if not found:
        return {}
    if "weft" not in found[0]:
        raise UsageError(f"{path} holds no rows of benchmarks", hint="Name another file with --keep.")
    if found[0] != of:
        return {}
    rows = [_row(value) for value in found[1:]]
    return {row.name: row for row in rows if not row.failed}


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _row(value: dict[str, Any]) -> Row:
    spread = value["spread"]
    return Row(**{field.name: value[field.name] for field in fields(Row)} | {"spread": spread and tuple(spread)})


def _commit() -> str:
    """Name the commit that is measured, the version where no commit is known."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return weft_version()
    return done.stdout.strip() or weft_version()
