"""Points that are multiplied in several processes."""

import secrets
import subprocess

import pytest

from weft.frontends.federated.crypto import curve_powers
from weft.frontends.federated.crypto.curve_powers import WIDTH, multiplied

NUMBER = secrets.token_bytes(WIDTH)
POINTS = [secrets.token_bytes(WIDTH) for _ in range(25)]
SMALL_ORDER = bytes(WIDTH)


@pytest.fixture(autouse=True)
def few_points(monkeypatch):
    monkeypatch.setattr(curve_powers, "_LEAST_POINTS", 5)


@pytest.mark.parametrize("count", [0, 1, 7, 25])
def test_products_are_those_of_one_process_in_their_order(count):
    points = POINTS[:count]
    assert multiplied(NUMBER, points, processes=4) == multiplied(NUMBER, points, processes=1)
    assert len(set(multiplied(NUMBER, points, processes=4))) == count


@pytest.mark.parametrize("at", [0, 24], ids=["here", "in_another_process"])
def test_a_point_of_small_order_is_an_error_wherever_it_is(at):
    points = list(POINTS)
    points[at] = SMALL_ORDER
    with pytest.raises(ValueError, match="Error computing shared key"):
        multiplied(NUMBER, points, processes=4)


def test_what_a_killed_process_leaves_is_done_here(monkeypatch):
    started = []

    class Killed(subprocess.Popen[bytes]):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            started.append(self)
            self.kill()
            self.wait()

    monkeypatch.setattr(subprocess, "Popen", Killed)
    found = multiplied(NUMBER, POINTS, processes=3)
    monkeypatch.undo()
    assert started
    assert all(one.returncode for one in started)
    assert found == multiplied(NUMBER, POINTS, processes=1)


def test_the_secret_number_stands_in_no_command(monkeypatch):
    commands = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, command, **options):
            commands.append(command)
            super().__init__(command, **options)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    multiplied(NUMBER, POINTS, processes=2)
    assert commands
    assert not any(NUMBER.hex() in word or repr(NUMBER) in word for command in commands for word in command)
