"""What tests of faults share: three parties whose processes are killed, and parties in network namespaces."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests.integration.places import until
from tests.integration.test_parties import ENDED, SOURCE, Served
from tests.integration.test_party_models import TRAIN, upload
from tests.unit.frontends.federated.components.parts_of import breast
from weft.parties.invitations import invite, join
from weft.worker.group import is_alive, read_record

if TYPE_CHECKING:
    from weft.parties.client import SiteClient

ROLES = {"guest": "1", "host": "2", "arbiter": "3"}
ROWS = 200
AT_ALL = ("reader_0", "data_transform_0", "intersection_0", "hetero_lr_0")
RUNS_AT = {"guest": (*AT_ALL, "evaluation_0"), "host": AT_ALL, "arbiter": ("hetero_lr_0", "evaluation_0")}


def conf(**parameters: Any) -> dict[str, Any]:
    """Return the conf of a job that trains a linear model, in some seconds; `parameters` are those of the job."""
    model = {
        "batch_size": -1,
        "max_iter": 4,
        "early_stop": "weight_diff",
        "tol": 0,
        "encrypt_param": {"method": "Paillier", "key_length": 2048},
    }
    table = {"reader_0": {"table": {"name": "rows", "namespace": "n"}}}
    labelled = {"data_transform_0": {"with_label": True, "label_name": "y"}}
    return {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {role: [id] for role, id in ROLES.items()},
        "job_parameters": {"common": parameters},
        "component_parameters": {
            "common": {"hetero_lr_0": model, **table},
            "role": {"guest": {"0": labelled}, "host": {"0": {"evaluation_0": {"need_run": False}}}},
        },
    }


def introduce(parties: Mapping[str, Served]) -> None:
    """Let all parties know each other."""
    now = time.time()
    for one in parties.values():
        text = invite(one.site, now)
        for other in parties.values():
            if one is not other:
                join(other.site, text, now)


def upload_rows(parties: Mapping[str, Served], folder: Path) -> None:
    """Give guest and host their columns."""
    matrix, y = breast()
    rows = range(ROWS)
    folder.mkdir(exist_ok=True)
    guest = [[f"id{at}", y[at], *matrix[at, :3]] for at in rows]
    upload(parties["guest"], folder / "guest.csv", ["id", "y", "a", "b", "c"], guest)
    upload(parties["host"], folder / "host.csv", ["id", "d", "e"], [[f"id{at}", *matrix[at, 3:5]] for at in rows])


@contextmanager
def running(parties: Mapping[str, Served], folder: Path) -> Iterator[None]:
    """Run the servers of parties with their tables, and end them."""
    introduce(parties)
    try:
        for one in parties.values():
            one.spawn()
        for one in parties.values():
            until(one.answers, "the server")
        upload_rows(parties, folder / "csv")
        yield
    finally:
        for one in parties.values():
            one.end()


@contextmanager
def three_parties(folder: Path) -> Iterator[dict[str, Served]]:
    """Run three parties by role, and end them."""
    found = {role: Served(folder, id) for role, id in ROLES.items()}
    with running(found, folder):
        yield found


def component_folder(party: Served, role: str, job: str, component: str) -> Path:
    """Return the folder of a component of a job at a party."""
    return Path(party.site.folder) / "jobs" / job / role / party.site.id / component


def part_processes(party: Served) -> list[tuple[int, str]]:
    """Return the processes of parts of a party that live, each with the name of its component."""
    return [
        (process.pid, record.parents[1].name)
        for record in Path(party.site.folder).glob("jobs/*/*/*/*/*/process")
        for process in read_record(record)[1:]  # the first one is the guardian
        if is_alive(process)
    ]


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def left_processes(mark: str) -> list[str]:
    """Return the processes with a text in their environment, other than this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


def is_free(party: Served) -> bool:
    """Whether a party runs no process of a part, and no job holds its cores."""
    return not part_processes(party) and not party.client.post("resource/query")["use_resource_job"]


class KillRun:
    """One job, and one process of it that is killed at a moment that a seed chooses."""

    def __init__(self, parties: Mapping[str, Served], seed: int) -> None:
        self.parties, self.random = parties, random.Random(seed)
        self.retries = self.random.choice([0, 2])
        self.victim = self.random.choice(["server", "server", "process", "guardian"])
        self.role = self.random.choice(list(ROLES))
        self.component = self.random.choice(RUNS_AT[self.role])
        self.how = "begun" if self.random.random() < 0.7 else "current"
        self.noticed = self.random.random() < 0.5
        self.job, self.hit = "", False

    def __str__(self) -> str:
        when = self.how if self.victim == "server" else "running"
        return (
            f"{self.victim} of the {self.role} with {self.component} {when}, "
            f"{self.retries} retries, {'hit' if self.hit else 'too late'}"
        )

    def run(self) -> None:
        """Run the job, and check how it ends."""
        guest = self.parties["guest"]
        self.job = guest.submit(TRAIN, conf(auto_retries=self.retries))
        self.kill()
        shown = {role: party.ended(self.job) for role, party in self.parties.items()}
        statuses = {one["status"] for one in shown.values()}
        reasons = {one["reason"] for one in shown.values()}
        assert len(statuses) == len(reasons) == 1, f"{self}: {shown}"
        fails = self.hit and self.victim != "server" and not self.retries
        allowed = {"success", "failed"} if fails else {"success"}  # a process may have succeeded when it is killed
        assert statuses <= allowed, f"{self}: {statuses} {reasons}"
        if statuses == {"failed"}:
            reason = reasons.pop()
            assert reason.startswith(f"party {ROLES[self.role]}:"), f"{self}: {reason}"
            assert "SIGKILL" in reason or "guardian" in reason, f"{self}: {reason}"
        self.check_nothing_is_left()

    def kill(self) -> None:
        """Kill the process once its moment has come."""
        party = self.parties[self.role]
        if self.victim == "server":
            folder = component_folder(party, self.role, self.job, self.component)
            until(folder.exists if self.how == "begun" else (folder / "current").exists, str(self))
            party.kill()
            self.hit = True
            if self.noticed and self.role != "guest":
                until(self.is_missed, f"{self}: the notice")
            party.start()
            return
        pids = until(self.pids, str(self))
        pid = pids[0] if self.victim == "process" else parent_of(pids[0]) if pids[0] else 0
        if pid > 1:
            os.kill(pid, signal.SIGKILL)
            self.hit = True

    def is_missed(self) -> bool:
        """Whether the guest has noticed that a party does not answer, or has no need of it any more."""
        shown = self.parties["guest"].show(self.job)
        return "does not answer" in shown["reason"] or shown["status"] in ENDED

    def pids(self) -> list[int]:
        """Return the process of the component, [0] if it has ended before it was seen."""
        party = self.parties[self.role]
        found = [pid for pid, component in part_processes(party) if component == self.component]
        ended = (component_folder(party, self.role, self.job, self.component) / "current").exists()
        return found or ([0] if ended else [])

    def check_nothing_is_left(self) -> None:
        """Check that no process and no lease outlives the job."""
        for role, party in self.parties.items():
            until(partial(is_free, party), f"{self}: the end of processes and leases of the {role}")
            left = sorted(one.name for one in (Path(party.site.folder) / "run").iterdir())
            assert left == ["requests", "served_at"], f"{self}: {left}"


@contextmanager
def watched_temporary_files(folder: Path) -> Iterator[None]:
    """Give processes a folder for temporary files, which marks them, and check that none and nothing is left."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        shared = set(os.listdir("/dev/shm"))
        yield
        until(lambda: not left_processes(str(folder)), "the end of all processes")
        assert [one.name for one in folder.iterdir() if not one.name.startswith(f"weft-{os.getuid()}")] == []
        made = [one for one in set(os.listdir("/dev/shm")) - shared if "weft" in one]
        assert [one for one in made if not re.fullmatch(r"weft-\d+", one)] == []  # the first test of a user makes that


# ----------------------------------------------------------------------------------------------------------- networks

_NEW_NETWORK = 0x40000000


def why_no_namespaces() -> str:
    """Return why this machine cannot have network namespaces, "" if it can."""
    if os.geteuid():
        return "network namespaces need root; try: unshare -Urnm sh -c 'mount -t tmpfs none /run && pytest ...'"
    name = f"weft-try-{os.getpid()}"
    try:
        done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "network namespaces need the command ip (iproute2)"
    if done.returncode:
        return f"network namespaces are not allowed here: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


def ip(*words: str) -> None:
    """Run `ip`."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class InsideClient:
    """A client in a network namespace: a thread of its own that has entered it."""

    def __init__(self, client: SiteClient, namespace: str) -> None:
        self._client = client
        self._thread = ThreadPoolExecutor(1, "inside", self._enter, (namespace,))

    @staticmethod
    def _enter(namespace: str) -> None:
        with open(f"/run/netns/{namespace}") as place:
            if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "setns")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given: self._thread.submit(getattr(self._client, name), *given).result()

    def close(self) -> None:
        self._thread.shutdown()


class Isolated(Served):
    """A party in a network namespace of its own, with one link to a bridge."""

    def __init__(self, folder: Path, id: str, net: Network) -> None:
        self.address, self.net = f"10.213.7.{id}", net
        self.namespace = net.add(id, self.address)
        super().__init__(folder, id, host=self.address, ports=(9370, 9380))
        self.client: Any = InsideClient(self.client, self.namespace)

    def process_of(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, sys.executable, "-m", "weft", *self.command()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
        )

    def end(self) -> None:
        super().end()
        self.client.close()


class Network:
    """Namespaces on a bridge. A context manager, which removes them."""

    def __init__(self) -> None:
        self._mark = f"{os.getpid() % 100000}"
        self._stack = ExitStack()
        self._hub = f"wf{self._mark}"
        ip("netns", "add", self._hub)
        self._stack.callback(ip, "netns", "del", self._hub)
        ip("-n", self._hub, "link", "add", "hub", "type", "bridge")
        ip("-n", self._hub, "link", "set", "hub", "up")

    def add(self, id: str, address: str) -> str:
        """Make a namespace with a link to the bridge, and return its name."""
        name = f"{self._hub}-{id}"
        ip("netns", "add", name)
        self._stack.callback(ip, "netns", "del", name)
        ip("link", "add", "way", "netns", name, "type", "veth", "peer", "name", f"to{id}", "netns", self._hub)
        ip("-n", self._hub, "link", "set", f"to{id}", "master", "hub", "up")
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "way")
        for link in ("lo", "way"):
            ip("-n", name, "link", "set", link, "up")
        return name

    def cut(self, one: Isolated, to: Isolated | None = None) -> None:
        """Cut a party off, or with `to` only the way from it to another one: what it sends is lost in silence."""
        if to is None:
            ip("-n", self._hub, "link", "set", f"to{one.site.id}", "down")
        else:  # nobody on the bridge has this hardware address
            lost = ("lladdr", "02:00:00:00:00:99", "dev", "way", "nud", "permanent")
            ip("-n", one.namespace, "neigh", "replace", to.address, *lost)

    def mend(self, one: Isolated, to: Isolated | None = None) -> None:
        """Undo a cut."""
        if to is None:
            ip("-n", self._hub, "link", "set", f"to{one.site.id}", "up")
        else:
            ip("-n", one.namespace, "neigh", "del", to.address, "dev", "way")

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextmanager
def three_networks(folder: Path) -> Iterator[tuple[Network, dict[str, Isolated]]]:
    """Run three parties by role, each in a network namespace, and end them."""
    with Network() as net:
        found = {role: Isolated(folder, id, net) for role, id in ROLES.items()}
        with running(found, folder):
            yield net, found


class CutRun:
    """One job, and one link that is cut while a component runs; with `fail_after` the job does not wait for it."""

    def __init__(self, net: Network, parties: Mapping[str, Isolated], one: str, to: str = "", *, fail_after: int = 0):
        self.net, self.parties, self.fail_after = net, parties, fail_after
        self.cut = (parties[one], parties[to] if to else None)
        self.away = {one, to or one} - {"guest"} or {"host", "arbiter"}
        self.noticed_s = self.ended_s = 0.0

    def run(self, component: str) -> None:
        """Run the job, cut the link while a component runs everywhere, and check how it ends."""
        guest = self.parties["guest"]
        job = guest.submit(TRAIN, conf(**({"fail_after": self.fail_after} if self.fail_after else {})))
        for role, party in self.parties.items():
            if component in RUNS_AT[role]:
                until(component_folder(party, role, job, component).exists, f"{component} of the {role}")
        began = time.monotonic()
        self.net.cut(*self.cut)
        try:
            if self.fail_after:
                shown = guest.ended(job)
                assert shown["status"] == "failed", shown
                ids = "|".join(ROLES[role] for role in self.away)
                named = rf"(\w+ ({ids})|party ({ids})) did not answer( \w+ \d)? for {self.fail_after} s"
                assert re.search(named, shown["reason"]), shown["reason"]
            else:
                until(lambda: "does not answer" in guest.show(job)["reason"], "the notice")
                assert guest.show(job)["status"] == "running"
        finally:
            self.net.mend(*self.cut)
        self.noticed_s, began = time.monotonic() - began, time.monotonic()
        ends = {role: party.ended(job) for role, party in self.parties.items()}
        assert {one["status"] for one in ends.values()} == {"failed" if self.fail_after else "success"}, ends
        assert len({one["reason"] for one in ends.values()}) == 1, ends
        self.ended_s = time.monotonic() - began
        for role, party in self.parties.items():
            until(partial(is_free, party), f"the end of processes and leases of the {role}")
