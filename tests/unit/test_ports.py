"""Ports of servers in tests: two runs beside each other have different ones."""

import os
import subprocess
import sys
from pathlib import Path

from tests.ports import free_port

GIVEN = "from tests.ports import free_port; print(free_port(), flush=True); input()"


def test_processes_beside_each_other_give_different_ports():
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, "-c", GIVEN]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as one,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as other,
    ):
        ports = [free_port(), *(int(each.stdout.readline()) for each in (one, other) if each.stdout)]
        for each in (one, other):
            each.communicate("\n")
    assert len(set(ports)) == 3
