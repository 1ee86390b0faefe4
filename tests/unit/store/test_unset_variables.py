"""Which variables the code of an execution names, and which of them count because they were not set."""

from pathlib import Path

import pytest

from weft.store.opened import UNSET
from weft.store.unset_variables import unset_leaf

CODE = {
    "a.sh": ("cat $HERE ${deep:-x}; echo $1 $? $HOME $PF_RUN_ID", ["HERE", "deep"]),
    "Makefile": ("x: $(DATA)\n", ["DATA"]),
    "a.py": (
        "import os\nNAME = 'DATA'\nos.environ[NAME]; os.environ.get( \"low\", 'x'); os.getenv('l2')",
        ["DATA", "l2", "low"],
    ),
    "a.js": ("process.env.data", ["data"]),
    "a.R": ("Sys.getenv('data')", ["data"]),
    "a.pl": ("$ENV{data}; $ENV{'more'}", ["data", "more"]),
    "a.yaml": ("path: ${oc.env:DATA,/data}\nother: ${MORE}", ["DATA", "MORE"]),
    "a.json": ('{"KEY": "${DATA}", "price": "$USD"}', ["DATA"]),
    "a.bin": ("\0$DATA", []),
}


@pytest.mark.parametrize("name", CODE)
def test_code_names_variables_in_its_own_way(tmp_path: Path, name):
    text, expected = CODE[name]
    (tmp_path / name).write_text(text)
    found = unset_leaf([], [str(tmp_path / name)], {}, ())
    assert set(expected) <= set(found.get(UNSET, "").split()) <= {*expected, "ENV"}


def test_variables_that_are_set_or_declared_do_not_count(tmp_path: Path):
    (tmp_path / "a.sh").write_text("echo $A $B $C")
    paths = [str(tmp_path / name) for name in ("a.sh", "none", ".")]
    assert unset_leaf(["echo $D $TERM $PATH"], paths, {"A": "1"}, ("B",)) == {UNSET: "C D"}
    assert unset_leaf([], paths, {"A": "", "B": "", "C": ""}, ()) == {}


def test_a_large_file_is_data(tmp_path: Path):
    (tmp_path / "a.sh").write_text("echo $A" + " " * 300_000)
    assert unset_leaf([], [str(tmp_path / "a.sh")], {}, ()) == {}
