"""The decision which claims on a machine are granted, which wait and why, and which runs make room."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from weft.runtime.claims import (
    HELD,
    LEAVING,
    OVERDUE_S,
    PATIENCE_S,
    WAITING,
    Account,
    Ledger,
    MachineShare,
    SlotClaim,
    charge,
    in_order,
    refusal,
    settle,
    why_too_large,
)

pytestmark = pytest.mark.slow

ROOM = MachineShare(cpu=4, memory=8 << 30, gpu=2)


def claim(run: str, cpu: float = 1, *, memory: int = 0, gpu: int = 0, since: float = 0.0, **more: object) -> SlotClaim:
    given = {"id": run, "run": run, "session": run, "room": ROOM, "preemptible": True, **more}
    return SlotClaim(amount=MachineShare(cpu, memory, gpu), since=since, **given)  # type: ignore[arg-type]


def settled(*claims: SlotClaim, now: float = 1.0) -> Ledger:
    return settle(Ledger(claims=claims), now)


def states(found: Ledger) -> dict[str, str]:
    return {one.run: one.state for one in found.claims}


def why(found: Ledger, id: str) -> str:
    return next(one.reason for one in found.claims if one.id == id)


def test_a_claim_is_granted_whole_or_not_at_all():
    found = settled(claim("a", 3), claim("b", 2, since=0.5))
    assert states(found) == {"a": HELD, "b": WAITING}
    assert why(found, "b") == "needs 2 cores at once, 1 are free; a (priority 0) holds 3"


def test_fractions_of_cores_add_up():
    assert set(states(settled(*(claim(f"r{i}", 0.1) for i in range(40)))).values()) == {HELD}
    assert list(states(settled(*(claim(f"r{i}", 0.1) for i in range(41)))).values()).count(WAITING) == 1


def test_each_resource_counts():
    assert states(settled(claim("a", memory=5 << 30), claim("b", memory=4 << 30, since=0.5)))["b"] == WAITING
    found = settled(claim("a", gpu=2), claim("b", gpu=1, since=0.5))
    assert why(found, "b") == "needs 1 GPU at once, 0 are free; a (priority 0) holds 1, 2 GPUs"


def test_higher_priority_goes_first_then_arrival():
    waiting = [claim("late", 4, since=2), claim("early", 4, since=1), claim("high", 4, since=3, priority=7)]
    assert states(settled(*waiting, now=4)) == {"late": WAITING, "early": WAITING, "high": HELD}
    assert states(settled(*waiting[:2], now=4)) == {"late": WAITING, "early": HELD}


def test_the_session_that_has_used_least_goes_before_an_earlier_one():
    used = {"session old": Account(100.0, 5.0)}
    ledger = Ledger(claims=(claim("old", 4, since=1), claim("new", 4, since=2)), accounts=used)
    assert states(settle(ledger, 5.0)) == {"old": WAITING, "new": HELD}


def test_what_a_user_has_used_counts_less_with_time():
    used = {"user u": Account(64.0, 0.0)}
    assert used["user u"].now(6000.0) == pytest.approx(64 / 1024)


def test_the_weight_of_a_queue_divides_its_share():
    used = {"queue slow": Account(10.0, 5.0), "queue fast": Account(15.0, 5.0)}
    claims = claim("a", 4, queue="slow", since=1), claim("b", 4, queue="fast", weight=2.0, since=2)
    assert states(settle(Ledger(claims=claims, accounts=used), 5.0)) == {"a": WAITING, "b": HELD}


def test_a_queue_holds_no_more_than_its_limit_and_keeps_no_other_queue_waiting():
    limit = MachineShare(2, 8 << 30, 2)
    small: Any = {"queue": "small", "limit": limit}
    found = settled(claim("a", 2, **small), claim("b", 1, since=0.1, **small), claim("c", 1, since=0.2), now=99)
    assert states(found) == {"a": HELD, "b": WAITING, "c": HELD}
    assert why(found, "b") == "needs 1 core at once, 0 are free in the queue small; a (priority 0) holds 2"


def test_small_claims_start_before_a_large_one_for_a_bounded_time():
    holder = claim("holder", 3, state=HELD, preemptible=False)
    waiting = claim("gang", 4, since=1.0), claim("small", 1, since=2.0)
    assert states(settled(holder, *waiting, now=2.0))["small"] == HELD
    found = settled(holder, *waiting, now=1.0 + PATIENCE_S)
    assert states(found)["small"] == WAITING
    assert "fits, but gang comes first" in why(found, "small")


def test_what_needs_other_resources_is_not_kept_waiting():
    holder = claim("holder", 3, state=HELD, preemptible=False)
    found = settled(holder, claim("gang", 4, since=1.0), claim("gpu", 0, gpu=1, since=2.0), now=1000.0)
    assert states(found)["gpu"] == HELD


def test_a_claim_that_has_waited_very_long_goes_before_smaller_shares():
    used = {"session old": Account(1e6, 0.0)}
    claims = claim("old", 4, since=0.0), claim("new", 4, since=OVERDUE_S - 1)
    assert states(settle(Ledger(claims=claims, accounts=used), OVERDUE_S))["old"] == HELD


def test_a_higher_claim_tells_the_lowest_and_youngest_runs_to_leave():
    holders = [
        claim("low old", 2, state=HELD, priority=1, granted_at=1),
        claim("low young", 1, state=HELD, priority=1, granted_at=2),
        claim("mid", 1, state=HELD, priority=5, granted_at=3),
    ]
    found = settled(*holders, claim("high", 1, priority=9))
    assert states(found) == {"low old": HELD, "low young": LEAVING, "mid": HELD, "high": WAITING}
    assert why(found, "high") == (
        "needs 1 core at once, 0 are free; low old (priority 1) holds 2; "
        "low young (priority 1) holds 1 and makes room for high; mid (priority 5) holds 1"
    )


def test_the_fewest_runs_leave():
    holders = [claim(f"one{i}", 1, state=HELD, granted_at=9.0) for i in range(2)]
    found = settled(*holders, claim("two", 2, state=HELD, granted_at=1.0), claim("high", 2, priority=9))
    assert [run for run, state in states(found).items() if state == LEAVING] == ["two"]


def test_no_more_runs_leave_while_enough_are_leaving():
    first = settled(claim("a", 2, state=HELD), claim("b", 2, state=HELD), claim("high", 2, priority=9))
    assert settle(first, 2.0).claims == first.claims


def test_nobody_leaves_for_a_claim_of_the_same_priority_or_in_vain():
    assert states(settled(claim("a", 4, state=HELD), claim("b", 4)))["a"] == HELD
    fixed = claim("fixed", 2, state=HELD, preemptible=False)
    assert states(settled(fixed, claim("a", 2, state=HELD), claim("high", 4, priority=9)))["a"] == HELD


def test_nothing_lower_starts_in_the_room_that_is_being_made():
    found = settled(claim("low", 3, state=HELD), claim("high", 4, priority=9, since=0.5), claim("other", 1, since=0.6))
    assert states(found) == {"low": LEAVING, "high": WAITING, "other": WAITING}
    left = replace(found, claims=tuple(one for one in found.claims if one.run != "low"))
    assert states(settle(left, 2.0)) == {"high": HELD, "other": WAITING}


def test_a_run_gets_its_claims_in_order():
    first, second = claim("a", 4, id="a/1", since=1), claim("a", 1, id="a/2", since=2)
    found = settled(claim("b", 2, state=HELD), first, second, now=3)
    assert why(found, "a/2") == "waits behind an earlier request of its run"


def test_a_claim_that_never_fits_is_refused_with_the_arithmetic():
    assert refusal(claim("a", 4)) == ""
    assert refusal(claim("a", 6, parts="3 of worker, each 2 cores")) == (
        "it needs 6 cores at once (3 of worker, each 2 cores); this machine has 4. "
        "To share the cores anyway: --requests ignore, --workers N, fewer replicas, or lower requests."
    )
    assert why_too_large(claim("a", 6)) == "it needs 6 cores at once; this machine has 4"
    assert "needs 3 GPUs at once; this machine has 2" in refusal(claim("a", gpu=3))
    limit = MachineShare(2, 0, 0)
    assert "the queue slow has 2. Use another queue" in refusal(claim("a", 3, queue="slow", limit=limit))
    assert why_too_large(claim("a", 2, queue="slow", limit=limit)) == ""


# ------------------------------------------------------------------------------------------------------- simulation


def arrivals(draw: random.Random, count: int) -> list[tuple[SlotClaim, float]]:
    """Return claims in order of arrival with the seconds that each runs."""
    now, found = 0.0, []
    for number in range(count):
        now += draw.expovariate(1 / 5)
        amount = MachineShare(
            draw.choice([0.5, 1, 2, 3, 4]), draw.choice([0, 1 << 30, 6 << 30]), draw.choice([0, 0, 1])
        )
        one = SlotClaim(
            id=f"r{number}",
            run=f"r{number}",
            session=f"s{draw.randrange(4)}",
            user=f"u{draw.randrange(2)}",
            amount=amount,
            room=ROOM,
            priority=draw.choice([0, 0, 0, 5, 9]),
            preemptible=draw.random() < 0.8,
            since=now,
        )
        found.append((one, draw.uniform(1, 60)))
    return found


def held(ledger: Ledger) -> MachineShare:
    total = MachineShare()
    for one in ledger.claims:
        if one.state != WAITING:
            total = total.plus(one.amount)
    return total


@pytest.mark.parametrize("seed", range(40))
def test_many_jobs_share_a_machine(seed):
    """Jobs of random sizes and priorities: never overcommitted, never a part, all end, the highest first."""
    print(f"seed {seed}")
    draw = random.Random(seed)
    coming, left = arrivals(draw, 60), dict[str, float]()
    ends, leaves = dict[str, float](), dict[str, float]()
    ledger, now = Ledger(), 0.0
    done: set[str] = set()
    while coming or ledger.claims:
        events = [coming[0][0].since] if coming else []
        events += [*ends.values(), *leaves.values()]
        assert events, f"nothing happens any more at {now}: {ledger.claims}"
        now = max(now, min(events))
        claims = {one.id: one for one in ledger.claims}
        while coming and coming[0][0].since <= now:
            one, left[one.id] = coming.pop(0)
            claims[one.id] = one
        for id in [id for id, at in ends.items() if at <= now]:
            del ends[id], claims[id]
            leaves.pop(id, None)
            done.add(id)
        for id in [id for id, at in leaves.items() if at <= now]:  # suspended: it waits again
            left[id], claims[id] = ends.pop(id) - now, replace(claims[id], state=WAITING, by="")
            del leaves[id]
        before = replace(ledger, claims=tuple(claims.values()))
        ledger = settle(before, now)
        first = next((one for one in in_order(charge(before, now), now)), None)
        if first is not None and first.amount.fits(ROOM.minus(held(before))):
            assert next(one.state for one in ledger.claims if one.id == first.id) == HELD
        assert held(ledger).fits(ROOM)
        for one in ledger.claims:
            assert one.amount == claims[one.id].amount
            if one.state == HELD and one.id not in ends:
                ends[one.id] = now + left[one.id]
            elif one.state == LEAVING and one.id not in leaves:
                assert one.preemptible
                leaves[one.id] = now + draw.uniform(0, 3)
    assert len(done) == 60


def devices_of(found: Ledger, id: str) -> tuple[str, ...]:
    return next(one.held for one in found.claims if one.id == id)


def test_each_claim_holds_devices_of_its_own():
    four: dict[str, Any] = {"devices": ("0", "1", "2", "3"), "room": MachineShare(4, 8 << 30, 4)}
    first = settled(claim("a", gpu=2, **four), claim("b", gpu=1, since=0.5, **four), claim("none", since=0.6, **four))
    assert (devices_of(first, "a"), devices_of(first, "b"), devices_of(first, "none")) == (("0", "1"), ("2",), ())
    left = replace(first, claims=tuple(one for one in first.claims if one.id != "a"))
    later = settle(replace(left, claims=(*left.claims, claim("c", gpu=3, since=1.0, **four))), 2.0)
    assert (devices_of(later, "b"), devices_of(later, "c")) == (("2",), ("0", "1", "3"))
    waiting = settle(replace(later, claims=(*later.claims, claim("d", gpu=1, since=3.0, **four))), 4.0)
    assert "needs 1 GPU at once, 0 are free" in why(waiting, "d")


def test_runs_that_see_different_devices_do_not_wait_for_each_other():
    low: dict[str, Any] = {"devices": ("0", "1"), "room": MachineShare(4, 8 << 30, 2)}
    high: dict[str, Any] = {"devices": ("1", "2"), "room": MachineShare(4, 8 << 30, 2)}
    found = settled(
        claim("a", gpu=2, **low), claim("b", gpu=2, since=0.5, **high), claim("c", gpu=1, since=0.6, **high)
    )
    assert (states(found)["b"], devices_of(found, "c")) == (WAITING, ("2",))


def test_random_claims_never_hold_one_device_twice():
    rng = random.Random(7)
    for _ in range(50):
        ledger, names = Ledger(), tuple(map(str, range(rng.randint(1, 6))))
        for step in range(30):
            room = MachineShare(4, 8 << 30, len(names))
            new = claim(f"r{step}", 0, gpu=rng.randint(0, len(names)), since=step, devices=names, room=room)
            kept = [one for one in ledger.claims if rng.random() < 0.8]
            ledger = settle(replace(ledger, claims=(*kept, new)), float(step))
            used = [name for one in ledger.claims if one.holds for name in one.held]
            assert len(used) == len(set(used))
            assert all(len(one.held) == (one.amount.gpu if one.holds else 0) for one in ledger.claims)
