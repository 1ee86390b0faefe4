"""What this machine lacks of what a container names: folders and programs that only its image has.

A missing `workingDir` is made, as a cluster does, where the replica has mounts of its own; else the container starts in
the folder of its image, or in that of the job file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.operators.mounts import BindMount, impossible_mount

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.training.images import ImageRecipe
    from weft.frontends.training.schema import Container

TEMPORARY: Final = "/tmp"
_SCRIPTS: Final = (".py", ".sh")
"""How the names of files end that a command runs and does not make."""


class StartFolder(NamedTuple):
    """The folder in which a container starts, as it sees it, and whether that has to be made for it."""

    path: str
    is_made: bool = False


def start_folder(
    container: Container, recipe: ImageRecipe, base: Path, shown: Iterable[str], *, makes: bool
) -> StartFolder:
    """Return the folder in which a container starts that sees mounts at the paths `shown`.

    With `makes` a missing `workingDir` is made, if that is possible. `base` is the folder of the job file.
    """
    shown = list(shown)
    for folder in filter(None, (container.working_dir, recipe.workdir)):
        path = os.path.normpath(os.path.join(base, folder))
        if covers(shown, path) or os.path.isdir(path):
            return StartFolder(path)
        if makes and folder == container.working_dir and _can_be_made(path, base):
            return StartFolder(path, is_made=True)
    return StartFolder(str(base))


def _can_be_made(path: str, base: Path) -> bool:
    """Whether a container can see a folder at a path that this machine lacks; it may have a /tmp of its own."""
    if covers([os.path.realpath(TEMPORARY)], os.path.realpath(path)) and not covers([str(base)], path):
        return True
    return impossible_mount([BindMount(str(base), path)], "/", "", first=True) is None


def lacks_of(container: Container, recipe: ImageRecipe, base: Path, *, makes: bool) -> Iterator[str]:
    """Yield what a container names that does not exist on this machine and in no mount, in words for the user.

    Parameters as of `start_folder`.
    """
    shown = [*(mount.path for mount in container.mounts), *(bind.target for bind in recipe.binds)]
    start, is_made = start_folder(container, recipe, base, shown, makes=makes)
    asked = os.path.normpath(os.path.join(base, container.working_dir))
    if container.working_dir and (is_made or start != asked):
        what = f"{container.working_dir}, the workingDir of {container.name}, does not exist on this machine"
        does = "is made, and empty" if is_made else f"is replaced by {start}"
        yield f"{what}: it {does}{_remedy(container, asked)}"
    for number, word in enumerate(recipe.words(container)):
        named = word.endswith(_SCRIPTS) or (number == 0 and os.path.isabs(word))
        if not named or word.startswith("-") or "$(" in word or len(word.split()) != 1:
            continue
        path = os.path.normpath(os.path.join(start, word))
        if not covers(shown, path) and not os.path.exists(path):
            what = f"{word}, which the command of {container.name} names, does not exist"
            where = " on this machine" if os.path.isabs(word) else f" in {start}"
            yield f"{what}{where}{_remedy(container, os.path.dirname(word))}"


def _remedy(container: Container, folder: str) -> str:
    """Return what to write so that the container sees a folder of the user at `folder`."""
    if not container.image:
        return ""
    shown = f', workdir = "{folder}"' if os.path.isabs(folder) else ""
    entry = f'[images."{container.image}"] in weft.toml tells what stands for its image (folder = "code"{shown})'
    return f": {entry}, and --isolation container runs the image itself"


def covers(places: Iterable[str], path: str) -> bool:
    """Whether a path is one of some places or lies in it."""
    path = os.path.normpath(path)
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places)
