"""The pages about the command line and the settings tell all there is, and no more."""

import re
from pathlib import Path

from weft.admin.settings import NAMES, Settings
from weft.cli.commands import app
from weft.cli.explain import kinds
from weft.cli.main import BROKEN_PIPE, CANNOT_WRITE
from weft.cli.reference import TITLE, commands, reference
from weft.cli.tables import LOOKS

DOCS = Path(__file__).parents[3] / "docs"
CLI = (DOCS / "cli.md").read_text()
SETTINGS = (DOCS / "settings.md").read_text()


def test_every_command_is_told():
    assert set(re.findall(r"^\| `weft (\w+)", CLI, re.MULTILINE)) == set(app)


def test_every_command_and_option_is_told_as_its_help_tells_it():
    assert TITLE + CLI.partition(TITLE)[2] == reference()  # python -m weft.cli.reference
    assert {"ls", "schedule create", "cache gc", "config show"} <= {" ".join(path) for path in commands(app)}


def test_every_exit_code_is_told():
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", CLI, re.MULTILINE)}
    assert told == {0, BROKEN_PIPE, CANNOT_WRITE, 129, 143} | {kind.exit_code for kind in kinds()}


def test_every_state_is_told():
    told = dict(re.findall(r"^\| (\S) (\w+) \|", CLI, re.MULTILINE))
    assert told == {look.symbol: state for state, look in LOOKS.items()}


def test_every_setting_is_told_with_its_default():
    told = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|", SETTINGS, re.MULTILINE))
    assert tuple(told) == NAMES
    for name in NAMES:
        default = getattr(Settings(), name)
        if isinstance(default, str | int) and default != "":
            assert told[name].strip("`") == str(default).lower()
