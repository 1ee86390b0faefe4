"""Files that the rows of a query replace."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

from weft.model.errors import NotFoundError, UsageError
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
