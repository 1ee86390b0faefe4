"""The packed projects at a URL: each is written once, used by any number of runs, and removed with the last of them.

    projects/<digest>.json            the description of the archive that a new run may use
    projects/<digest>.<token>         an archive
    projects/<digest>.<token>.<key>   the run of this key uses it

A run says that it uses an archive, and then looks whether the description still names it. Whoever removes an archive
removes its description first, and then looks whether a run uses it. So one of the two sees the other: no archive that a
run uses is removed. An archive that no run uses is a rest of a removal that was cut off, and goes with the next one.
"""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec

from weft.store.shared import SharedObject, SharedStorage

PROJECTS: Final = "projects"
"""The folder at a URL with the packed projects."""
_ARCHIVE: Final = re.compile(rf"({PROJECTS}/[0-9a-f]{{64}})\.[0-9a-f]{{12}}")
_USE: Final = re.compile(rf"({_ARCHIVE.pattern})\.([^./]+)")


def hold_project(storage: SharedStorage, key: str, file: str, digest: str, size: int) -> SharedObject:
    """Return the archive at a URL with the content of a file, written if there is none; the run `key` uses it.

    `digest` is the SHA-256 of the file, `size` its bytes. CapacityError: the URL cannot be used.
    """
    name = f"{PROJECTS}/{digest}"
    known = storage.description(name)
    if known is not None and known.digest == digest:
        storage.put_bytes(b"", f"{known.name}.{key}")
        if storage.description(name) == known and storage.has(known.name):
            return known
        storage.remove(f"{known.name}.{key}")
    found = SharedObject(name=f"{name}.{os.urandom(6).hex()}", digest=digest, size=size, packed=True)
    storage.put_bytes(b"", f"{found.name}.{key}")
    storage.put(file, found.name)
    storage.put_bytes(msgspec.json.encode(found), f"{name}.json")
    return found


def release_projects(storage: SharedStorage, key: str) -> None:
    """Let the run `key` use no project any more, and remove the archives that no run uses.

    CapacityError: the URL cannot be used; a second call removes the rest.
    """
    names = storage.names(PROJECTS)
    uses = [use for name in names if (use := _USE.fullmatch(name))]
    for use in uses:
        if use[3] == key:
            storage.remove(use[0])
    used = {use[1] for use in uses if use[3] != key}
    archives = {name for name in names if _ARCHIVE.fullmatch(name)} | {use[1] for use in uses}
    for archive in sorted(archives - used):
        name = archive.rpartition(".")[0]
        known = storage.description(name)
        if known is not None and known.name == archive:
            storage.remove(f"{name}.json")
        if not any(other.startswith(f"{archive}.") for other in storage.names(PROJECTS)):
            storage.remove(archive)
