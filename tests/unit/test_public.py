"""The names that `import weft` hands on, and that it costs nothing until one is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.model import errors

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there():
    assert not [name for name in weft.__all__ if not hasattr(weft, name)]
    assert {
        "Graph",
        "Session",
        "gather",
        "shuffle",
        "grid",
        "after",
        "one_to_one",
        "Resources",
        "Retry",
        "Program",
    } <= set(weft.__all__)


def test_every_error_is_public():
    kinds = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.WeftError)
    }
    assert kinds <= set(weft.__all__)


def test_they_alone_are_shown():
    assert set(dir(weft)) - {"remote", "tensor"} == set(weft.__all__)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        weft.Sesion  # noqa: B018 - the look-up is what is tested


def test_importing_loads_next_to_nothing():
    code = "import sys; before = set(sys.modules); import weft; print(*sorted(set(sys.modules) - before))"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {[env['PYTHONPATH']]!r}; {code}"],
                            env=env, capture_output=True, text=True, check=True)  # fmt: skip
    assert {name for name in answer.stdout.split() if name.startswith("weft")} == {"weft", "weft._version"}


def test_the_example_in_the_docstring_runs(capsys):
    text = (weft.__doc__ or "").partition("::\n")[2]
    code = "\n".join(line[4:] for line in text.splitlines())
    exec(code, {"square": lambda x: x * x})
    assert capsys.readouterr().out == "285\n"
