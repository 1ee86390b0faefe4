"""The finder of modules: it finds what Python finds, and a compiled file counts only while it belongs to its source."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import PathFinder
from importlib.util import cache_from_source, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from weft.cli.finding import KnownFinder, find_known_modules

if TYPE_CHECKING:
    from types import ModuleType

NAME = "weft.somewhere.found"


def _load(folder: Path) -> ModuleType:
    spec = KnownFinder.find_spec(NAME, [str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "found.py"
    file.write_text("VALUE = 1\n")
    return file


def test_a_module_is_what_python_finds(source: Path) -> None:
    ours = KnownFinder.find_spec(NAME, [str(source.parent)])
    pythons = PathFinder.find_spec(NAME, [str(source.parent)])
    assert ours is not None
    assert pythons is not None
    for field in ("name", "origin", "cached", "parent", "has_location", "submodule_search_locations"):
        assert getattr(ours, field) == getattr(pythons, field), field
    module = _load(source.parent)
    assert (module.VALUE, module.__file__, module.__cached__) == (1, str(source), cache_from_source(str(source)))
    assert module.__loader__.get_source(NAME) == source.read_text()


def test_a_compiled_file_is_written_and_read(source: Path) -> None:
    _load(source.parent)
    compiled = Path(cache_from_source(str(source)))
    stat = source.stat()
    source.write_text("VALUE = 2\n")  # of the same size, and at the same time as far as one can tell
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert compiled.exists()
    assert _load(source.parent).VALUE == 1


@pytest.mark.parametrize(("text", "later_s"), [("VALUE = 2\n", 10), ("VALUE = 22\n", 0)])
def test_a_compiled_file_of_another_source_is_replaced(source: Path, text: str, later_s: int) -> None:
    _load(source.parent)
    stat = source.stat()
    source.write_text(text)
    os.utime(source, (stat.st_atime, stat.st_mtime + later_s))
    assert [_load(source.parent).VALUE for _ in range(2)] == [int(text.split()[-1])] * 2


@pytest.mark.parametrize("length", [0, 8, 20])
def test_a_damaged_compiled_file_is_not_read(source: Path, length: int) -> None:
    _load(source.parent)
    compiled = Path(cache_from_source(str(source)))
    compiled.write_bytes(b"\0" * length)
    assert _load(source.parent).VALUE == 1


def test_packages_other_names_and_split_packages_are_left_to_the_next_finder(source: Path) -> None:
    folder = str(source.parent)
    (source.parent / "package").mkdir()
    (source.parent / "package" / "__init__.py").touch()
    assert KnownFinder.find_spec("weft.somewhere.package", [folder]) is None
    assert KnownFinder.find_spec("other.found", [folder]) is None
    assert KnownFinder.find_spec(NAME, [folder, folder]) is None
    assert KnownFinder.find_spec(NAME) is None


def test_it_comes_once_before_the_finder_of_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    first = object()
    monkeypatch.setattr(sys, "meta_path", [first, PathFinder])
    for _ in range(2):
        find_known_modules()
    assert sys.meta_path == [first, KnownFinder, PathFinder]


def test_compiled_files_elsewhere_are_left_to_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    find_known_modules()
    assert sys.meta_path == [PathFinder]


def test_commands_find_their_modules_by_it() -> None:
    code = "from weft.cli.main import main; main(['errors']); import weft.runs.ticks as found; "
    code += "print(type(found.__loader__).__name__)"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "_KnownLoader"
