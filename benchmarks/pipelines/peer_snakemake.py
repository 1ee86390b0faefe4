"""The cases for snakemake: the same steps as rules, each with a file that says that it ran."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.harness import expect, timed


def _rule(name: str, output: str, needs: str) -> str:
    return f"rule {name}:\n    input: {needs}\n    output: {output!r}\n    shell: 'touch {{output}}'\n"


def _run(rules: str, last: str) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="weft-benchmark-"))
    try:
        (folder / "Snakefile").write_text(f"rule all:\n    input: {last!r}\n{rules}")
        command = [sys.executable, "-m", "snakemake", "--cores", "2", "--quiet", "all"]

        def run() -> int:
            return subprocess.run(command, cwd=folder, capture_output=True).returncode

        found = timed(run, lambda code: expect(code, 0))
        expect((folder / last).exists(), True)
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def chain_11() -> dict[str, float]:
    """11 rules in a row."""
    rules = [_rule(f"s{n}", f"o{n}", f"'o{n - 1}'" if n else "[]") for n in range(11)]
    return _run("".join(rules), "o10")


def fanout_101() -> dict[str, float]:
    """100 rules, and one that needs all of them."""
    rules = [_rule(f"s{n}", f"o{n}", "[]") for n in range(100)]
    wide = ", ".join(f"'o{n}'" for n in range(100))
    return _run("".join(rules) + _rule("last", "last", wide), "last")


CASES: Mapping[str, Callable[[], dict[str, float]]] = {"chain_11": chain_11, "fanout_101": fanout_101}
