"""The points at which the core calls extensions, and which it does not reach in jobs without use for one."""

from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.core import NO_HOOKS, Hooks
from weft.engine.events import JobSubmitted, UserEvent, WorkerLost
from weft.engine.extensions.registry import Extension, combine
from weft.engine.phases import EXTENSIONS, HOOKS
from weft.engine.policy import BLAME
from weft.graph.builder import Graph, gather, one_to_one
from weft.graph.logical import Retry, Storage, VertexKind
from weft.model.failures import Failure
from weft.model.resources import Resources
from weft.policies.blame import NodeExclusion


def recorded(hand: Hand) -> list[str]:
    """Record the names of the hooks that the core of `hand` calls from now on, and call the real ones."""
    calls: list[str] = []

    def wrap(name: str, act: Any) -> Any:
        def hooked(*args: Any) -> Any:
            calls.append(name)
            return act(*args)

        return hooked

    columns = {name: getattr(HOOKS, name) for name in Hooks.__struct_fields__}
    hand.core.hooks = Hooks(**{name: tuple(wrap(name, act) for act in column) for name, column in columns.items()})
    return calls


def two() -> Graph:
    g = Graph("g")
    g.add(body, gather(g.add(body, n=2, name="a", retry=Retry(user=1))), name="b")
    return g


def to_the_end(h: Hand) -> list[str]:
    """Run tasks on worker 0 until the job ends; return the commands."""
    said: list[str] = []
    h(h.idle(0))
    while h.job == "running":
        said += (lines := h.skip())
        (name,) = [line.split()[1] for line in lines if line.startswith("launch")]
        h(h.done(name), h.idle(0))
    return said + h.skip()


def test_functions_of_all_extensions_are_called_in_order():
    calls: list[str] = []
    a = Extension("a", hooks=Hooks(edge_changed=(lambda core: calls.append("a"),)))
    b = Extension("b", hooks=Hooks(edge_changed=(lambda core: calls.append("b"),), task_retried=(print,)))
    hooks = combine([a, b])
    for changed in hooks.edge_changed:
        changed(None)  # type: ignore[arg-type]
    assert calls == ["a", "b"]
    assert hooks.task_retried == (print,)
    assert hooks.offer == ()


def test_extensions_without_hooks_add_none():
    assert combine([Extension("a"), Extension("b")]) == NO_HOOKS


def test_each_hook_has_a_function_and_each_extension_a_name_of_its_own():
    assert all(getattr(HOOKS, name) for name in Hooks.__struct_fields__), "a hook that no extension uses"
    assert len({extension.name for extension in EXTENSIONS}) == len(EXTENSIONS)


def test_two_extensions_hear_of_one_event():
    hear = [extension.name for extension in EXTENSIONS if WorkerLost in extension.before]
    assert hear == ["bubbles", "exclusion", "controllers"]
    assert [extension.name for extension in EXTENSIONS if UserEvent in extension.before] == ["control", "controllers"]


def test_a_plain_job_calls_no_hook(hand):
    h = hand(two(), workers=1)
    calls = recorded(h)
    to_the_end(h)
    assert h.job == "succeeded"
    assert calls == []


def test_a_core_without_extensions_runs_plain_jobs_and_retries(hand):
    h = hand(two(), workers=1)
    h.core.hooks = NO_HOOKS
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")
    h(h.done("a[0]"), h.idle(0))
    h.skip()
    h(h.done("a[1]"), h.idle(0))
    h.skip()
    h(h.done("b[0]"))
    assert h.skip()[-1] == "complete succeeded"


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Failure.USER, ["attempt_failed"]),
        (Failure.INFRASTRUCTURE, ["attempt_failed", "task_retried"]),
    ],
)
def test_a_retried_task_is_reported_with_its_worker_if_that_may_be_the_cause(hand, kind, wanted):
    h = hand(two(), workers=2)
    calls = recorded(h)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", kind))
    assert calls == wanted


def test_offers_go_to_the_extension_while_a_task_is_reserved(hand):
    h = hand(two(), workers=2, managers={BLAME: NodeExclusion})
    calls = recorded(h)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    assert h.core.restricted
    calls.clear()
    assert h.master.choice([0, 1]) == [1, 0]
    h(h.idle(1))
    h.expect("launch a[0] on 1, attempt 1")
    assert calls == ["choose", "offer"]
    assert not h.core.restricted
    assert h.master.choice([0, 1]) == [1]
    assert calls == ["choose", "offer"]


def streamed() -> Graph:
    g = Graph("g")
    a = g.add(body, n=1, name="a", retry=Retry(user=1))
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), name="b")
    g.bubble(a, b, name="both")
    return g


def test_a_bubble_asks_starts_and_restarts_through_hooks(hand):
    h = hand(streamed(), workers=2, submit=False)
    calls = recorded(h)
    h(JobSubmitted(0.0))
    h.expect("timer at 30", "acquire a*1, b*1")
    assert calls[:2] == ["graph_changed", "graph_changed"]
    assert set(calls[2:]) == {"bubble_due"}
    calls.clear()
    h(h.granted(a=0, b=1))
    h.expect("launch a[0] on 0", "launch b[0] on 1")
    assert calls[0] == "bubble_granted"
    assert "writer_may_wait" in calls
    calls.clear()
    h(h.failed("a[0]"))
    h.skip()
    assert calls[:3] == ["attempt_failed", "region_failed", "bubble_slot_over"]
    calls.clear()
    h(h.stopped("b[0]"))
    h.skip()
    assert calls[:2] == ["region_stopped", "bubble_slot_over"]


def test_a_request_for_one_task_needs_no_extension(hand):
    g = Graph("g")
    g.add(body, n=1, name="a", resources=Resources(cpu=2))
    h = hand(g, workers=2)
    calls = recorded(h)
    h.expect("acquire a*1 (cpu 2)")
    h(h.granted(a=0))
    h.skip()
    h(h.done("a[0]"))
    assert h.skip()[-1] == "complete succeeded"
    assert calls == []


def test_the_core_spills_streams_without_an_answer(hand):
    h = hand(streamed(), workers=2)
    h.skip()
    (link,) = h.core.links.values()
    assert h.master.inspector.spec("a").outputs[0].waits
    h.core.hooks = NO_HOOKS
    assert not h.master.inspector.spec("a").outputs[0].waits
    assert link.src.vertex.kind is VertexKind.FINITE


def test_a_vertex_with_a_cache_key_is_probed_through_a_hook(hand):
    g = Graph("g")
    g.add(body, n=1, name="a", cache_key="key")
    h = hand(g, workers=1, submit=False)
    calls = recorded(h)
    h(JobSubmitted(0.0))
    h.expect("probe a[0] key")
    h(h.miss("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0")
    assert calls == ["probe", "probe"]
    h(h.done("a[0]"))
    h.skip()
