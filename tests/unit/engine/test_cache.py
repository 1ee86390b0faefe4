"""Probing: a task with a cache key asks before it takes a slot."""

from typing import Any

from tests.unit.engine.hand import body
from weft.engine.commands import Reply
from weft.engine.events import Done, Event, JobSubmitted, Offered, OutputLost, UserEvent, WorkerJoined
from weft.engine.master import Master
from weft.engine.recovery import losses
from weft.engine.replay import Replay, Tape, Tick
from weft.graph.builder import Graph, controlled, gather
from weft.graph.logical import Range
from weft.graph.task import DECIDE
from weft.graph.validate import mark_results


def keyed(n: int = 2) -> Graph:
    g = Graph("g")
    a = g.add(body, n=n, name="a", cache_key="k")
    g.add(body, gather(a), n=1, name="b")
    return g


def test_a_hit_is_an_output_without_a_run(hand):
    h = hand(keyed())
    h.expect("probe a[0] k", "probe a[1] k")
    h(h.idle(0))
    h.expect()  # nothing is held while the cache is asked
    h(h.hit("a[0]"), h.hit("a[1]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"))
    h.expect("free a[0:2]", "complete succeeded")
    assert "taken from the cache" in "".join(h.master.inspector.story("a[0]"))


def test_a_miss_runs(hand):
    h = hand(keyed())
    h.skip()
    h(h.miss("a[1]"), h.idle(0))
    h.expect("launch a[1] on 0")
    h(h.hit("a[0]"), h.done("a[1]"), h.idle(0))
    h.expect("launch b[0] on 0")


def test_waiting_for_another_run_holds_nothing_and_ends_in_an_answer(hand):
    h = hand(keyed(1))
    h.expect("probe a[0] k")
    h(h.waiting("a[0]"), h.idle(0))
    h.expect()
    assert h.rows("a") == ["probing"]
    assert "run-7" in "".join(h.master.inspector.story("a[0]"))
    h(h.hit("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")


def test_answers_that_come_twice_or_late_change_nothing(hand):
    h = hand(keyed(1))
    h.skip()
    h(h.miss("a[0]"), h.miss("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.hit("a[0]"), h.miss("a[0]"))
    assert [line for line in h.skip() if not line.startswith("free")] == []
    assert h.rows("a") == ["leased"]


def test_a_task_is_probed_once(hand):
    h = hand(keyed(1))
    h.skip()
    h(h.miss("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.worker_lost(0), h.idle(1))
    h.expect("launch a[0] on 1, attempt 1")


def test_what_has_not_ended_when_the_owner_dies_is_asked_again(hand):
    h = hand(keyed(4))
    h.skip()
    h(h.miss("a[0]"), h.miss("a[1]"), h.hit("a[2]"), h.idle(0))
    h.expect("launch a[0] on 0")
    assert h.rows("a") == ["leased", "ready", "finished", "probing"]
    h(*losses(h.core, h.now))
    h.expect("probe a[1] k", "probe a[0] k")
    h(h.worker_joined(1), h.idle(1))
    h.expect()
    h(h.hit("a[0]"), h.miss("a[1]"), h.hit("a[3]"), h.idle(1))
    h.expect("launch a[1] on 1")


def test_inputs_lost_while_the_cache_is_asked(hand):
    g = Graph("g")
    z = g.add(body, n=1, name="z")
    g.add(body, z, name="a", cache_key="k")
    h = hand(g)
    h(h.idle(0))
    h.expect("launch z[0] on 0")
    h(h.done("z[0]"))
    h.expect("probe a[0] k")
    h(h.output_lost("z[0]"), h.idle(0))
    h.expect("launch z[0] on 0")
    h(h.miss("a[0]"), h.idle(1))
    h.expect()  # its input is not there
    h(h.done("z[0]"), h.idle(0))
    if h.rows("a") == ["probing"]:
        h.expect("probe a[0] k")
        h(h.miss("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0")


def test_a_keyed_vertex_of_which_some_hit(hand):
    h = hand(keyed(4))
    assert len(h.skip("probe")) == 4
    h(h.hit("a[1]"), h.miss("a[0]"), h.miss("a[2]"), h.hit("a[3]"), h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[2] on 1")
    assert h.rows("a") == ["leased", "finished", "leased", "finished"]


def test_nobody_asks_again_for_a_task_that_is_not_there_any_more():
    g = Graph("g")
    control = g.control(body, name="c")
    a = g.add(body, n=1, name="a")
    g.add(body, gather(a), controlled(control), n=Range(1, 2), name="b", cache_key="k").keep()
    mark_results(g)
    narrower = ("token", "parallelism", "b", 1, "")
    events: list[Event] = [
        JobSubmitted(0.0),
        WorkerJoined(0.0, 0, 0),
        UserEvent(0.0, "c", 0, "ready"),
        Offered(0.0, [0]),
        Done(0.0, 2, 1, 0.0),
        OutputLost(0.0, "a", 0, 1, "gone"),
        UserEvent(0.0, "c", 0, DECIDE, narrower),
    ]
    said: list[Any] = []

    class Heard(Master):
        def handle(self, events: Any) -> Any:
            commands = super().handle(events)
            said.extend(commands)
            return commands

    replayed = Replay(Heard(g), Tape())
    for event in events:
        replayed.feed([Tick((event,), ())])
    assert Reply("token", "") in said
    assert [type(command) for command in replayed.pending().commands] == []
