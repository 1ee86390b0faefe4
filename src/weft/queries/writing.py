"""Files that the rows of a query replace."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.store.filesystems import is_url
from weft.store.remote import opened


@contextmanager
def replaced(path: str, scratch: str | None = None) -> Iterator[str]:
    """Give the path of a draft beside a file, with the same end; it becomes the file after the block.

    The earlier file stays until then, so the block may read it, and stays if the block raises. A pipe or a device is
    written as it is. The draft for a URL is a temporary file of this machine, in the folder `scratch` if it is given.
    NotFoundError: the folder is missing. UsageError: the path is a folder. Other errors as of
    `weft.store.remote.opened`.
    """
    if is_url(path):
        system, inner = opened(path)
        with TemporaryDirectory(prefix="weft-sql-", dir=scratch) as folder:
            draft = os.path.join(folder, inner.rstrip("/").rpartition("/")[2])
            yield draft
            system.put_file(draft, inner)
        return
    final = os.path.realpath(path)
    if os.path.isdir(final):
        raise UsageError(f"{path} is a folder", hint="Name a file in it.")
    if os.path.exists(final) and not os.path.isfile(final):
        yield path
        return
    folder, name = os.path.split(final)
    if not os.path.isdir(folder):
        raise NotFoundError(f"there is no folder {folder}", hint="Make it first.")
    draft = os.path.join(folder, f".{secrets.token_hex(4)}.part.{name}")
    try:
        yield draft
        os.replace(draft, final)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


@contextmanager
def replaced_folder(path: str, ending: str) -> Iterator[str]:
    """Give the path of a draft in a folder; what is in it replaces what is in the folder after the block.

    The earlier files stay until then, so the block may read them, and stay if the block raises. An empty, a new folder
    and a URL are written as they are. ConflictError: a file in the folder has another ending than those in the draft,
    which is `ending` if there are none: it is another's.
    """
    if is_url(path) or not os.path.isdir(path) or not os.listdir(path):
        yield path
        return
    draft = os.path.join(path, f".{secrets.token_hex(4)}.part")
    try:
        yield draft
        endings = {os.path.splitext(file)[1] for file in _files(draft)} or {ending}
        old = [file for file in _files(path) if not file.startswith(f"{draft}{os.sep}")]
        others = sorted(file for file in old if os.path.splitext(file)[1] not in endings)
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise ConflictError(
                f"{path} holds also {os.path.relpath(others[0], path)}{more}, which OVERWRITE would delete",
                hint="Name another folder, or write OVERWRITE_OR_IGNORE, which leaves other files where they are.",
            )
        for file in old:
            os.unlink(file)
        for folder, _, _ in os.walk(path, topdown=False):
            if folder != path:
                with suppress(OSError):  # it is not empty
                    os.rmdir(folder)
        for name in os.listdir(draft) if os.path.isdir(draft) else ():
            os.replace(os.path.join(draft, name), os.path.join(path, name))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _files(folder: str) -> list[str]:
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
