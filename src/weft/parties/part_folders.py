"""The folders of parts: what each attempt of a component at this party was given, and what it has left.

::

    jobs/JOB/ROLE/PARTY/COMPONENT/EPOCH-ATTEMPT/    task.json, log, data_0.arrow, model.json, metrics.jsonl, ...
    jobs/JOB/ROLE/PARTY/COMPONENT/current           the name of the attempt that has succeeded last
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.model.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.federated.schema import Party
    from weft.parties.values import AttemptKey

CURRENT: Final = "current"
_INHERITED: Final = "0-0"
"""The attempt of an earlier job; those of a job begin with epoch 1."""
_SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class PartFolders:
    """The folders of all parts below `root`. UsageError: a name is no name of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def job(self, job: str) -> Path:
        """Return the folder of a job."""
        return self.root / _safe(job)

    def part(self, job: str, part: Party) -> Path:
        """Return the folder of a part of a job."""
        return self.job(job) / _safe(part.role) / _safe(part.id)

    def component(self, job: str, part: Party, component: str) -> Path:
        """Return the folder of a component at a part."""
        return self.part(job, part) / _safe(component)

    def attempt(self, key: AttemptKey, part: Party) -> Path:
        """Return the folder of an attempt."""
        return self.component(key.job, part, key.component) / f"{key.epoch}-{key.attempt}"

    def make(self, key: AttemptKey, part: Party) -> Path:
        """Return an empty folder for an attempt: what an earlier process has left is removed."""
        folder = self.attempt(key, part)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def succeeded(self, key: AttemptKey, part: Party) -> None:
        """Let later components read this attempt."""
        _set_current(self.attempt(key, part))

    def inherit(self, earlier: str, job: str, part: Party, component: str) -> None:
        """Give a job what a component of an earlier one has left at a part: the same files, with names of their own.

        NotFoundError: it has left nothing.
        """
        source, target = self.current(earlier, part, component), self.component(job, part, component)
        if (target / CURRENT).exists():
            return
        shutil.rmtree(target / _INHERITED, ignore_errors=True)
        shutil.copytree(source, target / _INHERITED, copy_function=os.link)
        _set_current(target / _INHERITED)

    def current(self, job: str, part: Party, component: str) -> Path:
        """Return the folder of the attempt that has succeeded last. NotFoundError: none has."""
        folder = self.component(job, part, component)
        with suppress(OSError):
            found = folder / _safe((folder / CURRENT).read_text())
            if found.is_dir():
                return found
        raise NotFoundError(f"{component} of job {job} has left nothing at {part}")

    def latest(self, job: str, part: Party, component: str) -> Path | None:
        """Return the folder of the attempt that was begun last; None: there is none."""
        return next(reversed(self.attempts(job, part, component).values()), None)

    def attempts(self, job: str, part: Party, component: str) -> dict[tuple[int, int], Path]:
        """Return the folders of all attempts by epoch and number, in this order; epoch 0 is that of an earlier job."""
        folder = self.component(job, part, component)
        if not folder.is_dir():
            return {}
        names = [one.name for one in folder.iterdir() if one.is_dir() and re.fullmatch(r"\d+-\d+", one.name)]
        found = sorted((int(epoch), int(number)) for epoch, _, number in (name.partition("-") for name in names))
        return {key: folder / f"{key[0]}-{key[1]}" for key in found}

    def remove(self, job: str) -> None:
        """Remove all that a job has left."""
        shutil.rmtree(self.job(job), ignore_errors=True)


def _set_current(attempt: Path) -> None:
    """Make an attempt the current one of its component; a crash leaves the old one or the new one."""
    aside = attempt.parent / f"{CURRENT}.new"
    aside.write_text(attempt.name)
    os.replace(aside, attempt.parent / CURRENT)


def _safe(name: str) -> str:
    if not _SAFE.fullmatch(name):
        raise UsageError(f"{name[:60]!r} cannot be the name of a folder", hint="Use letters, digits, '_', '-' and '.'.")
    return name
