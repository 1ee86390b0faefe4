"""The driver of a run inside a Ray cluster: a detached actor without a core, which starts the process of the run.

The run goes on when the machine that asked for it has left. When the machine of the actor is lost, Ray starts the actor
again at another one, and the run is resumed there from its folder, which all machines share. At most one driver of a
run lives: the lock of the folder decides.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import ray

from weft._version import __version__
from weft.backends.ray import near_head
from weft.backends.ray_connecting import SCHEME, address_of, check_modules, check_weft, connected
from weft.backends.ray_places import LOOK_S, waiting_reservations
from weft.model.clusters import ClusterOptions
from weft.model.errors import CapacityError, ConflictError, RunCancelledError, WeftError
from weft.store.folders import safe_open
from weft.store.state import DRIVER, DRIVER_OF_PROCESS, StateRoot, owned
from weft.worker.group import ProcessId, is_alive, process_id

NAMESPACE: Final = "weft"
"""The namespace of the names of drivers in the cluster."""
FOLDER: Final = "drivers"
"""In the state folder: a file for each driver that lives, by the name of its actor, with its run and its process."""
ADDRESS: Final = "RAY_ADDRESS"
CLUSTER: Final = "WEFT_CLUSTER"
_LOOK_S: Final = 0.5
_LEAVING_S: Final = 120.0
"""Seconds within which the lock of a lost machine's driver must be free: storage that machines share takes a while."""
_DEATHS: Final = 3
"""The number of times that a process which died is started again at its machine."""
_ANSWER_S: Final = 30.0
_END_S: Final = 30.0
"""Seconds after which an actor that leaves ends itself, if Ray has not ended it."""
_QUIET_S: Final = 10.0
"""Seconds until the command line says that the run has not begun."""


class StartedDriver(Protocol):
    """The start of a process; see `weft.runs.background.StartedRun`."""

    @property
    def run(self) -> str:
        """The id of the run, "" if none began."""
        ...


class Leave(Protocol):
    """The removal of what `settle` has made; see `weft.runs.handing.leave`."""

    def __call__(self, key: str, base: Path, *, begun: bool) -> None:
        """Remove it, if all of it is at the URL or the run has not begun."""
        ...


class Helpers(NamedTuple):
    """What an actor needs of other layers: the start of a command line, and orders to the owner of a folder.

    `begin(words, cwd, environ, look)` starts a process with a command line of `weft`, and returns when its run has
    begun. It calls `look` meanwhile, whose error ends the process. `interrupted(folder)`: the process of a run has died
    before the end of the run. `settle(url, key, base, look)` makes the project and the folder of a run below `base`
    from its log at a URL, and returns its id; `leave` removes that.
    """

    begin: Callable[[Sequence[str], Path, Mapping[str, str], Callable[[], None]], StartedDriver]
    order: Callable[[Path, Mapping[str, Any]], Any]
    interrupted: Callable[[Path], bool]
    settle: Callable[[str, str, Path, Callable[[], None]], str]
    leave: Leave


class DriverRequest(NamedTuple):
    """A command line that begins a run, and the one that resumes it, without the id of the run behind `resume`.

    `environ` is added to the environment of the machine. `state` is the state folder of the run. A run with a `log`
    (URL and key) has begun already; the machines share no folder, and each driver makes one of its own. `client` is the
    address by which Ray's client has asked for the driver, if that did; `weft` is the version of whoever has asked.
    """

    name: str
    words: Sequence[str]
    again: Sequence[str]
    cwd: str
    environ: Mapping[str, str]
    state: str
    log: tuple[str, str] | None = None
    client: str = ""
    weft: str = __version__

    def at_this_machine(self) -> DriverRequest:
        """Return the request with the folders of this machine, if it has its own."""
        if self.log is None:
            return self
        base = Path(tempfile.gettempdir(), f"weft-drivers-{os.getuid()}", self.log[1])
        state = str(base / ".weft")
        return self._replace(cwd=str(base), state=state, again=[*self.again, "--state-dir", state])

    def inside(self, address: str) -> DriverRequest:
        """Return the request of a process that reaches the cluster at an address, and not by Ray's client."""
        if not self.client:
            return self
        words, again = ([word.replace(self.client, address) for word in one] for one in (self.words, self.again))
        return self._replace(words=words, again=again, environ={**self.environ, CLUSTER: address})


class DriverProcess(NamedTuple):
    """The process of a driver, and its machine."""

    run: str
    machine: str
    pid: int
    start_time: str


class DriverActor:
    """The actor of a driver: starts its process, or resumes its run after the loss of an earlier actor."""

    def __init__(self, helpers: Helpers, request: DriverRequest) -> None:
        context = ray.get_runtime_context()
        self._helpers, self._request = helpers, request.at_this_machine().inside(context.gcs_address)
        request = self._request
        self._note = Path(request.state, FOLDER, f"{request.name}.json")
        self._started: StartedDriver | None = None
        self._error: WeftError | None = None
        about = {"actor": request.name, "address": context.gcs_address, "machine": platform.node()}
        about |= {"client": request.client} if request.client else {}
        self._environ = {**os.environ, **request.environ, ADDRESS: context.gcs_address}
        self._environ |= {DRIVER_OF_PROCESS: json.dumps(about)}
        self._self: Any = context.current_actor
        self._begun, self._given_up = threading.Event(), False
        self._deaths = 0
        threading.Thread(target=self._drive, daemon=True).start()

    def _drive(self) -> None:
        try:
            check_weft(__version__, self._request.weft)
            before = self._before()
            if before is not None:
                self._wait_for_the_end_of(before)
            if self._request.log is not None:
                self._begin(self._helpers.settle(*self._request.log, Path(self._request.cwd), self._look))
            else:
                self._begin(None if before is None else before.run)
        except WeftError as error:
            self._error = error
        finally:
            self._begun.set()

    def started(self) -> StartedDriver:
        """Return how the start went, once that is known. WeftError: nothing could be started."""
        self._begun.wait()
        if self._error is not None:
            raise self._error
        assert self._started is not None
        return self._started

    def give_up(self) -> None:
        """End the process if its run has not begun, and return when that is done."""
        self._given_up = True
        self._begun.wait()

    def _look(self) -> None:
        if self._given_up:
            raise RunCancelledError("nobody waits for the begin of the run any more")

    def order(self, folder: str, message: Mapping[str, Any]) -> Any:
        """Send an order to the owner of a folder at this machine; errors are those of the owner."""
        return self._helpers.order(self._folder(Path(folder).name), message)

    def _before(self) -> DriverProcess | None:
        try:
            return DriverProcess(**json.loads(self._note.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def _wait_for_the_end_of(self, before: DriverProcess) -> None:
        """End the process of an earlier actor of this machine; wait until that of another one has lost its lock.

        ConflictError: it keeps the lock.
        """
        process = ProcessId(before.pid, before.start_time)
        if before.machine == platform.node() and is_alive(process):
            os.kill(process.pid, signal.SIGKILL)
        end = time.monotonic() + _LEAVING_S
        while owned(self._folder(before.run)):
            if time.monotonic() > end:
                raise ConflictError(f"{before.run} is still driven by a process of {before.machine}")
            time.sleep(_LOOK_S)

    def _folder(self, run: str) -> Path:
        return StateRoot(Path(self._request.state)).folder(run)

    def _begin(self, run: str | None) -> None:
        """Start a run, or resume it, and watch its process from then on."""
        request = self._request
        first, *more = request.again
        words = request.words if run is None else [first, run, *more]
        self._started = self._helpers.begin(words, Path(request.cwd), self._environ, self._look)
        if not self._started.run:
            self._leave()
            return
        folder = self._folder(self._started.run)
        with suppress(ConflictError):  # the run has ended already
            pid = int(self._helpers.order(folder, {"do": "ping"})["pid"])
            found = process_id(pid)
            process = DriverProcess(self._started.run, platform.node(), pid, found.start_time if found else "")
            self._note.parent.mkdir(exist_ok=True)
            _write(self._note.parent, self._note.name, process._asdict())
        threading.Thread(target=self._watch, args=(folder,), daemon=True).start()

    def _watch(self, folder: Path) -> None:
        """Leave the cluster when the run has ended. A process that has died before is started again, a few times."""
        while owned(folder):
            time.sleep(_LOOK_S)
        with suppress(WeftError):  # the run can be resumed by hand
            if self._deaths < _DEATHS and self._helpers.interrupted(folder):
                self._deaths += 1
                self._begin(folder.name)
                return
        self._leave()

    def _leave(self) -> None:
        self._note.unlink(missing_ok=True)
        if self._request.log is not None:
            begun = self._started is not None and bool(self._started.run)
            self._helpers.leave(self._request.log[1], Path(self._request.cwd), begun=begun)
        threading.Timer(_LOOK_S, ray.kill, (self._self,), {"no_restart": True}).start()
        threading.Timer(_END_S, os._exit, (0,)).start()  # the machine's own process of Ray may be dead


def _write(folder: Path, name: str, value: Mapping[str, Any]) -> None:
    """Write a file in one step."""
    with safe_open(folder, f"{name}.new", mode="w") as file:
        json.dump(value, file)
    os.replace(folder / f"{name}.new", folder / name)


def start_driver(helpers: Helpers, request: DriverRequest, address: str | None) -> StartedDriver:
    """Start the driver of a run in the cluster at an address, and return when its run has begun; see `ClusterOptions`.

    It starts at the head, whose loss ends the cluster anyway, or elsewhere if that cannot be. UsageError: there is no
    cluster. CapacityError: the actor cannot be started; errors of the start are raised.
    """
    options = ClusterOptions(address=address)
    if (where := address_of(options)).startswith(SCHEME):
        request = request._replace(client=where)
    with connected(options):
        actor: Any = (
            ray.remote(DriverActor)
            .options(
                name=request.name,
                namespace=NAMESPACE,
                lifetime="detached",
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=4,
                scheduling_strategy=near_head(),
            )
            .remote(helpers, request)
        )
        try:
            answer = actor.started.remote()
            _tell_of_waits(answer, of_log=request.log is not None)
            found: StartedDriver = ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            ray.kill(actor)
            raise _own(error) from None
        except ray.exceptions.RayActorError as error:
            check_modules(error)
            raise CapacityError(f"the cluster cannot start a driver: {error}", hint="See `ray status`.") from None
        except KeyboardInterrupt:
            with suppress(ray.exceptions.RayError):
                ray.get(actor.give_up.remote(), timeout=_ANSWER_S)
            if not ray.wait([answer], timeout=0)[0] or not _has_begun(answer):
                ray.kill(actor)
            raise
        return found


def _tell_of_waits(answer: Any, *, of_log: bool) -> None:
    """Wait for an answer about the begin of a run, and say on the standard error for what, if that takes longer."""
    starts = "its process starts in the cluster" + (", or waits for the lease of a former driver" if of_log else "")
    cores = "it waits for cores of the cluster"
    told: list[str] = []
    if ray.wait([answer], timeout=_QUIET_S)[0]:
        return
    waiting = waiting_reservations()
    while not ray.wait([answer], timeout=LOOK_S)[0]:
        before, waiting = waiting, waiting_reservations()
        why = cores if before & waiting else starts  # each reservation waits for a moment
        if why not in told and cores not in told:
            told.append(why)
            sys.stderr.write(f"weft: the run has not begun: {why}; Ctrl-C gives up\n")


def _has_begun(answer: Any) -> bool:
    try:
        return bool(ray.get(answer).run)
    except ray.exceptions.RayError:
        return False


def order_driver(folder: Path, message: Mapping[str, Any]) -> Any:
    """Send an order to the owner of a run through its driver in the cluster; return the answer.

    ConflictError: the run has no driver in a cluster, or that does not answer.
    """
    try:
        about = json.loads((folder / DRIVER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConflictError(f"{folder.name} has no driver in a cluster") from None
    try:
        with ExitStack() as undo:
            actor = _find(about, undo)
            return ray.get(actor.order.remote(str(folder), dict(message)), timeout=_ANSWER_S)
    except ray.exceptions.RayTaskError as error:
        raise _own(error) from None
    except (ValueError, ray.exceptions.RayError) as error:
        raise ConflictError(
            f"the driver of {folder.name} in the Ray cluster at {about['address']} does not answer: {error}",
            hint=f"See whether it runs: weft show {folder.name}",
        ) from None


def _find(about: Mapping[str, str], undo: ExitStack) -> Any:
    """Return the actor of a driver, by Ray's client if who asked for the run did so, else inside the cluster.

    `undo` leaves the cluster. ValueError: the actor has ended. UsageError: nothing reaches its cluster.
    """
    if "client" in about:
        with suppress(WeftError, ValueError):  # this may be another machine, inside the network of the cluster
            undo.enter_context(connected(ClusterOptions(address=about["client"])))
            return ray.get_actor(about["actor"], namespace=NAMESPACE)
    undo.close()
    undo.enter_context(connected(ClusterOptions(address=about["address"])))
    return ray.get_actor(about["actor"], namespace=NAMESPACE)


def driver_lives(folder: Path) -> bool:
    """Whether the cluster of a run has its driver, be it that this begins again elsewhere.

    A cluster that does not answer has none.
    """
    try:
        about = json.loads((folder / DRIVER).read_text(encoding="utf-8"))
        with ExitStack() as undo:
            _find(about, undo)
            return True
    except (FileNotFoundError, ValueError, WeftError, ray.exceptions.RayError):
        return False


def _own(error: Any) -> Exception:
    """Return the error that a method of an actor has raised, as it was raised."""
    cause = error.cause
    return cause if isinstance(cause, WeftError) else CapacityError(f"the driver of the run failed: {cause}")
