"""Claims on the resources of one machine, and the decision which of them are granted.

A claim asks for cores, memory and GPUs together, for all tasks of a request or none. `settle` is a pure function: it
grants waiting claims in the order of the queue, and names the runs that must make room for claims of higher priority.

The order is priority, then the smallest share of the machine used so far (by queue, user and session), then arrival. A
claim that has waited for `OVERDUE_S` goes before the shares of others. Smaller claims may start before one that does
not fit, until that one has waited for `PATIENCE_S`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

WAITING: Final = "waiting"
HELD: Final = "held"
LEAVING: Final = "leaving"
"""The states of claims: a leaving one still holds its resources, and its run was told to stop."""
PATIENCE_S: Final = 30.0
"""The seconds after which nothing starts before a claim that does not fit and comes first."""
OVERDUE_S: Final = 300.0
"""The seconds after which a claim goes before others of its priority, whatever their shares are."""
HALF_LIFE_S: Final = 600.0
"""The seconds after which used resources count half."""
_FORGOTTEN: Final = 1e-3
_ROUNDING: Final = 1e-9
_MOST_TRIED: Final = 12
"""The most runs among which the smallest set to suspend is searched."""
_UNITS: Final = ("cores", "bytes of memory", "GPUs")


class MachineShare(NamedTuple):
    """An amount of resources: cores, bytes of memory, GPUs."""

    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0

    def plus(self, other: MachineShare) -> MachineShare:
        """Return the sum."""
        return MachineShare(self.cpu + other.cpu, self.memory + other.memory, self.gpu + other.gpu)

    def minus(self, other: MachineShare) -> MachineShare:
        """Return the difference."""
        return MachineShare(self.cpu - other.cpu, self.memory - other.memory, self.gpu - other.gpu)

    def fits(self, room: MachineShare) -> bool:
        """Return whether `room` has at least as much of each resource that this amount needs."""
        return all(not need or need <= left + _ROUNDING for need, left in zip(self, room, strict=True))

    def meets(self, other: MachineShare) -> bool:
        """Return whether both amounts need one resource."""
        return any(mine and theirs for mine, theirs in zip(self, other, strict=True))


UNBOUNDED: Final = MachineShare(inf, inf, inf)


class SlotClaim(Struct, frozen=True, kw_only=True):
    """A request of a run for an amount of resources at once. Times are seconds of the machine's monotonic clock.

    `session` is the process, and `socket` the name under which it hears of changes. `room` is the whole machine as its
    user sees it, and `devices` are its GPUs by name, of which the claim holds `held`; without names only their number
    counts. `limit` and `weight` are those of its queue. `parts` describes the amount for users.
    """

    id: str
    run: str
    session: str
    user: str = ""
    socket: str = ""
    amount: MachineShare
    room: MachineShare
    devices: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    parts: str = ""
    queue: str = "default"
    limit: MachineShare | None = None
    weight: float = 1.0
    priority: int = 0
    preemptible: bool = False
    since: float = 0.0
    state: str = WAITING
    granted_at: float = 0.0
    by: str = ""
    """The run that a leaving claim makes room for."""
    reason: str = ""
    """Why a waiting claim waits, as a clause."""

    @property
    def holds(self) -> bool:
        """Whether the claim holds its resources."""
        return self.state != WAITING


class Account(Struct, frozen=True):
    """The machine seconds that a queue, user or session has used, as they count at time `at`."""

    used: float
    at: float

    def now(self, now: float) -> float:
        """Return what counts at a later time."""
        return float(self.used * 0.5 ** (max(0.0, now - self.at) / HALF_LIFE_S))


class Ledger(Struct, frozen=True, kw_only=True):
    """All claims on one machine, and the accounts by which its users share it."""

    claims: tuple[SlotClaim, ...] = ()
    accounts: Mapping[str, Account] = field(default_factory=dict)
    at: float = 0.0


def accounts_of(claim: SlotClaim) -> tuple[str, str, str]:
    """Return the names of the accounts that a claim is charged to, in the order in which they are compared."""
    return f"queue {claim.queue}", f"user {claim.user}", f"session {claim.session}"


def charge(ledger: Ledger, now: float) -> Ledger:
    """Charge the time since the last call to the accounts of the claims that hold resources."""
    added: dict[str, float] = {}
    for claim in ledger.claims:
        if claim.holds:
            cost = _fraction(claim) * max(0.0, now - max(ledger.at, claim.granted_at))
            for name in accounts_of(claim):
                added[name] = added.get(name, 0.0) + cost
    accounts = {}
    for name in {*ledger.accounts, *added}:
        used = (ledger.accounts[name].now(now) if name in ledger.accounts else 0.0) + added.get(name, 0.0)
        if used > _FORGOTTEN:
            accounts[name] = Account(used, now)
    return replace(ledger, accounts=accounts, at=now)


def _fraction(claim: SlotClaim) -> float:
    """Return the largest part of a resource of the machine that a claim takes."""
    return max(need / room if room else 0.0 for need, room in zip(claim.amount, claim.room, strict=True))


def in_order(ledger: Ledger, now: float) -> list[SlotClaim]:
    """Return the waiting claims in the order of the queue."""
    holding = [claim for claim in ledger.claims if claim.holds]
    held: dict[str, float] = {}
    for claim in holding:
        for name in accounts_of(claim):
            held[name] = held.get(name, 0.0) + _fraction(claim)  # the next second of what runs counts too

    def used(name: str) -> float:
        account = ledger.accounts.get(name)
        return (account.now(now) if account is not None else 0.0) + held.get(name, 0.0)

    def rank(claim: SlotClaim) -> tuple[object, ...]:
        if now - claim.since >= OVERDUE_S:
            return -claim.priority, 0, 0.0, 0.0, 0.0, claim.since, claim.id
        queue, user, session = accounts_of(claim)
        shares = used(queue) / claim.weight, used(user), used(session)
        return -claim.priority, 1, *shares, claim.since, claim.id

    return sorted((claim for claim in ledger.claims if not claim.holds), key=rank)


# ---------------------------------------------------------------------------------------------------------- decision


def settle(ledger: Ledger, now: float) -> Ledger:
    """Grant what fits, and tell runs of lower priority to make room. The same arguments give the same answer."""
    ledger = charge(ledger, now)
    while True:  # what is granted changes the shares, and so the order
        after = _granted(ledger, now)
        if sum(one.holds for one in after.claims) == sum(one.holds for one in ledger.claims):
            return after
        ledger = after


def _granted(ledger: Ledger, now: float) -> Ledger:
    """Return the ledger after one look at each waiting claim, in order."""
    claims = {claim.id: claim for claim in ledger.claims}
    blocked: list[SlotClaim] = []
    for claim in in_order(ledger, now):
        others = list(claims.values())
        ahead = _ahead(claim, blocked, others, now)
        if any(one.run == claim.run and one.session == claim.session for one in blocked):
            reason = "waits behind an earlier request of its run"
        elif ahead is None and claim.amount.fits(_room(claim, others)):
            held = _free_devices(claim, others)[: int(claim.amount.gpu)]
            claims[claim.id] = replace(claim, state=HELD, granted_at=now, by="", reason="", held=held)
            continue
        else:
            for victim in _victims(claim, others) if ahead is None else ():
                claims[victim.id] = replace(victim, state=LEAVING, by=claim.run)
            reason = _why(claim, list(claims.values()), ahead, blocked)
        if reason != claim.reason:
            claims[claim.id] = replace(claim, reason=reason)
        blocked.append(claim)
    return replace(ledger, claims=tuple(claims.values()))


def _total(claims: Iterable[SlotClaim]) -> MachineShare:
    total = MachineShare()
    for claim in claims:
        total = total.plus(claim.amount)
    return total


def _room(claim: SlotClaim, claims: Iterable[SlotClaim], *, gone: bool = False) -> MachineShare:
    """Return what a claim may still take of the machine and of its queue; with `gone` after all have left."""
    holding = [one for one in claims if one.state == HELD or (one.state == LEAVING and not gone)]
    room = claim.room.minus(_total(holding))
    if claim.devices:
        unnamed = sum(one.amount.gpu for one in holding if not one.held)
        room = room._replace(gpu=len(_free_devices(claim, holding)) - unnamed)
    if claim.limit is not None:
        left = claim.limit.minus(_total(one for one in holding if one.queue == claim.queue))
        room = MachineShare(*map(min, room, left))
    return room


def _free_devices(claim: SlotClaim, claims: Iterable[SlotClaim]) -> tuple[str, ...]:
    """Return the devices of the machine of a claim that no other claim holds."""
    taken = {name for one in claims if one.holds for name in one.held}
    return tuple(name for name in claim.devices if name not in taken)


def _queue_full(claim: SlotClaim, claims: Iterable[SlotClaim]) -> bool:
    """Whether the limit of its queue alone keeps a claim waiting."""
    return claim.limit is not None and claim.amount.fits(_room(replace(claim, limit=None), claims))


def _ahead(claim: SlotClaim, blocked: Sequence[SlotClaim], claims: Sequence[SlotClaim], now: float) -> SlotClaim | None:
    """Return the claim before which this one may not start: room is made for it, or it has waited long enough."""
    for other in blocked:
        if not claim.amount.meets(other.amount):
            continue
        if _queue_full(other, claims) and other.queue != claim.queue:
            continue
        if now - other.since >= PATIENCE_S or any(one.state == LEAVING and one.by == other.run for one in claims):
            return other
    return None


def _victims(claim: SlotClaim, claims: Sequence[SlotClaim]) -> list[SlotClaim]:
    """Return the claims of runs that have to leave: of the fewest, the lowest and youngest runs that make room."""
    if claim.amount.fits(_room(claim, claims, gone=True)):
        return []  # those that leave already suffice
    runs: dict[tuple[str, str], list[SlotClaim]] = {}
    for one in claims:
        if one.state == HELD:
            runs.setdefault((one.session, one.run), []).append(one)
    lower = [
        own
        for own in runs.values()
        if all(one.preemptible and one.priority < claim.priority for one in own) and own[0].run != claim.run
    ]
    lower.sort(key=lambda own: (max(one.priority for one in own), -max(one.granted_at for one in own), own[0].id))

    def enough(chosen: Iterable[list[SlotClaim]]) -> bool:
        out = {one.id for own in chosen for one in own}
        return claim.amount.fits(_room(claim, [one for one in claims if one.id not in out], gone=True))

    if not enough(lower):
        return []
    few = lower[:_MOST_TRIED]
    for count in range(1, 4):
        for chosen in combinations(few, count):
            if enough(chosen):
                return [one for own in chosen for one in own]
    taken: list[list[SlotClaim]] = []
    for own in lower:
        taken.append(own)
        if enough(taken):
            break
    for own in reversed(taken[:-1]):
        if enough(rest := [one for one in taken if one is not own]):
            taken = rest
    return [one for own in taken for one in own]


# ---------------------------------------------------------------------------------------------------------- reasons


def refusal(claim: SlotClaim) -> str:
    """Return why a claim can never be granted, with what would help; "" if it can."""
    found = _bound(claim)
    if found is None:
        return ""
    at, of_queue = found
    help = "Use another queue" if of_queue else _HELP[at]
    return f"{why_too_large(claim)}. {help}, fewer replicas, or lower requests."


def why_too_large(claim: SlotClaim) -> str:
    """Return why a claim can never be granted, as a clause; "" if it can."""
    found = _bound(claim)
    if found is None:
        return ""
    at, of_queue = found
    room = claim.limit if of_queue and claim.limit is not None else claim.room
    who = f"the queue {claim.queue}" if of_queue else "this machine"
    parts = f" ({claim.parts})" if claim.parts else ""
    return f"it needs {_amount(claim.amount[at], at)} at once{parts}; {who} has {_number(room[at], at)}"


def _bound(claim: SlotClaim) -> tuple[int, bool] | None:
    """Return which amount of a claim is above what there is: its place, and whether it is the queue that has less."""
    for of_queue, room in ((False, claim.room), (True, claim.limit)):
        for at, (need, most) in enumerate(zip(claim.amount, room, strict=True) if room is not None else ()):
            if need and need > most + _ROUNDING:
                return at, of_queue
    return None


_HELP: Final = (
    "To share the cores anyway: --requests ignore, --workers N",
    "To start all the same: --requests ignore",
    "To run without GPUs: --without-gpus. If there are more: gpus = N in weft.toml. Else use another machine",
)


def _why(claim: SlotClaim, claims: Sequence[SlotClaim], ahead: SlotClaim | None, blocked: Sequence[SlotClaim]) -> str:
    """Return why a claim waits, as a clause."""
    room = _room(claim, claims)
    texts = []
    full = _queue_full(claim, claims)
    where = f" in the queue {claim.queue}" if full else ""
    for at, (need, left) in enumerate(zip(claim.amount, room, strict=True)):
        if need and need > left + _ROUNDING:
            texts.append(f"needs {_amount(need, at)} at once, {_number(max(0.0, left), at)} are free{where}")
    holders: dict[str, SlotClaim] = {}
    for one in claims:
        if one.holds and one.amount.meets(claim.amount) and (not full or one.queue == claim.queue):
            known = holders.get(one.run)
            holders[one.run] = one if known is None else replace(one, amount=one.amount.plus(known.amount))
    if texts:
        texts += [_holder(one, claim) for one in list(holders.values())[:4]]
    elif ahead is not None:
        texts.append(f"fits, but {ahead.run} comes first")
    if blocked:
        last = blocked[-1]
        texts.append(f"place {len(blocked) + 1} in the queue, behind {last.run} (priority {last.priority})")
    return "; ".join(texts)


def _holder(one: SlotClaim, claim: SlotClaim) -> str:
    """Render what a run holds of the resources that a claim needs."""
    held = ", ".join(
        _amount(mine, at) if at else _number(mine, at)
        for at, (mine, need) in enumerate(zip(one.amount, claim.amount, strict=True))
        if mine and need
    )
    leaving = f" and makes room for {one.by}" if one.state == LEAVING else ""
    return f"{one.run} (priority {one.priority}) holds {held}{leaving}"


def _amount(number: float, at: int) -> str:
    unit = _UNITS[at]
    return f"{_number(number, at)} {unit.removesuffix('s') if number == 1 and at != 1 else unit}"


def _number(number: float, at: int) -> str:
    return f"{number:,.0f}" if at else f"{round(number, 3):g}"
