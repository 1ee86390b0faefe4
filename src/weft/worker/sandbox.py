"""The namespaces of a replica: network, host name, processes and mounts of its own, without root.

This code runs in the child of the guardian between fork and exec, and is loaded only for commands with a sandbox; it
imports nothing of Weft. All replicas of a job share one *job network*: a network namespace with a bridge, for an
ordinary user inside one user namespace that maps the user to the same number. `make_network` makes it in a process that
ends at once; open files of the owner keep it. A replica enters the user namespace and then has:

- a network namespace with one interface `eth0`, whose other end is a port of the bridge;
- a host name, a mount namespace and a process namespace with its own /proc.

Process 1 of the replica is a fork of the guardian's child that reaps orphans (`_reap_orphans`). The command is process
2. Both become children of the guardian, so the guardian has the exit status of the command and sees all processes.
Process 1 ends with the guardian, and the kernel then kills all other processes of the namespace. No file, process or
device refers to the namespaces after that.

The kernel is asked through netlink, so that no program is necessary. Numbers are from linux/rtnetlink.h, if_link.h and
veth.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import Any, NoReturn
else:
    import _signal as signal  # the C modules, without their enums
    import _socket as socket

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
OWN = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWNET
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_SLAVE = 2, 4, 8, 16384, 1 << 19
LOOPBACK, DEVICE = 1, 1000
"""Numbers of the interfaces: the kernel gives the first, this module the second to the bridge and to `eth0`.

The port of replica N at the bridge has the number DEVICE + 1 + N: the kernel takes a number for the other end only with
one for this end.
"""
LOOKING_MS = 5
"""Milliseconds between two looks for remaining processes while a replica ends."""
LARGEST_MTU, OUTER_MTU = 65535, 1500
"""The largest packets between replicas, in bytes: the most that a veth takes, since each packet costs time, and those
that the network outside takes.
"""
LOW_PORTS = "/proc/sys/net/ipv4/ip_unprivileged_port_start"


class SandboxError(OSError):
    """A namespace or interface cannot be made; `stage` names it for the guardian's owner."""

    def __init__(self, what: bytes, number: int) -> None:
        super().__init__(number, os.strerror(number))
        self.stage = b"isolation " + what


# ---------------------------------------------------------------------------------------------------------- netlink


class RouteSocket:
    """A netlink socket of the network namespace in which it is made."""

    NEW_LINK, DELETE_LINK, NEW_ADDRESS, NEW_ROUTE = 16, 17, 20, 24
    CREATE = 0x400 | 0x200  # NLM_F_CREATE | NLM_F_EXCL
    _REQUEST = 0x1 | 0x4  # NLM_F_REQUEST | NLM_F_ACK
    _UP = 1

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)

    def close(self) -> None:
        """Close the socket, which keeps its namespace alive."""
        self._socket.close()

    def make_bridge(self, name: bytes) -> None:
        """Make a bridge with the number `DEVICE` and start it."""
        kind = _attribute(18, _attribute(1, b"bridge"))  # IFLA_LINKINFO, IFLA_INFO_KIND
        self._ask(self.NEW_LINK, self.CREATE, _link(DEVICE, self._UP) + _attribute(3, name + b"\0") + kind)

    def connect(self, index: int, namespace: int, mtu: int) -> None:
        """Make the port of replica `index` at the bridge, and its other end `eth0` in a namespace (an open file).

        `mtu` is the largest number of bytes in one packet; the bridge follows the smallest one of its ports.
        A port of an earlier start is removed: the kernel frees a namespace some time after its last process. The
        hardware address of a replica stays the same, because other replicas remember it.
        """
        port, address = b"r%d" % index, b"\x02Wef" + struct.pack(">H", index)
        named = _attribute(3, port + b"\0")
        size = _attribute(4, struct.pack("=I", mtu))
        peer = _link(DEVICE, 0) + _attribute(3, b"eth0\0") + _attribute(1, address) + size
        peer += _attribute(28, struct.pack("=i", namespace))  # IFLA_NET_NS_FD
        kind = _attribute(1, b"veth") + _attribute(2, _attribute(1, peer))  # IFLA_INFO_DATA, VETH_INFO_PEER
        master = _attribute(10, struct.pack("=i", DEVICE))
        body = _link(DEVICE + 1 + index, self._UP) + named + master + size + _attribute(18, kind)
        try:
            self._ask(self.NEW_LINK, self.CREATE, body)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.EBUSY):
                raise
            try:
                self._ask(self.DELETE_LINK, 0, _link(0, 0) + named)
            except OSError as gone:
                if gone.errno != errno.ENODEV:
                    raise
            self._ask(self.NEW_LINK, self.CREATE, body)

    def join_bridge(self, name: bytes) -> None:
        """Make an existing interface a port of the bridge and start it."""
        master = _attribute(10, struct.pack("=i", DEVICE))
        self._ask(self.NEW_LINK, 0, _link(0, self._UP) + _attribute(3, name + b"\0") + master)

    def start(self, number: int) -> None:
        """Start an interface."""
        self._ask(self.NEW_LINK, 0, _link(number, self._UP))

    def set_address(self, address: bytes, prefix: int) -> None:
        """Give `DEVICE` an IPv4 address (4 bytes) in a network with `prefix` bits."""
        body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, DEVICE)
        self._ask(self.NEW_ADDRESS, self.CREATE, body + _attribute(1, address) + _attribute(2, address))

    def set_gateway(self, gateway: bytes) -> None:
        """Send what leaves the network to a gateway (4 bytes)."""
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 4, 0, 1, 0)  # main table, static, unicast
        self._ask(self.NEW_ROUTE, self.CREATE, body + _attribute(5, gateway) + _attribute(4, struct.pack("=i", DEVICE)))

    def _ask(self, kind: int, flags: int, body: bytes) -> None:
        self._socket.send(struct.pack("=IHHII", 16 + len(body), kind, self._REQUEST | flags, 1, 0) + body)
        (code,) = struct.unpack_from("=i", self._socket.recv(8192), 16)
        if code:
            raise OSError(-code, os.strerror(-code))


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _link(number: int, up: int) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, number, up, up)


# ------------------------------------------------------------------------------------------------------ job network


def make_network(libc: ctypes.CDLL) -> None:
    """Move this process into a new job network. SandboxError: the system forbids it."""
    user, group = os.geteuid(), os.getegid()
    with SandboxStep(b"a network namespace"):
        if user != 0 or libc.unshare(CLONE_NEWNET) != 0:
            _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNET))
            for name, text in (
                ("setgroups", b"deny"),
                ("uid_map", b"%d %d 1" % (user, user)),
                ("gid_map", b"%d %d 1" % (group, group)),
            ):
                with open(f"/proc/self/{name}", "wb", buffering=0) as file:
                    file.write(text)
    with SandboxStep(b"a bridge"):
        routes = RouteSocket()
        routes.start(LOOPBACK)
        routes.make_bridge(b"weft0")
        routes.close()


def main(*words: str) -> None:
    """Run one action of `weft.operators.network` in a process of its own, and print its result as one line.

    `hold`: make a job network, print "ok" and the pid, and keep it until the end of the standard input. `probe`: the
    same, after the trial of a replica in it. `attach USER NETWORK NAME`: make an interface a port of the bridge.
    `forward USER NETWORK PREFIX RULES`: give the bridge the addresses of services, print the same, and forward their
    connections (JSON, as `forward.listen`) until the end of the standard input. `memory USER SIZE FOLDER ...`: mount
    file systems in memory in a mount namespace of its own, and keep it in the same way. A failure prints the number of
    the error and what failed.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if words[0] == "attach":
            _go_to(libc, os.fsencode(words[1]), os.fsencode(words[2]))
            RouteSocket().join_bridge(os.fsencode(words[3]))
        elif words[0] == "forward":
            _go_to(libc, os.fsencode(words[1]), os.fsencode(words[2]))
            _forward(int(words[3]), words[4])
        elif words[0] == "memory":
            _mount_memory(libc, words[1], words[2:])
        else:
            make_network(libc)
        if words[0] == "probe":
            _probe(libc)
        os.write(1, b"ok %d\n" % os.getpid())
        if words[0] != "attach":
            os.read(0, 1)
    except OSError as error:
        os.write(1, b"%d %s\n" % (error.errno or 0, getattr(error, "stage", b"isolation the network")))
    os._exit(0)


def _forward(prefix: int, rules: str) -> None:
    """Give the bridge the addresses of services, and forward their connections by threads."""
    import json  # no replica needs it

    decoded = json.loads(rules)
    with SandboxStep(b"addresses of services"):
        routes = RouteSocket()
        for address in dict.fromkeys(host for (host, _), _ in decoded):
            routes.set_address(bytes(map(int, address.split("."))), prefix)
        routes.close()
        from weft.worker import forward

        forward.listen(decoded)


def _mount_memory(libc: ctypes.CDLL, user: str, words: tuple[str, ...]) -> None:
    """Mount a file system in memory at each folder; `words` are sizes (0: the default) and folders in turn."""
    _go_to(libc, os.fsencode(user), b"")
    with SandboxStep(b"a mount namespace"):
        _check(libc.unshare(CLONE_NEWNS))
        _check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None))
    for size, folder in zip(words[::2], words[1::2], strict=True):
        options = b"mode=0777" + (b",size=" + size.encode() if size != "0" else b"")
        with SandboxStep(b"a file system in memory"):
            _check(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", ctypes.c_ulong(MS_NOSUID | MS_NODEV), options))


def _probe(libc: ctypes.CDLL) -> None:
    """Do what a replica does, in a process of its own: this one stays in the job network."""
    sandbox = {"user": b"", "network": b"", "host": b"probe", "index": 0}
    sandbox |= {"address": b"\x0a\x53\x01\x00", "prefix": 16, "gateway": b"", "shared": False}
    report, report_end = os.pipe()
    trial = os.fork()
    if trial == 0:
        code = 1
        try:
            _separate(libc, sandbox)
            if first := os.fork():
                code = os.waitpid(first, 0)[1] != 0
            else:
                _settle(libc, sandbox)
                code = 0
        except OSError as error:
            os.write(report_end, b"%d %s" % (error.errno or 0, getattr(error, "stage", b"")))
        finally:
            os._exit(code)
    os.close(report_end)
    failed = os.waitpid(trial, 0)[1] != 0
    number, _, stage = os.read(report, 4096).partition(b" ")
    os.close(report)
    if number:
        raise SandboxError(stage.removeprefix(b"isolation "), int(number))
    if failed:
        os._exit(1)  # without an answer


# ---------------------------------------------------------------------------------------------------------- replica


def enter(sandbox: dict[str, Any], guardian: int, report: int) -> None:
    """Fork the command of a replica into its namespaces; only the fork returns, the caller ends.

    `sandbox` is what `weft.operators.network.Sandbox` encodes, `guardian` the pid of the guardian. The pids of process
    1 and of the command, two numbers of 4 bytes, go to the open file `report`. SandboxError: a namespace cannot be
    made or entered.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with SandboxStep(b"a handle of the guardian"):
        handle = os.pidfd_open(guardian)
    _separate(libc, sandbox)
    first = os.fork()
    if first == 0:
        _reap_orphans(handle)
    command = os.fork()
    if command:
        os.write(report, struct.pack("=ii", first, command))
        os._exit(0)
    _settle(libc, sandbox)


def _go_to(libc: ctypes.CDLL, user: bytes, network: bytes) -> None:
    """Enter a job network; `user` is the path of its user namespace, empty if it has none of its own."""
    with SandboxStep(b"the network of the job, which is gone"):
        # Opened before any is entered: from another user namespace the files of the owner are out of reach.
        files = [
            (os.open(path, os.O_RDONLY | os.O_CLOEXEC), kind)
            for path, kind in ((user, CLONE_NEWUSER), (network, CLONE_NEWNET))
            if path
        ]
        for file, kind in files:
            _check(libc.setns(file, kind))
            os.close(file)


def _separate(libc: ctypes.CDLL, sandbox: dict[str, Any]) -> None:
    """Make the namespaces of a replica and connect it; its processes are the next forks of this process."""
    _go_to(libc, sandbox["user"], sandbox["network"])
    if sandbox["shared"]:
        with SandboxStep(b"namespaces"):
            _check(libc.unshare(OWN & ~CLONE_NEWNET))
            _check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None))
        return
    with SandboxStep(b"namespaces"):
        outside = RouteSocket()
        _check(libc.unshare(OWN))
        _check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None))
    with SandboxStep(b"a network interface"):
        inside = RouteSocket()
        namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        outside.connect(sandbox["index"], namespace, OUTER_MTU if sandbox["gateway"] else LARGEST_MTU)
        inside.start(LOOPBACK)
        inside.start(DEVICE)
        inside.set_address(sandbox["address"], sandbox["prefix"])
        if sandbox["gateway"]:
            inside.set_gateway(sandbox["gateway"])
        os.close(namespace)
        inside.close()
        outside.close()


def _settle(libc: ctypes.CDLL, sandbox: dict[str, Any]) -> None:
    """Give the first process of a replica its host name and its /proc."""
    with SandboxStep(b"a host name"):
        _check(libc.sethostname(sandbox["host"], ctypes.c_size_t(len(sandbox["host"]))))
    with SandboxStep(b"a /proc of its own"):
        _check(libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(MS_NOSUID | MS_NODEV | MS_NOEXEC), None))
    try:  # as in containers, a replica may listen at each port
        with open(LOW_PORTS, "wb", buffering=0) as file:
            file.write(b"0")
    except OSError:
        pass  # a sandbox forbids it, and few replicas need it


def _reap_orphans(guardian: int) -> NoReturn:
    """Be process 1: reap orphans until the guardian ends, or until no process is left after a SIGTERM."""
    try:
        os.setsid()
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        kept = sorted((guardian, wake, woken))
        for low, high in zip([-1, *kept], [*kept, 1 << 20], strict=True):
            os.closerange(low + 1, high)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        poll = select.poll()
        poll.register(guardian, select.POLLIN)
        poll.register(wake, select.POLLIN)
        ends = False
        while True:
            ready = [fd for fd, _ in poll.poll(LOOKING_MS if ends else None)]
            if guardian in ready:
                break
            if wake in ready:
                ends = ends or signal.SIGTERM in os.read(wake, 4096)
            _reap()
            if ends and not _has_processes():
                break
    finally:
        os._exit(0)  # the kernel kills all that is left


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _has_processes() -> bool:
    """Whether this process namespace has processes besides process 1."""
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class SandboxStep:
    """Names what fails in a block: an OSError of the block becomes a SandboxError."""

    def __init__(self, what: bytes) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, SandboxError):
            raise SandboxError(self._what, error.errno or errno.EIO) from None


def _check(answer: int) -> None:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
