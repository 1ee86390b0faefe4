"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import dynamic, federated, pipelines, ray, sql, tasks, tensors, training
from benchmarks.contestants import Contestants
from benchmarks.harness import PATIENCE_S, Row, Spec, measure, wait_until_quiet
from benchmarks.kept import KeptRows
from benchmarks.report import Measured, page, table
from benchmarks.sizes import FULL
from weft.model.errors import UsageError, WeftError

SUITES: dict[str, Sequence[Spec]] = {
    "tasks": tasks.SPECS,
    "dynamic": dynamic.SPECS,
    "pipelines": pipelines.SPECS,
    "tensors": tensors.SPECS,
    "training": training.SPECS,
    "federated": federated.SPECS,
    "sql": sql.SPECS,
    "ray": ray.SPECS,
}
LEAST_ROUNDS = 3


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Weft against its peers.",
        epilog="With BENCHMARKS_FULL=1 in the environment the rows that go to disk take 20 and 40 GB of disk, and "
        "those of clusters 4 GB of memory and tables of TPC-H at scale 1. BENCHMARKS_SCALE=10 gives the latter another "
        "scale, and BENCHMARKS_QUERIES=1,6 runs these queries alone.",
    )
    parser.add_argument("name", choices=[*SUITES, "all"], help="the suite to run")
    parser.add_argument("--json", action="store_true", help="one JSON object for each row, a line each")
    parser.add_argument("--rows", default="", metavar="A,B", help="only these rows")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help=f"at least {LEAST_ROUNDS} (default: 5)")
    wait = f"how long to wait for a quiet machine (default: {PATIENCE_S:g})"
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="SECONDS", help=wait)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the sections of the suite into a page")
    keep = "keep finished rows here until the end; rows of this commit that are there are not measured again"
    parser.add_argument("--keep", type=Path, metavar="FILE", help=keep)
    return parser.parse_args(argv)


def chosen(suite: str, rows: str) -> dict[str, list[Spec]]:
    """Return the specs to measure, by suite; UsageError for a row that there is not."""
    suites = {name: list(specs) for name, specs in SUITES.items() if suite in (name, "all")}
    wanted = [name.strip() for name in rows.split(",") if name.strip()]
    if not wanted:
        return suites
    known = {spec.name for specs in suites.values() for spec in specs}
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no row {name!r}", hint=f"There are: {', '.join(sorted(known))}")
    return {name: [spec for spec in specs if spec.name in wanted] for name, specs in suites.items()}


def run(argv: Sequence[str] | None = None) -> int:
    """Measure what the arguments name and show it; return the exit code: 1 if a row could not be measured."""
    arguments = _arguments(argv)
    if arguments.rounds < LEAST_ROUNDS:
        raise UsageError(f"--rounds is {arguments.rounds}; a median takes at least {LEAST_ROUNDS}")
    if arguments.write is not None and arguments.rows:
        raise UsageError("--write takes all rows of a suite", hint="Leave --rows out.")
    suites = chosen(arguments.name, arguments.rows)
    quiet = wait_until_quiet(arguments.patience)
    kept = None if arguments.keep is None else KeptRows(arguments.keep, arguments.rounds)
    finished = {} if kept is None else kept.rows
    found: dict[str, tuple[Sequence[Spec], Sequence[Row]]] = {}
    with Contestants() as contestants:
        for name, specs in suites.items():
            rows: list[Row] = []
            for row in measure(specs, arguments.rounds, contestants.ask, finished=dict(finished)):
                rows.append(row)
                if kept is not None and row.name not in finished:
                    kept.add(row)
                if arguments.json:
                    print(json.dumps(row.as_json()), flush=True)
                else:
                    print(f"{row.name} ...", file=sys.stderr, flush=True)
                if row.failed:
                    print(f"benchmarks: {row.name} failed: {row.failed}", file=sys.stderr, flush=True)
            found[name] = specs, rows
    if not arguments.json:
        from rich.console import Console

        console = Console()
        if not console.is_terminal:
            console.width = 150
        for _, rows_found in found.values():
            console.print(table(rows_found))
    if arguments.write is not None:
        before = arguments.write.read_text(encoding="utf-8") if arguments.write.exists() else ""
        measured = Measured(arguments.rounds, quiet, datetime.now(tz=UTC).date(), full=FULL)
        arguments.write.write_text(page(before, found, measured), encoding="utf-8")
    if kept is not None:
        kept.remove()
    return int(any(row.failed for _, rows in found.values() for row in rows))


def main() -> None:
    """Run, and show an error that was foreseen as one line."""
    try:
        sys.exit(run())
    except WeftError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
