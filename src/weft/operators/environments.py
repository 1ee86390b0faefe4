"""Environments of packages for steps: virtual environments, and those of conda and pixi.

Each is made once from the content of its file, in a folder that the file's digest names, and used by all steps with the
same content. The first step that needs it makes it, under a lock; others wait. A folder with the file `complete` is
whole, any other is made anew. Programs of the environment come first in PATH; scripts for its activation do not run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.model.errors import MissingExtraError, NotFoundError, RunCancelledError, TaskError
from weft.model.wording import counted
from weft.operators.call import CommandSpec, last_lines, run_guarded
from weft.store.places import ENVIRONMENTS

if TYPE_CHECKING:
    from weft.graph.task import TaskContext

VENV, CONDA, PIXI = "venv", "conda", "pixi"
UNUSED_S: Final = 30 * 86_400.0
"""An environment that no step has used for this long is removed by `collect`."""
_COMPLETE: Final = "complete"
_LOCK: Final = ".lock"
_LOG: Final = ".log"
_POLL_S: Final = 0.1
_MOST_FILES: Final = 100
_MOST_PACKAGED: Final = 10_000
_NOT_PACKAGED: Final = ("__pycache__", "build", "dist", ".egg-info", "node_modules")
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {CONDA: ("conda", "mamba"), PIXI: ("pixi",)}
"""The programs that make an environment of a kind: the first that is installed."""
_SHOWN: Final = {CONDA: "Install conda, such as Miniforge.", PIXI: "Install pixi (https://pixi.sh)."}
_NEEDS: Final = {VENV: "See that the machine reaches the package index, or that the file names files that are here."}


class MadeEnvironment(NamedTuple):
    """An environment that is whole: the folder of its programs, and the variables that name it."""

    programs: str
    variables: Mapping[str, str]


def content(kind: str, file: str) -> str:
    """Return the digest of what a file asks for: 64 hexadecimal digits.

    Comments and empty lines of a requirements file do not count; files that it names do, and the files of the folders
    of packages (`./lib`) that it names, of at most 10,000 files each. NotFoundError: a file is not there.
    """
    digest = hashlib.sha256(kind.encode())
    for part in _requirements(Path(file)) if kind == VENV else _whole(Path(file)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _whole(file: Path) -> Iterator[bytes]:
    yield _read(file)
    lock = file.with_name("pixi.lock")
    if file.suffix == ".toml" and lock.is_file():
        yield _read(lock)


def _requirements(file: Path) -> Iterator[bytes]:
    todo, seen = [file], set[Path]()
    while todo:
        file = todo.pop()
        if file in seen or len(seen) > _MOST_FILES:
            continue
        seen.add(file)
        for line in _read(file).decode("utf-8", "replace").splitlines():
            words = line.partition(" #")[0].split()
            if not words or words[0].startswith("#"):
                continue
            yield " ".join(words).encode()
            option, equals, value = words[-1].partition("=")
            named = file.parent / (value if equals and option.startswith("--") else words[-1])
            if words[0].partition("=")[0] in ("-r", "--requirement", "-c", "--constraint"):
                todo.append(named)
            elif named.is_file():
                yield _read(named)
            elif words[-1].startswith(".") or os.sep in words[-1]:
                yield from _package(file.parent / words[-1].partition("[")[0])


def _package(folder: Path) -> Iterator[bytes]:
    """Yield the names and contents of the files of which pip builds a package; nothing of a folder with too many."""
    found: list[Path] = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != "." and not name.endswith(_NOT_PACKAGED))
        found += [path for name in sorted(files) if (path := Path(root, name)).is_file()]
        if len(found) > _MOST_PACKAGED:
            return
    for path in found:
        yield os.fsencode(path.relative_to(folder))
        yield _read(path)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        message = f"{file}, the file of an environment, cannot be read: {error.strerror}"
        raise NotFoundError(message, hint="Its path is relative to the folder of the pipeline's file.") from None


def program_of(kind: str) -> str:
    """Return the path of the program that makes environments of a kind. MissingExtraError: none is installed."""
    if kind == VENV:
        return sys.executable
    found = next((path for name in _PROGRAMS[kind] if (path := shutil.which(name))), None)
    if found is None:
        message = f"an environment of {kind} needs the program {kind}, which is not installed"
        raise MissingExtraError(message, hint=_SHOWN[kind])
    return found


def check(kind: str, file: str, step: str) -> None:
    """Look at an environment before a run. Errors are those of `content` and `program_of`, with the step's name."""
    try:
        content(kind, file)
        program_of(kind)
    except (NotFoundError, MissingExtraError) as error:
        error.message = f"step {step}: {error.message}"
        raise


def enter(
    ctx: TaskContext,
    kind: str,
    file: str,
    place: str,
    step: str,
    *,
    log: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> MadeEnvironment:
    """Return an environment below folder `place`, which is made if it is not there; `tell` is told when that goes on.

    TaskError: it cannot be made; the message has the last lines of the program, and the file `log` all of them.
    RunCancelledError: the task was cancelled meanwhile.
    """
    build = content(kind, file)
    if kind == VENV:
        build = hashlib.sha256(f"{build} {sys.version} {platform.platform()} {sys.prefix}".encode()).hexdigest()
    folder = Path(place) / f"{kind}-{build[:24]}"
    made = _environment(kind, folder)
    if _is_used(folder) and _has_programs(kind, folder):
        return made
    Path(place).mkdir(parents=True, exist_ok=True)
    tell(f"waits for its environment ({kind} {Path(file).name}) to be made")
    with _locked(folder, ctx, step):
        if not (_is_used(folder) and _has_programs(kind, folder)):
            try:
                _make(ctx, kind, file, folder, step)
            except TaskError:
                if log:
                    with suppress(OSError):
                        shutil.copyfile(f"{folder}{_LOG}", log)
                raise
    tell(f"its environment is there, in {folder.name}")
    return made


def _make(ctx: TaskContext, kind: str, file: str, folder: Path, step: str) -> None:
    """Make an environment, and note how many files it has; one that cannot be made leaves nothing but its log."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for argv in _commands(kind, file, folder):
            if ctx.cancelled():
                raise RunCancelledError(f"step {step} was cancelled before its environment was made")
            _run(ctx, kind, file, folder, argv, step)
        (folder / _COMPLETE).write_text(json.dumps({"files": _count_files(folder)}))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _has_programs(kind: str, folder: Path) -> bool:
    """Return whether an environment has what each step needs: a Python that is there, or a folder of programs."""
    programs = Path(_environment(kind, folder).programs)
    return (programs / "python3").exists() and (folder / "lib").is_dir() if kind == VENV else programs.is_dir()


def _count_files(folder: Path) -> int:
    """Return the number of files, without compiled modules and the mark that the environment is whole."""
    count = 0
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        count += len(files) - (_COMPLETE in files and Path(root) == folder)
    return count


def examine(state: Path) -> tuple[int, dict[str, str]]:
    """Return the number of the environments of a state folder, and what is wrong with some of them, by their names.

    Those are forgotten, so that the next step that needs one makes it anew.
    """
    marks = sorted((state / ENVIRONMENTS).glob(f"*/{_COMPLETE}"))
    damaged = {}
    for mark in marks:
        folder = mark.parent
        missing = _files_of(mark) - _count_files(folder)
        if not _has_programs(folder.name.partition("-")[0], folder):
            damaged[folder.name] = "its programs are gone"
        elif missing > 0:
            damaged[folder.name] = f"{counted(missing, 'file')} fewer than when it was made"
        if folder.name in damaged:
            with suppress(OSError):
                mark.unlink()
    return len(marks), damaged


def _files_of(mark: Path) -> int:
    """Return the number of files that an environment had when it was made, 0 if it is not known."""
    try:
        return int(json.loads(mark.read_text())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _environment(kind: str, folder: Path) -> MadeEnvironment:
    root = folder / ".pixi" / "envs" / "default" if kind == PIXI else folder
    name = "VIRTUAL_ENV" if kind == VENV else "CONDA_PREFIX"
    return MadeEnvironment(str(root / "bin"), {name: str(root)})


def _is_used(folder: Path) -> bool:
    """Return whether an environment is whole; note its use."""
    try:
        os.utime(folder / _COMPLETE)
    except FileNotFoundError:
        return False
    except OSError:  # another user's, or on a read-only disk
        return (folder / _COMPLETE).exists()
    return True


@contextmanager
def _locked(folder: Path, ctx: TaskContext, step: str) -> Iterator[None]:
    with open(f"{folder}{_LOCK}", "a") as file:
        while not _try_lock(file.fileno()):
            if ctx.cancelled():
                raise RunCancelledError(f"step {step} was cancelled while it waited for its environment")
            time.sleep(_POLL_S)
        yield


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _commands(kind: str, file: str, folder: Path) -> Iterator[list[str]]:
    program = program_of(kind)
    if kind == VENV:
        yield [program, "-m", "venv", str(folder)]
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        yield [*pip, "-r", file]
    elif kind == CONDA:
        yield [program, "env", "create", "--quiet", "--prefix", str(folder), "--file", file]
    else:
        folder.mkdir()
        for source in (Path(file), Path(file).with_name("pixi.lock")):
            if source.is_file():
                shutil.copy(source, folder)
        locked = ["--frozen"] if (folder / "pixi.lock").is_file() else []
        yield [program, "install", "--manifest-path", str(folder / Path(file).name), *locked]


def _run(ctx: TaskContext, kind: str, file: str, folder: Path, argv: list[str], step: str) -> None:
    log = Path(f"{folder}{_LOG}")
    log.unlink(missing_ok=True)
    env: dict[str, Any] = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    spec = CommandSpec(argv=argv, env=env, cwd=Path(file).parent, log=log, name=f"{step} (its environment)")
    result = run_guarded(spec, on_cancel=ctx.on_cancel)
    if result.cause == "cancelled":
        raise RunCancelledError(f"step {step} was cancelled while its environment was made")
    if not result.ok:
        lines = "\n".join(f"  {line}" for line in last_lines(log))
        name = "pip" if "pip" in argv else Path(argv[0]).name
        message = f"step {step} cannot start: its environment of {file} cannot be made: {name} ended with exit code"
        kept = f" The whole output: {log}"
        hint = f"{_NEEDS.get(kind, '')}{kept}".strip()
        raise TaskError(f"{message} {result.status}.\nIts last lines:\n{lines}", task=step, hint=hint)


def collect(state: Path, now: float) -> tuple[int, int]:
    """Remove the environments that no step has used for `UNUSED_S`, and what was never whole; return their number, and
    their bytes.

    `state` is the state folder, `now` the time in seconds since 1970. An environment that is being made stays.
    """
    removed = nbytes = 0
    for lock in sorted((state / ENVIRONMENTS).glob(f"*{_LOCK}")):
        folder = lock.with_name(lock.name.removesuffix(_LOCK))
        with lock.open("a") as file:
            if not _try_lock(file.fileno()) or _last_use(folder) > now - UNUSED_S:
                continue
            nbytes += sum(part.lstat().st_size for part in folder.rglob("*") if not part.is_dir())
            shutil.rmtree(folder, ignore_errors=True)
            for part in (lock, Path(f"{folder}{_LOG}")):
                with suppress(FileNotFoundError):
                    part.unlink()
            removed += 1
    return removed, nbytes


def _last_use(folder: Path) -> float:
    try:
        return (folder / _COMPLETE).stat().st_mtime
    except OSError:
        return 0.0
