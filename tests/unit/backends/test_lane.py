"""Which thread of the light lane does what."""

import threading
from collections.abc import Callable

from weft.backends.helpers import HelperPool
from weft.model.errors import CapacityError

DEADLINE_S = 180.0


class Rig:
    """A lane whose actions note their thread; `follows` are carried out after the first action."""

    def __init__(self, *follows: Callable[["Rig"], None]) -> None:
        self.threads: dict[str, int] = {}
        self.hand_on: Callable[[], None] = lambda: None
        self._follows = list(follows)
        self._done: dict[str, threading.Event] = {}
        self.lane = HelperPool("lane", self._after)

    def _after(self, hand_on: Callable[[], None]) -> None:
        self.hand_on = hand_on
        follows, self._follows = self._follows, []
        for follow in follows:
            follow(self)

    def put(self, name: str, then: Callable[[], None] = lambda: None) -> None:
        done = self._done[name] = threading.Event()

        def action() -> None:
            self.threads[name] = threading.get_ident()
            then()
            done.set()

        self.lane.put(action)

    def wait(self, *names: str) -> None:
        for name in names:
            assert self._done[name].wait(DEADLINE_S), name

    def run(self, *names: str) -> dict[str, int]:
        self.put("first")
        self.wait("first")
        end = threading.Event()
        self._wait_for_puts(names, end)
        self.wait(*names)
        self.lane.close()
        return self.threads

    def _wait_for_puts(self, names: tuple[str, ...], end: threading.Event) -> None:
        while not all(name in self._done for name in names):
            assert not end.wait(0.001)


def test_what_follows_from_an_action_is_done_by_the_same_thread():
    threads = Rig(lambda rig: rig.put("second")).run("second")
    assert threads["second"] == threads["first"]


def test_but_only_one_of_it():
    threads = Rig(lambda rig: rig.put("second"), lambda rig: rig.put("third")).run("second", "third")
    assert threads["second"] == threads["first"] != threads["third"]


def test_what_is_handed_on_is_done_by_another():
    def goes_on(rig: Rig) -> None:
        rig.hand_on()
        rig.wait("second")  # while the first thread is not free yet

    threads = Rig(lambda rig: rig.put("second"), goes_on).run("second")
    assert threads["second"] != threads["first"]


def test_what_an_action_puts_while_it_goes_on_does_not_wait_for_its_end():
    rig = Rig()

    def then() -> None:
        rig.put("inner")
        rig.wait("inner")

    rig.put("outer", then)
    rig.wait("outer")
    rig.lane.close()
    assert rig.threads["inner"] != rig.threads["outer"]


class _NoMoreThreads(Rig):
    """A lane that has one thread, on a system without more; `refused` notes what could not be put."""

    def __init__(self, *follows: Callable[["Rig"], None]) -> None:
        super().__init__(*follows)
        self.refused: list[str] = []

    def put(self, name: str, then: Callable[[], None] = lambda: None) -> None:
        before = threading.stack_size(1 << 46 if left("lane") else 0)  # more than the addresses of a process
        try:
            super().put(name, then)
        except CapacityError:
            self.refused.append(name)
        finally:
            threading.stack_size(before)


def test_without_another_thread_an_action_that_was_handed_on_runs_later_and_others_are_refused():
    def hand_on(rig: Rig) -> None:
        before = threading.stack_size(1 << 46)
        rig.hand_on()
        threading.stack_size(before)

    rig = _NoMoreThreads(lambda rig: rig.put("second"), hand_on, lambda rig: rig.put("third"))
    threads = rig.run("second")
    assert threads["second"] == threads["first"]
    assert rig.refused == ["third"]


def blocked(pool: HelperPool) -> threading.Event:
    """Occupy a thread of the pool until the returned event is set."""
    begun, go = threading.Event(), threading.Event()

    def action() -> None:
        begun.set()
        go.wait(DEADLINE_S)

    pool.put(action)
    assert begun.wait(DEADLINE_S)
    return go


def left(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_no_thread_is_left_after_the_end():
    pool, idle = HelperPool("nobody left", lambda hand_on: None), threading.Event()
    pool.put(idle.set)
    assert idle.wait(DEADLINE_S)
    threading.Timer(0.05, blocked(pool).set).start()
    pool.close(DEADLINE_S)
    assert not left("nobody left")


def test_the_end_does_not_wait_for_an_action_that_never_ends():
    pool = HelperPool("endless", lambda hand_on: None)
    go = blocked(pool)
    pool.close(0.0)
    (thread,) = left("endless")
    go.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
