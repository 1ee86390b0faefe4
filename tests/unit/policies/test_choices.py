"""The conditional choice as a function, and in whole jobs whose sizes the simulator gives."""

from __future__ import annotations

from typing import Any

import pytest

from weft.engine.decisions import Choose, Finish, Schedule
from weft.engine.policy import InputView, View
from weft.graph.builder import Graph, after, gather, shuffle
from weft.graph.logical import Manager
from weft.model.errors import GraphError
from weft.policies.choices import BroadcastChoice
from weft.testing.graphs import work
from weft.testing.trial import Trial, run_graph
from weft.wiring import Session

SIDES = {"left": "copy_left", "right": "copy_right"}
BRANCHES = ("copy_left", "copy_right", "shuffled")


def side(name: str, nbytes: int, *, ended: bool = True) -> InputView:
    return InputView(f"{name}->which", name, 4, 4 if ended else 2, ended, 0, None, 0, nbytes)


def view(*inputs: InputView) -> View:
    return View(0.0, "which", "configured", 1, 0, 0, 0, 0, 2, inputs, {}, None)


def taken(*inputs: InputView) -> list[str]:
    decisions, _ = BroadcastChoice("join", SIDES, "shuffled", under=100).decide(view(*inputs), None)
    assert not decisions or isinstance(decisions[1], Finish)
    return [decision.branch for decision in decisions if isinstance(decision, Choose)]


def test_a_small_side_is_taken_before_the_other_has_ended() -> None:
    assert taken(side("left", 100), side("right", 50, ended=False)) == ["copy_left"]
    assert taken(side("left", 1, ended=False), side("right", 50)) == ["copy_right"]


def test_the_smaller_of_two_small_sides_is_taken() -> None:
    assert taken(side("left", 90), side("right", 50)) == ["copy_right"]


def test_a_large_side_waits_for_the_other() -> None:
    assert taken(side("left", 101), side("right", 1, ended=False)) == []


def test_two_large_sides_are_shuffled() -> None:
    assert taken(side("left", 101), side("right", 102)) == ["shuffled"]


def test_it_is_chosen_once() -> None:
    manager = BroadcastChoice("join", SIDES, "shuffled", under=100)
    _, memo = manager.decide(view(side("left", 1), side("right", 1, ended=False)), None)
    assert manager.decide(view(side("left", 1), side("right", 0)), memo)[0] == ()


def test_the_decider_answers_itself_where_a_size_is_not_known() -> None:
    decisions, _ = BroadcastChoice("join", SIDES, "shuffled", under=100).decide(
        view(side("left", -1), side("right", 500)), None
    )
    assert decisions == (Schedule("which", 1),)


SKIPPED = InputView("right->which", "right", -1, 0, True, 0, None, 0, -1)


@pytest.mark.parametrize(
    ("sides", "branch"),
    [
        ((side("left", 60), side("right", 40)), "copied"),
        ((side("left", 60), side("right", 41)), "shuffled"),
        ((side("left", 60), side("right", 0, ended=False)), None),
        ((side("left", 100), SKIPPED), "copied"),
        ((side("left", 101), SKIPPED), "shuffled"),
    ],
)
def test_vertices_that_are_one_side_together_count_together(sides: tuple[InputView, ...], branch: str | None) -> None:
    small = dict.fromkeys(SIDES, "copied")
    decisions, _ = BroadcastChoice("join", small, "shuffled", under=100, together=True).decide(view(*sides), None)
    assert [one.branch for one in decisions if isinstance(one, Choose)] == [branch] * (branch is not None)


def test_the_decider_answers_itself_where_a_part_of_a_side_is_not_known() -> None:
    manager = BroadcastChoice("join", dict.fromkeys(SIDES, "copied"), "shuffled", under=100, together=True)
    decisions, _ = manager.decide(view(side("left", -1), side("right", 500)), None)
    assert decisions == (Schedule("which", 1),)


@pytest.mark.parametrize(
    ("wrong", "message", "known"),
    [
        ({"choice": "jion"}, "choice is 'jion'", "join"),
        ({"choice": 1}, "choice=1, which is no str", "otherwise"),
        ({"small": {}}, "small names no vertex", "small="),
        ({"small": ["left"]}, r"small=\['left'\], which is no Mapping", "small"),
        ({"small": {"left": "copy"}}, "small of 'left' is 'copy'", ", ".join(BRANCHES)),
        ({"small": {"lift": "copy_left"}}, "small names 'lift'", "left, right"),
        ({"otherwise": "shuffle"}, "otherwise is 'shuffle'", ", ".join(BRANCHES)),
        ({"under": -1}, "under is -1 bytes", ""),
        ({"together": True}, "small names 2 branches", "same branch"),
        ({"under": "64MiB"}, "under='64MiB', which is no int", "under"),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused_at_submission(wrong: Any, message: str, known: str) -> None:
    with Session(workers=1) as session, pytest.raises(GraphError, match=message) as caught:
        session.submit(joined(**wrong))
    assert caught.value.subject == "which"
    assert known in caught.value.hint


# --------------------------------------------------------------------------------------------------------- whole jobs


def joined(**other: Any) -> Graph:
    graph = Graph("join")
    left = graph.add(work, n=4, name="left")
    right = graph.add(work, n=4, name="right")
    params = {"choice": "join", "small": SIDES, "otherwise": "shuffled", "under": 100} | other
    which = graph.add(work, after(left), after(right), name="which", manager=Manager("conditional", params))
    graph.choice(
        which,
        name="join",
        copy_left=graph.add(work, gather(left), right, name="copy_left"),
        copy_right=graph.add(work, left, gather(right), name="copy_right"),
        shuffled=graph.add(work, shuffle(left), shuffle(right), n=4, name="shuffled"),
    )
    return graph


@pytest.mark.parametrize(
    ("left", "right", "branch"),
    [(10, 1000, "copy_left"), (1000, 10, "copy_right"), (1000, 1000, "shuffled"), (0, 1000, "copy_left")],
)
def test_measured_bytes_choose_and_the_decider_never_runs(left: int, right: int, branch: str) -> None:
    sizes = {"left": left, "right": right}
    trial: Trial = run_graph(
        joined(), managers={"conditional": BroadcastChoice}, nbytes=lambda vertex, _: sizes.get(vertex, 0)
    )
    core = trial.job.master.core
    assert core.status.value == "succeeded"
    assert core.choices["join"].taken == branch
    assert core.by_id["which"].status.value == "done_early"
    assert core.by_id["which"].finished == 0
    ran = {id for id in BRANCHES if core.by_id[id].finished}
    assert ran == {branch}
