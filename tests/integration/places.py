"""What tests of whole runs share: a folder with a pipeline in it, and a process for each command line."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import weft
from tests.prepared import ForkedCommand, forks_with
from tests.started import owned, start
from weft import wiring
from weft.admin.settings import Settings
from weft.cli.context import CommandContext
from weft.cli.main import main
from weft.runs.reading import read_run
from weft.runs.service import RunService
from weft.store.planning import Foreseen
from weft.store.state import StateRoot
from weft.wiring import Loaded

DEADLINE_S = 180.0
"""How long anything may take; whoever waits longer has found a fault."""
SHORTEST_S, LONGEST_S = 0.005, 0.1
"""Seconds between two looks at a condition: what is looked for takes the same cores."""
PATIENCE = 0.05
"""The share of the time so far that the next look may come late."""
DEAR, DEAREST_S = 2, 1.0
"""How many times as long as a look takes the next one is put off, and how long at most: a look may be a command."""
SOURCE = Path(weft.__file__).parents[1]
MAIN = "import sys; from weft.cli.main import main; sys.exit(main())"
RUN = "run-000001"
StartedCommand = subprocess.Popen[str] | ForkedCommand
"""A command line that goes on."""


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait until a condition holds, and return what it gave."""
    begun = looked = time.monotonic()
    while not (found := condition()):
        now = time.monotonic()
        assert now < begun + DEADLINE_S, f"{what} did not come"
        time.sleep(max(SHORTEST_S, min(LONGEST_S, PATIENCE * (now - begun)), min(DEAREST_S, DEAR * (now - looked))))
        looked = time.monotonic()
    return found


def namespaces(pids: Iterable[int] | None = None) -> set[str]:
    """Return the network namespaces of these processes, or of all; those of tests beside this one are among them."""
    found = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()) if pids is None else pids:
        with suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
    return found


class Project:
    """A folder with a pipeline; `environ` is added to what its processes find in the environment.

    `loaded` are further modules that its command lines need: they find them loaded, unless `environ` forbids that.
    """

    loaded: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.file = folder / "run.yaml"
        self.root = StateRoot(folder / ".weft")
        self.settings = Settings(state_dir=folder / ".weft", user="me", backend="threads")
        self.environ: dict[str, str] = {}

    def write(self, steps: Mapping[str, Any], **top: Any) -> None:
        self.file.write_text(json.dumps({"name": "trial", "entry_points": steps, **top}))

    def env(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(SOURCE)} | self.environ

    def start(self, *words: str) -> StartedCommand:
        """Start a command line, by default a run, in a process of its own."""
        if not any(name.startswith(("PYTHON", "LC_", "LANG")) for name in self.environ):
            return owned(forks_with(self.loaded).open(words or ("run", "run.yaml"), self.folder, self.env()))
        return start(
            [sys.executable, "-P", "-c", MAIN, *(words or ("run", "run.yaml"))],
            cwd=self.folder,
            env=self.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def weft(self, *words: str) -> tuple[int, str, str]:
        """Return how a command line ended, once nobody holds its pipes any more."""
        process = self.start(*words)
        out, err = process.communicate(timeout=DEADLINE_S)
        return process.wait(), out, err

    def folder_of(self, run: str = RUN) -> Path:
        return self.root.folder(run)

    def states(self, run: str = RUN) -> dict[str, str]:
        return {step.name: step.state for step in read_run(self.folder_of(run)).steps}


class Commands:
    """Runs command lines in this process, in a folder that is the current one; `environ` is added to theirs."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder / "home"), **(environ or {})}

    def __call__(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Return what a command line has printed to stdout and stderr; it must end with `code`."""
        ended, out, err = self.ended(*words)
        assert ended == code, (ended, err, out)
        return out, err

    def ended(self, *words: str) -> tuple[int, str, str]:
        """Return how a command line ended, as `Project.weft` does."""
        out, err = io.StringIO(), io.StringIO()
        code = main(words, CommandContext(out=out, err=err, environ=self.environ, cwd=self.folder))
        return code, out.getvalue(), err.getvalue()

    def json(self, *words: str, code: int = 0) -> Any:
        """Return the document that a command line prints with `--json`."""
        return json.loads(self(*words, "--json", code=code)[0])


def plan_pipeline(loaded: Loaded, settings: Settings) -> list[Foreseen]:
    """Return the plan of a pipeline, by a service with these settings."""
    return RunService(wiring, settings, settings.state_root(loaded.base)).plan(loaded)
