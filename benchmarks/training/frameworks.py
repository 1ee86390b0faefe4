"""A training job of TensorFlow from the command line, and the same processes started by hand."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import expect
from benchmarks.training.runs import weft

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "training" / "tf-ps"
TENSORFLOW = ROOT / ".frameworks" / "tf"
"""The environment that `make frameworks` makes."""
REPLICAS = (("ps", 0), ("worker", 0), ("worker", 1), ("chief", 0))
LONGEST_S = 600.0


def job() -> dict[str, float]:
    """Run the TFJob of the example: chief, parameter server and two workers."""
    with TemporaryDirectory(prefix="weft-benchmark-") as folder:
        begin = time.perf_counter()
        process = weft(EXAMPLE, "run", "-q", "tfjob.yaml", "--state-dir", folder)
        code = process.wait(LONGEST_S)
        seconds = time.perf_counter() - begin
        (log,) = Path(folder).glob("runs/*/logs/chief.0.0.log")
        _expect_learned(log, code)
        return {"seconds": seconds}


def by_hand() -> dict[str, float]:
    """Run the same four processes, and end the other three when the chief has ended.

    Each has a session of its own, as replicas and processes in terminals have: Linux shares cores between sessions.
    """
    with TemporaryDirectory(prefix="weft-benchmark-") as folder, ExitStack() as stack:
        addresses = _addresses()
        cluster: dict[str, list[str]] = {}
        for (type, _), address in zip(REPLICAS, addresses, strict=True):
            cluster.setdefault(type, []).append(address)
        begin = time.perf_counter()
        started = []
        for type, index in REPLICAS:
            config = {"cluster": cluster, "task": {"type": type, "index": index}, "environment": "cloud"}
            env = os.environ | {
                "TF_CONFIG": json.dumps(config),
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "GRPC_FAIL_FAST": "use_caller",
            }
            log = stack.enter_context(Path(folder, f"{type}-{index}.log").open("wb"))
            words = [f"{TENSORFLOW}/bin/python", "train.py", *(["--steps=500"] if type == "chief" else [])]
            process = subprocess.Popen(words, cwd=EXAMPLE, env=env, stdout=log, stderr=log, start_new_session=True)
            stack.callback(process.kill)
            started.append(process)
        code = started[-1].wait(LONGEST_S)
        for process in started:
            process.terminate()
        for process in started:
            process.wait(LONGEST_S)
        seconds = time.perf_counter() - begin
        _expect_learned(Path(folder, "chief-0.log"), code)
        return {"seconds": seconds}


def _addresses() -> list[str]:
    """Return an address with a free port for each process."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in REPLICAS]
        return [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]


def _expect_learned(log: Path, code: int) -> None:
    expect(code, 0)
    expect("accuracy 0.9" in log.read_text(), True)


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {"by_hand": by_hand, "job": job}
