"""The demonstration: three parties on this machine, each with a server, keys and a database of its own.

They score the credit of 30,000 clients together: the guest knows who has failed to pay and 13 features, the host knows
10 further features, and the arbiter has the key under which both add. No features and no labels leave their party.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from weft.model.errors import NotFoundError, PartyError, PartyUnreachableError
from weft.operators.call import CommandSpec, StopCommand, run_guarded
from weft.parties.client import SiteClient
from weft.parties.invitations import invite, join
from weft.parties.site import PartySite
from weft.store.scratch import ScratchFolder

_HOMES: Final = (Path(__file__).parent / "example", Path(__file__).parents[3] / "examples" / "federated")
_PARTIES: Final = (("guest", "9999"), ("host", "9998"), ("arbiter", "10000"))
_NAMESPACE: Final = "credit"
_START_S: Final = 60.0
_STOP_S: Final = 20.0
_LOOK_S: Final = 0.1
AWAY_S: Final = 60.0
"""The seconds that who follows a job waits for a server that does not answer, such as one that is started again."""
ENDED: Final = frozenset({"success", "failed", "canceled", "timeout"})


class DemoClock(NamedTuple):
    """The time of day, the time of a stopwatch, and a pause, in seconds."""

    wall: Callable[[], float]
    now: Callable[[], float]
    pause: Callable[[float], None]


class DemoResult(NamedTuple):
    """What came of a demonstration: the status of its job, the seconds of each part, and the metrics by component."""

    status: str
    start_s: float
    job_s: float
    job: str
    shown: Mapping[str, Any]
    metrics: Mapping[str, float]


def example_folder() -> Path:
    """Return the folder of the example. NotFoundError: this installation has none."""
    for folder in _HOMES:
        if (folder / "dsl.json").is_file():
            return folder
    raise NotFoundError("the example is not installed", hint="Take examples/federated of the sources.")


def run_demo(
    folder: Path | None,
    clock: DemoClock,
    say: Callable[[str], None],
    *,
    toy: bool = False,
    example: Path | None = None,
) -> DemoResult:
    """Make three parties in a folder (None: a temporary one), run the example, and stop them.

    With `toy` the parties only add secret shares. `example` is the folder of the example (None: that of Weft).
    PartyError: a server does not start, or the job fails.
    """
    example = example or example_folder()
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(ScratchFolder("demo")))
        began = clock.now()
        sites = make_parties(folder, _PARTIES, clock.wall())
        clients = stack.enter_context(servers(sites, clock))
        start_s = clock.now() - began
        say(f"{len(sites)} parties run: {', '.join(f'{name} {site.party.id}' for name, site in sites.items())}")
        prefix = "toy_" if toy else ""
        if not toy:
            for role in ("guest", "host"):
                table = f"default_credit_{role}"
                clients[role].upload(
                    example / "data" / f"{table}.csv.gz",
                    {"namespace": _NAMESPACE, "table_name": table, "head": 1, "partition": 1},
                )
                say(f"{role}: table {_NAMESPACE}.{table}")
            guest, granted = sites["guest"].party.id, {"namespace": _NAMESPACE, "name": "default_credit_host"}
            clients["host"].post("permission/grant", {"party_id": guest, "dataset": granted})
            say(f"host: jobs of party {guest} may use {_NAMESPACE}.default_credit_host")
        began = clock.now()
        body = {
            "job_dsl": json.loads((example / f"{prefix}dsl.json").read_text()),
            "job_runtime_conf": json.loads((example / f"{prefix}conf.json").read_text()),
        }
        job = clients["guest"].post("job/submit", body)["job_id"]
        say(f"job {job} is submitted by the guest")
        shown = follow(clients["guest"], job, clock, say)
        return DemoResult(shown["status"], start_s, clock.now() - began, job, shown, shown.get("metrics", {}))


def follow(client: SiteClient, job: str, clock: DemoClock, say: Callable[[str], None]) -> dict[str, Any]:
    """Tell how the components of a job get on until it has ended; return what its party shows.

    PartyUnreachableError: the server does not answer for `AWAY_S` seconds.
    """
    told: dict[str, str] = {}
    away: float | None = None
    while True:
        try:
            shown: dict[str, Any] = client.post("weft/job", {"job_id": job})
        except PartyUnreachableError as error:
            if away is None:
                away = clock.now()
                say(f"{error.message}; the job goes on, and this waits up to {AWAY_S:g} s for the server")
            elif clock.now() >= away + AWAY_S:
                raise
            clock.pause(_LOOK_S)
            continue
        if away is not None:
            away = None
            say("the server answers again")
        for component in shown["components"]:
            status, name = component["status"], component["name"]
            if status != told.get(name) and status in ENDED:
                took = component["seconds"]
                say(f"{name}: {status}" + ("" if took is None else f" ({took:.1f} s)"))
            told[name] = status
        if shown["status"] in ENDED:
            return shown
        clock.pause(_LOOK_S)


def make_parties(
    folder: Path, parties: Sequence[tuple[str, str]], now: float, *, cores: int | None = None
) -> dict[str, PartySite]:
    """Make the folders of parties by name and id, and let each know all others. `cores` are those of each."""
    sites = {name: PartySite.create(folder / name, id, name=name, cores=cores) for name, id in parties}
    for inviter in sites.values():
        text = invite(inviter, now)
        for guest in sites.values():
            if guest is not inviter:
                join(guest, text, now)
    return sites


class _Server:
    """A server in a process that ends with this one, however this one ends."""

    def __init__(self, site: PartySite) -> None:
        self._site, self._stop, self._ended = site, threading.Event(), threading.Event()
        self._end: StopCommand | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"server-{site.party.id}")
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._ended.is_set()

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self._site.folder / "server.log"

    def stop(self) -> None:
        """Let it end."""
        with self._lock:
            self._stop.set()
            if self._end is not None:
                self._end()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _run(self) -> None:
        spec = CommandSpec(
            argv=[sys.executable, "-m", "weft", "party", "start", "--folder", str(self._site.folder)],
            env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)},
            cwd=self._site.folder,
            log=self.log,
            grace_s=_STOP_S,
            name="server",
        )
        try:
            run_guarded(spec, on_cancel=self._take)
        finally:
            self._ended.set()

    def _take(self, end: StopCommand) -> None:
        with self._lock:
            self._end = end
            if self._stop.is_set():
                end()


@contextmanager
def servers(sites: Mapping[str, PartySite], clock: DemoClock) -> Iterator[dict[str, SiteClient]]:
    """Start a server for each site, yield a client for each, and end them.

    PartyError: a server does not come up.
    """
    running = {name: _Server(site) for name, site in sites.items()}
    try:
        yield {name: _ready(site, running[name], clock) for name, site in sites.items()}
    finally:
        for one in running.values():
            one.stop()
        for one in running.values():
            one.join()


def _ready(site: PartySite, server: _Server, clock: DemoClock) -> SiteClient:
    end = clock.now() + _START_S
    client = SiteClient.of(site)
    while not server.ended and clock.now() < end:
        try:
            client.post("version/get", {"module": "FATE"})
        except PartyUnreachableError:
            clock.pause(0.05)
        else:
            return client
    log = server.log.read_text(errors="replace")[-2000:] if server.log.exists() else ""
    raise PartyError(f"the server of party {site.party.id} did not start:\n{log}", party=site.party.id)
