"""TensorBoard as a program beside a run: which one is used, its port, and its life.

It serves at the loopback address only, and ends with its owner: a guardian runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from weft.model.errors import ConflictError, NotFoundError, WeftError
from weft.operators.call import CommandSpec, last_lines, run_guarded
from weft.operators.ports import PORTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOLDER: Final = "tensorboard"
"""The folder of a run with the event files of its replicas, or links to them: one folder for each replica."""
OFF: Final = "off"
AUTO: Final = "auto"
"""The values of the setting besides a port: no TensorBoard; one at a free port."""
ADDRESS: Final = "127.0.0.1"
FIRST_PORT: Final = 6006
_TRIED: Final = 100
_PROGRAM: Final = "tensorboard"
_PROBE: Final = "import sys, importlib.util as u; sys.exit(u.find_spec('tensorboard') is None)"
_PATIENCE_S: Final = 30.0
_GRACE_S: Final = 2.0


def find_tensorboard(folders: Sequence[str]) -> list[str]:
    """Return the words that start TensorBoard: from folders with programs, then those of PATH, then of this Python.

    In each place the program goes before the module of a Python there. NotFoundError: there is none.
    """
    import shutil  # it loads all formats of archives

    own = os.path.dirname(sys.executable)
    path = [one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if one]
    places = [*folders, os.pathsep.join(path), own]
    for place in places:
        if found := shutil.which(_PROGRAM, path=place):
            return [found]
    for python in _pythons(places):
        if _has_module(python):
            return [python, "-m", _PROGRAM]
    looked = ", ".join([*folders, "the folders of PATH", own])
    raise NotFoundError(
        f"no TensorBoard is installed; it was looked for in {looked}",
        hint="Install it, such as with: pip install tensorboard. Or run without it: leave out --tensorboard",
    )


def _pythons(places: Iterable[str]) -> Iterator[str]:
    import shutil

    known = set()
    for place in places:
        python = shutil.which("python", path=place) or shutil.which("python3", path=place)
        if python is not None and python not in known:
            known.add(python)
            yield python


def _has_module(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-P", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def reserve_port(wanted: str) -> int:
    """Reserve a port: the wanted one, or for "auto" the first free one from 6006 on.

    ConflictError: it is in use.
    """
    if wanted == AUTO:
        taken = next((port for port in range(FIRST_PORT, FIRST_PORT + _TRIED) if PORTS.take(port)), None)
        return PORTS.reserve() if taken is None else taken
    if not PORTS.take(int(wanted)):
        hint = "Name another one, or none: --tensorboard takes a free one."
        raise ConflictError(f"the port {wanted} for TensorBoard is in use", hint=hint)
    return int(wanted)


class TensorBoardServer:
    """A TensorBoard over the folder `logs` at a reserved port, for the run in folder `run`.

    `output` has what it prints. `ended` is called if it ends by itself, with the reason.
    """

    def __init__(self, words: Sequence[str], logs: Path, port: int, run: Path, ended: Callable[[str], None]) -> None:
        self.address = f"http://{ADDRESS}:{port}/"
        self.output = run / f"{FOLDER}.log"
        self._port, self._ended = port, ended
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._closed = False
        self._over = threading.Event()
        self._spec = CommandSpec(
            argv=[*words, "--logdir", str(logs), "--host", ADDRESS, "--port", str(port)],
            env=dict(os.environ),
            cwd=run,
            log=self.output,
            grace_s=_GRACE_S,
            record=run / "processes" / f"{FOLDER}.{port}",
            name="TensorBoard",
        )
        self._thread = threading.Thread(target=self._run, name="TensorBoard", daemon=True)

    def start(self) -> None:
        """Start the program."""
        PORTS.open_to(self._port)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the program has ended."""
        self._over.wait()  # a join that a signal interrupts takes the thread for ended

    def close(self) -> None:
        """End the program, and give back its port; a second call does nothing."""
        with self._lock:
            self._closed, stop = True, self._stop
        if stop is not None:
            stop()
        if self._thread.ident is not None:
            self._over.wait()
        PORTS.release(self._port)

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._over.set()

    def _serve(self) -> None:
        try:
            code = f"exit code {run_guarded(self._spec, on_cancel=self._stoppable).status}"
        except WeftError as error:
            code = error.message
        with self._lock:
            if self._closed:
                return
        said = [line for line in last_lines(self._spec.log) if line.strip()]
        self._ended(f"TensorBoard ended: {code}" + (f": {said[-1].strip()[:300]}" if said else ""))

    def _stoppable(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stop, closed = stop, self._closed
        if closed:
            stop()
