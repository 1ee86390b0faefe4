"""What `make demo` runs, from a copy of the tree as a fresh clone has it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.ray_clusters import running_cluster
from tests.prepared import weft_command
from weft.frontends.pipelines.check import parse_pipeline

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
EXAMPLE = Path("examples") / "breast_cancer"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / EXAMPLE, tmp_path / EXAMPLE, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    return tmp_path


def weft(arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    words = shlex.split(arguments)
    ended = weft_command(*words, cwd=cwd, env=env | {"PYTHONPATH": str(SOURCE)}, timeout=180)
    return subprocess.CompletedProcess(words, *ended)


def recipe() -> list[str]:
    """The `weft` command lines of the target."""
    text = (ROOT / "Makefile").read_text()
    body = text.partition("\ndemo:")[2].partition("\n\n")[0]
    return re.findall(r"^\t@?\$\(BIN\)/weft (.+)$", body, re.MULTILINE)


def test_demo_shows_steps_outputs_logs_and_what_to_type_next(clone):
    first, *others = recipe()
    answer = weft(first, clone)
    assert answer.returncode == 0, answer.stderr
    for step in ("prepare", "train", "evaluate", "report"):
        assert f"{step} succeeded" in answer.stderr, "each step is told of as it ends"
    assert "run-000001 succeeded" in answer.stdout
    outputs = dict(re.findall(r"(\w+\.\w+): (\S+)", answer.stdout))
    metrics = json.loads((clone / outputs["evaluate.metrics"]).read_text())
    assert metrics["accuracy"] > 0.9
    assert "Accuracy" in (clone / outputs["report.report"]).read_text()
    for next_one in re.findall(r"weft ((?:show|logs) .+)", answer.stdout):
        told = weft(next_one.strip(), clone)
        assert told.returncode == 0, told.stderr
        assert told.stdout
    for other in others:
        assert weft(other, clone).returncode == 0


def test_demo_leaves_files_only_where_git_does_not_look(clone):
    for command in recipe():
        weft(command, clone)
    made = {path.relative_to(clone / EXAMPLE).parts[0] for path in (clone / EXAMPLE).rglob("*")}
    assert made - {path.name for path in (ROOT / EXAMPLE).iterdir()} <= {".weft", ".pipeline"}
    for folder in (".weft", ".pipeline"):
        assert (clone / EXAMPLE / folder / ".gitignore").read_text() == "*\n"


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def plain(text: str) -> list[str]:
    """The words of each line, whatever the times and hashes."""
    text = re.sub(r"[0-9a-f]{32}", "HASH", re.sub(r"\d+(\.\d+)? (ms|s|min)\b", "TIME", text))
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_readme_shows_what_the_commands_print(clone):
    screens = [block for block in blocks("README.md", "console") if block.startswith("$ weft ")]
    assert len(screens) >= 3
    for command in recipe():  # the page goes on after `make demo`
        assert weft(command, clone).returncode == 0
    for screen in screens:
        command, _, shown = screen.removeprefix("$ weft ").partition("\n")
        answer = weft(command, clone)
        both = answer.stdout + answer.stderr if command.startswith("sql ") else answer.stdout or answer.stderr
        assert plain(shown) == plain(both)


def programs() -> dict[str, tuple[str, str]]:
    """The programs of the first page by the part of Weft that they use, each with the screen that follows it."""
    block = r"((?:(?!```).*\n)*)```\n"
    found = re.findall(rf"^```python\n{block}\n```console\n{block}", (ROOT / "README.md").read_text(), re.MULTILINE)
    return {part_used(program): (program, shown) for program, shown in found}


def part_used(program: str) -> str:
    for part, sign in {"weft.sql": "weft.sql(", "a cluster": '"ray"'}.items():
        if sign in program:
            return part
    return str(re.findall(r"import (weft\S*)", program)[0])


@pytest.mark.parametrize(
    ("module", "backend"),
    [("weft", ""), ("weft", '"processes", '), ("weft.sql", ""), ("weft.tensor", ""), ("weft.remote", "")],
)
def test_the_readme_shows_what_its_programs_print(clone, module, backend):
    program, shown = programs()[module]
    answer = run_program(program.replace("Session(", f"Session({backend}"), clone)
    assert (answer.stdout, answer.stderr) == (shown, "")


def test_the_readme_shows_what_its_program_prints_on_a_cluster(clone):
    pytest.importorskip("ray", reason="Ray has no wheel for this Python")
    program, shown = programs()["a cluster"]
    with running_cluster(2, forks=False) as cluster:
        answer = run_program(program, clone, RAY_ADDRESS=cluster.address)
    told = [
        line for line in answer.stderr.splitlines() if "connecting to the Ray cluster" not in line
    ]  # if that is slow
    assert (answer.stdout, told) == (shown, [])


def run_program(program: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SOURCE)} | environ,
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_the_examples_of_sql_run_as_their_page_says(clone):
    shutil.copytree(ROOT / "examples" / "sql", clone / "examples" / "sql")
    commands = re.findall(r"^weft (sql .+)$", (clone / "examples" / "sql" / "README.md").read_text(), re.MULTILINE)
    for command, rows in zip(commands, (4, 5), strict=True):
        answer = weft(command, clone)
        assert (answer.returncode, answer.stderr) == (0, f"{rows} rows\n")


def test_the_yaml_of_the_page_on_pipelines_is_read():
    for page in ("docs/pipelines.md", "docs/pipelines-python.md"):
        found = blocks(page, "yaml")
        assert found
        for block in found:
            parse_pipeline(block, page)


def test_links_between_pages_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} names {target}"


def dry_run(target: str, folder: Path) -> str:
    """What make would do for a target in a fresh clone."""
    made = subprocess.run(["make", "-n", target], cwd=folder, capture_output=True, text=True, timeout=180)
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_demo_installs_what_weft_needs_and_the_tests_install_their_tools(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    assert "pip install" in dry_run("demo", tmp_path)
    assert "[dev]" not in dry_run("demo", tmp_path)
    for target in ("test", "check"):
        assert "-e '.[dev]'" in dry_run(target, tmp_path)
