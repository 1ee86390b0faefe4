"""The page for users of other systems names only what exists: commands with options, Python names, keys of files."""

import ast
import concurrent.futures
import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli.commands import app
from weft.cli.parsing import HELP, _given

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "coming-from.md").read_text(encoding="utf-8")
PIPELINES = (DOCS / "pipelines.md").read_text(encoding="utf-8")
SYSTEMS = ["Dask", "Ray", "Snakemake", "Nextflow", "Prefect", "PaddleFlow", "Mars"]
ROOTS: dict[str, Any] = {
    "weft": weft,
    "wt": import_module("weft.tensor"),
    "wr": import_module("weft.remote"),
    "session": weft.Session,
    "graph": weft.Graph,
    "run": weft.Run,
}
OF_FILES = {"fs", "weft.toml", "{secret: NAME}"}
"""What belongs to other files, or is told on the page of pipelines in a sentence."""


def rows() -> list[tuple[str, str]]:
    """Return the system and Weft's column of each row of the tables."""
    found, system = [], ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            system = line[3:]
        cells = [cell.strip() for cell in line.split(" | ")]
        if line.startswith("| ") and len(cells) >= 2 and cells[1] != "Weft":
            found.append((system, cells[1].rstrip(" |")))
    return found


SPANS = sorted({span for _, cell in rows() for span in re.findall(r"`([^`]+)`", cell)})
COMMANDS = [span for span in SPANS if span.startswith("weft ")]
KEYS = [span for span in SPANS if re.fullmatch(r"[a-z_]+(-weft)?(\.[a-z_]+)*", span) or span in OF_FILES]
PYTHON = [span for span in SPANS if span not in COMMANDS + KEYS and not span.startswith(".pipeline/")]


def test_every_system_has_a_table():
    assert list(dict.fromkeys(system for system, _ in rows())) == SYSTEMS
    assert len(COMMANDS) > 30
    assert len(PYTHON) > 30
    assert len(KEYS) > 10


@pytest.mark.parametrize("text", COMMANDS)
def test_commands_and_options_exist(text):
    found = app.find(shlex.split(text)[1:])
    assert callable(found.command.target), text
    given, _, _ = _given(found.command.target, found.command.verb)
    known = {name for one in given for name in one.names if not one.by_place} | set(HELP)
    words = [word.partition("=")[0] for word in found.words if re.match(r"--?[a-z]", word)]
    assert set(words) <= known, text
    if not set(found.words) & {"RUN", "KEY"}:
        assert not isinstance(app.parse(shlex.split(text)[1:]), str)


@pytest.mark.parametrize("text", KEYS)
def test_keys_of_pipelines_exist(text):
    if text in OF_FILES:
        assert text.partition(" ")[0].strip("{:") in PIPELINES
    else:
        assert re.search(rf"^\| [^|]*`{re.escape(text)}`", PIPELINES, re.MULTILINE), text


@pytest.mark.parametrize("text", PYTHON)
def test_python_names_and_arguments_exist(text):
    tree = ast.parse(text)
    named = [one for one in ast.walk(tree) if isinstance(one, ast.Attribute | ast.Import)]
    assert named, f"{text} names nothing of Weft"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            import_module(node.names[0].name)
        elif isinstance(node, ast.Attribute):
            resolved(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            check_arguments(resolved(node.func), node)


def resolved(node: ast.expr) -> Any:
    """Return what a dotted name stands for."""
    if isinstance(node, ast.Name):
        kinds = {"x": ROOTS["wt"].Tensor, "call": ROOTS["wr"].Object}
        return {**ROOTS, **kinds}[node.id]
    if isinstance(node, ast.Call):  # an object of a class
        return resolved(node.func)
    assert isinstance(node, ast.Attribute)
    return getattr(resolved(node.value), node.attr)


def check_arguments(target: Any, call: ast.Call) -> None:
    if hasattr(target, "__struct_fields__"):
        assert {keyword.arg for keyword in call.keywords} <= set(target.__struct_fields__)
        return
    try:
        parameters = inspect.signature(target).parameters
    except ValueError:  # made by a library
        return
    taken = {one.name for one in parameters.values() if one.kind is not one.VAR_KEYWORD}
    free = len(taken) < len(parameters)
    for keyword in call.keywords:
        assert free or keyword.arg in taken, f"{ast.unparse(call)} has no argument {keyword.arg}"


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_links_lead_to_sections(link):
    page, _, section = link.partition("#")
    text = (DOCS / page).read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert not section or section in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def row(system: str, word: str) -> str:
    """Return the code in Weft's column of the row of a word."""
    section = PAGE.partition(f"## {system}\n")[2].partition("\n## ")[0]
    (line,) = (line for line in section.splitlines() if line.startswith(f"| `{word}"))
    return line.split(" | ")[1].strip("`")


def test_the_row_of_a_delayed_call_gives_the_value():
    with weft.Session() as session:
        graph = weft.Graph()
        a = graph.add(lambda: 3, name="a")
        b = eval(row("Dask", "dask.delayed"), {"graph": graph, "weft": weft, "a": a, "f": lambda x: x + 1})
        assert session.run(graph).value(b) == 4


def test_the_row_of_waits_gives_futures():
    with ROOTS["wt"].Session():
        calls = [ROOTS["wr"].spawn(pow, args=(2, power)) for power in (3, 4)]
        futures = [eval(row("Ray", "ray.wait"), {"call": call}) for call in calls]
        assert concurrent.futures.wait(futures, timeout=180).not_done == set()
        assert [call.fetch() for call in calls] == [8, 16]


def test_the_row_of_caches_enables_one():
    assert eval(row("Prefect", "cache_policy"), {"weft": weft})["enable"] is True


def test_the_row_of_scripts_runs_in_the_session_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import os; open(os.environ['RANK'], 'w').close()")
    (line,) = (line for line in PAGE.splitlines() if line.startswith("| `run_script("))
    with eval(line.split(" | ")[2].rpartition(": `")[2].rstrip(" |").rstrip("`"), ROOTS):
        eval(row("Mars", "run_script("), ROOTS).execute()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "train.py") == ["0", "1", "2", "3"]
