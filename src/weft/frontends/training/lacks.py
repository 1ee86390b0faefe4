"""What this machine lacks of what a container names: folders and programs that only its image has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.training.images import ImageRecipe
    from weft.frontends.training.schema import Container

_SCRIPTS: Final = (".py", ".sh")
"""How the names of files end that a command runs and does not make."""


def lacks_of(container: Container, recipe: ImageRecipe, base: Path) -> Iterator[str]:
    """Yield what a container names that does not exist on this machine and in no mount, in words for the user.

    `base` is the folder in which containers start that name no other.
    """
    shown = [*(mount.path for mount in container.mounts), *(bind.target for bind in recipe.binds)]
    asked = os.path.normpath(container.working_dir)
    folder = container.working_dir or recipe.workdir
    if container.working_dir and not _covers(shown, asked) and not os.path.isdir(asked):
        what = f"{container.working_dir}, the workingDir of {container.name}, does not exist on this machine"
        yield f"{what}: it starts in {base}"
    start = folder if folder and (_covers(shown, folder) or os.path.isdir(folder)) else str(base)
    for number, word in enumerate(recipe.words(container)):
        named = word.endswith(_SCRIPTS) or (number == 0 and os.path.isabs(word))
        if not named or word.startswith("-") or "$(" in word or len(word.split()) != 1:
            continue
        path = os.path.normpath(os.path.join(start, word))
        if not _covers(shown, path) and not os.path.exists(path):
            what = f"{word}, which the command of {container.name} names, does not exist"
            where = " on this machine" if os.path.isabs(word) else f" in {start}"
            yield f"{what}{where}{_remedy(container, word)}"


def _remedy(container: Container, word: str) -> str:
    if not container.image:
        return ""
    shown = f', workdir = "{os.path.dirname(word)}"' if os.path.isabs(word) else ""
    entry = f'[images."{container.image}"] in weft.toml tells what stands for its image (folder = "code"{shown})'
    return f": {entry}, and --isolation container runs the image itself"


def _covers(places: list[str], path: str) -> bool:
    path = os.path.normpath(path)
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places)
