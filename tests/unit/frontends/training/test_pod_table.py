"""The pods that a controller keeps between calls: what changed is made anew, and all after another memo."""

from types import SimpleNamespace

from weft.frontends.training.observed import PENDING, RUNNING, Pod
from weft.frontends.training.pod_table import PodTable


def pod(index: int, phase: str = PENDING) -> Pod:
    return Pod(type="Worker", index=index, phase=phase)


class Calls:
    """A table, and the indices that it asked for."""

    def __init__(self) -> None:
        self.table: PodTable[str] = PodTable()
        self.asked: list[int] = []
        self.phases: dict[int, str | None] = dict.fromkeys(range(4), PENDING)

    def take(self, memo, *changed: int) -> str:
        return self.table.take(memo, [SimpleNamespace(vertex="w", index=index) for index in changed], lambda: "new")

    def pods(self) -> list[Pod]:
        self.asked = []

        def make(index: int) -> Pod | None:
            self.asked.append(index)
            phase = self.phases[index]
            return pod(index, phase) if phase else None

        return list(self.table.pods_of("w", 4, make))


def test_a_call_with_the_last_memo_looks_at_what_changed_alone():
    calls, memo = Calls(), {"a": 1}
    assert calls.take(None) == "new"
    assert [one.index for one in calls.pods()] == [0, 1, 2, 3] == calls.asked
    calls.table.touch("w", 2)
    calls.table.keep(memo, "kept")
    calls.phases |= {0: None, 1: RUNNING}
    assert calls.take(memo, 0, 1) == "kept"
    assert calls.pods() == [pod(1, RUNNING), pod(2), pod(3)]
    assert sorted(calls.asked) == [0, 1, 2], "what changed, and what the call before decided about"
    calls.table.keep(memo, "kept")
    calls.phases[0] = RUNNING
    assert calls.take(memo, 0) == "kept"
    assert [one.index for one in calls.pods()] == [0, 1, 2, 3], "in the order of the indices"


def test_another_memo_makes_all_anew_even_if_it_is_equal():
    calls, memo = Calls(), {"a": 1}
    calls.take(None)
    calls.pods()
    calls.table.keep(memo, "kept")
    assert calls.take(dict(memo), 1) == "new"
    calls.pods()
    assert calls.asked == [0, 1, 2, 3]


def test_a_call_that_failed_leaves_nothing():
    calls, memo = Calls(), {"a": 1}
    calls.take(None)
    calls.pods()
    calls.table.keep(memo, "kept")
    calls.take(memo, 1)
    assert calls.take(memo, 1) == "new"
    calls.pods()
    assert calls.asked == [0, 1, 2, 3]
