"""The world that command lines run in."""

import pytest

from tests.unit.cli.fakes import World


@pytest.fixture
def weft(tmp_path, monkeypatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path)
