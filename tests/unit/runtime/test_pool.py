"""The pool: all or nothing, fair between jobs, FIFO inside, and nothing given twice or lost."""

import random

import pytest

from weft.engine.ports import WorkerSpec
from weft.engine.provider import NodeKind, NodeSpec
from weft.model.resources import Placement, Resources
from weft.runtime.pool import AVOID_S, KEEP_BACK_S, Pool

ONE = (Resources(),)
ALTERNATIVES = [ONE, (Resources(cpu=2),), (Resources(memory=50), Resources(gpu=1))]


def nodes_of(workers: list[WorkerSpec], resources: Resources | dict[int, Resources] | None = None) -> list[NodeSpec]:
    found: dict[int, NodeSpec] = {}
    for worker, node, name, party in workers:
        given = resources.get(node) if isinstance(resources, dict) else resources
        spec = found.get(node) or NodeSpec(node, name, party, (), given or Resources())
        found[node] = spec._replace(workers=(*spec.workers, worker))
    return list(found.values())


def pool(workers: int = 4, *, nodes: int = 1, capacity: Resources | None = None) -> Pool:
    made = Pool(
        nodes_of([WorkerSpec(w, w * nodes // workers, f"node{w * nodes // workers}") for w in range(workers)], capacity)
    )
    for job in ("x", "y", "z"):
        made.join(job)
    return made


def want(count: int, *alternatives: Resources, placement: Placement | None = None, vertex: str = "v"):
    return ((vertex, count, alternatives or ONE, placement),)


def workers(met) -> list[list[int]]:
    return [sorted(worker for _, worker, _ in slots) for _, _, slots in met]


# -------------------------------------------------------------------------------------------------------- offers


def test_the_worker_that_was_used_last_is_offered_last_in_the_list_and_so_taken_first():
    p = pool(3)
    assert p.offer(0.0) == [0, 1, 2]
    p.take([1], "x")
    assert p.offer(0.0) == [0, 2]
    p.free([1])
    assert p.offer(0.0) == [0, 2, 1]
    assert p.idle == 3


def test_what_a_job_holds_is_counted():
    p = pool(3)
    p.take([0], "x")
    p.take([1], "x")
    p.take([2], "y")
    assert p.held == {"x": 2, "y": 1, "z": 0}
    p.free([0])
    p.free([0])  # said twice
    assert p.held == {"x": 1, "y": 1, "z": 0}


def test_a_job_that_leaves_gives_back_all():
    p = pool(4)
    p.take([3], "x")
    assert p.request("x", 1, want(2), ()) == ""
    assert len(p.grant()) == 1
    assert p.request("x", 2, want(4), ()) == ""
    p.leave("x")
    assert (p.idle, p.waiting, p.grant()) == (4, [], [])
    assert "x" not in p.held


# ------------------------------------------------------------------------------------------------------ requests


def test_a_gang_gets_all_or_nothing():
    p = pool(4)
    p.take([3], "y")
    assert p.request("x", 1, (*want(2, vertex="a"), *want(2, vertex="b")), ()) == ""
    assert p.grant() == []
    assert p.idle == 3  # nothing was taken on the way
    p.free([3])
    ((job, request, slots),) = p.grant()
    assert (job, request, [slot[0] for slot in slots]) == ("x", 1, ["a", "a", "b", "b"])
    assert sorted(worker for _, worker, _ in slots) == [0, 1, 2, 3]
    assert (p.idle, p.held["x"]) == (0, 4)


def test_a_gang_is_not_starved_by_small_tasks():
    p = pool(2)
    p.take([0], "y")
    p.request("x", 1, want(2), ())
    assert p.grant() == []
    assert p.offer(0.0) == []  # worker 1 is kept for the gang
    p.free([0])
    assert workers(p.grant()) == [[0, 1]]


def test_workers_are_kept_back_for_a_while_only():
    # Who holds the other slots may wait for the plain tasks: a service ends when its consumers have.
    p = pool(2)
    p.take([0], "y")
    p.request("x", 1, want(2), (), 10.0)
    assert (p.offer(10.0), p.offer(10.0 + KEEP_BACK_S / 2)) == ([], [])
    assert p.offer(10.0 + KEEP_BACK_S) == [1]


def test_workers_are_kept_back_where_the_request_could_use_them():
    p = pool(2, nodes=2)
    p.take([1], "y")
    p.request("x", 1, want(1, placement=Placement(node="node1")), ())
    assert p.grant() == []
    assert p.offer(0.0) == [0]


def test_workers_are_not_kept_back_for_what_waits_for_memory():
    p = pool(2, capacity=Resources(memory=100))
    p.request("x", 1, want(1, Resources(memory=80)), ())
    assert len(p.grant()) == 1
    p.request("x", 2, want(1, Resources(memory=80)), ())
    assert p.grant() == []
    assert len(p.offer(0.0)) == 1


def test_requests_of_a_job_are_met_in_order():
    p = pool(2)
    p.take([0], "y")
    p.request("x", 1, want(2), ())
    p.request("x", 2, want(1), ())
    assert p.grant() == []  # the second could be met, but waits its turn
    p.free([0])
    assert [met[1] for met in p.grant()] == [1]
    p.release("x", 1, 0)
    assert [met[1] for met in p.grant()] == [2]


def test_the_job_that_holds_least_is_served_first():
    p = pool(4)
    p.take([0], "x")
    p.take([1], "x")
    p.take([2], "y")
    for job in ("x", "y", "z"):
        p.request(job, 1, want(1), ())
    assert [met[0] for met in p.grant()] == ["z"]
    p.free([0])
    assert [met[0] for met in p.grant()] == ["x"] or p.held["y"] == 2
    p.free([1])
    assert len(p.grant()) == 1
    assert not p.waiting


def test_the_first_alternative_that_can_be_had_is_taken():
    p = pool(4, nodes=2, capacity=Resources(gpu=1))
    gpu_or_cores = (Resources(gpu=1), Resources(cpu=2))
    for request in (1, 2, 3):
        assert p.request("x", request, want(1, *gpu_or_cores), ()) == ""
    taken = {request: slots[0][2] for _, request, slots in p.grant()}
    assert taken == {1: 0, 2: 0}  # both GPUs; two workers are left, but on two nodes
    p.release("x", 1, next(worker for (job, request, worker) in p._granted if request == 1))
    assert {request: slots[0][2] for _, request, slots in p.grant()} == {3: 0}


def test_cores_come_from_one_node():
    p = pool(4, nodes=2)
    p.take([0], "y")
    assert p.request("x", 1, want(1, Resources(cpu=2)), ()) == ""
    ((_, _, ((_, worker, _),)),) = p.grant()
    assert worker in (2, 3)
    assert (p.idle, p.held["x"]) == (1, 2)
    p.release("x", 1, worker)
    assert (p.idle, p.held["x"]) == (3, 0)


def test_memory_and_gpus_of_a_node_are_counted():
    p = pool(4, capacity=Resources(memory=100, gpu=2, gpu_type="h200"))
    for request in (1, 2, 3):
        assert p.request("x", request, want(1, Resources(memory=40, gpu=1, gpu_type="h200")), ()) == ""
    assert [request for _, request, _ in p.grant()] == [1, 2]
    p.release("x", 1, next(worker for _, request, worker in p._granted if request == 1))
    assert [request for _, request, _ in p.grant()] == [3]


def test_custom_resources_of_a_node_are_counted():
    licence = Resources(custom=(("licence", 0.5),))
    p = Pool([NodeSpec(0, "a", "", (0, 1, 2), Resources(custom=(("licence", 1.0),))), NodeSpec(1, "b", "", (3,))])
    p.join("x")
    for request in (1, 2, 3):
        assert p.request("x", request, want(1, licence), ()) == ""
    assert [request for _, request, _ in p.grant()] == [
        1,
        2,
    ]  # one more core is idle at the node, and another elsewhere
    p.release("x", 1, next(worker for _, request, worker in p._granted if request == 1))
    assert [request for _, request, _ in p.grant()] == [3]
    reason = p.request("x", 4, want(1, Resources(custom=(("licence", 2.0),))), ())
    assert reason == "v asks for cpu 1, licence 2 for one task; no node has that much"
    assert p.request("x", 5, want(1, licence), (), bound=[worker for _, _, worker in p._granted]) != ""
    assert [dict(each.custom) for each in p.capacity()] == [{"licence": 1.0}, {}]


def test_placement():
    p = pool(4, nodes=2)
    for request in (1, 2, 3):
        assert p.request("x", request, want(1, placement=Placement(node="node1")), ()) == ""
    assert [met[1] for met in p.grant()] == [1, 2]
    assert {worker for _, _, worker in p._granted} == {2, 3}


def test_parties():
    p = Pool(nodes_of([WorkerSpec(0, 0, "h", "host"), WorkerSpec(1, 1, "g", "guest")]))
    p.join("x")
    p.request("x", 1, want(1, placement=Placement(party="guest")), ())
    assert workers(p.grant()) == [[1]]


def test_workers_to_avoid_are_avoided_while_there_is_another():
    p = pool(2)
    p.request("x", 1, want(1), (1,))
    assert workers(p.grant()) == [[0]]
    p.request("x", 2, want(1), (1,))
    assert p.grant() == []  # it waits for worker 0
    p.release("x", 1, 0)
    assert workers(p.grant()) == [[0]]
    p.request("x", 3, want(1), (0, 1))
    assert workers(p.grant()) == [[1]]  # there is nobody else


def test_a_gang_that_needs_all_workers_avoids_none():
    p = pool(4)
    p.request("x", 1, want(3), (1,))
    assert sorted(workers(p.grant())[0]) == [0, 2, 3]
    p = pool(4)
    p.request("x", 1, (*want(3), *want(1, vertex="b")), (1,))
    assert len(p.grant()) == 1


@pytest.mark.parametrize("since", [5.0, 25.928152230232318])  # of the second, what was added is not the difference
def test_nobody_waits_for_ever_for_a_better_worker(since):
    p = pool(2)
    p.request("x", 1, want(1), (1,))
    assert workers(p.grant()) == [[0]]
    p.request("x", 2, want(1), (1,), since)
    assert p.grant(since + 0.99 * AVOID_S) == []
    assert workers(p.grant(since + AVOID_S)) == [[1]]


@pytest.mark.parametrize(
    ("wants", "says"),
    [
        (want(5), "it needs 5 slots at once; the session has 4"),
        ((*want(2, vertex="a"), *want(3, vertex="b")), "it needs 5 slots at once; the session has 4"),
        (want(1, Resources(cpu=3)), "v asks for cpu 3 for one task; no node has that much"),
        (want(1, Resources(memory=101)), "v asks for cpu 1, memory 101 bytes for one task; no node has that much"),
        (want(1, Resources(gpu=1), Resources(cpu=9)), "cpu 1, gpu 1 or cpu 9"),
        (want(1, placement=Placement(node="elsewhere")), "there is no such node"),
        (want(3, Resources(cpu=2)), "it needs 6 slots at once; the session has 4"),
    ],
)
def test_what_can_never_be_had_is_refused_at_once(wants, says):
    p = pool(4, nodes=2, capacity=Resources(memory=100))
    assert says in p.refusal(wants)
    assert says in p.request("x", 1, wants, ())
    assert not p.waiting


@pytest.mark.parametrize(
    ("wants", "says"),
    [
        (
            want(1, placement=Placement(node="node0")),
            "v asks for cpu 1 for one task on node0; no node has that much left",
        ),
        (want(1, Resources(cpu=2)), "no node has that much left besides the tasks that run until its end"),
        (want(1, Resources(gpu=1)), "no node has that much left"),
        (want(1, Resources(memory=41)), "no node has that much left"),
        (want(2), "it needs 2 slots at once; the session has 1 left besides the tasks"),
        (want(1, Resources(memory=40)), ""),
        (want(1), ""),
    ],
)
def test_what_can_never_be_had_beside_the_services_that_wait_for_it_is_refused(wants, says):
    nodes = {0: Resources(memory=100, gpu=1), 1: Resources(memory=100)}
    p = Pool(nodes_of([WorkerSpec(at, at // 2, f"node{at // 2}") for at in range(4)], nodes))
    p.join("x")
    assert p.request("x", 1, want(1, Resources(cpu=2, memory=30, gpu=1)), ()) == ""
    assert p.request("x", 2, want(1, Resources(memory=60), placement=Placement(node="node1")), ()) == ""
    bound = [slots[0][1] for _, _, slots in p.grant()]
    assert len(bound) == 2
    assert p.request("x", 3, wants, (), 0.0) == ""
    p.withdraw("x", 3)
    told = p.request("x", 4, wants, (), 0.0, [*bound, 99])
    assert says in told
    assert bool(says) == bool(told)


def test_a_service_that_was_offered_a_worker_binds_it():
    p = pool(2)
    p.take([0], "x")
    assert "no node has that much left" in p.request("x", 1, want(1, Resources(cpu=2)), (), 0.0, [0])


def test_where_memory_is_not_counted_it_is_never_refused():
    assert pool(1).request("x", 1, want(1, Resources(memory=10**15)), ()) == ""


def test_a_request_that_is_withdrawn_is_not_met():
    p = pool(2)
    p.take([0], "y")
    p.request("x", 1, want(2), ())
    p.withdraw("x", 1)
    p.withdraw("x", 1)
    p.free([0])
    assert p.grant() == []
    assert p.offer(0.0) == [1, 0]


# -------------------------------------------------------------------------------------------------- lost workers


def test_a_lost_worker_is_gone_with_what_it_held():
    p = pool(3, capacity=Resources(memory=100))
    p.take([0], "y")
    p.request("x", 1, want(1, Resources(memory=60)), ())
    ((_, _, ((_, worker, _),)),) = p.grant()
    p.lose(worker)
    p.lose(worker)
    p.lose(0)
    p.lose(99)
    assert (p.idle, p.held) == (1, {"x": 0, "y": 0, "z": 0})
    p.release("x", 1, worker)  # late
    p.free([0])
    assert p.idle == 1
    p.request("x", 2, want(1, Resources(memory=100)), ())
    assert len(p.grant()) == 1  # its memory is back


def test_a_worker_that_is_being_replaced_is_waited_for():
    p = pool(2)
    p.lose(0)
    assert "no node has that much" in p.request("x", 1, want(1, Resources(cpu=2)), ())
    assert "it needs 2 slots" in p.request("x", 2, want(2), ())
    p.add(WorkerSpec(2, 0, "node0"))
    p.lose(1, replaced=True)
    assert p.capacity() == [Resources(cpu=2)]
    assert p.request("x", 3, want(1, Resources(cpu=2)), ()) == ""
    assert p.grant() == []
    p.add(WorkerSpec(3, 0, "node0"))
    assert p.capacity() == [Resources(cpu=2)]
    assert [number for _, number, _ in p.grant()] == [3]


def test_cores_beside_a_lost_worker_come_back():
    p = pool(4)
    p.request("x", 1, want(1, Resources(cpu=3)), ())
    ((_, _, ((_, worker, _),)),) = p.grant()
    assert p.idle == 1
    p.lose(worker)
    assert (p.idle, p.held["x"]) == (3, 0)


def test_a_worker_that_comes_is_idle_and_counts():
    p = pool(1)
    assert "slots at once" in p.request("x", 1, want(2), ())
    p.add(WorkerSpec(7, 0, "node0"))
    assert p.request("x", 2, want(2), ()) == ""
    assert workers(p.grant()) == [[0, 7]]
    assert [r.cpu for r in p.capacity()] == [2]


# ------------------------------------------------------------------------------------------------------ property


def test_nothing_is_given_twice_or_lost(seed):
    rng = random.Random(seed)
    for _ in range(150):
        nodes = rng.randint(1, 3)
        p = pool(rng.randint(nodes, 7), nodes=nodes, capacity=rng.choice([None, Resources(memory=100, gpu=1)]))
        alive = set(p._node_of)
        taken: dict[int, str] = {}
        granted: dict[tuple[str, int, int], int] = {}
        asked = 0
        for _ in range(60):
            what = rng.random()
            job = rng.choice("xyz")
            if what < 0.25:
                asked += 1
                p.request(
                    job, asked,
                    tuple(
                        (v, rng.randint(1, 2), rng.choice(ALTERNATIVES), None)
                        for v in "ab"[: rng.randint(1, 2)]
                    ),
                    rng.sample(sorted(alive), k=min(len(alive), rng.randint(0, 2))),
                )  # fmt: skip
            elif what < 0.45 and p.offer(0.0):
                worker = p.offer(0.0)[-1]
                p.take([worker], job)
                assert worker in alive
                assert worker not in taken
                taken[worker] = job
            elif what < 0.6 and taken:
                worker = rng.choice(sorted(taken))
                p.free([worker])
                del taken[worker]
            elif what < 0.8 and granted:
                key = rng.choice(sorted(granted))
                p.release(*key)
                del granted[key]
            elif what < 0.86 and len(alive) > 1:
                worker = rng.choice(sorted(alive))
                p.lose(worker)
                alive.discard(worker)
                taken.pop(worker, None)
                granted = {key: cores for key, cores in granted.items() if key[2] != worker}
            elif what < 0.92:
                new = max([*alive, 0]) + 1 + rng.randint(0, 5)
                p.add(WorkerSpec(new, rng.randrange(nodes), "node"))
                alive.add(new)
            elif what < 0.94:
                p.leave(job)
                p.join(job)
                taken = {w: j for w, j in taken.items() if j != job}
                granted = {key: cores for key, cores in granted.items() if key[0] != job}
            for owner, request, slots in p.grant():
                for _, worker, _ in slots:
                    assert worker in alive
                    assert worker not in taken
                    granted[(owner, request, worker)] = 1
            held = dict.fromkeys("xyz", 0)
            beside = [w for what in p._granted.values() for w in what.siblings if w in alive]
            for owner in taken.values():
                held[owner] += 1
            for (owner, _, _), slot in p._granted.items():
                held[owner] += 1 + len(slot.siblings)
            assert p.held == held
            assert set(p._granted) == set(granted)
            everyone = [*p._idle, *taken, *(key[2] for key in granted), *beside]
            assert sorted(everyone) == sorted(alive), "each worker is in one place"
            assert p.reserved == {key[2] for key in granted}
            for number, node in p._nodes.items():
                used = [slot for slot in p._granted.values() if slot.node == number]
                assert node.memory_free == node.memory - sum(slot.memory for slot in used)
                assert 0 <= node.gpu_free == node.gpu - sum(slot.gpu for slot in used)
                assert not node.memory or node.memory_free >= 0


# -------------------------------------------------------------------------------------- nodes that come and go


def test_what_could_still_be_had_waits_and_says_why():
    p = Pool(nodes_of([WorkerSpec(0), WorkerSpec(1)]), lambda: [NodeKind(4, limit=1)])
    p.join("x")
    assert p.request("x", 1, want(5), ()) == ""
    assert p.grant() == []
    (waiting,) = p.unmet()
    assert waiting.lacking == "it needs 5 slots at once; the session has 2"
    assert p.unmet() == []  # the provider hears of each once
    assert p.request("x", 2, want(7), ()) == "it needs 7 slots at once; the session has 6"
    assert p.request("x", 3, want(1, Resources(gpu=1)), ()).endswith("no node has that much")
    p.add_node(NodeSpec(1, "late", "", (10, 11, 12, 13)))
    assert [len(slots) for _, _, slots in p.grant()] == [5]


def test_what_is_only_busy_lacks_nothing():
    p = pool(2)
    p.take([0], "y")
    p.request("x", 1, want(2), ())
    assert p.grant() == []
    assert [request.lacking for request in p.unmet()] == [""]


def test_memory_and_gpus_of_a_late_node_count():
    p = Pool(nodes_of([WorkerSpec(0)], Resources(memory=10)), lambda: [NodeKind(1, Resources(memory=100, gpu=2))])
    p.join("x")
    p.request("x", 1, want(1, Resources(memory=80, gpu=2)), ())
    assert p.grant() == []
    p.add_node(NodeSpec(7, "late", "", (5,), Resources(memory=100, gpu=2)))
    assert workers(p.grant()) == [[5]]
    p.request("x", 2, want(1, Resources(memory=80)), ())
    assert p.grant() == []  # it is taken
    p.release("x", 1, 5)
    assert workers(p.grant()) == [[5]]


def test_a_draining_node_gives_nothing_and_ends_when_its_work_is_done():
    p = pool(4, nodes=2)
    p.request("x", 1, want(1, placement=Placement(node="node1")), ())
    ((granted,),) = workers(p.grant())
    p.take([0], "y")
    p.drain(1)
    assert p.left == [(5 - granted, "node1")]
    assert p.offer(0.0) == [1]
    assert p.empty == []  # something runs there
    assert p.request("x", 2, want(3), ()) == "it needs 3 slots at once; the session has 2"
    p.release("x", 1, granted)
    assert (p.left[1:], p.empty, p.offer(0.0)) == ([(granted, "node1")], [1], [1])
    p.lose_node(1)
    p.free([0])
    assert p.offer(0.0) == [1, 0]


def test_plain_work_on_a_draining_node_is_not_lost():
    p = pool(2, nodes=2)
    p.take([1], "x")
    p.drain(1)
    assert (p.idle, p.left, p.empty) == (1, [], [])
    p.free([1])
    assert (p.left, p.empty, p.held["x"]) == ([(1, "node1")], [1], 0)


def test_what_waits_is_hopeless_once_no_node_could_do():
    more = [NodeKind(2, limit=1)]
    p = Pool(nodes_of([WorkerSpec(0), WorkerSpec(1)]), lambda: more)
    p.join("x")
    p.request("x", 1, want(4), ())
    p.unmet()
    assert p.hopeless() == []
    more.clear()
    assert p.hopeless() == [("x", 1, "it needs 4 slots at once; the session has 2")]
    assert (p.waiting, p.returned) == ([], [("x", 1)])


def test_the_provider_gets_a_request_back_when_its_last_slot_is_free():
    p = pool(2)
    p.take([0], "y")
    p.request("x", 1, want(2), ())
    p.grant()
    p.unmet()
    p.free([0])
    assert len(p.grant()) == 1
    p.release("x", 1, 0)
    assert p.returned == []
    p.release("x", 1, 1)
    assert p.returned == [("x", 1)]


def test_what_graphs_are_checked_against_has_the_nodes_that_could_join():
    p = Pool(nodes_of([WorkerSpec(0)]), lambda: [NodeKind(8, Resources(memory=7, gpu=1, gpu_type="a"), limit=2)])
    assert p.capacity() == [Resources(cpu=1), Resources(cpu=8, memory=7, gpu=1, gpu_type="a")]
    assert p.most_slots() == 17


# -------------------------------------------------------------------------------------------------------- reasons


def test_a_request_that_does_not_fit_now_says_what_is_free_and_who_holds_the_rest():
    p = pool(4, nodes=2, capacity=Resources(memory=100, gpu=1))
    p.take([0], "y")
    p.request("z", 1, want(1, Resources(memory=70)), [])
    assert len(p.grant()) == 1
    p.take([2], "x")
    p.request("x", 1, want(1, Resources(cpu=2)), [])
    assert p.grant() == []
    p.request("x", 2, want(2, Resources(gpu=1), vertex="w"), [])
    told = p.why_not("x", 1, 0.0)
    assert told.startswith(
        "does not fit now; free: node0 0 of 2 slots, 30 of 100 bytes, 1 of 1 GPUs; node1 1 of 2 slots"
    )
    assert "z holds 1" in told
    assert "y holds 1" in told
    assert "this run holds 1" in told
    assert told.endswith("the run with the fewest slots is served first")
    behind = p.why_not("x", 2, 0.0)
    assert behind.startswith("waits behind an earlier request of this run, for 1 x v (cpu 2); free:")
    assert p.why_not("x", 9, 0.0) == ""


def test_a_request_that_nodes_must_join_for_says_so():
    p = Pool(nodes_of([WorkerSpec(0, 0, "node0")]), lambda: [NodeKind(4, name="big", limit=1)])
    p.join("x")
    assert p.request("x", 1, want(1, Resources(cpu=3)), []) == ""
    assert p.why_not("x", 1, 0.0).startswith("waits for nodes to join: v asks for cpu 3 for one task; no node has")


def test_a_request_that_avoids_workers_says_which_and_how_long():
    p = pool(2)
    p.take([1], "y")
    p.request("x", 1, want(1), [0])
    assert p.grant(1.0) == []
    assert (
        p.why_not("x", 1, 5.0) == f"waits up to {AVOID_S - 5:g} s for other workers than 0, on which tasks have failed"
    )


def test_plain_work_without_a_worker():
    p = pool(2)
    assert p.why_no_worker("x", 0.0) == ""
    p.request("y", 1, want(1, Resources(cpu=2), vertex="w"), [])
    p.take([0], "z")
    assert p.grant(0.0) == []
    kept = p.why_no_worker("x", 1.0)
    assert kept.startswith(f"the idle workers of node0 are kept for up to {KEEP_BACK_S - 1:g} s for 1 x w (cpu 2) of y")
    p.take([1], "x")
    assert p.why_no_worker("x", 1.0).startswith("no worker is idle; free: node0 0 of 2 slots; ")
