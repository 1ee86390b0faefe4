"""The GPUs of this machine: which there are, and how programs are told which of them are theirs.

Source: `nvidia-smi`, else the driver's files below /proc; the variables of CUDA.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from msgspec import Struct

from weft.model.errors import CapacityError
from weft.model.patterns import late_pattern
from weft.store.folders import temporary_folder, user_root

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
"""The variable with the devices that a program sees, by number or by the start of a UUID."""
ORDER: Final = "CUDA_DEVICE_ORDER"
BY_BUS: Final = "PCI_BUS_ID"
"""The variable with the order of numbers, and the order in which `nvidia-smi` counts."""
_QUERY: Final = ("nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader")
_PATIENCE_S: Final = 20.0
_MOST: Final = 1024
_DRIVER: Final = Path("/proc/driver/nvidia/gpus")
_LINE: Final = late_pattern(r"([A-Za-z ]+):\s*(.*)")


class Device(Struct, frozen=True):
    """A GPU: `id` is its number, or the UUID of a part of one; `model` is for users."""

    id: str
    uuid: str = ""
    model: str = ""


class MachineDevices(Struct, frozen=True):
    """The GPUs that this process may use; `problem` says why there may be more, "" if nothing is known of them."""

    devices: tuple[Device, ...] = ()
    problem: str = ""


class DeviceInspector(Protocol):
    """The port to the GPUs of a machine."""

    def look(self) -> MachineDevices:
        """Return the GPUs that this process may use."""
        ...


class NvidiaDevices:
    """The GPUs of NVIDIA; `environ` limits them with `CUDA_VISIBLE_DEVICES`."""

    def __init__(self, environ: Mapping[str, str] | None = None, driver: Path = _DRIVER) -> None:
        self._environ = os.environ if environ is None else environ
        self._driver = driver

    def look(self) -> MachineDevices:
        """See `DeviceInspector.look`."""
        devices, problem = self._asked()
        devices = devices or self._listed()
        if (chosen := self._environ.get(VISIBLE)) is None:
            return MachineDevices(devices, "" if devices else problem)
        visible = visible_devices(devices, chosen)
        hidden = f"{VISIBLE} is {chosen!r}, and this machine has {len(devices)}"
        return MachineDevices(visible, hidden if len(visible) < len(devices) else "")

    def _asked(self) -> tuple[tuple[Device, ...], str]:
        try:
            done = subprocess.run(
                _QUERY,
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except FileNotFoundError:
            return (), ""
        except (OSError, subprocess.TimeoutExpired) as error:
            return (), f"nvidia-smi does not answer: {error}"
        if done.returncode:
            said = (done.stdout + done.stderr).decode("utf-8", "replace").strip().splitlines() or [""]
            return (), f"nvidia-smi ended with exit code {done.returncode}: {said[0][:200]}"
        rows = [line.split(",", 2) for line in done.stdout.decode("utf-8", "replace").splitlines()[:_MOST]]
        return tuple(
            Device(number.strip(), uuid.strip(), model.strip())
            for number, uuid, model in (row for row in rows if len(row) == 3 and row[0].strip().isdigit())
        ), ""

    def _listed(self) -> tuple[Device, ...]:
        """Return the devices that the driver lists; their folders have the names of their places on the bus."""
        found = []
        with suppress(OSError):
            for number, folder in enumerate(sorted(self._driver.iterdir())[:_MOST]):
                text = (folder / "information").read_text("utf-8", "replace")
                about = {match[1]: match[2] for match in map(_LINE.match, text.splitlines()) if match}
                found.append(Device(str(number), about.get("GPU UUID", ""), about.get("Model", "")))
        return tuple(found)


class DeviceLocks:
    """The GPUs that this process has taken of its machine, so that no other process of the user takes them.

    Each has a lock on a file in the user's folder for temporary files; the system releases it with the process.
    """

    def __init__(self, inspector: DeviceInspector) -> None:
        self._inspector = inspector
        self._files: list[int] = []

    def take(self, count: int) -> tuple[str, ...]:
        """Take so many GPUs and return their ids. CapacityError: fewer are free."""
        found: list[str] = []
        there = self._inspector.look()
        for device in there.devices:
            if len(found) < count and self._lock(device.uuid or device.id):
                found.append(device.id)
        if len(found) < count:
            self.release()
            raise CapacityError(
                f"{os.uname().nodename} has {len(found)} of {count} GPUs free that the replica requests"
                + (f": {there.problem}" if there.problem else ""),
                hint="See what uses them: nvidia-smi. The machine told its cluster that it has more.",
            )
        return tuple(found)

    def release(self) -> None:
        """Give all back."""
        while self._files:
            os.close(self._files.pop())

    def _lock(self, name: str) -> bool:
        path = user_root(temporary_folder()) / f"gpu-{quote(name, safe='')}.lock"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._files.append(file)
        return True


def visible_devices(devices: Sequence[Device], chosen: str) -> tuple[Device, ...]:
    """Return the devices that a value of `CUDA_VISIBLE_DEVICES` leaves; as in CUDA, up to the first wrong word."""
    found: list[Device] = []
    for word in chosen.split(","):
        word = word.strip()
        if word.startswith("MIG-"):
            one = Device(word, word, "part of a GPU")
        else:
            fits = [one for one in devices if word and (one.id == word or one.uuid.startswith(word))]
            if len(fits) != 1 and word.isdigit():
                fits = [one for one in devices if one.id == word]
            if len(fits) != 1:
                break
            one = fits[0]
        if one in found:
            break
        found.append(one)
    return tuple(found)


def device_variables(devices: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give devices to a program; `own` are those that it was to have.

    As in a container with these devices, numbers of an own `CUDA_VISIBLE_DEVICES` count from 0 within them.
    """
    chosen = own.get(VISIBLE)
    if chosen is not None and all(word.strip().isdigit() for word in chosen.split(",")):
        places = [int(word) for word in chosen.split(",")]
        devices = [devices[at] for at in dict.fromkeys(places) if at < len(devices)]
    return {VISIBLE: ",".join(devices), ORDER: BY_BUS}
