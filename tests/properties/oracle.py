"""DuckDB in a process of its own, which answers queries over tables: some queries end its process.

`python -m tests.properties.oracle` reads pickled paths of the tables by name and then queries, one after the other, and
writes for each the rows as an Arrow table, or the text of its error.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

ROOT = Path(__file__).parents[2]


class OracleFaultError(Exception):
    """DuckDB has crashed, or failed in its own code: it has no answer."""


class Oracle:
    """Answers queries over Parquet files; a new process follows one that has ended."""

    def __init__(self, tables: Mapping[str, Sequence[str]]) -> None:
        self._tables = dict(tables)
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.properties.oracle"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the trace of a crash
        )
        assert process.stdin is not None
        pickle.dump(self._tables, process.stdin)
        return process

    def rows(self, text: str) -> pa.Table:
        """Return the rows of a query; duckdb.Error: it is wrong, or fails. OracleFaultError: there is no answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            pickle.dump(text, stdin)
            stdin.flush()
            answer = pickle.load(stdout)
        except (EOFError, BrokenPipeError) as error:
            self.close()
            self._process = self._started()
            raise OracleFaultError(f"DuckDB ended at: {text}") from error
        if isinstance(answer, str):
            raise duckdb.Error(answer)
        return answer

    def close(self) -> None:
        """End the process."""
        for file in (self._process.stdin, self._process.stdout):
            assert file is not None
            with suppress(BrokenPipeError):
                file.close()
        self._process.wait()


def _answer() -> None:
    source, target = sys.stdin.buffer, sys.stdout.buffer
    connection = duckdb.connect(config={"threads": 1, "arrow_lossless_conversion": True})
    # DuckDB 1.5 loses NULLs that IS NOT DISTINCT FROM joins, if it filters one side by what the other has.
    connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
    for name, paths in pickle.load(source).items():
        # Read once, and not by each query; without the option DuckDB drops rows with NaN by the bounds of files.
        connection.execute(f"CREATE TABLE {name} AS FROM read_parquet({paths}, can_have_nan = true)")
    while True:
        try:
            text = pickle.load(source)
        except EOFError:
            return
        try:
            answer: pa.Table | str = connection.execute(text).to_arrow_table()
        except duckdb.InternalException:  # after it the database refuses all queries
            return
        except duckdb.Error as error:
            answer = str(error)
        pickle.dump(answer, target)
        target.flush()


if __name__ == "__main__":
    _answer()
