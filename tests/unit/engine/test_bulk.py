"""Leases that are given out and reported together: the same as leases and reports one by one."""

from random import Random
from typing import Any

import pytest

from tests.unit.engine.hand import body
from weft.engine.commands import Launch, LaunchEach, single_launches
from weft.engine.events import Done, DoneEach, Event, Failed, Started, WorkerLost, single_reports
from weft.engine.invariants import check
from weft.graph.builder import Graph, shuffle
from weft.model.failures import Failure

WORKERS = range(20)


def graph(n: int = 300) -> Graph:
    g = Graph("g")
    g.add(body, shuffle(g.add(body, n=n, name="a")), n=n, name="b")
    return g


def of_each(launches: list[Launch], rng: Random) -> DoneEach:
    """Report the ends of leases of one task."""
    times = sorted(rng.random() for _ in launches)
    return DoneEach(
        times[-1],
        [launch.lease for launch in launches],
        [launch.worker for launch in launches],
        [launch.lo for launch in launches],
        times,
        [rng.expovariate(0.1) for _ in launches],
        [rng.randrange(100) for _ in launches],
    )


def run_to_the_end(h: Any, rng: Random, *, together: bool, disturb: Any = None) -> list[object]:
    """Give all workers leases and let some end, again and again; return what the master says."""
    said: list[object] = []
    running: list[Launch] = []
    idle = list(WORKERS)
    while not h.master.over:
        commands = h.master.handle([h.idle(*idle)])
        launches = [each for each in single_launches(commands) if type(each) is Launch]
        said += [(each.lease, each.vertex, each.lo, each.hi, each.worker, each.attempt) for each in launches]
        running += launches
        assert running, "nothing runs"
        rng.shuffle(running)
        ended = [running.pop() for _ in range(rng.randint(1, len(running)))]
        reports: list[Event] = []
        if all(launch.hi - launch.lo == 1 for launch in ended):
            reports.append(of_each(ended, rng))
        else:
            reports += [Done(1.0, launch.lease, launch.hi, 10.0) for launch in ended]
        if disturb is not None:
            reports = disturb(rng, ended, reports)
        said += map(str, h.master.handle(reports if together else single_reports(reports)))
        idle = [launch.worker for launch in ended]
    check(h.core)
    return said


def repeats(rng: Random, ended: list[Launch], reports: list[Event]) -> list[Event]:
    """Report everything twice."""
    return reports * 2


def begins(rng: Random, ended: list[Launch], reports: list[Event]) -> list[Event]:
    """Report the begin of some leases before their end."""
    return [*(Started(0.5, launch.lease) for launch in ended if rng.random() < 0.1), *reports]


DISTURBED = {"nothing": None, "reports come twice": repeats, "some report their begin": begins}


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("what", DISTURBED)
def test_reports_of_each_do_what_their_reports_one_by_one_do(hand, seed, what, nodes):
    def ran(*, together: bool) -> tuple[list[object], list[float]]:
        h = hand(graph(), workers=len(WORKERS), nodes=nodes, backups=False)
        said = run_to_the_end(h, Random(seed), together=together, disturb=DISTURBED[what])
        rows = [(bytes(s.state), s.node_of, s.size_of, s.executing, s.finished) for s in h.core.stages]
        return [*said, h.job, *rows], [mean for s in h.core.stages for mean in (s.seconds, s.nbytes)]

    (said, means), (wanted, wanted_means) = ran(together=True), ran(together=False)
    assert said == wanted
    assert means == pytest.approx(wanted_means)


def test_idle_workers_get_their_leases_by_one_command(hand):
    h = hand(graph(), workers=len(WORKERS))
    (command,) = h.master.handle([h.idle(*WORKERS)])
    assert type(command) is LaunchEach
    launches = single_launches([command])
    assert [(each.vertex, each.lo, each.hi, each.worker) for each in launches] == [("a", i, i + 1, i) for i in WORKERS]
    assert [row.lo for row in h.core.leases.values()] == [each.lo for each in launches]
    assert [row.worker for row in h.core.leases.values()] == list(WORKERS)
    check(h.core)


def test_a_single_idle_worker_gets_a_plain_lease(hand):
    h = hand(graph(), workers=len(WORKERS))
    (command,) = h.master.handle([h.idle(0)])
    assert type(command) is Launch


def test_the_attempts_of_tasks_are_in_the_command(hand):
    h = hand(graph(), workers=len(WORKERS), backups=False)
    first = single_launches(h.master.handle([h.idle(*WORKERS)]))
    failed = first[3]
    why = Failed(1.0, failed.lease, failed.lo, "a", failed.lo, Failure.CRASH, "it crashed")
    h.master.handle([why])
    again = single_launches(h.master.handle([h.idle(0, 1, 2)]))
    assert {launch.lo: launch.attempt for launch in again if type(launch) is Launch} == {3: 1, 20: 0, 21: 0}


def test_a_lease_of_a_lost_worker_is_lost_alone(hand):
    h = hand(graph(), workers=len(WORKERS), backups=False)
    (each,) = h.master.handle([h.idle(*WORKERS)])
    launches = list(each.each())
    h.master.handle([WorkerLost(1.0, 7, "it is gone")])
    check(h.core)
    assert [h.rows("a")[launch.lo] for launch in launches] == ["ready" if i == 7 else "leased" for i in WORKERS]
    h.master.handle([of_each(launches, Random(1))])  # the report of the lost one comes too late
    check(h.core)
    assert [h.rows("a")[launch.lo] for launch in launches] == ["ready" if i == 7 else "finished" for i in WORKERS]
