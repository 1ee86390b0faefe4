"""A replica at a machine of a cluster: the jobs of its run as that machine needs them.

The process of the run has the jobs and the addresses, and hears what becomes of the replica (`LocalJobs.answer`). The
folder of the run is the same on all machines. Replicas are known by the addresses of their machines and by free ports.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.training.addresses import ReplicaAddress
from weft.frontends.training.answers import RemoteDescription, description_of
from weft.frontends.training.compiler import POD, requests_of
from weft.frontends.training.endpoints import ClusterEndpoints, listening_ports
from weft.frontends.training.entering import ReplicaEntrance, ReplicaGate
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.mpi import mpi_hosts, spread_variables, starts_processes, uses_mpi
from weft.frontends.training.replica import ReplicaStart
from weft.frontends.training.running import LocalJobs
from weft.frontends.training.trials import asking, run_told, watched
from weft.graph.task import prepares
from weft.model.errors import NotFoundError, PeerMovedError, RunCancelledError, TaskError
from weft.model.records import converter
from weft.operators.devices import DeviceLocks, NvidiaDevices
from weft.operators.network import Isolation, ReplicaPlace
from weft.operators.ports import PORTS, why_taken
from weft.store.peers import credentials
from weft.store.scratch import ScratchFolder

if TYPE_CHECKING:
    from weft.frontends.training.log_folders import LogPlace
    from weft.frontends.training.replica import Replica
    from weft.frontends.training.schema import EnvVar, TrainingJob
    from weft.graph.task import TaskContext, TaskInput

_LOOK_S: Final = 0.02
_WATCH_S: Final = 1.0
"""The seconds between two looks whether all addresses are there, twice as long after each up to the second; that is
how often a replica looks whether it must begin again.
"""


GATE: Final = 0
"""What stands for a declared port in the address of a replica: that of its gate for MPI."""
_ENDING_S: Final = 10.0
"""The seconds that a replica may take to end after its grace period."""
_addresses_of: Final = converter(dict[str, ReplicaAddress])


class RemoteNetwork:
    """The replicas of a run at the machines of a cluster, by name; see `weft.operators.network.ReplicaNetwork`.

    `own` is the replica of this process, `ports` are those that it has reserved here. Nothing is known of a replica
    that has not begun: its address is "".
    """

    isolation = Isolation.PORTS

    def __init__(self, own: str, address: ReplicaAddress, ports: Mapping[int, int]) -> None:
        self._own, self.addresses, self._ports = own, {own: address}, ports

    def host(self, name: str) -> str:
        """Return the address of a replica."""
        return self.ip(name)

    def ip(self, name: str) -> str:
        """Return the address of a replica."""
        known = self.addresses.get(name)
        return "" if known is None else known.host

    def port(self, name: str, declared: int) -> int:
        """Return the own port of a replica; one that is not known stays as it is."""
        known = self.addresses.get(name)
        return declared if known is None else known.ports.get(declared, declared)

    def service_ip(self, name: str) -> str:
        """Return "": services are known by the addresses of their replicas."""
        return ""

    def place(self, name: str) -> ReplicaPlace:
        """Let the replica of this process listen at its ports from now on."""
        for port in self._ports.values():
            PORTS.open_to(port)
        return ReplicaPlace()

    def why_failed(self, name: str) -> str:
        """Return which port of the ended replica another program uses."""
        return why_taken(self._ports, name)

    def close(self) -> None:
        """Give the ports back."""
        for port in self._ports.values():
            PORTS.release(port)


class RemoteEndpoints(ClusterEndpoints):
    """The addresses of the replicas of a job at the machines of a cluster; the name of one that has not begun."""

    def __init__(self, job: TrainingJob, network: RemoteNetwork) -> None:
        super().__init__(job)
        self._network = network

    def host(self, type: str, index: int) -> str:
        """Return the address of a replica."""
        return self.ip(type, index) or super().host(type, index)

    def name(self, type: str, index: int) -> str:
        """Return the address of a replica."""
        return self.ip(type, index) or super().name(type, index)

    def port(self, type: str, index: int, declared: int) -> int:
        """Return the own port of a replica."""
        return self._network.port(super().name(type, index), declared)

    def ip(self, type: str, index: int) -> str:
        """Return the address of a replica, "" before its first start."""
        return self._network.ip(super().name(type, index))


def reserve(ports: Iterable[int], before: Mapping[int, int]) -> dict[int, int]:
    """Reserve a port of this machine for each declared one: that of the last start if it is free.

    NotFoundError: no port is free.
    """
    found: dict[int, int] = {}
    try:
        for declared in ports:
            if declared not in found:
                last = before.get(declared, 0)
                found[declared] = last if last and PORTS.take(last) else PORTS.reserve()
    except BaseException:
        for port in found.values():
            PORTS.release(port)
        raise
    return found


class RemoteJobs(LocalJobs):
    """The jobs of a run as one replica at a machine of a cluster needs them, from its start to its end."""

    def __init__(self, told: RemoteDescription, ctx: TaskContext) -> None:
        folders = (Path(told.folder), Path(told.base), Path(told.state))
        super().__init__(told.run, *folders, told.files, told.maps, step=told.step, spread=True)
        self._ctx, self._undo_start = ctx, ExitStack()
        self._sockets: Path | None = None
        self._key = (str(ctx.params.get("vertex", ctx.vertex)), ctx.index)
        self.measures, self.node_ip = told.measures, told.host
        self.follow_controller(lambda: {"scale": told.scale})
        self.records, self._in_trial = Path(told.records), told.in_trial
        self._ask = asking(ctx)
        self._undo_start.callback(self.memory.close)
        self.own = self.replica(ctx.params["job"], ctx.params["type"], ctx.index)
        ports = reserve(self._listening(), told.ports)
        address = ReplicaAddress(told.host, {**ports, **self._let_enter(told)})
        self._network = network = RemoteNetwork(self.own.name, address, ports)
        self._undo_start.callback(network.close)
        self._endpoints = {job.name: RemoteEndpoints(job, network) for job in told.files.jobs}
        self._own_devices: Sequence[str] | None = None
        if told.gives_devices:
            self._own_devices = self._lock_devices()

    def _listening(self) -> Iterator[int]:
        """Yield the declared ports of the replica."""
        group = self._groups[self.own.job, self.own.type]
        if group.job.kind in KINDS:
            rows = listening_ports(self._rows(group.job))
            yield from (port for type, index, port in rows if (type, index) == (self.own.type, self.own.index))
        else:
            yield from (port.number for one in self.own.template.containers for port in one.ports)

    def _let_enter(self, told: RemoteDescription) -> dict[int, int]:
        """Make the folder for sockets of a job whose processes MPI starts; return the port by which others enter."""
        group = self._groups[self.own.job, self.own.type]
        if group.job.kind == POD or not uses_mpi(group.job):
            return {}
        self._sockets = Path(self._undo_start.enter_context(ScratchFolder("mpi")))
        if (self.own.type, self.own.index) not in set(mpi_hosts(self._scaled(group, self.own.index))):
            return {}
        gate = ReplicaGate(self._sockets, self.own.name, told.host, told.ports.get(GATE, 0), credentials())
        self._undo_start.callback(gate.close)
        return {GATE: gate.port}

    def _open_entrances(self) -> None:
        """Let the agent of a launcher here enter the other replicas."""
        group, network = self._groups[self.own.job, self.own.type], self._network
        assert isinstance(network, RemoteNetwork)
        enters = self._sockets is not None and starts_processes(group.job, self.own.type)
        job = self._scaled(group, self.own.index)
        for type, index in mpi_hosts(job) if enters else ():
            name = self.replica(job.name, type, index).name
            address = network.addresses.get(name)
            if name != self.own.name and self._sockets is not None and address is not None:
                gate = address.host, address.ports[GATE]
                self._undo_start.callback(ReplicaEntrance(self._sockets, name, gate, credentials()).close)

    def sockets(self, job: TrainingJob) -> str:
        """See `LocalJobs.sockets`: a folder of this machine."""
        return str(self._sockets)

    def variables_beside(self, replica: Replica, job: TrainingJob) -> tuple[EnvVar, ...]:
        """See `LocalJobs.variables_beside`."""
        if self._sockets is None or self._network is None:
            return ()
        names = [self.replica(job.name, *one).name for one in mpi_hosts(job)]
        addresses = [address for name in names if (address := self._network.ip(name))]
        own = {one.name for one in replica.main_container.env}
        found = spread_variables(job, replica.type, str(self._sockets), addresses)
        return tuple(one for one in found if one.name not in own)

    def _lock_devices(self) -> Sequence[str]:
        count = requests_of(self.own.template).gpu
        if not count:
            return ()
        locks = DeviceLocks(NvidiaDevices())
        self._undo_start.callback(locks.release)
        return locks.take(count)

    def meet(self) -> None:
        """Tell the address of the replica, and wait for those of its job. RunCancelledError: it was stopped."""
        ctx, network = self._ctx, self._network
        assert isinstance(network, RemoteNetwork)
        mine = network.addresses[self.own.name]
        self._ask("listen", *self._key, dict(mine.ports))
        pause = threading.Event()
        ctx.on_cancel(pause.set)
        wait_s = _LOOK_S
        while (found := self._ask("addresses", *self._key)) is None:
            wait_s = min(2 * wait_s, _WATCH_S)
            if pause.wait(wait_s) or ctx.cancelled():
                raise RunCancelledError(f"replica {self.own.name} was stopped while it waited for the others")
        network.addresses = {**_addresses_of(found), self.own.name: mine}
        self._open_entrances()

    def why_again(self) -> str:
        """Return why the replica must begin again, as a clause; "" if it need not."""
        return str(self._ask("again", *self._key))

    def why_failed_with_others(self) -> str:
        """Return why the replica must begin again that has just failed, "" if it is its own fault.

        A program may end before its run knows that the machine of another one is lost: this waits for what is known.
        """
        pause, since = threading.Event(), 0
        self._ctx.on_cancel(pause.set)
        while True:
            why, since = self._ask("failed", *self._key, since)
            if why is not None or pause.wait(_WATCH_S / 4):
                return why or ""

    def close(self) -> None:
        """Give back what the replica has of this machine."""
        self._undo_start.close()

    # ------------------------------------------------------------------------------------- said to the replica

    def devices(self, worker: int) -> Sequence[str] | None:
        """See `ReplicaHost.devices`."""
        return self._own_devices

    def follow(self, key: tuple[str, int], replica: Replica, places: Iterable[LogPlace]) -> None:
        """See `ReplicaHost.follow`: the process of the run reads the event files."""
        self._ask("follow", *key, [tuple(place) for place in places])

    def collect(self, key: tuple[str, int]) -> None:
        """See `ReplicaHost.collect`."""
        self._ask("collect", *key)

    def note_ready(self, replica: Replica, why_not: str) -> None:
        """See `ReplicaHost.note_ready`."""
        self._ask("ready", replica.job, replica.type, replica.index, why_not)

    def note_event(self, replica: Replica, at: float, reason: str, message: str) -> None:
        """See `ReplicaHost.note_event`."""
        self._ask("event", replica.job, replica.type, replica.index, at, reason, message)

    def note_usage(self, vertex: str, index: int, cpu_s: float, memory: int) -> None:
        """See `ReplicaHost.note_usage`."""
        self._ask("usage", vertex, index, cpu_s, memory)


@prepares
def run_remotely(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> dict[str, Any]:
    """Run one replica at this machine to its end, for a run that another process has (style TASK).

    Parameters, result and errors are those of `run_replica`. PeerMovedError: another replica of its job has begun again
    elsewhere, so that this one must, too. NotFoundError: this machine does not have the folder of the run.
    """
    with arrived(ctx) as jobs:
        jobs.meet()
        start = ReplicaStart(ctx, jobs, jobs.own)
        try:
            with watched(lambda: bool(jobs.why_again()), start.stop, _WATCH_S):
                return start.run()
        except (TaskError, RunCancelledError):
            why = "" if ctx.cancelled() else jobs.why_failed_with_others()
            if not why:
                raise
            raise PeerMovedError(f"replica {jobs.own.name} begins again: {why}") from None


@prepares
def run_trial_remotely(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> None:
    """Run one replica of a trial at this machine, for a run that another process has (style TASK)."""

    def run() -> None:
        with arrived(ctx) as jobs:
            jobs.meet()
            start = ReplicaStart(ctx, jobs, jobs.own)
            with watched(lambda: bool(jobs.why_again()), start.stop, _WATCH_S):
                start.run()

    run_told(ctx, f"{ctx.params['type']} {ctx.index}", run)


@contextmanager
def arrived(ctx: TaskContext) -> Iterator[RemoteJobs]:
    """Make what a replica needs at this machine, while the block runs; see `run_remotely`."""
    told = description_of(asking(ctx)("arrive", str(ctx.params.get("vertex", ctx.vertex)), ctx.index))
    if not os.path.isdir(told.folder):
        raise NotFoundError(
            f"machine {os.uname().nodename} does not have the folder of the run, {told.folder}",
            hint="The folder of the project must be on all machines at the same path, such as on NFS.",
        )
    jobs = RemoteJobs(told, ctx)
    with ExitStack() as undo:
        undo.callback(jobs.close)
        ctx.stops_within(jobs.own.template.grace_s + _ENDING_S)
        yield jobs
