"""Whole training jobs from the command line, and the same processes from a shell script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import expect

MAIN = "from weft.cli.main import command; command()"
"""The program of the script `weft` that an installation makes."""
LONGEST_S = 60.0
MANY = 100


def job(command: str, replicas: int, policy: str = "Never", **run_policy: Any) -> dict[str, Any]:
    """Return a TFJob whose workers run a command."""
    container = {"name": "tensorflow", "image": "example/none:1", "command": ["sh", "-c", command]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    worker = {"replicas": replicas, "restartPolicy": policy, "template": template}
    spec = {"successPolicy": "AllWorkers", "runPolicy": run_policy, "tfReplicaSpecs": {"Worker": worker}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "job"}, "spec": spec}


def start(folder: Path, document: Mapping[str, Any], *words: str) -> subprocess.Popen[bytes]:
    """Start `weft run` of a job in a folder."""
    (folder / "job.yaml").write_text(json.dumps(document))
    return weft(folder, "run", "-q", "job.yaml", *words)


def weft(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a command line of Weft in a new interpreter."""
    command = [sys.executable, "-P", "-c", MAIN, *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds, in steps of a millisecond."""
    end = time.perf_counter() + LONGEST_S
    while not condition():
        expect(time.perf_counter() < end, True)
        time.sleep(0.001)


def _timed(command: str, replicas: int) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        begin = time.perf_counter()
        process = start(Path(folder), job(command, replicas))
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        expect(status, 0)
        logs = list(Path(folder).glob(".weft/runs/*/logs/worker.*.log"))
        expect(len(logs), replicas)
        return {"seconds": seconds, "mb": usage.ru_maxrss / 1024}


def four() -> dict[str, float]:
    """Run 4 replicas that print a line."""
    return _timed("echo hello", 4)


def hundred() -> dict[str, float]:
    """Run 100 replicas that sleep for a second."""
    return _timed("sleep 1", MANY)


def four_over_shell() -> dict[str, float]:
    """Run 4 replicas that print a line, and 4 such processes of a shell script: the difference."""
    return {"seconds": four()["seconds"] - _by_shell("echo hello", 4)}


def _by_shell(command: str, replicas: int) -> float:
    with TemporaryDirectory() as folder:
        script = Path(folder) / "run.sh"
        script.write_text("".join(f"sh -c '{command}' > {index}.log 2>&1 &\n" for index in range(replicas)) + "wait\n")
        begin = time.perf_counter()
        subprocess.run(["sh", str(script)], cwd=folder, check=True)
        return time.perf_counter() - begin


def suspended() -> dict[str, float]:
    """Suspend 4 replicas that ignore SIGTERM: the time until no process is left, less the grace of 1 s."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        process = start(folder, job("trap '' TERM; touch $HOSTNAME.begun; while :; do sleep 0.05; done", 4))
        until(lambda: len(list(folder.glob("*.begun"))) == 4)
        begin = time.perf_counter()
        expect(weft(folder, "suspend", "run-000001").wait(), 0)
        process.wait()
        return {"seconds": time.perf_counter() - begin - 1.0}


def restarted() -> dict[str, float]:
    """Kill a replica whose pod is created again: the time until its replacement runs."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        process = start(folder, job("echo $$ > new; mv new pid.$WEFT_RESTARTS; exec sleep 60", 1, "ExitCode"))
        try:
            until((folder / "pid.0").exists)
            (pid,) = _processes_of(folder)
            begin = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            until((folder / "pid.1").exists)
            seconds = time.perf_counter() - begin
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
        return {"seconds": seconds}


def _processes_of(folder: Path) -> list[int]:
    """Return the commands of the replicas, by the records of their guardians: the last line names the command."""
    records = list(folder.glob(".weft/runs/*/processes/worker.*"))
    return [int(record.read_text().splitlines()[-1].split()[0]) for record in records]


CASES = {
    "four": four,
    "hundred": hundred,
    "four_over_shell": four_over_shell,
    "suspended": suspended,
    "restarted": restarted,
}
