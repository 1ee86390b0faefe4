"""`MachineSlots`: the slots of one run, claimed from the ledger that all runs of a machine share.

A thread of its own reads and writes the ledger, so that the loop never waits for other processes. A run that has to
make room for another one is told by a request to its controller; when its tasks have stopped, its claim waits in the
queue again, and a further request tells the controller that it is granted.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.engine.events import Deferred, Granted, Refused, WorkerJoined
from weft.engine.provider import BESIDE
from weft.model.errors import WeftError
from weft.runtime.claims import HELD, LEAVING, WAITING, Ledger, MachineShare, SlotClaim, refusal, why_too_large
from weft.runtime.clock import RealClock
from weft.runtime.machine_ledger import MachineLedger, this_session

if TYPE_CHECKING:
    from pathlib import Path

    from weft.graph.spec import SharingSpec, Wants
    from weft.model.resources import Resources

PREEMPT: Final = "preempt"
READMIT: Final = "readmit"
"""The requests to the controller of a job: stop all tasks (the payload names the run that needs the room); go on."""


class _Asked(Struct):
    """A request of the engine: its claim, and the workers that it was granted and has not released."""

    claim: SlotClaim
    wants: Wants
    workers: set[int] | None = None
    reason: str = ""


class MachineSlots:
    """See `engine.provider.SharedSlots`. `folder` has the ledger; `assign` gets the devices of each granted slot."""

    def __init__(
        self,
        run: str,
        sharing: SharingSpec,
        folder: Path,
        assign: Callable[[int, Sequence[str]], None] = lambda worker, devices: None,
    ) -> None:
        self._run = run
        self._sharing, self._assign = sharing, assign
        self._session = this_session()
        self._ledger = MachineLedger(folder, f"{run.replace('/', '.')}-{os.getpid()}-{id(self):x}")
        self._lock = threading.Lock()
        self._changes: deque[Any] = deque()
        self._asked: dict[int, _Asked] = {}
        self._parked: SlotClaim | None = None
        self._parked_reason = self._made_room_for = ""
        self._told = self._readmitted = self._ended = False
        self._free: list[int] = []
        self._known = BESIDE
        self._number = 0
        self._loop: Any = None
        self._job: Any = None
        self._thread = threading.Thread(target=self._follow, name=f"slots of {run}", daemon=True)

    # ------------------------------------------------------------------------------------------------ the loop's side

    def begin(self, loop: Any, job: Any) -> None:
        """See `SharedSlots.begin`."""
        self._loop, self._job = loop, job
        self._thread.start()

    def request(self, request: int, wants: Wants) -> str:
        """See `SharedSlots.request`."""
        self._number += 1
        claim = self._claim(f"{self._run}/{self._session}/{self._number}", wants)
        reason = refusal(claim)
        if not reason:
            self._change("ask", request, _Asked(claim, wants))
        return reason

    def refusal(self, wants: Wants) -> str:
        """See `SharedSlots.refusal`."""
        return why_too_large(self._claim("", wants))

    def _claim(self, id: str, wants: Wants) -> SlotClaim:
        sharing = self._sharing
        return SlotClaim(
            id=id,
            run=self._run,
            session=self._session,
            user=sharing.user,
            socket=self._ledger.socket,
            amount=_amount(wants),
            room=MachineShare(*sharing.room),
            devices=sharing.devices,
            parts=" and ".join(f"{count} of {vertex}, each {wanted[0]}" for vertex, count, wanted, _ in wants),
            queue=sharing.queue,
            limit=None if sharing.limit is None else MachineShare(*sharing.limit),
            weight=sharing.weight,
            priority=sharing.priority,
            preemptible=sharing.preemptible,
            since=RealClock().now(),
        )

    def withdraw(self, request: int) -> None:
        """See `SharedSlots.withdraw`."""
        self._change("withdraw", request)

    def release(self, request: int, worker: int) -> None:
        """See `SharedSlots.release`."""
        self._change("release", request, worker)

    def why_not(self, request: int) -> str:
        """See `SharedSlots.why_not`."""
        with self._lock:
            asked = self._asked.get(request)
            return "" if asked is None else asked.reason

    def paused(self) -> str:
        """See `SharedSlots.paused`."""
        with self._lock:
            return self._parked_reason and f"has made room for {self._made_room_for}; {self._parked_reason}"

    def end(self) -> None:
        """See `SharedSlots.end`."""
        self._change("end")

    def join(self, timeout_s: float) -> None:
        """See `SharedSlots.join`."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _change(self, *words: Any) -> None:
        self._changes.append(words)
        self._ledger.wake()

    # ---------------------------------------------------------------------------------------------- the ledger's side

    def _follow(self) -> None:
        """Carry the changes of the loop to the ledger, and the decisions there to the loop, until the job has ended."""
        try:
            while not self._ended:
                waits = self._turn()
                if not (self._changes or self._ended):
                    self._ledger.wait(waiting=waits)
        except (OSError, WeftError) as error:
            text = f"the ledger of this machine cannot be used: {getattr(error, 'message', error)}"
            for request in list(self._asked):
                self._loop.post(self._job.id, Refused(self._loop.clock.now(), request, text))
        finally:
            self._ledger.close()

    def _turn(self) -> bool:
        """Take the changes so far to the ledger, and report what follows. Return whether a claim waits."""
        ledger = self._ledger.edit(self._changed)
        own = {one.id: one for one in ledger.claims if one.run == self._run and one.session == self._session}
        events: list[Any] = []
        requests: list[tuple[str, Any]] = []
        now = self._loop.clock.now()
        with self._lock:
            leaving = next((one for one in own.values() if one.state == LEAVING), None)
            if leaving is not None and not self._told:
                self._told, self._made_room_for = True, leaving.by
                requests.append((PREEMPT, {"by": leaving.by}))
            for request, asked in self._asked.items():
                asked.claim = own[asked.claim.id]
                if asked.claim.holds and asked.workers is None:
                    events += self._grant(now, request, asked)
                reason, asked.reason = asked.reason, asked.claim.reason
                if asked.reason not in ("", reason):
                    events.append(Deferred(now, request, asked.reason))
            self._parked = None if self._parked is None else own[self._parked.id]
            self._parked_reason = "" if self._parked is None else self._parked.reason
            if self._parked is not None and self._parked.state == HELD and not self._readmitted:
                self._readmitted, self._told = True, False
                requests.append((READMIT, None))
        if events:
            self._loop.post_later(self._job.id, *events)
            self._loop.drain()
        for name, payload in requests:
            self._loop.request(self._job, name, payload)
        return any(one.state != HELD for one in own.values())

    def _grant(self, now: float, request: int, asked: _Asked) -> list[Any]:
        """Return the events of a granted request: new workers, and its slots."""
        events: list[Any] = []
        slots = []
        devices = iter(asked.claim.held)
        for vertex, count, alternatives, _ in asked.wants:
            for _ in range(count):
                if not self._free:
                    self._free.append(self._known)
                    events.append(WorkerJoined(now, self._known, 0, "local"))
                    self._known += 1
                worker = self._free.pop()
                self._assign(worker, tuple(islice(devices, alternatives[0].gpu)))
                slots.append((vertex, worker, 0))
        asked.workers = {worker for _, worker, _ in slots}
        return [*events, Granted(now, request, tuple(slots))]

    def _changed(self, ledger: Ledger) -> Ledger:
        """Return the ledger after the changes that the loop has asked for."""
        claims = {one.id: one for one in ledger.claims}
        with self._lock:
            while self._changes:
                kind, *words = self._changes.popleft()
                getattr(self, f"_do_{kind}")(claims, *words)
            kept = [asked.claim for asked in self._asked.values()]
            for claim in [*kept, self._parked] if self._parked is not None else kept:
                claims.setdefault(claim.id, claim)  # someone has removed the file
            parked = self._parked and claims[self._parked.id]
            if parked and parked.state == LEAVING:  # nothing of it runs
                claims[parked.id] = replace(parked, state=WAITING, by="", held=())
                self._readmitted = False
        return replace(ledger, claims=tuple(claims.values()))

    def _do_ask(self, claims: dict[str, SlotClaim], request: int, asked: _Asked) -> None:
        parked = self._parked and claims.pop(self._parked.id, None)
        self._parked, self._readmitted = None, False
        claim = asked.claim
        if parked and parked.state == HELD and claim.amount.fits(parked.amount):
            claim = replace(
                claim,
                state=HELD,
                since=parked.since,
                granted_at=parked.granted_at,
                held=parked.held[: int(claim.amount.gpu)],
            )
        elif parked:
            claim = replace(claim, since=parked.since)
        claims[claim.id] = asked.claim = claim
        self._asked[request] = asked

    def _do_withdraw(self, claims: dict[str, SlotClaim], request: int) -> None:
        asked = self._asked.get(request)
        if asked is not None:  # it may have been granted meanwhile
            self._free += sorted(asked.workers or ())
            asked.workers = set()
            self._give_back(claims, request, asked)

    def _do_release(self, claims: dict[str, SlotClaim], request: int, worker: int) -> None:
        asked = self._asked.get(request)
        if asked is not None and asked.workers and worker in asked.workers:
            asked.workers.remove(worker)
            self._free.append(worker)
            if not asked.workers:
                self._give_back(claims, request, asked)

    def _do_end(self, claims: dict[str, SlotClaim]) -> None:
        for claim in [one for one in claims.values() if one.run == self._run and one.session == self._session]:
            del claims[claim.id]
        self._asked.clear()
        self._parked, self._parked_reason, self._ended = None, "", True

    def _give_back(self, claims: dict[str, SlotClaim], request: int, asked: _Asked) -> None:
        """End the claim of a request; that of a run that makes room waits in the queue again."""
        del self._asked[request]
        claim = claims.pop(asked.claim.id, asked.claim)
        if claim.state != LEAVING:
            return
        amount, since = claim.amount, claim.since
        if self._parked is not None and (other := claims.pop(self._parked.id, None)) is not None:
            amount, since = amount.plus(other.amount), min(since, other.since)
        self._parked = replace(claim, state=WAITING, by="", amount=amount, since=since, held=())
        claims[claim.id] = self._parked


def _amount(wants: Wants) -> MachineShare:
    """Return what all tasks of a request need together, each the first of its alternatives."""
    total = MachineShare()
    for _, count, alternatives, _ in wants:
        need: Resources = alternatives[0]
        total = total.plus(MachineShare(need.cpu * count, need.memory * count, need.gpu * count))
    return total
