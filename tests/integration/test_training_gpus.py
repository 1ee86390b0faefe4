"""GPUs of replicas on a fake machine with four of them, over real processes of several runs."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.integration.places import until
from tests.integration.test_training import replica, tfjob
from tests.integration.test_training_sharing import Machine

TELL = (
    "echo $CUDA_VISIBLE_DEVICES,$CUDA_DEVICE_ORDER > $WEFT_REPLICA.gpus; until test -e {name}.go; do sleep 0.05; done"
)


def asking(name: str, gpus: int, replicas: int = 1, **others: Any) -> dict[str, Any]:
    """Return a job whose workers write down their GPUs and run until the file NAME.go is there."""
    spec = replica(TELL.format(name=name), replicas)
    spec["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    job = tfjob(None, name, Worker=spec, **others)
    job["spec"]["successPolicy"] = "AllWorkers"  # the end of worker 0 does not end the others before they tell
    return job


class GpuMachine(Machine):
    """A machine with GPUs, as `nvidia-smi` tells."""

    def has(self, gpus: int) -> None:
        program = self.folder / "bin" / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        lines = "\n".join(f"echo {number}, GPU-{number}abc, Fake H1" for number in range(gpus))
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)

    def devices(self, replica_name: str) -> list[str]:
        """Return the GPUs of a replica, once it has told them."""
        file = self.folder / f"{replica_name}.gpus"
        until(lambda: file.exists() and file.read_text().endswith("\n"))
        *devices, order = file.read_text().strip().split(",")
        assert order == "PCI_BUS_ID"
        return [one for one in devices if one]


@pytest.fixture
def machine(tmp_path, monkeypatch) -> GpuMachine:
    (tmp_path / "x").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "x"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return GpuMachine(tmp_path)


def test_each_replica_gets_its_own_gpus_over_all_runs(machine: GpuMachine):
    machine.has(4)
    one = machine.begin("one", asking("one", 1, 2, PS=replica("echo $CUDA_VISIBLE_DEVICES, > ps.gpus; sleep 60")))
    first = [*machine.devices("one-worker-0"), *machine.devices("one-worker-1")]
    two = machine.begin("two", asking("two", 2))
    second = machine.devices("two-worker-0")
    assert sorted([*first, *second]) == ["0", "1", "2", "3"]
    until(lambda: (machine.folder / "ps.gpus").exists())
    assert (machine.folder / "ps.gpus").read_text() == ",\n"  # it requests none
    three = machine.begin("three", asking("three", 1))
    until(lambda: "needs 1 GPU at once, 0 are free" in machine.why("three"), "the reason")
    machine.let_go("two")
    assert machine.end(two) == 0
    assert machine.devices("three-worker-0")[0] in second
    for name, process in {"one": one, "three": three}.items():
        machine.let_go(name)
        assert machine.end(process) == 0


def test_the_replicas_of_a_trial_get_the_gpus_of_their_candidate(machine: GpuMachine):
    machine.has(2)
    job = tfjob(None, "one", Worker=replica("echo $CUDA_VISIBLE_DEVICES"))
    tune = {"candidates": [{"Worker": {"requests": {"gpu": 2}}}], "seconds": 60}
    job["metadata"]["annotations"] = {"weft.dev/tune": json.dumps(tune)}
    (machine.folder / "one.yaml").write_text(json.dumps(job))
    code, out, err = machine.weft("run", "one.yaml")
    assert code == 0, out + err
    (log,) = machine.folder.glob(".weft/runs/*/trials/1/logs/worker.0.0.log")
    assert log.read_text() == "0,1\n"


def test_only_the_gpus_that_the_user_chose_are_given(machine: GpuMachine, monkeypatch):
    machine.has(4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    machine.let_go("one")
    assert machine.end(machine.begin("one", asking("one", 2))) == 0
    assert machine.devices("one-worker-0") == ["3", "1"]
    code, out, err = machine.weft("run", "one.yaml", "--isolation", "ports")
    assert code == 0, out + err
    machine.begin("many", asking("many", 3)).communicate()
    code, out, err = machine.weft("run", "many.yaml")
    assert code != 0
    assert "it needs 3 GPUs at once" in err
    assert "this machine has 2" in err


def test_a_machine_without_gpus_refuses_with_the_arithmetic_unless_told_otherwise(machine: GpuMachine):
    machine.has(0)
    (machine.folder / "job.yaml").write_text(json.dumps(asking("job", 2, 2)))
    machine.let_go("job")
    code, _, err = machine.weft("run", "job.yaml")
    assert code != 0
    assert "it needs 4 GPUs at once (2 of worker, each" in err
    assert "this machine has 0. To run without GPUs: --without-gpus" in err
    code, out, err = machine.weft("run", "job.yaml", "--without-gpus")
    assert code == 0, out + err
    (machine.folder / "weft.toml").write_text("without_gpus = true\n")
    assert machine.weft("run", "job.yaml")[0] == 0
    (machine.folder / "weft.toml").write_text("gpus = 4\n")
    code, out, err = machine.weft("run", "job.yaml")
    assert code == 0, out + err
    assert sorted([*machine.devices("job-worker-0"), *machine.devices("job-worker-1")]) == ["0", "1", "2", "3"]


def test_a_step_without_its_gpus_is_told_before_the_run_and_runs_without_them(machine: GpuMachine):
    machine.has(0)
    (machine.folder / "job.yaml").write_text(json.dumps(asking("job", 2, 2)))
    step = {"x-weft": {"kind": "training", "with": {"file": "job.yaml"}}}
    (machine.folder / "flow.yaml").write_text(json.dumps({"name": "flow", "entry_points": {"train": step}}))
    machine.let_go("job")
    why = "it needs 4 GPUs at once (2 of worker, each cpu 0, gpu 2); this machine has 0"
    code, _, err = machine.weft("plan", "flow.yaml")
    assert (code, f"warning: step train: TFJob job cannot start here: {why}" in err) == (0, True), err
    code, out, _ = machine.weft("plan", "flow.yaml", "--json")
    assert any(why in warning for warning in json.loads(out)["warnings"])
    code, _, err = machine.weft("run", "flow.yaml")
    assert code == 1
    assert err.index("warning: step train: TFJob job cannot start here") < err.index("train started"), err
    error = err[err.index("error WEFT501") :]
    assert error.count(why) == 1, error
    assert machine.weft("plan", "flow.yaml", "--without-gpus")[2] == ""
    code, out, err = machine.weft("run", "flow.yaml", "--without-gpus")
    assert code == 0, out + err
    assert "warning" not in err


def test_gpus_of_a_killed_run_are_free_again(machine: GpuMachine):
    machine.has(2)
    first = machine.begin("first", asking("first", 2))
    assert machine.devices("first-worker-0") == ["0", "1"]
    first.kill()
    first.communicate()
    second = machine.begin("second", asking("second", 2))
    assert machine.devices("second-worker-0") == ["0", "1"]
    machine.let_go("second")
    assert machine.end(second) == 0
