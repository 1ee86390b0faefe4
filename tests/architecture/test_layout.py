"""What holds for every file of the tree, for the errors, and for what an import may load."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import weft
from weft.model import errors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "weft"
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted({module.parent for module in MODULES})
ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.WeftError)]
HEAVY = ("numpy", "pyarrow", "rich", "sqlalchemy", "yaml")
LONG_LINES = 1_000

# Each change here changes what users may rely on: it owes a line in CHANGELOG.md.
PUBLIC = {
    "Artifact",
    "CacheOptions",
    "Input",
    "Output",
    "Parameter",
    "PipelineResult",
    "command",
    "controlled",
    "each",
    "pipeline",
    "step",
    "CapacityError",
    "Query",
    "SqlContext",
    "SqlError",
    "sql",
    "ActorEndedError",
    "ActorHandle",
    "add_actor",
    "register_serializer",
    "stop_actor",
    "ClusterOptions",
    "ConflictError",
    "DefinitionError",
    "DiskFullError",
    "DocumentError",
    "ForbiddenError",
    "Graph",
    "GraphError",
    "InputLimitError",
    "InternalError",
    "InvalidTransition",
    "FederatedFileError",
    "JobFileError",
    "VertexKind",
    "VertexManager",
    "Manager",
    "Moment",
    "register_manager",
    "MissingExtraError",
    "VertexHandle",
    "NotFoundError",
    "OnFailure",
    "OutOfMemoryError",
    "Outcome",
    "PartyError",
    "PartyIdentityError",
    "PartyMessageError",
    "PartyRefusedError",
    "PartyUnreachableError",
    "PartyVersionError",
    "PeerMovedError",
    "PipelineError",
    "Placement",
    "Program",
    "ProgramError",
    "Range",
    "Resources",
    "as_completed",
    "RunEvent",
    "Mapped",
    "Results",
    "Backoff",
    "RestartPolicy",
    "Retry",
    "Run",
    "RunCancelledError",
    "RunFailedError",
    "SameAs",
    "Session",
    "Source",
    "Storage",
    "TaskError",
    "Trigger",
    "UnreadableError",
    "UsageError",
    "WeftError",
    "__version__",
    "after",
    "custom",
    "gather",
    "grid",
    "one_to_one",
    "shuffle",
}


def tracked_files() -> list[Path]:
    """Files that git tracks or would track."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if answer.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    """The text of a file, or nothing where it is not text."""
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")


def loaded_by(code: str) -> list[str]:
    """The heavy modules that `code` has loaded in a fresh interpreter by the time it ends."""
    report = f"\nimport sys\nprint('loaded:', *sorted({set(HEAVY)!r} & sys.modules.keys()))"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run([sys.executable, "-c", code + report], env=env, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()[-1].split()[1:]


def test_no_file_names_a_path_of_one_machine():
    homes = re.compile(
        rf"(?<![\w.~-])(?:{re.escape(str(ROOT))}\b|/(?:home|Users)/(?!(?:paddleflow|mpiuser)/)\w+/|/root/)"
    )
    fixtures = ROOT / "tests" / "fixtures"  # kept as their authors wrote them
    files = [path for path in tracked_files() if fixtures not in path.parents and path != Path(__file__)]
    found = {str(path.relative_to(ROOT)): match[0] for path in files if (match := homes.search(text_of(path)))}
    assert not found


def test_no_tabs_where_spaces_indent():
    spaced = {".py", ".toml", ".yaml", ".yml", ".md", ".sh"}
    assert not [path.name for path in tracked_files() if path.suffix in spaced and "\t" in text_of(path)]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_package_says_what_it_is(package):
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))


def test_tests_use_fakes_and_not_mocks():
    mocks = re.compile(r"^\s*(from unittest(\.mock)? import|import unittest\.mock)", re.MULTILINE)
    assert not [path.name for path in (ROOT / "tests").rglob("*.py") if mocks.search(path.read_text())]


def test_long_modules_are_reported(record_property, capsys):
    sizes = {module.relative_to(SOURCE): module.read_text().count("\n") for module in MODULES}
    long = {str(module): lines for module, lines in sizes.items() if lines >= LONG_LINES}
    record_property("long_modules", long)
    if long:
        with capsys.disabled():
            print("", *(f"long module, perhaps a noun is missing: {name} ({lines})" for name, lines in long.items()))


def test_each_error_has_a_code_of_its_own():
    assert not [kind.__name__ for kind in ERRORS if "code" not in vars(kind)]
    assert not [code for code, uses in Counter(kind.code for kind in ERRORS).items() if uses > 1]


def test_errors_page_tells_each_error_and_no_other():
    page = (ROOT / "docs" / "errors.md").read_text()
    told = re.findall(r"^## (WEFT\d{3}) (\w+)\n\nExit code (\d+)\.", page, re.MULTILINE)
    assert sorted(told) == sorted((kind.code, kind.__name__, str(kind.exit_code)) for kind in ERRORS)


def test_import_weft_loads_nothing_heavy():
    assert loaded_by("import weft") == []


def test_asking_the_version_loads_nothing_heavy():
    code = (
        "import contextlib, sys\n"
        "from weft.cli.main import main\n"
        "sys.argv = ['weft', '--version']\n"
        "with contextlib.suppress(SystemExit):\n"
        "    main()"
    )
    assert loaded_by(code) == []


def test_public_names_are_pinned():
    assert set(weft.__all__) == PUBLIC
    assert not [name for name in weft.__all__ if not hasattr(weft, name)]


READERS = {
    *("read_run", "read_records", "follow_records", "find_run", "list_runs", "open_catalog", "send", "logs_of"),
    *("Schedules", "Scheduler", "CacheIndex", "index_of", "open_cache"),
    *("ControlServer", "delete_runs", "explain_folder"),
}
"""Functions and classes that read or change what a run leaves on disk, or speak to its owner."""


def test_the_command_line_reads_runs_through_the_service_alone():
    for path in sorted((SOURCE / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                named = {alias.name for alias in node.names} & READERS
                assert not named, f"{path.name} imports {named}: ask weft.runs.service.RunService"
