"""The contracts between packages, as `pyproject.toml` writes them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_import_contracts_hold():
    lint = Path(sys.executable).with_name("lint-imports")
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run([lint, "--no-cache"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
