"""Commands in containers: the container engine, the id of an image, and the command line that runs it.

Docker and Podman are used through their command lines. A step runs as `docker run` under a guardian; it passes signals
on to the container, and the guardian removes the container after a kill. An image is run by the id of its content, so
that the cache key and the container agree. A replica runs in the same way, with the network of its job; the guardian
asks the engine to send its SIGTERM, since the processes of a container need not be those of this machine.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.model.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from weft.operators.mounts import BindMount

IGNORE: Final = "ignore"
DOCKER: Final = "docker"
PODMAN: Final = "podman"
REQUIRE: Final = "require"
"""Policies for images: ignore them, run them by one engine if it is installed, or by either engine."""
LABEL: Final = "weft.run"
"""The label of a container with the folder of its run."""
_ASK_S: Final = 60.0
_RUN: Final = ("run", "--rm", "--init", "--stop-timeout", "0")
"""How a container is run. Its grace period is over before it is removed; Podman would give it 10 s more."""


class ContainerEngine(Struct, frozen=True):
    """A program that runs containers on this machine: `kind` is docker or podman."""

    kind: str
    program: str

    @classmethod
    def find(cls, kind: str) -> ContainerEngine:
        """Return the engine of a kind. NotFoundError: it is not installed, or does not answer."""
        import shutil  # it loads all formats of archives, and most jobs need no container

        program = shutil.which(kind)
        if program is None:
            raise NotFoundError(f"{kind} is not installed here", hint=f"Install {kind}, or see: docker_env in settings")
        done = _ask([program, "version", "--format", "{{.Server.Version}}" if kind == DOCKER else "{{.Version}}"])
        if done.returncode != 0:
            hint = f"Try: {kind} version"
            raise NotFoundError(f"{kind} cannot be used: {_last_line(done.stderr)}", hint=hint)
        return cls(kind, program)

    def image_id(self, image: str) -> str | None:
        """Return the id of an image's content, None if the image is not on this machine."""
        done = _ask([self.program, "image", "inspect", "--format", "{{.Id}}", image])
        found = done.stdout.strip()
        return found if done.returncode == 0 and re.fullmatch(r"(sha256:)?[0-9a-f]{12,64}", found) else None

    def pull(self, image: str) -> str:
        """Pull an image and return its id; there is no time limit. NotFoundError: it cannot be pulled."""
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

    def remove_containers(self, run: str) -> int:
        """Remove the containers and networks of a run whose owner has ended; return the number of containers."""
        chosen = ["--quiet", "--filter", f"label={LABEL}={run}"]
        found = _ask([self.program, "ps", "--all", *chosen]).stdout.split()
        if found:
            _ask([self.program, "rm", "--force", *found])
        networks = _ask([self.program, "network", "ls", *chosen]).stdout.split()
        if networks:
            _ask([self.program, "network", "rm", *networks])
        return len(found)

    def is_running(self, container: str) -> bool:
        """Whether a container has started and not ended."""
        return _ask([self.program, "inspect", "--format", "{{.State.Running}}", container]).stdout.strip() == "true"

    def remove(self, container: str) -> None:
        """Remove a container, which need not exist."""
        _ask([self.program, "rm", "--force", container])

    def make_network(self, name: str, subnet: str, run: str) -> str:
        """Make a network of a run; return why it cannot be made, "" if it is."""
        words = ["network", "create", "--subnet", subnet, "--label", f"{LABEL}={run}", name]
        done = _ask([self.program, *words])
        return "" if done.returncode == 0 else _last_line(done.stderr)


def find_engine(policy: str) -> ContainerEngine | None:
    """Return the engine that a policy selects, None if it selects none.

    NotFoundError: the selected engine is missing.
    """
    if policy == IGNORE:
        return None
    if policy != REQUIRE:
        return ContainerEngine.find(policy)
    try:
        return ContainerEngine.find(DOCKER)
    except NotFoundError as error:
        try:
            return ContainerEngine.find(PODMAN)
        except NotFoundError as other:
            hint = "Install one of them, or set docker_env = ignore to run steps on this machine."
            raise NotFoundError(f"images are required, but {error.message}, and {other.message}", hint=hint) from None


def known_images(
    engine: ContainerEngine, images: Iterable[str], note: Callable[[str], None], *, pull: bool = True
) -> dict[str, str]:
    """Return the ids of images by name. NotFoundError: one cannot be pulled.

    Without `pull` the result has only images on this machine.
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
    settings: Mapping[str, Any],
    *,
    cwd: str,
    env: Mapping[str, str],
    mounts: Sequence[BindMount],
    name: str,
) -> tuple[list[str], list[str]]:
    """Return the start of a command line that runs its remainder in a container, and a command line that removes it.

    `settings` has `kind` and `program` of the engine, `image` and `run`. Only names of `env` are on the command line;
    the values are in the environment of the engine, so that process lists do not show them. Without a remainder the
    image runs its own entry point. `name` is the command in messages.
    """
    from secrets import token_hex

    called = f"weft-{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:60]}-{token_hex(6)}"
    user = os.getuid(), os.getgid()
    argv = [settings["program"], *_RUN, "--name", called, "--label", f"{LABEL}={settings['run']}"]
    if user[0] != 0:
        argv += ["--userns", "keep-id"] if settings["kind"] == PODMAN else ["--user", f"{user[0]}:{user[1]}"]
        argv += [] if "HOME" in env else ["--env", "HOME=/tmp"]
    argv += ["--workdir", cwd]
    places = {cwd: (cwd, False)}
    for mount in mounts:
        places.setdefault(mount.target, (mount.source, mount.read_only))
    for target, (source, read_only) in sorted(places.items()):
        argv += _bind(source, target, read_only=read_only)
    for variable, value in env.items():
        # Weft adds a folder of this machine to the PATH of commands.
        argv += ["--env", f"PATH={value}" if variable == "PATH" else variable]
    return [*argv, settings["image"]], [settings["program"], "rm", "--force", called]


class ContainerSeat(Struct, frozen=True):
    """The place of a replica in a network of containers: its address, and the label value of its run."""

    engine: ContainerEngine
    network: str
    address: str
    run: str


class ReplicaContainer(Struct, frozen=True, kw_only=True):
    """A container of a replica. `beside` is the container whose network it shares, "" for a place of its own.

    `words` follow the image, `entrypoint` replaces that of the image. `user` is "" for that of the image.
    """

    name: str
    host: str
    image: str
    entrypoint: str = ""
    workdir: str = ""
    user: str = ""
    cpus: float = 0.0
    memory: int = 0
    beside: str = ""

    def prefix(self, seat: ContainerSeat, env: Mapping[str, str], mounts: Iterable[BindMount]) -> list[str]:
        """Return the start of the command line that runs it, up to the image.

        Values of variables come from the environment of the engine, except of those that the engine reads itself.
        """
        engine = seat.engine
        argv = [engine.program, *_RUN, "--pull", "never", "--name", self.name]
        argv += ["--label", f"{LABEL}={seat.run}"]
        if self.beside:
            argv += ["--network", f"container:{self.beside}"]
        else:
            argv += ["--network", seat.network, "--ip", seat.address, "--hostname", self.host]
        if engine.kind == PODMAN:
            argv += ["--security-opt", "label=disable"]  # volumes stay readable on systems with SELinux
        user = self.user
        if not user and engine.kind == DOCKER and os.getuid() != 0:
            user = f"{os.getuid()}:{os.getgid()}"  # else files of root remain in the folders of the run
        for option, value in (
            ("--user", user),
            ("--workdir", self.workdir),
            ("--entrypoint", self.entrypoint),
            ("--cpus", f"{self.cpus:g}" if self.cpus else ""),
            ("--memory", str(self.memory) if self.memory else ""),
        ):
            argv += [option, value] if value else []
        places: dict[str, BindMount] = {}
        for mount in mounts:
            places.setdefault(mount.target, mount)
        for target, mount in sorted(places.items()):
            argv += _bind(mount.source, target, read_only=mount.read_only)
        for name, value in env.items():
            argv += ["--env", f"{name}={value}" if is_read_by_engines(name) else name]
        return [*argv, self.image]


def is_read_by_engines(variable: str) -> bool:
    """Whether a variable changes what the program of an engine does."""
    return variable in _READ_BY_ENGINES or variable.startswith(_READ_PREFIXES)


_READ_BY_ENGINES: Final = frozenset(
    {"PATH", "HOME", "USER", "TMPDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "SSL_CERT_FILE"}
)
_READ_PREFIXES: Final = ("CONTAINER", "_CONTAINER", "DOCKER_", "PODMAN_", "XDG_", "STORAGE_", "BUILDAH_", "GO")


def _bind(source: str, target: str, *, read_only: bool) -> list[str]:
    return ["--mount", _fields("type=bind", f"source={source}", f"target={target}", *["readonly"] * read_only)]


def _fields(*fields: str) -> str:
    """Return the fields of an option as one CSV line, the engine's format: paths may contain commas."""
    import csv

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
