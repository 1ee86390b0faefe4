"""Commands in containers: which program runs them, what an image is exactly, and how a command is put into one.

Docker and Podman are asked by their command lines. The command of a step becomes `docker run`, which runs under a
guardian as the command itself would: it hands signals on to the container, and where it was killed the guardian removes
the container. An image is run by the id of its content, so that it is the very one that the cache has in its key.
"""

from __future__ import annotations

import csv
import io
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.model.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from weft.operators.mounts import Mount

IGNORE: Final = "ignore"
DOCKER: Final = "docker"
PODMAN: Final = "podman"
REQUIRE: Final = "require"
"""What may become of images: nothing, they are run by one of the two where that is there, or by either of them."""
LABEL: Final = "weft.run"
"""The label that says which run a container belongs to: the folder of the run."""
_ASK_S: Final = 60.0


class Engine(Struct, frozen=True):
    """A program that runs containers on this machine: `kind` is docker or podman."""

    kind: str
    program: str

    @classmethod
    def find(cls, kind: str) -> Engine:
        """Return the program of this kind. NotFoundError: it is not installed, or does not answer."""
        program = shutil.which(kind)
        if program is None:
            raise NotFoundError(f"{kind} is not installed here", hint=f"Install {kind}, or see: docker_env in settings")
        done = _ask([program, "version", "--format", "{{.Server.Version}}" if kind == DOCKER else "{{.Version}}"])
        if done.returncode != 0:
            hint = f"Try: {kind} version"
            raise NotFoundError(f"{kind} cannot be used: {_last_line(done.stderr)}", hint=hint)
        return cls(kind, program)

    def image_id(self, image: str) -> str | None:
        """Return the id of an image's content, None if it is not on this machine."""
        done = _ask([self.program, "image", "inspect", "--format", "{{.Id}}", image])
        found = done.stdout.strip()
        return found if done.returncode == 0 and re.fullmatch(r"(sha256:)?[0-9a-f]{12,64}", found) else None

    def pull(self, image: str) -> str:
        """Fetch an image, however long that takes, and return its id. NotFoundError: it cannot be fetched."""
        done = subprocess.run(
            [self.program, "pull", "--quiet", image],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        found = self.image_id(image)
        if done.returncode != 0 or found is None:
            message = f"{self.kind} cannot fetch the image {image}: {_last_line(done.stderr)}"
            raise NotFoundError(message, hint=f"Try: {self.kind} pull {image}")
        return found

    def remove_left(self, run: str) -> int:
        """Remove what is left of the containers of a run whose owner is gone; return how many those were."""
        found = _ask([self.program, "ps", "--all", "--quiet", "--filter", f"label={LABEL}={run}"]).stdout.split()
        if found:
            _ask([self.program, "rm", "--force", *found])
        return len(found)


def find_engine(policy: str) -> Engine | None:
    """Return what runs images by a policy; None if nothing does by it.

    NotFoundError: what the policy names is not there.
    """
    if policy == IGNORE:
        return None
    if policy != REQUIRE:
        return Engine.find(policy)
    try:
        return Engine.find(DOCKER)
    except NotFoundError as error:
        try:
            return Engine.find(PODMAN)
        except NotFoundError as other:
            hint = "Install one of them, or set docker_env = ignore to run steps on this machine."
            raise NotFoundError(f"images are required, but {error.message}, and {other.message}", hint=hint) from None


def known_images(
    engine: Engine, images: Iterable[str], note: Callable[[str], None], *, pull: bool = True
) -> dict[str, str]:
    """Return the ids of images by their names. NotFoundError: one cannot be fetched.

    Without `pull` what is not on this machine is left out.
    """
    found = {}
    for image in images:
        if image.startswith("-") or not image.isprintable():
            raise UsageError(f"docker_env is {image[:80]!r}, which names no image")
        id = engine.image_id(image)
        if id is None and pull:
            note(f"{engine.kind} fetches the image {image}")
            id = engine.pull(image)
        if id is not None:
            found[image] = id
    return found


def in_container(
    said: Mapping[str, Any],
    *,
    cwd: str,
    env: Mapping[str, str],
    mounts: Sequence[Mount],
    name: str,
) -> tuple[list[str], list[str]]:
    """Return the beginning of a command line that runs what follows in a container, and one that removes that.

    `said` has `kind` and `program` of the engine, `image` and `run`. Of `env` only names are on the command line: the
    values are what the program that is started has of that name, so that no list of processes shows them. Where
    nothing follows, the image starts what it starts by itself. `name` is what messages call it.
    """
    called = f"weft-{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:60]}-{secrets.token_hex(6)}"
    user = os.getuid(), os.getgid()
    argv = [said["program"], "run", "--rm", "--init", "--name", called, "--label", f"{LABEL}={said['run']}"]
    if user[0] != 0:
        argv += ["--userns", "keep-id"] if said["kind"] == PODMAN else ["--user", f"{user[0]}:{user[1]}"]
        argv += [] if "HOME" in env else ["--env", "HOME=/tmp"]
    argv += ["--workdir", cwd]
    places = {cwd: (cwd, False)}
    for mount in mounts:
        places.setdefault(mount.target, (mount.source, mount.read_only))
    for target, (source, read_only) in sorted(places.items()):
        argv += ["--mount", _fields("type=bind", f"source={source}", f"target={target}", *["readonly"] * read_only)]
    for variable, value in env.items():
        # Weft puts a folder of this machine into the PATH of what it starts.
        argv += ["--env", f"PATH={value}" if variable == "PATH" else variable]
    return [*argv, said["image"]], [said["program"], "rm", "--force", called]


def _fields(*fields: str) -> str:
    """Return the fields of an option as one line of CSV, which is how it is read: paths may have commas in them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _ask(argv: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(argv, 1, "", str(error))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "it says nothing"
