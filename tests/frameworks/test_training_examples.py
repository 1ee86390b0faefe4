"""The examples of training jobs with their real frameworks: `make frameworks`, then `make test-frameworks`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import weft
from weft.operators.network import Isolation, best_isolation
from weft.runs.reading import read_run
from weft.store.state import StateRoot, read_status

ROOT = Path(__file__).parents[2]
MAIN = "import sys; from weft.cli.main import main; sys.exit(main())"
LONGEST_S = 900
"""The import of a framework takes a minute on a busy machine."""


class Example(NamedTuple):
    """A job file, its environment, the name of its figure and the least value of it."""

    file: str
    framework: str
    figure: str
    least: float
    needs: str = ""


EXAMPLES = (
    Example("tf-ps/tfjob.yaml", "tf", "accuracy", 0.9),
    Example("pytorch-ddp/pytorchjob.yaml", "torch", "accuracy", 0.9),
    Example("pytorch-elastic/pytorchjob.yaml", "torch", "accuracy", 0.9),
    Example("jax/jaxjob.yaml", "jax", "accuracy", 0.9),
    Example("mpi/mpijob.yaml", "mpi", "purity", 0.7, needs="mpirun"),
    Example("xgboost/xgboostjob.yaml", "xgboost", "accuracy", 0.85, needs="namespaces"),
)


def missing(example: Example) -> str:
    """Return what an example lacks on this machine, "" if nothing."""
    if not (ROOT / ".frameworks" / example.framework / ".stamp").exists():
        return f"there is no .frameworks/{example.framework}: run make frameworks"
    if example.needs == "mpirun" and shutil.which("mpirun") is None:
        return "there is no mpirun: install Open MPI (Debian: apt-get install openmpi-bin)"
    if example.needs == "namespaces" and best_isolation()[0] is not Isolation.NAMESPACE:
        return f"all workers use one port: {best_isolation()[1]}"
    return ""


def run(file: Path, state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    return subprocess.run(
        [sys.executable, "-P", "-c", MAIN, "run", str(file), "--state-dir", str(state), *words],
        env=env | {"PYTHONPATH": str(Path(weft.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.file)
def test_an_example_learns(example, tmp_path):
    if lack := missing(example):
        pytest.skip(lack)
    ended = run(ROOT / "examples" / "training" / example.file, tmp_path / "state")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    folder = StateRoot(tmp_path / "state").folder("run-000001")
    (status,) = read_status(folder)
    assert {one["type"]: one["status"] for one in status["status"]["conditions"]}["Succeeded"] == "True"
    logs = "".join(path.read_text() for path in sorted((folder / "logs").glob("*.log")))
    (value,) = re.findall(rf"^{example.figure} (\d\.\d+)$", logs, re.MULTILINE)
    print(example.file, example.figure, value)
    assert float(value) >= example.least
    states = {item.state for step in read_run(folder).steps for item in step.items.values()}
    assert states <= {"succeeded", "terminated"}
