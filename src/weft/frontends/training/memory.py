"""Volumes in memory (`emptyDir` with `medium: Memory`) of the replicas of a run.

In isolation `namespace` they are file systems of their own with a size, in the mount namespace of a holder process;
they end with it. The other isolations have folders in the memory of the machine, which a process of its own removes
after the end of Weft. If that was killed too, the next session removes them.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.operators.network import hold_memory
from weft.store.folders import OwnerLock, shm_root, sweep, user_root

if TYPE_CHECKING:
    from weft.frontends.training.schema import PodTemplate
    from weft.operators.network import SandboxProcess

_REMOVER: Final = 'cat; rm -rf -- "$1"'
"""The script that removes the folder of the volumes after the end of its input."""


class MemoryPlace(Struct, frozen=True):
    """The volumes in memory of a replica: their folders by name, and the holder whose mounts show them (0: none)."""

    folders: Mapping[str, str]
    holder: int = 0


class MemoryVolumes:
    """The volumes in memory of a run; they outlive restarts of their replica in place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[str, tuple[SandboxProcess, MemoryPlace]] = {}
        self._root = ""
        self._remover: subprocess.Popen[bytes] | None = None
        self._owner: OwnerLock | None = None

    def take(self, replica: str, template: PodTemplate, folders: Mapping[str, str], user: str | None) -> MemoryPlace:
        """Return the volumes of a replica, made at the first call.

        `folders` are places for them on the disk. `user` is the path of the user namespace of its job ("": none), None
        in isolations without namespaces. NotFoundError: the system has no such mounts.
        """
        with self._lock:
            if user is None:
                return MemoryPlace({name: self._folder(replica, name) for name in folders})
            known = self._holders.get(replica)
            if known is not None and not known[0].has_ended():
                return known[1]
            sizes = {folders[volume.name]: size_of(volume.size_limit, template) for volume in template.volumes
                     if volume.name in folders}  # fmt: skip
            holder = hold_memory(user, sizes)
            place = MemoryPlace(dict(folders), holder.pid)
            self._holders[replica] = holder, place
            return place

    def give_back(self, replica: str) -> None:
        """Remove the volumes of a replica, if it has any."""
        with self._lock:
            known = self._holders.pop(replica, None)
            if known is not None:
                known[0].end()
            elif self._root:
                import shutil  # it loads all formats of archives

                shutil.rmtree(os.path.join(self._root, replica), ignore_errors=True)

    def close(self) -> None:
        """Remove all volumes."""
        for replica in list(self._holders):
            self.give_back(replica)
        if self._remover is not None:
            self._remover.communicate()
            self._remover, self._root = None, ""
        if self._owner is not None:
            self._owner.release()

    def _folder(self, replica: str, name: str) -> str:
        if not self._root:
            root = shm_root()
            sweep(root)
            self._owner = OwnerLock(user_root(root) / f"volumes-{os.getpid()}-{os.urandom(4).hex()}")
            self._root = str(self._owner.folder)
            self._remover = subprocess.Popen(
                ["/bin/sh", "-c", _REMOVER, "sh", self._root],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        path = Path(self._root, replica, name)
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            path.chmod(0o777)
        return str(path)


def size_of(limit: float, template: PodTemplate) -> int:
    """Return the size of a volume in memory: its limit, at most the memory limits of the pod; 0 without any."""
    memory = [one.limits.get("memory", 0.0) for one in template.containers]
    bounds = [limit, sum(memory) if all(memory) else 0.0]
    return int(min((one for one in bounds if one > 0), default=0.0))


def used_bytes(folder: str) -> int:
    """Return the bytes on the disk of all files below a folder; what vanishes meanwhile does not count."""
    total, waiting = 0, [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total
