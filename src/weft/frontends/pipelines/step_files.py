"""The files of this machine that a step may read: those of its project, those mounted for it, and data elsewhere."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Final

from weft.frontends.pipelines.named_files import below, counts_outside, is_input, on_this_machine

if TYPE_CHECKING:
    from weft.frontends.pipelines.resolved import ResolvedStep

SUFFIXES: Final = frozenset({".bash", ".jar", ".js", ".pl", ".py", ".r", ".rb", ".sh", ".sql"})
"""The endings of scripts' names, in lower case."""
_MOST_FITTING: Final = 500
_LONGEST_NAME: Final = 255
"""A word with more letters is taken for a text."""


class StepFiles:
    """Tells where paths of a step lie on this machine, and which of the files there may be its inputs."""

    def __init__(self, step: ResolvedStep) -> None:
        self.mounts = {mount.mount_path: mount.source for mount in step.mounts if mount.source is not None}
        self.in_image = bool(step.docker_env)
        """A missing absolute path may be a file of the image."""
        self.roots = tuple(f"{folder}/" for folder in (step.cwd, *self.mounts.values()))
        self.artifacts = frozenset((*step.inputs.values(), *step.outputs.values()))

    def place(self, folder: str, path: str) -> str:
        """Return the absolute path on this machine of a path that is read in a folder."""
        return below(folder, self.mounted(path))

    def mounted(self, path: str) -> str:
        """Return the place on this machine of a path below a mount path; any other path as it is."""
        return on_this_machine(path, self.mounts)

    def counts(self, path: str) -> bool:
        """Whether a word that names a path names an input: a file of the project, or one elsewhere on this machine."""
        if path.startswith(self.roots):
            return self.is_of_project(path)
        is_script = os.path.splitext(path)[1].lower() in SUFFIXES and os.path.isfile(path) and self.is_input(path)
        return is_script or self.is_data_outside(path)

    def is_of_project(self, path: str) -> bool:
        """Whether a path is a regular file of the project and no artifact."""
        return os.path.isfile(path) and path.startswith(self.roots) and self.is_input(path)

    def is_data_outside(self, path: str) -> bool:
        """Whether a path is a regular file outside of the project that a step may read as data."""
        outside = not self.in_image and not path.startswith(self.roots) and counts_outside(path)
        return outside and os.path.isfile(path) and self.is_input(path)

    def may_be_made(self, path: str, text: str) -> bool:
        """Whether a word names nothing yet that would be an input."""
        return (
            text[0] != "-"
            and len(text) <= _LONGEST_NAME
            and "{{" not in text
            and (path.startswith(self.roots) or (not self.in_image and counts_outside(path)))
            and self.is_input(path)
            and not os.path.lexists(path)
        )

    def is_input(self, path: str) -> bool:
        """Whether a path lies in no artifact of the step, and in no folder that never counts."""
        return is_input(path, self.artifacts)

    def fitting(self, pattern: str, folder: str) -> list[str]:
        """Return the files that fit a pattern of names that are known only when the step runs; none if too many do."""
        found = sorted(glob.glob(self.place(folder, pattern))) if pattern else []
        return found if len(found) <= _MOST_FITTING else []
