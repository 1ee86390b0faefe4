"""The GPUs of a machine: what a fake `nvidia-smi` and the files of the driver tell."""

import os
from pathlib import Path

import pytest

from weft.model.errors import CapacityError
from weft.operators.devices import Device, DeviceLocks, MachineDevices, NvidiaDevices, device_variables, visible_devices

FOUR = tuple(Device(str(at), f"GPU-{at}abc", "Fake H1") for at in range(4))


def smi(folder: Path, script: str) -> dict[str, str]:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


LIST = "for n in 0 1 2 3; do echo $n, GPU-${n}abc, Fake H1; done"


@pytest.fixture
def here(tmp_path, monkeypatch):
    def look(script: str, **variables: str) -> MachineDevices:
        environ = {**smi(tmp_path, script), **variables}
        monkeypatch.setenv("PATH", environ["PATH"])
        return NvidiaDevices(environ, tmp_path / "none").look()

    return look


def test_the_program_of_the_driver_lists_the_devices(here):
    assert here(LIST) == MachineDevices(FOUR)


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        ("2,3", ["2", "3"]),
        ("3,0", ["3", "0"]),
        ("GPU-1", ["1"]),
        ("", []),
        ("-1", []),
        ("1,7,2", ["1"]),
        ("1,1", ["1"]),
        ("GPU-", []),
        ("MIG-5", ["MIG-5"]),
        ("nonsense", []),
    ],
)
def test_a_choice_of_the_user_counts(here, chosen, ids):
    assert [one.id for one in visible_devices(FOUR, chosen)] == ids
    found = here(LIST, CUDA_VISIBLE_DEVICES=chosen)
    assert [one.id for one in found.devices] == ids
    assert found.problem == f"CUDA_VISIBLE_DEVICES is {chosen!r}, and this machine has 4"


def test_a_program_that_fails_is_told(here):
    found = here("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    assert found == MachineDevices(
        (), "nvidia-smi ended with exit code 18: Failed to initialize NVML: Driver/library version mismatch"
    )
    assert here("echo No devices were found").devices == ()


def test_without_the_program_the_files_of_the_driver_count(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for at, bus in enumerate(["0000:01:00.0", "0000:41:00.0"]):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        text = f"Model: \t\t Fake H1\nIRQ:   \t 21\nGPU UUID: \t GPU-{at}abc\nBus Location: \t {bus}\n"
        (tmp_path / "gpus" / bus / "information").write_text(text)
    environ = {"PATH": str(tmp_path)}
    assert NvidiaDevices(environ, tmp_path / "gpus").look().devices == FOUR[:2]
    assert NvidiaDevices(environ, tmp_path / "none").look() == MachineDevices()


@pytest.mark.parametrize(
    ("own", "visible"), [({}, "2,3"), ({"CUDA_VISIBLE_DEVICES": "1"}, "3"), ({"CUDA_VISIBLE_DEVICES": "0,5"}, "2")]
)
def test_a_program_gets_its_devices(own, visible):
    found = device_variables(["2", "3"], own)
    assert found == {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


class Four:
    def look(self) -> MachineDevices:
        return MachineDevices(FOUR)


def test_what_one_has_taken_no_other_takes_until_it_is_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.operators.devices.temporary_folder", lambda: tmp_path)
    first, second = DeviceLocks(Four()), DeviceLocks(Four())
    assert first.take(3) == ("0", "1", "2")
    with pytest.raises(CapacityError, match="has 1 of 2 GPUs free"):
        second.take(2)
    assert second.take(1) == ("3",)
    first.release()
    assert second.take(2) == ("0", "1")
    second.release()
