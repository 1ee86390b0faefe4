"""Files that the rows of a query replace."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from weft.model.errors import NotFoundError


@contextmanager
def replaced(path: str) -> Iterator[str]:
    """Give the path of a draft beside a file, with the same end; it becomes the file after the block.

    The earlier file stays until then, so the block may read it, and stays if the block raises. A pipe or a device is
    written as it is. NotFoundError: the folder is missing.
    """
    final = os.path.realpath(path)
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
