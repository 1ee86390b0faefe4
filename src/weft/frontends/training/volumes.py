"""The volumes of a replica as folders of this machine, and the mounts that show them in its containers.

Claims lie in the state folder, in a folder for each namespace, and outlive the run. The folder of a replica has its
other volumes; it belongs to one incarnation of the replica. Source: the volumes of Kubernetes core/v1.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.frontends.training.jobs import DEFAULT_NAMESPACE
from weft.model.errors import DefinitionError, ForbiddenError, NotFoundError
from weft.operators.mounts import BindMount
from weft.store.folders import remove_folder, safe_open

if TYPE_CHECKING:
    from weft.frontends.training.schema import Container, FileItem, JobFile, KeyValues, PodTemplate, Volume

SHARED_MEMORY: Final = "/dev/shm"
_CREATED: Final = {"DirectoryOrCreate": True, "FileOrCreate": False}
_KINDS: Final[Mapping[str, tuple[str, Callable[[int], bool]]]] = {
    "Directory": ("a folder", stat.S_ISDIR),
    "DirectoryOrCreate": ("a folder", stat.S_ISDIR),
    "File": ("a file", stat.S_ISREG),
    "FileOrCreate": ("a file", stat.S_ISREG),
    "Socket": ("a socket", stat.S_ISSOCK),
    "CharDevice": ("a character device", stat.S_ISCHR),
    "BlockDevice": ("a block device", stat.S_ISBLK),
}


class VolumePlaces(Struct, frozen=True):
    """Where volumes lie: `claims` has a folder for each claim of the namespace, `replica` those of one incarnation of
    a replica.

    `base` is the folder of the job file, to which relative host paths belong.
    """

    claims: Path
    replica: Path
    base: Path


def claims_of(claims: Path, namespace: str) -> Path:
    """Return the folder with the claims of a namespace; those of the default one lie in `claims` itself.

    No claim has a name like that of the folder of a namespace. ForbiddenError: the namespace is no name of a folder.
    """
    return claims if namespace == DEFAULT_NAMESPACE else _inside(claims, f"@{namespace}", "namespace of a claim")


Facts = Callable[["FileItem"], str]
"""The text of a file of the downward API: a field of the pod or a resource of a container."""


def make_volumes(template: PodTemplate, files: JobFile, places: VolumePlaces, facts: Facts) -> dict[str, str]:
    """Make the volumes of a replica; return their folders or files by name.

    NotFoundError: a config map, secret or host path is missing. ForbiddenError: a place cannot be used.
    """
    return {volume.name: str(_make(volume, files, places, facts)) for volume in template.volumes}


def remove_volumes(places: VolumePlaces) -> None:
    """Remove the volumes of a replica, except claims and host paths."""
    remove_folder(places.replica)


def mounts_of(
    container: Container, volumes: Mapping[str, str], template: PodTemplate, *, own_memory: bool = False
) -> list[BindMount]:
    """Return the mounts of a container. DefinitionError: it mounts a volume that the pod has not.

    Without `own_memory` the shared memory of the machine stands for a volume in memory at its place.
    """
    read_only = {volume.name for volume in template.volumes if volume.read_only or volume.kind in _FIXED}
    memory = {volume.name for volume in template.volumes if volume.kind == "memory"}
    found = []
    for mount in container.mounts:
        if mount.volume not in volumes:
            known = ", ".join(volumes) or "none"
            raise DefinitionError(
                f"container {container.name} mounts the volume {mount.volume}, which its pod does not have",
                hint=f"The volumes of the pod: {known}.",
            )
        if (
            not own_memory
            and mount.volume in memory
            and mount.path.rstrip("/") == SHARED_MEMORY
            and os.path.isdir(SHARED_MEMORY)
        ):
            continue  # that of this machine lies in memory already
        source = volumes[mount.volume]
        if mount.sub_path:
            source = str(_inside(Path(source), mount.sub_path, f"subPath of {mount.path}"))
            if not os.path.lexists(source):
                os.makedirs(source, exist_ok=True)
        found.append(BindMount(source, posixpath.normpath(mount.path), mount.read_only or mount.volume in read_only))
    return found


_FIXED: Final = ("config_map", "secret", "downward", "projected")


def _make(volume: Volume, files: JobFile, places: VolumePlaces, facts: Facts) -> Path:
    if volume.kind == "host":
        return _host(volume, places)
    if volume.kind == "claim":
        folder = _inside(places.claims, volume.source, f"claim of volume {volume.name}")
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    folder = _inside(places.replica, volume.name, "volume")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700 if volume.kind == "secret" else 0o755)
    for name, data, mode in _content(volume, files, facts):
        _inside(folder, name, f"item of volume {volume.name}")
        with safe_open(folder, name, mode="wb", make_folders=True) as file:
            os.fchmod(file.fileno(), mode & 0o700 if volume.kind == "secret" else mode)
            file.write(data)
    return folder


def _host(volume: Volume, places: VolumePlaces) -> Path:
    path = places.base / Path(volume.source).expanduser()
    if volume.host_type in _CREATED and not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(exist_ok=True) if _CREATED[volume.host_type] else path.touch()  # another replica may make it too
        except OSError as error:
            raise ForbiddenError(
                f"the host path {path} of volume {volume.name} cannot be made: {error.strerror}"
            ) from None
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise NotFoundError(
            f"the host path {path} of volume {volume.name} cannot be used: {error.strerror}",
            hint="Make it, or set type: DirectoryOrCreate in its hostPath.",
        ) from None
    what, is_one = _KINDS.get(volume.host_type, ("", lambda _: True))
    if not is_one(mode):
        raise DefinitionError(f"the host path {path} of volume {volume.name} is not {what}", hint="Correct its type.")
    return path


def _content(volume: Volume, files: JobFile, facts: Facts) -> Iterable[tuple[str, bytes, int]]:
    """Yield the files of a volume: name, content and mode."""
    if volume.kind == "projected":
        for part in volume.parts:
            yield from _content(part, files, facts)
    elif volume.kind == "downward":
        for item in volume.items:
            yield item.path, facts(item).encode(), item.mode if item.mode >= 0 else volume.mode
    elif volume.kind in ("config_map", "secret"):
        values = (files.secrets if volume.kind == "secret" else files.config_maps).get(volume.source)
        what = volume.kind.replace("_", " ")
        if values is None:
            if volume.optional:
                return
            known = ", ".join(files.secrets if volume.kind == "secret" else files.config_maps) or "none"
            raise NotFoundError(
                f"volume {volume.name} takes the {what} {volume.source}, which the file does not have",
                hint=f"Add it to the file as a document of its own; there are: {known}.",
            )
        yield from _keys(volume, values, what)


def _keys(volume: Volume, values: KeyValues, what: str) -> Iterable[tuple[str, bytes, int]]:
    if not volume.items:
        yield from ((key, data, volume.mode) for key, data in values.data.items())
        return
    for item in volume.items:
        if item.key in values.data:
            yield item.path, values.data[item.key], item.mode if item.mode >= 0 else volume.mode
        elif not volume.optional:
            raise NotFoundError(
                f"volume {volume.name} takes the key {item.key} of the {what} {values.name}, which has no such key",
                hint=f"Its keys: {', '.join(values.data) or 'none'}.",
            )


def _inside(folder: Path, name: str, what: str) -> Path:
    """Return a path below a folder. ForbiddenError: the name leads out of it."""
    if not name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ForbiddenError(
            f"the {what} is {name!r}, which is no name inside of a folder", hint="Leave out '..' and '/'."
        )
    return folder / name
