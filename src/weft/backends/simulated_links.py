"""A simulated network between a session and its nodes: the links of `weft.backends.node_link` on a virtual clock.

A process is a place where actions run. It may hang and go on later, or die. A connection carries bytes in order, as TCP
does: they come late, in pieces, or not at all (a direction that is silent for a while or for good), and the connection
may break behind any byte, which each end hears of or not. Frames are pickled, so that no object is shared.

Everything is drawn from one seed. Nothing here has a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.backends.cluster_nodes import NodeNetwork
from weft.backends.pulse import Pulse, framed, unframed
from weft.engine.events import TimerFired
from weft.engine.ports import ManualClock
from weft.model.errors import NotFoundError, WeftError
from weft.store import tiers
from weft.store.handshake import Credentials
from weft.store.peers import PeerReader, parse

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from weft.backends.node_link import Lost, Take
    from weft.engine.ports import Shell
    from weft.store.peer_server import Find

FOREVER_S: Final = float("inf")


class LinkFaults(Struct):
    """The faults of a network, each with its probability for one frame, until `until_s` seconds.

    `late`: the rest of a direction comes up to `late_s` later. `silent`: it comes up to `silent_s` later, with
    `for_good` never. `broken`: the connection breaks behind some byte; each end hears of it with `told`. `unread`: a
    chunk cannot be read at another node. A frame takes `latency_s`, and up to twice as long.
    """

    latency_s: float = 0.001
    late: float = 0.0
    late_s: float = 2.0
    silent: float = 0.0
    silent_s: float = 40.0
    for_good: float = 0.0
    broken: float = 0.0
    told: float = 0.5
    unread: float = 0.0
    until_s: float = FOREVER_S


class SimulatedProcess:
    """A process of the simulation. Its actions wait while it hangs, and never run once it is `dead`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.hangs_until = 0.0
        self.links: list[SimulatedLink] = []


class Agenda:
    """Actions by the moment of a virtual clock; those of one moment run in the order of their planning."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.running: SimulatedProcess | None = None
        """The process whose action runs now."""
        self._heap: list[tuple[float, int, Callable[[], None], SimulatedProcess]] = []
        self._order = 0

    def at(self, when: float, action: Callable[[], None], process: SimulatedProcess) -> None:
        """Call `action` in a process at time `when`."""
        self._order += 1
        heappush(self._heap, (max(when, self.clock.time), self._order, action, process))

    def soon(self, action: Callable[[], None], process: SimulatedProcess) -> None:
        """Call `action` in a process after what is planned for now."""
        self.at(self.clock.time, action, process)

    def step(self) -> bool:
        """Run the next action. Return False if there is none."""
        if not self._heap:
            return False
        when, order, action, process = heappop(self._heap)
        self.clock.time = max(self.clock.time, when)
        if process.dead:
            return True
        if process.hangs_until > self.clock.time:
            heappush(self._heap, (process.hangs_until, order, action, process))
            return True
        self.running = process
        action()
        return True


class _Direction:
    """The bytes on their way from one end of a connection to the other."""

    def __init__(self, net: SimulatedNetwork, to: SimulatedLink) -> None:
        self.net = net
        self.to = to
        self.back: _Direction
        self._last = 0.0
        self._broken = False

    def write(self, data: bytes) -> None:
        """Send bytes."""
        net, chance = self.net, self.net.random.random
        faults = net.faults
        if self._broken:
            return
        now = net.agenda.clock.time
        delay = faults.latency_s * (1 + chance())
        if now < faults.until_s and net.faults_left > 0:
            if chance() < faults.late:
                net.count()
                delay += faults.late_s * chance()
            if chance() < faults.silent:
                net.count()
                delay += FOREVER_S if chance() < faults.for_good else faults.silent_s * chance()
            if chance() < faults.broken:
                net.count()
                self._carry(data[: int(len(data) * chance())], delay)
                self.sever()
                return
        self._carry(data, delay)

    def _carry(self, data: bytes, delay: float) -> None:
        self._last = max(self._last, self.net.agenda.clock.time + delay)
        if self._last == FOREVER_S or not data:
            return
        cut = self.net.random.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            if piece:
                self.net.agenda.at(self._last, partial(self.to.feed, piece), self.to.process)

    def silence(self, seconds: float) -> None:
        """Have all that is sent from now on arrive no sooner than in some seconds."""
        self._last = max(self._last, self.net.agenda.clock.time + seconds)

    def sever(self) -> None:
        """Break the connection; perhaps the ends hear of it, behind what has been sent."""
        for direction in (self, self.back):
            direction._broken = True
            if self.net.random.random() < self.net.faults.told:
                direction.hang_up("the connection was reset")

    def hang_up(self, reason: str) -> None:
        """Tell the other end that no more bytes come."""
        self._broken = True
        when = max(self._last, self.net.agenda.clock.time + self.net.faults.latency_s)
        if when < FOREVER_S:
            self.net.agenda.at(when, partial(self.to.ends, reason), self.to.process)


class SimulatedLink:
    """A `Link` in a simulation; see `NodeLink` for the real one."""

    def __init__(self, net: SimulatedNetwork, process: SimulatedProcess, *, leads: bool) -> None:
        self.net = net
        self.process = process
        self.leads = leads
        self.take: Take
        self.lost: Lost
        self.other: SimulatedLink
        self.out: _Direction
        self.ended = ""
        """Why the link has ended."""
        self.silent = False
        """Whether it has ended since the other end was not heard."""
        self._closed = False
        self._pulse = Pulse(net.agenda.clock.time, leads=leads)
        self._waiting: list[Any] = []
        self._frame = unframed(self._hear)
        self._room = next(self._frame)
        process.links.append(self)

    def start(self) -> None:
        """See `Link.start`."""
        self._wake()

    def send(self, *messages: Any) -> None:
        """See `Link.send`."""
        if self.ended or self._closed or self.process.dead:
            return
        if not self._waiting:
            self.net.agenda.soon(self._flush, self.process)
        self._waiting += messages

    def close(self, patience_s: float = 0.0) -> None:
        """See `Link.close`; here nobody waits."""
        if not self.ended:
            self._flush()
        self._closed = True
        if not self.ended:
            self.ended = "closed"
            self.out.hang_up("the other end has closed the connection")

    def _wake(self) -> None:
        """Run what is due, and plan the next call."""
        if self.ended:
            return
        now = self.net.agenda.clock.time
        if now >= self._pulse.due:
            self._flush()
        if not self.ended:
            self.net.agenda.at(max(now, self._pulse.due), self._wake, self.process)

    def _flush(self) -> None:
        now = self.net.agenda.clock.time
        messages, self._waiting = self._waiting, []
        if self.ended:
            return
        if reason := self._pulse.lost(now):
            self.silent = True
            self.ends(reason)
        elif messages := messages + self._pulse.beats(now):
            self.out.write(b"".join(framed(messages)))

    def feed(self, data: bytes) -> None:
        """Receive bytes."""
        while data and not self.ended:
            length = min(len(data), len(self._room))
            self._room[:length], data, self._room = data[:length], data[length:], self._room[length:]
            if self._room:
                continue
            try:
                self._room = next(self._frame)
            except StopIteration as end:
                self._frame = unframed(self._hear)
                self._room = next(self._frame)
                messages = self._hear(end.value)
                if messages and not self.ended:
                    self.take(messages)

    def _hear(self, received: list[Any]) -> list[Any]:
        """Take the beats among messages, and return the others."""
        now = self.net.agenda.clock.time
        messages = self._pulse.take(received, now)
        if reason := self._pulse.lost(now):
            self.silent = True
            self.ends(reason)
        return messages

    def ends(self, reason: str) -> None:
        """End the link, and report it."""
        if self.ended:
            return
        self.ended = reason
        self.out.hang_up("the other end has ended the connection")
        self.net.ended(self)
        self.lost(reason)


class SimulatedHelpers:
    """The helper pool of a simulated process: actions run at their moment, one after the other."""

    def __init__(self, net: SimulatedNetwork, process: SimulatedProcess, after: Callable[[Any], None]) -> None:
        self._net, self._process, self._after = net, process, after

    def put(self, action: Callable[[], None]) -> None:
        """See `HelperPool.put`; the action may run a little later than others that were put after it."""
        delay = self._net.random.choice([0.0, 0.0, 0.001])
        self._net.agenda.at(self._net.agenda.clock.time + delay, partial(self._run, action), self._process)

    def _run(self, action: Callable[[], None]) -> None:
        action()
        self._after(lambda: None)

    def close(self, patience_s: float = 0.0) -> None:
        """Do nothing: no thread has to end."""


class SimulatedTimers:
    """The timers of a simulated process."""

    def __init__(self, net: SimulatedNetwork, process: SimulatedProcess, loop: Shell) -> None:
        self._net, self._process, self._loop = net, process, loop

    def set(self, job: str, at: float, timer: int) -> None:
        """See `TimerThread.set`."""
        self.call(at, lambda: self._loop.post(job, TimerFired(self._loop.clock.now(), timer)))

    def call(self, at: float, action: Callable[[], None]) -> None:
        """See `TimerThread.call`."""
        self._net.agenda.at(at, action, self._process)

    def close(self) -> None:
        """Do nothing."""


class SimulatedNetwork:
    """The processes of a simulated cluster and what lies between them; `faults_left` bounds the faults."""

    def __init__(self, random: random.Random, faults: LinkFaults, faults_left: int) -> None:
        self.random = random
        self.faults = faults
        self.faults_left = faults_left
        self.faults_made = 0
        self.agenda = Agenda()
        self.listeners: dict[tuple[str, int], tuple[SimulatedProcess, Callable[[SimulatedLink], None], Find]] = {}
        self.ended: Callable[[SimulatedLink], None] = lambda link: None
        """Called with a link that has ended by itself."""

    def count(self) -> None:
        """Count a fault."""
        self.faults_left -= 1
        self.faults_made += 1

    def listen(self, process: SimulatedProcess, accept: Callable[[SimulatedLink], None], find: Find) -> tuple[str, int]:
        """Return the address of a process that accepts links and finds chunks."""
        address = (process.name, 1 + len(self.listeners))
        self.listeners[address] = process, accept, find
        return address

    def connect(self, address: tuple[str, int], process: SimulatedProcess, take: Take, lost: Lost) -> SimulatedLink:
        """Connect a process with the one at an address. ConnectionRefusedError: it is dead."""
        other, accept, _ = self.listeners[address]
        if other.dead:
            raise ConnectionRefusedError("connection refused")
        near, far = SimulatedLink(self, process, leads=True), SimulatedLink(self, other, leads=False)
        near.take, near.lost = take, lost
        near.other, far.other = far, near
        near.out, far.out = _Direction(self, far), _Direction(self, near)
        near.out.back, far.out.back = far.out, near.out
        self.agenda.soon(partial(accept, far), other)
        return near

    def kill(self, process: SimulatedProcess) -> None:
        """End a process at once; its system closes its connections."""
        process.dead = True
        for link in process.links:
            if not link.ended:
                link.ended = "killed"
                link.out.hang_up("the connection was reset")

    def hang(self, process: SimulatedProcess, seconds: float) -> None:
        """Stop a process for some seconds."""
        process.hangs_until = max(process.hangs_until, self.agenda.clock.time + seconds)


class SimulatedNodeNetwork(NodeNetwork):
    """The `NodeNetwork` of one simulated process."""

    def __init__(self, net: SimulatedNetwork, process: SimulatedProcess) -> None:
        super().__init__(Credentials(b""))
        self.net = net
        self.process = process

    def helpers(self, name: str, after: Callable[[Callable[[], None]], None]) -> Any:
        """See `BackendThreads.helpers`."""
        return SimulatedHelpers(self.net, self.process, after)

    def timers(self, loop: Shell) -> Any:
        """See `BackendThreads.timers`."""
        return SimulatedTimers(self.net, self.process, loop)

    def ticks(self, tick: Callable[[], None]) -> None:
        """Do nothing: the owner of the simulation makes ticks."""

    def connect(self, address: tuple[str, int], take: Take, lost: Lost) -> SimulatedLink:
        """See `NodeNetwork.connect`."""
        return self.net.connect(address, self.process, take, lost)

    def open_reader(self) -> None:
        """Do nothing: one reader serves all processes of the simulation."""

    def close_reader(self) -> None:
        """Do nothing."""


class SimulatedReader(PeerReader):
    """Reads chunks at simulated nodes, in no time."""

    def __init__(self, net: SimulatedNetwork) -> None:
        super().__init__(Credentials(b""))
        self._net = net

    def _at(self, address: tuple[str, int]) -> Find:
        net = self._net
        process, _, find = net.listeners[address]
        if net.random.random() < net.faults.unread and net.faults_left > 0 and process is not net.agenda.running:
            net.count()
            raise NotFoundError(f"the node at {address[0]}:{address[1]} cannot be reached: the connection was reset")
        if process.dead or process.hangs_until > net.agenda.clock.time:
            raise NotFoundError(f"the node at {address[0]}:{address[1]} cannot be reached")
        return find

    def read(self, location: str, offset: int, nbytes: int) -> memoryview:
        """See `PeerReader.read`."""
        chunk = parse(location)
        with self._at((chunk.host, chunk.port))(*chunk[2:]) as ref:
            return memoryview(bytes(tiers.read_slice(ref, offset, nbytes)))

    def pieces(self, address: tuple[str, int], wanted: Sequence[tuple[str, int, int]]) -> list[list[memoryview | None]]:
        """See `PeerReader.pieces`."""
        find = self._at(address)
        found: list[list[memoryview | None]] = []
        for location, lo, hi in wanted:
            row: list[memoryview | None] = []
            chunk = parse(location)
            with suppress(WeftError), find(*chunk[2:]) as ref:
                for at, size in tiers.directory(ref, lo, hi):
                    row.append(memoryview(bytes(tiers.read_slice(ref, at, size))) if size else None)
            found.append(row)
        return found

    def close(self) -> None:
        """Do nothing."""
