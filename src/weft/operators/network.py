"""The network of a job with many replicas on this machine, in one of three isolations.

- `namespace` (Linux): each replica has a network, a host name, processes and mounts of its own (`weft.worker.sandbox`).
  Names of the cluster and declared ports are valid in all replicas, in-image paths by the mounts of the command.
- `ports`: all replicas are at 127.0.0.1, each with free ports instead of the declared ones. It works on each system.
- `container`: the replicas are containers of Podman or Docker in one network.

A `ReplicaNetwork` is made once for a job by `open_network`, and lasts until `close` or the end of this process.
"""

from __future__ import annotations

import json
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from pathlib import Path  # noqa: TC003 - a field of a record
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, field

from weft.model.errors import NotFoundError, UsageError
from weft.operators.guardians import expect_in_guardians, start_guardian
from weft.operators.mounts import BindMount
from weft.operators.ports import PORTS, why_taken

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from weft.operators.containers import ContainerEngine

LOOPBACK: Final = "127.0.0.1"
SUBNET_BITS: Final = 16
SUBNET_ADDRESSES: Final = 1 << (32 - SUBNET_BITS)
"""The number of the addresses in the subnet of a job in isolation `namespace`."""
FIRST_SERVICE: Final = 16
FIRST_ADDRESS: Final = 257
"""The numbers of the first addresses in the subnet: of services with ports of their own, and of replicas."""
HOSTS: Final = "/etc/hosts"
OUTER_PROGRAM: Final = "slirp4netns"
"""The program that connects job networks to the network outside; its gateway is address 2 of the subnet, DNS 3."""


class Isolation(Enum):
    """How the replicas of a job are kept apart."""

    NAMESPACE = "namespace"
    PORTS = "ports"
    CONTAINER = "container"


class NetworkMember(Struct, frozen=True, kw_only=True):
    """A replica in the network: its name, which is its host name too, and the ports at which it listens.

    With a `subdomain`, the name of a headless service, others find it as NAME.SUBDOMAIN too. `aliases` are more names
    by IP address, for this replica alone.
    """

    name: str
    ports: tuple[int, ...] = ()
    subdomain: str = ""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class NetworkSpec(Struct, frozen=True, kw_only=True):
    """The network of a job. `services` has the members behind each further name; `folder` is a folder for its files.

    The names of members and services are valid alone and with the namespace: NAME.NAMESPACE.svc.DOMAIN.
    """

    members: tuple[NetworkMember, ...]
    folder: Path
    services: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    namespace: str = "default"
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """The namespaces of the members and services that are in another one."""
    forwards: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Of services whose ports differ from those of their members: (port of the service, port of the member)."""
    domain: str = "cluster.local"
    run: str = ""
    """The name by which the engine finds containers and networks of the run again; for isolation `container`."""
    grace_s: float = 30.0
    """The longest grace period of a member; for isolation `container`."""
    outer: bool = False
    """Whether replicas in isolation `namespace` reach the network outside; the other isolations always do."""


class Sandbox(Struct, frozen=True, kw_only=True):
    """The namespaces of a replica, made by `weft.worker.sandbox.enter`.

    `user` and `network` are paths of the job's namespaces ("": no user namespace); `index` is the number of the replica
    in its job. `beside` is the pid of a command of the same replica whose network this one shares, 0 for none.
    """

    user: str
    network: str
    host: str
    index: int
    address: str
    gateway: str = ""
    beside: int = 0

    def encoded(self) -> dict[str, Any]:
        """Return the fields for the guardian: paths and names as bytes, addresses as 4 bytes."""
        encoding = "ascii" if self.host.isascii() else "idna"  # the tables of IDNA take long to load
        return {
            "user": os.fsencode(self.user),
            "network": b"/proc/%d/ns/net" % self.beside if self.beside else os.fsencode(self.network),
            "shared": bool(self.beside),
            "host": self.host.encode(encoding),
            "index": self.index,
            "address": _packed(self.address),
            "prefix": SUBNET_BITS,
            "gateway": _packed(self.gateway) if self.gateway else b"",
        }


class ReplicaPlace(Struct, frozen=True):
    """What the command of a replica needs: `sandbox` of its `CommandSpec`, mounts for `weft.operators.mounts.plan`
    beside those of its volumes, and its seat in isolation `container`.
    """

    sandbox: Sandbox | None = None
    mounts: tuple[BindMount, ...] = ()
    seat: Any = None  # a `ContainerSeat`: its module is loaded for containers alone


class ReplicaNetwork(Protocol):
    """The open network of a job. KeyError: there is no member with this name."""

    isolation: Isolation

    def host(self, name: str) -> str:
        """Return the name at which the other members reach a member."""
        ...

    def ip(self, name: str) -> str:
        """Return the IP address of a member."""
        ...

    def port(self, name: str, declared: int) -> int:
        """Return the port at which a member listens in place of a declared port."""
        ...

    def service_ip(self, name: str) -> str:
        """Return the address of a service with ports of its own, "" for any other."""
        ...

    def place(self, name: str) -> ReplicaPlace:
        """Return what the command of a member needs; it is called just before each start of the member."""
        ...

    def why_failed(self, name: str) -> str:
        """Return why a member that has failed could not use its network, "" if it could."""
        ...

    def close(self) -> None:
        """Remove the network; its members have ended. Later calls do nothing."""
        ...


def subnet_address(number: int) -> str:
    """Return an address in the subnet of the replicas of a job; no other machine or job can reach them."""
    return f"10.83.{number >> 8}.{number & 255}"


def _packed(address: str) -> bytes:
    return bytes(map(int, address.split(".")))


def open_network(spec: NetworkSpec, isolation: Isolation | None = None) -> ReplicaNetwork:
    """Make the network of a job, in the best isolation of this machine if none is given.

    NotFoundError: this machine lacks something that the isolation needs. UsageError: the network has too many members.
    """
    if isolation is None:
        isolation = best_isolation()[0]
    if isolation is Isolation.NAMESPACE:
        return NamespaceNetwork(spec)
    if (kept := _take_kept()) is not None:
        kept.end()
    if isolation is Isolation.PORTS:
        return PortNetwork(spec)
    return ContainerNetwork(spec, container_engine())


def container_engine() -> ContainerEngine:
    """Return the engine of isolation `container`. NotFoundError: none answers."""
    from weft.operators.containers import REQUIRE, find_engine  # most jobs need no container

    try:
        engine = find_engine(REQUIRE)
    except NotFoundError as error:
        message = f"isolation container cannot be used here: {error.message}"
        raise NotFoundError(message, hint="Install podman, or use isolation namespace or ports.") from None
    assert engine is not None  # the policy requires one
    return engine


@lru_cache(maxsize=1)
def best_isolation() -> tuple[Isolation, str]:
    """Return the best isolation that works here, and why it is this one, tried once for each process."""
    why = why_no_namespaces()
    if not why:
        return Isolation.NAMESPACE, "this system allows namespaces"
    return Isolation.PORTS, f"isolation namespace cannot be used: {why}"


class SandboxProcess:
    """A process that does an action of `weft.worker.sandbox` and keeps what it has made until `end`.

    The guardian pool forks it. It ends with this process in every case.
    """

    def __init__(self, *words: str) -> None:
        self._control = start_guardian()
        self.pid = 0
        message = marshal.dumps({"action": words})
        with suppress(BrokenPipeError, ConnectionResetError):  # it was killed: it gives no answer
            self._control.sendall(len(message).to_bytes(4, "big") + message)

    def why_failed(self) -> str:
        """Wait until the action is done; return "" or why the system forbids it. `pid` is known after that."""
        answer = b""
        with suppress(ConnectionResetError):
            while not answer.endswith(b"\n") and (more := self._control.recv(4096)):
                answer += more
        word, _, rest = answer.decode("utf-8", "replace").strip().partition(" ")
        if word == "ok":
            self.pid = int(rest)
            return ""
        if not word.isdigit():
            return "the trial of namespaces ended without an answer"
        return f"this system forbids {rest.removeprefix('isolation ')} ({os.strerror(int(word))})"

    def has_ended(self) -> bool:
        """Whether the process has ended, or was killed."""
        try:
            return not self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def end(self) -> None:
        """End the process and wait for it. Later calls do nothing."""
        with self._control as control, suppress(OSError):
            control.shutdown(socket.SHUT_WR)
            while control.recv(4096):
                pass


_probes: list[SandboxProcess] = []
"""The trial of namespaces that runs, or has run, and whose answer nobody has read."""
_kept: list[SandboxProcess] = []
"""The process of a trial that was begun early, which keeps its job network for the first job that needs one."""


def begin_probe() -> None:
    """Begin the trial of namespaces, so that it runs beside what the caller does until it asks for its answer."""
    if sys.platform == "linux" and not _probes and not why_no_namespaces.cache_info().currsize:
        expect_in_guardians("weft.worker.sandbox", "weft.worker.mounting")
        _probes.append(SandboxProcess("probe"))


@lru_cache(maxsize=1)
def why_no_namespaces() -> str:
    """Return why replicas cannot have namespaces here, "" if they can; it is tried once for each process."""
    if sys.platform != "linux":
        return "only Linux has namespaces"
    begun = bool(_probes)
    process = _probes.pop() if begun else SandboxProcess("probe")
    why = process.why_failed()
    if begun and not why:
        _kept.append(process)
    else:
        process.end()
    return why


def _take_kept() -> SandboxProcess | None:
    """Return the process that keeps the job network of a trial, None if there is none, or no longer."""
    if not _kept:
        return None
    kept = _kept.pop()
    if not kept.has_ended():
        return kept
    kept.end()  # it was killed: its socket is closed
    return None


# ------------------------------------------------------------------------------------------------------------- ports


class PortNetwork:
    """Isolation `ports`: the loopback address, and ports of its own for each member."""

    isolation = Isolation.PORTS

    def __init__(self, spec: NetworkSpec) -> None:
        self._ports: dict[str, dict[int, int]] = {member.name: {} for member in spec.members}
        try:
            for member in spec.members:
                for declared in member.ports:
                    self._ports[member.name].setdefault(declared, PORTS.reserve())
        except BaseException:
            self.close()
            raise

    def host(self, name: str) -> str:
        """Return the loopback address."""
        return self.ip(name)

    def ip(self, name: str) -> str:
        """Return the loopback address."""
        self._ports[name]
        return LOOPBACK

    def port(self, name: str, declared: int) -> int:
        """Return the own port of a member; a port that the network does not know stays as it is."""
        return self._ports[name].get(declared, declared)

    def service_ip(self, name: str) -> str:
        """Return "": services have the loopback address."""
        return ""

    def place(self, name: str) -> ReplicaPlace:
        """Let the member listen at its ports from now on."""
        for port in self._ports[name].values():
            PORTS.open_to(port)
        return ReplicaPlace()

    def why_failed(self, name: str) -> str:
        """Return which port of an ended member another program uses."""
        return why_taken(self._ports[name], name)

    def close(self) -> None:
        """Give the ports back."""
        for ports in self._ports.values():
            for port in ports.values():
                PORTS.release(port)
            ports.clear()


# -------------------------------------------------------------------------------------------------------- namespaces


class NamespaceNetwork:
    """Isolation `namespace`: a bridge in a job network, kept by open files of this process."""

    isolation = Isolation.NAMESPACE

    def __init__(self, spec: NetworkSpec) -> None:
        if len(spec.members) > SUBNET_ADDRESSES - FIRST_ADDRESS - 1:
            raise UsageError(f"a job network has at most {SUBNET_ADDRESSES - FIRST_ADDRESS - 1:,} members")
        why = why_no_namespaces()
        if why:
            raise NotFoundError(f"isolation namespace cannot be used here: {why}", hint="Use isolation ports.")
        self._members = {member.name: member for member in spec.members}
        self._addresses = {
            member.name: subnet_address(FIRST_ADDRESS + index) for index, member in enumerate(spec.members)
        }
        self._indices = {member.name: index for index, member in enumerate(spec.members)}
        self._services = {
            name: subnet_address(FIRST_SERVICE + number)
            for number, name in enumerate(name for name in spec.forwards if spec.services.get(name))
        }
        if len(self._services) > FIRST_ADDRESS - FIRST_SERVICE:
            raise UsageError(f"a job network has at most {FIRST_ADDRESS - FIRST_SERVICE} services with other ports")
        self._forwarder: SandboxProcess | None = None
        self._files: list[int] = []
        self._written: list[Path] = []
        self._mounts: tuple[BindMount, ...] = ()
        self._gateway = ""
        self._outside: subprocess.Popen[bytes] | None = None
        outside = _program(OUTER_PROGRAM) if spec.outer else ""
        if outside is None:
            message = (
                f"replicas in namespaces reach the network outside through {OUTER_PROGRAM}, which is not installed"
            )
            raise NotFoundError(message, hint=f"Install the package {OUTER_PROGRAM}, or use isolation ports.")
        self._user, self._network = self._hold()
        try:
            self._hosts = write_hosts(spec, self._addresses, self._written, self._services)
            if self._services:
                self._start_forwarder(spec)
            if outside:
                self._connect_outside(outside, spec.folder)
        except BaseException:
            self.close()
            raise

    def host(self, name: str) -> str:
        """Return the name of a member."""
        return self._members[name].name

    def ip(self, name: str) -> str:
        """Return the address of a member in the job network."""
        return self._addresses[name]

    def port(self, name: str, declared: int) -> int:
        """Return the declared port."""
        self._members[name]
        return declared

    def place(self, name: str) -> ReplicaPlace:
        """Return the sandbox of a member, and the mount of its hosts file."""
        sandbox = Sandbox(
            user=self._user,
            network=self._network,
            host=name,
            index=self._indices[name],
            address=self.ip(name),
            gateway=self._gateway,
        )
        return ReplicaPlace(sandbox, (BindMount(str(self._hosts[name]), HOSTS, read_only=True), *self._mounts))

    def why_failed(self, name: str) -> str:
        """Return "": all ports of a member are its own."""
        self._members[name]
        return ""

    def service_ip(self, name: str) -> str:
        """Return the address of a service with ports of its own, "" for one whose name is that of its members."""
        return self._services.get(name, "")

    def close(self) -> None:
        """Close the job network and remove its files."""
        if self._forwarder is not None:
            self._forwarder.end()
            self._forwarder = None
        while self._files:
            os.close(self._files.pop())
        if self._outside is not None:
            self._outside.wait()
            self._outside = None
        while self._written:
            self._written.pop().unlink(missing_ok=True)

    def _hold(self) -> tuple[str, str]:
        """Make the job network and return the paths of its namespaces: user ("" if it has none) and network."""
        holder, why = _take_kept(), ""
        if holder is None:
            holder = SandboxProcess("hold")
            why = holder.why_failed()
        try:
            if why:
                message = f"isolation namespace cannot be used here: {why}"
                raise NotFoundError(message, hint="Use isolation ports.")
            paths = [f"/proc/{holder.pid}/ns/net"]
            if os.stat(f"/proc/{holder.pid}/ns/user").st_ino != os.stat("/proc/self/ns/user").st_ino:
                paths.append(f"/proc/{holder.pid}/ns/user")
            for path in paths:
                self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        finally:
            holder.end()
        network, *user = (f"/proc/{os.getpid()}/fd/{file}" for file in self._files)
        return user[0] if user else "", network

    def _start_forwarder(self, spec: NetworkSpec) -> None:
        """Start the process that forwards connections to services until this process ends, or until `close`."""
        rules = [
            ((address, port), [(self._addresses[member], target) for member in spec.services[name]])
            for name, address in self._services.items()
            for port, target in spec.forwards[name]
        ]
        words = self._user, self._network, str(SUBNET_BITS), json.dumps(rules)
        self._forwarder = SandboxProcess("forward", *words)
        if why := self._forwarder.why_failed():
            raise NotFoundError(f"ports of services cannot be forwarded: {why}", hint="Use isolation ports.")

    def _connect_outside(self, program: str, folder: Path) -> None:
        """Start a program that carries packets between the bridge and the machine until this process or `close`."""
        ended, end = os.pipe()
        self._files.append(end)
        ready, told = os.pipe()
        argv = [
            program,
            f"--cidr={subnet_address(0)}/{SUBNET_BITS}",
            "--disable-host-loopback",
            f"--exit-fd={ended}",
            f"--ready-fd={told}",
        ]
        argv += ["--netns-type=path", *([f"--userns-path={self._user}"] if self._user else []), self._network, "tap0"]
        try:
            self._outside = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(ended, told),
                start_new_session=True,
            )
            os.close(told)
            told = -1
            why = self._attach("tap0") if os.read(ready, 1) else "it has ended"
        finally:
            for file in (ended, ready, told):
                if file >= 0:
                    os.close(file)
        if why:
            raise NotFoundError(f"{OUTER_PROGRAM} cannot be used: {why}", hint=f"Try: {OUTER_PROGRAM} --version")
        path = folder / "resolv.conf"
        path.write_text(f"nameserver {subnet_address(3)}\n", encoding="utf-8")
        self._written.append(path)
        self._mounts = (BindMount(str(path), "/etc/resolv.conf", read_only=True),)
        self._gateway = subnet_address(2)

    def _attach(self, interface: str) -> str:
        """Make an interface a port of the bridge; return "" or why it cannot be one."""
        process = SandboxProcess("attach", self._user, self._network, interface)
        why = process.why_failed()
        process.end()
        return why


# -------------------------------------------------------------------------------------------------------- containers


class ContainerNetwork:
    """Isolation `container`: a network of an engine in which each member has an address; names are in hosts files.

    A remover, a shell of its own session, removes the network, and containers that are left, when this process has
    ended or has called `close`.
    """

    isolation = Isolation.CONTAINER

    def __init__(self, spec: NetworkSpec, engine: ContainerEngine) -> None:
        prefix = next((one for one in (22, 16) if len(spec.members) < (1 << (32 - one)) - FIRST_ENGINE_ADDRESS), 0)
        if not prefix:
            raise UsageError(f"a network of containers has at most {(1 << 16) - FIRST_ENGINE_ADDRESS:,} members")
        from secrets import token_hex  # jobs without containers need none

        from weft.operators.containers import LABEL

        self._engine, self._run = engine, spec.run
        self._name = f"weft-{token_hex(6)}"
        self._written: list[Path] = []
        tries = str(int((spec.grace_s + _REMOVAL_S) / _REMOVER_PAUSE_S))
        words = (engine.program, f"{LABEL}={spec.run}", self._name, tries)
        self._remover = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVER, "sh", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        try:
            subnet = self._make(prefix)
            numbered = enumerate(spec.members, start=FIRST_ENGINE_ADDRESS)
            self._addresses = {member.name: str(subnet[number]) for number, member in numbered}
            self._hosts = write_hosts(spec, self._addresses, self._written)
        except BaseException:
            self.close()
            raise

    def host(self, name: str) -> str:
        """Return the name of a member."""
        self._addresses[name]
        return name

    def ip(self, name: str) -> str:
        """Return the address of a member in the network."""
        return self._addresses[name]

    def port(self, name: str, declared: int) -> int:
        """Return the declared port."""
        self._addresses[name]
        return declared

    def service_ip(self, name: str) -> str:
        """Return "": a service is known by the addresses of its members."""
        return ""

    def place(self, name: str) -> ReplicaPlace:
        """Return the seat of a member, and the mount of its hosts file."""
        from weft.operators.containers import ContainerSeat

        seat = ContainerSeat(self._engine, self._name, self.ip(name), self._run)
        return ReplicaPlace(None, (BindMount(str(self._hosts[name]), HOSTS, read_only=True),), seat)

    def why_failed(self, name: str) -> str:
        """Return "": all ports of a member are its own."""
        self._addresses[name]
        return ""

    def close(self) -> None:
        """Remove the network and the hosts files."""
        self._remover.communicate()
        while self._written:
            self._written.pop().unlink(missing_ok=True)

    def _make(self, prefix: int) -> IPv4Network:
        """Make the network in a free range of addresses."""
        from ipaddress import IPv4Network
        from secrets import randbelow

        why = ""
        for _ in range(_MOST_RANGES):
            number = ENGINE_ADDRESSES + randbelow(1 << 22)
            subnet = IPv4Network((number >> (32 - prefix) << (32 - prefix), prefix))
            why = self._engine.make_network(self._name, str(subnet), self._run)
            if not why:
                return subnet
        message = f"{self._engine.kind} cannot make a network: {why}"
        raise NotFoundError(message, hint=f"Try: {self._engine.kind} network create trial; or use isolation ports.")


FIRST_ENGINE_ADDRESS: Final = 10
"""The number of the first member in the network of an engine; the first ones belong to the engine."""
ENGINE_ADDRESSES: Final = 10 << 24 | 128 << 16
"""The first of the addresses from which networks of engines are taken at random: up to 10.191.255.255."""
_MOST_RANGES: Final = 8
_REMOVER_PAUSE_S: Final = 0.2
_REMOVAL_S: Final = 30.0
"""The seconds that guardians have to remove containers after their grace periods."""
_REMOVER: Final = """\
cat
left() { "$1" ps --all --quiet --filter "label=$2"; }
while [ -n "$(left "$1" "$2")" ] && [ "$4" -gt 0 ]; do sleep 0.2; set -- "$1" "$2" "$3" $(($4 - 1)); done
for one in $(left "$1" "$2"); do "$1" rm --force "$one"; done
"$1" network rm "$3"
"""
"""The script of the remover: program, label, network, and the number of looks for containers."""


# --------------------------------------------------------------------------------------------------------- host names


def write_hosts(
    spec: NetworkSpec, addresses: Mapping[str, str], written: list[Path], services: Mapping[str, str] | None = None
) -> dict[str, Path]:
    """Write the hosts files of a network; return them by member, and add them to `written`.

    `services` are the addresses of services of their own.
    """
    spec.folder.mkdir(parents=True, exist_ok=True)
    shared = "".join(f"{line}\n" for line in hosts_lines(spec, addresses, services or {}))
    path = spec.folder / "hosts"
    path.write_text(shared, encoding="utf-8")
    written.append(path)
    found = {}
    for number, member in enumerate(spec.members):
        found[member.name] = path
        if member.aliases:
            own = found[member.name] = spec.folder / f"hosts.{number}"
            lines = (f"{address} {' '.join(names)}\n" for address, names in member.aliases.items())
            own.write_text(shared + "".join(lines), encoding="utf-8")
            written.append(own)
    return found


def hosts_lines(
    spec: NetworkSpec, addresses: Mapping[str, str], services: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the lines of the hosts file: the loopback names, each member and each service with its long names.

    `services` are the services with addresses of their own.
    """
    yield f"{LOOPBACK} localhost"
    yield "::1 localhost ip6-localhost ip6-loopback"
    subdomains = {member.name: member.subdomain for member in spec.members if member.subdomain}
    for name, address in addresses.items():
        names = long_names(name, spec)
        if name in subdomains:
            names += long_names(name, spec, subdomains[name])
        yield f"{address} {' '.join(names)}"
    for service, members in spec.services.items():
        if service in services:
            yield f"{services[service]} {' '.join(long_names(service, spec))}"
        elif service not in addresses:
            for name in members:
                yield f"{addresses[name]} {' '.join(long_names(service, spec))}"


def long_names(name: str, spec: NetworkSpec, subdomain: str = "") -> tuple[str, ...]:
    """Return the names of a service, or of a member in a subdomain, in the cluster: the short one, which names a host,
    is first.
    """
    short = f"{name}.{subdomain}" if subdomain else name
    inside = f"{short}.{spec.namespaces.get(name, spec.namespace)}"
    return short, inside, f"{inside}.svc", f"{inside}.svc.{spec.domain}"


def hold_memory(user: str, sizes: Mapping[str, int]) -> SandboxProcess:
    """Return a process in whose mount namespace folders are file systems in memory; they end with it.

    `user` is the path of the user namespace of a job, "" for none; a size of 0 is the default of the system.
    NotFoundError: the system forbids it.
    """
    words = [word for folder, size in sizes.items() for word in (str(size), folder)]
    holder = SandboxProcess("memory", user, *words)
    if why := holder.why_failed():
        holder.end()
        message = f"volumes in memory cannot be made here: {why}"
        raise NotFoundError(message, hint="Use isolation ports, or leave out medium: Memory.")
    return holder


def _program(name: str) -> str | None:
    import shutil  # it loads all formats of archives

    return shutil.which(name)
