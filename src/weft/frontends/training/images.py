"""Images without an image: how a container of a job starts on this machine.

An image is looked up in this order: the user's map (`[images]` in `weft.toml`), a Dockerfile beside the job file, a
container engine. A container with a command of its own needs none of them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.errors import DefinitionError, ForbiddenError, NotFoundError, UsageError
from weft.model.suggestions import did_you_mean
from weft.operators.mounts import BindMount
from weft.store.folders import remove_folder, safe_open
from weft.store.places import PROJECT_FILE
from weft.store.state import find_project

if TYPE_CHECKING:
    from weft.frontends.training.dockerfile import CopiedFiles, Dockerfile
    from weft.frontends.training.schema import Container

MAX_BYTES: Final = 1 << 20
MAX_COPIED_BYTES: Final = 2 << 30
MAX_COPIED_FILES: Final = 50_000
_FIELDS: Final = ("folder", "entrypoint", "env", "venv", "workdir")


class ImageMap(Struct, frozen=True, kw_only=True):
    """An entry of the user's map: what stands for the images whose names match `pattern`.

    `folder` is mounted at `workdir` (default: where it lies). Programs of the virtual environment `venv` come first.
    """

    pattern: str
    folder: str = ""
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    venv: str = ""
    workdir: str = ""


class ImageRecipe(Struct, frozen=True, kw_only=True):
    """What stands for an image: its entry point, environment, working folder, files, and folders of programs.

    `binds` show files at the paths that they have in the image: those of the user's `folder`, and `copied` ones, each
    with its path in the image and its source. `engine_image` is the image for a container engine.
    `origin` is a sentence for the user.
    """

    image: str
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    binds: tuple[BindMount, ...] = ()
    folder: str = ""
    copied: tuple[tuple[str, Path], ...] = ()
    programs: tuple[str, ...] = ()
    engine_image: str = ""
    origin: str = ""

    def words(self, container: Container) -> tuple[str, ...]:
        """Return the words that start a container: its command, or the entry point; its arguments, or the image's."""
        if container.command:
            return (*container.command, *container.args)
        return (*self.entrypoint, *(container.args or self.cmd))


def image_maps(table: Mapping[str, Any], file: str, base: Path) -> tuple[ImageMap, ...]:
    """Return the map of images from a table of settings; paths are relative to `base`. UsageError names the field."""
    found = []
    for pattern, entry in table.items():
        where = f"{file}: images.{pattern!r}"
        if not isinstance(entry, dict):
            hint = f'Write: [images."{pattern}"], and below it folder, entrypoint, env, venv or workdir.'
            raise UsageError(f"{where} is no table", hint=hint)
        for name, value in entry.items():
            if name not in _FIELDS:
                raise UsageError(f"{where} has no field {name!r}", hint=did_you_mean(name, _FIELDS, ", ".join(_FIELDS)))
            kind = dict if name == "env" else list if name == "entrypoint" and not isinstance(value, str) else str
            items = list(value.values()) if kind is dict else value if kind is list else ()
            if not isinstance(value, kind) or not all(isinstance(one, str) for one in items):
                what = {dict: "a table of texts", list: "a list of words", str: "a text"}[kind]
                raise UsageError(f"{where}.{name} is {value!r}; it must be {what}")
        words = entry.get("entrypoint", ())
        paths = {
            name: str(base / Path(entry[name]).expanduser()) if entry.get(name) else "" for name in ("folder", "venv")
        }
        found.append(
            ImageMap(
                pattern=pattern,
                entrypoint=("/bin/sh", "-c", words) if isinstance(words, str) else tuple(words),
                env=entry.get("env", {}),
                workdir=entry.get("workdir", ""),
                **paths,
            )
        )
    return tuple(found)


def project_images(base: Path) -> tuple[ImageMap, ...]:
    """Return the map of images of the project above a folder. UsageError: its `weft.toml` is wrong."""
    project = find_project(base)
    if project is None:
        return ()
    import tomllib

    try:
        with safe_open(project, PROJECT_FILE, mode="rb") as file:
            table = tomllib.loads(file.read(MAX_BYTES).decode()).get("images", {})
    except ValueError as error:
        raise UsageError(f"{project / PROJECT_FILE} is not TOML: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{project / PROJECT_FILE}: images is no table", hint='Write: [images."kubeflow/*"]')
    return image_maps(table, str(project / PROJECT_FILE), project)


class ImageResolver:
    """Finds what stands for the images of the jobs of one file.

    `near` is the folder of the job file, `maps` the user's map, and `copies` a folder for the files of Dockerfiles,
    None if nothing is to be run, so that nothing is copied and folders of the map need not be there.
    """

    def __init__(self, near: Path, maps: Sequence[ImageMap], copies: Path | None) -> None:
        self._near, self._maps, self._copies = near, maps, copies
        self._known: dict[str, ImageRecipe] = {}

    def resolve(self, container: Container, *, starts: bool = True) -> ImageRecipe:
        """Return the recipe of the image of a container; without `starts` its entry point does not run.

        NotFoundError: nothing says how the image starts; the hint has the lines to write. DefinitionError: its
        Dockerfile is wrong. UsageError: a folder that the map names is not there.
        """
        image = container.image
        found = self._known.get(image)
        if found is None:
            found = self._known[image] = self._look_up(image)
        if starts and not (container.command or found.entrypoint or found.cmd or found.engine_image):
            raise self._unknown(image, container.name)
        return found

    def _look_up(self, image: str) -> ImageRecipe:
        mapped = next((one for one in self._maps if _matches(image, one.pattern)), None)
        if mapped is not None and self._copies is not None:
            _check_places(mapped)
        recipe = ImageRecipe(image=image, origin="its command runs with the programs of this machine")
        if mapped is None or not mapped.entrypoint:
            file = self._dockerfile(image)
            if file is not None:
                recipe = self._built(image, file)
        return recipe if mapped is None else _with_map(recipe, mapped)

    # ----------------------------------------------------------------------------------------------- Dockerfiles

    def _dockerfile(self, image: str) -> Path | None:
        """Return the Dockerfile of an image: the only one beside the job file, or the one whose name fits best."""
        files = sorted(
            one
            for folder in (self._near, self._near.parent)
            for one in (folder.iterdir() if folder.is_dir() else ())
            if "ockerfile" in one.name
            and one.is_file()
            and re.fullmatch(r"Dockerfile([.-].+)?|.+\.[Dd]ockerfile", one.name)
        )
        if not files:
            return None
        here = [one for one in files if one.parent == self._near]
        if len(here) == 1:
            return here[0]
        words = set(re.split(r"[/:._-]+", image.lower()))
        scored = [(len(words & set(re.split(r"[._-]+", one.name.lower()))), one) for one in here or files]
        best = max(scored, key=lambda pair: pair[0], default=(0, None))
        plain = next((one for one in here if one.name == "Dockerfile"), None)
        return best[1] if best[0] else plain

    def _built(self, image: str, file: Path) -> ImageRecipe:
        from weft.frontends.training.dockerfile import parse_dockerfile  # few jobs have one

        with safe_open(file.parent, file.name, mode="rb") as source:
            data = source.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise DefinitionError(f"{file} is larger than {MAX_BYTES >> 20} MiB: it is no Dockerfile")
        built = parse_dockerfile(data.decode("utf-8", "replace"), str(file))
        copied = _copied(built, file)
        binds = self._binds(copied, file, self._copies) if copied and self._copies is not None else ()
        return ImageRecipe(
            image=image,
            entrypoint=built.entrypoint,
            cmd=built.cmd,
            env=built.env,
            workdir=built.workdir if built.workdir != "/" else "",
            binds=binds,
            copied=tuple(copied),
            origin=f"{file.name} says how it starts"
            + (f"; its {built.runs} RUN lines are left out" if built.runs else ""),
        )

    def _binds(self, files: Sequence[tuple[str, Path]], file: Path, copies: Path) -> tuple[BindMount, ...]:
        """Put the copied files together in one folder as in the image; return the mounts of its outermost parts."""
        from hashlib import blake2b

        digest = blake2b(digest_size=12)
        for place, source in files:
            about = source.stat()
            digest.update(f"{place}\0{source}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
        root = copies / digest.hexdigest()
        if not root.is_dir():
            _fill(root, files, file)
        return tuple(BindMount(f"{root}{top}", top) for top in _tops([place for place, _ in files]))

    def _unknown(self, image: str, container: str) -> NotFoundError:
        name = re.sub(r"[:@].*$", "", image) or image
        return NotFoundError(
            f"nothing says how the image {image} of container {container} starts: the file gives no command, "
            f"there is no Dockerfile in {self._near}",
            hint=f'Write into weft.toml: [images."{name}*"] with entrypoint = ["python", "train.py"], '
            'folder = "the folder of the code", venv = "its virtual environment"',
        )


def _matches(image: str, pattern: str) -> bool:
    bare = re.sub(r"(@sha256:[0-9a-f]+|:[^/:@]+)$", "", image)
    return fnmatchcase(image, pattern) or fnmatchcase(bare, pattern)


def _check_places(mapped: ImageMap) -> None:
    """Require the folders of an entry. UsageError: one is not there."""
    where = f'{PROJECT_FILE}: [images."{mapped.pattern}"]'
    if mapped.folder and not os.path.isdir(mapped.folder):
        raise UsageError(f"{where} folder: {mapped.folder} is no folder", hint="Name the folder of the code.")
    if mapped.venv and not os.path.isdir(f"{mapped.venv}/bin"):
        hint = f"Make it: python -m venv {mapped.venv}"
        raise UsageError(f"{where} venv: {mapped.venv} is no virtual environment, it has no bin", hint=hint)


def _with_map(recipe: ImageRecipe, mapped: ImageMap) -> ImageRecipe:
    binds, workdir = recipe.binds, mapped.workdir or recipe.workdir
    if mapped.folder:
        target = mapped.workdir or mapped.folder
        binds, workdir = (*binds, BindMount(mapped.folder, target)), target
    env = {**recipe.env, **mapped.env}
    if mapped.venv:
        env["VIRTUAL_ENV"] = mapped.venv
    return replace(
        recipe,
        entrypoint=mapped.entrypoint or recipe.entrypoint,
        cmd=() if mapped.entrypoint else recipe.cmd,
        env=env,
        workdir=workdir,
        binds=binds,
        folder=mapped.folder,
        programs=(f"{mapped.venv}/bin",) if mapped.venv else (),
        origin=f"[images] {mapped.pattern!r} stands for it",
    )


def leaves_of_image(recipe: ImageRecipe, root: str) -> dict[str, str]:
    """Return what stands for an image as parts of a key, {} for nothing; paths are relative to the folder `root`."""
    from hashlib import sha256  # for cached steps alone

    from weft.store.digests import DIGEST

    about = f"image {recipe.image}".rstrip()
    start = [*recipe.entrypoint], [*recipe.cmd]
    found = {
        "entry point": json.dumps(start) if any(start) else "",
        "working folder": recipe.workdir and _relative(recipe.workdir, root),
        "folder": recipe.folder and _relative(recipe.folder, root),
        "programs": os.pathsep.join(_relative(path, root) for path in recipe.programs),
        **{f"environment {name}": value for name, value in recipe.env.items() if name != "VIRTUAL_ENV"},
    }
    leaves = {f"{about} {name}": text for name, text in found.items() if text}
    parts: dict[str, Any] = {}
    for place, source in recipe.copied:
        name = f"copied {_relative(str(source), root).split(os.sep)[0]}"
        digest = parts[name] if name in parts else parts.setdefault(name, sha256())
        digest.update(f"{place}\0{_digest(source)}\0".encode())
    return leaves | {name: DIGEST + digest.hexdigest() for name, digest in parts.items()}


def _relative(path: str, root: str) -> str:
    return os.path.relpath(path, root) if f"{path}/".startswith(f"{root}/") else path


def _digest(path: Path) -> str:
    """Return the digest of a file. NotFoundError: it is gone."""
    try:
        found = path.stat()
        return _digest_of(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}", hint="The Dockerfile copies it.") from None


@lru_cache(maxsize=MAX_COPIED_FILES)
def _digest_of(path: Path, size: int, modified_ns: int, changed_ns: int) -> str:
    from hashlib import file_digest  # for cached steps alone

    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _copied(built: Dockerfile, file: Path) -> list[tuple[str, Path]]:
    """Return the files that a Dockerfile copies, with their paths in the image."""
    files: list[tuple[str, Path]] = []
    context = _context_of(built, file) if built.copies else file.parent
    for copy in built.copies:
        files += _placed(_into_folder(copy, [place for place, _ in files]), context, file)
    return files


def _context_of(built: Dockerfile, file: Path) -> Path:
    """Return the build context: the nearest folder, from that of the Dockerfile upwards, that has all its files."""
    sources = [source for copy in built.copies for source in copy.sources]
    for folder in (file.parent, *file.parent.parents):
        if all(_found(folder, source) for source in sources):
            return folder
    missing = next(source for source in sources if not _found(file.parent, source))
    line = next(copy.line for copy in built.copies if missing in copy.sources)
    raise NotFoundError(
        f"{file}:{line}: no folder from here upwards has {missing}",
        hint='Put it there, or map the image in weft.toml: [images."NAME*"] with folder and entrypoint.',
    )


def _found(folder: Path, source: str) -> list[Path]:
    """Return the files of a source in a context; a source cannot leave it."""
    parts = [part for part in source.split("/") if part not in ("", ".")]
    if ".." in parts:
        return []
    if not parts:
        return [folder]
    return sorted(folder.glob("/".join(parts)))


def _into_folder(copy: CopiedFiles, before: Sequence[str]) -> CopiedFiles:
    """Return a COPY whose target shows that it is a folder: of an earlier COPY, or one that machines have."""
    target = copy.target.rstrip("/") + "/"
    known = os.path.isdir(target) or any(place.startswith(target) for place in before)
    return replace(copy, target=target) if known else copy


def _placed(copy: CopiedFiles, context: Path, file: Path) -> list[tuple[str, Path]]:
    """Return the files of one COPY with their paths in the image; a folder gives its content."""
    hidden = _ignored(context)
    found: list[tuple[str, Path]] = []
    for source in copy.sources:
        for path in _found(context, source):
            if path.is_dir():
                inside = [one for one in sorted(path.rglob("*")) if one.is_file()]
                base = copy.target.rstrip("/")
                found += [(f"{base}/{one.relative_to(path)}", one) for one in inside if not hidden(one)]
            else:
                found.append((copy.target + path.name if copy.target.endswith("/") else copy.target, path))
            if len(found) > MAX_COPIED_FILES:
                raise ForbiddenError(
                    f"{file}:{copy.line} copies more than {MAX_COPIED_FILES:,} files",
                    hint="Name the folder of the code only, or list what to leave out in .dockerignore.",
                )
    return found


def _ignored(context: Path) -> Callable[[Path], bool]:
    """Return whether `.dockerignore` of a context leaves a file out; version control and environments always are."""
    patterns = [".git", ".venv", "__pycache__", ".weft"]
    try:
        with safe_open(context, ".dockerignore") as file:
            patterns += [line.strip().strip("/") for line in file.read(MAX_BYTES).splitlines()]
    except NotFoundError:
        pass
    patterns = [one for one in patterns if one and not one.startswith(("#", "!"))]

    def hidden(path: Path) -> bool:
        inside = path.relative_to(context)
        names = [str(inside), *(str(parent) for parent in inside.parents), *inside.parts]
        return any(fnmatchcase(name, pattern.removeprefix("**/")) for name in names for pattern in patterns)

    return hidden


def _fill(root: Path, files: Sequence[tuple[str, Path]], file: Path) -> None:
    """Copy files to a new folder, all or none."""
    if sum(source.stat().st_size for _, source in files) > MAX_COPIED_BYTES:
        raise ForbiddenError(
            f"{file} copies more than {MAX_COPIED_BYTES >> 30} GiB into its image",
            hint="Leave data out (.dockerignore), and mount it as a volume.",
        )
    import shutil  # it loads all formats of archives

    begun = root.with_name(f".{root.name}.{os.getpid()}")
    try:
        for place, source in files:
            target = begun / place.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        begun.mkdir(parents=True, exist_ok=True)
        begun.rename(root)
    except OSError as error:
        remove_folder(begun)
        if not root.is_dir():  # another run was first
            raise ForbiddenError(f"the files of {file} cannot be copied to {root.parent}: {error.strerror}") from None


def _tops(places: Sequence[str], folder: str = "") -> list[str]:
    """Return the outermost paths that this machine lacks, and single files in its own folders: nothing is hidden."""
    inside: dict[str, list[str]] = {}
    for place in places:
        inside.setdefault(place[len(folder) + 1 :].partition("/")[0], []).append(place)
    found = []
    for name, below in sorted(inside.items()):
        path = f"{folder}/{name}"
        found += _tops(below, path) if path not in below and os.path.isdir(path) else [path]
    return found
