"""Messages of the other party that are none of the protocol."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.frontends.federated.components.base import ComponentPart
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.hetero_secureboost import run
from weft.frontends.federated.components.secure_trees import GuestTree, HostTree, LevelPlan
from weft.frontends.federated.components.trees import (
    DerivativeScale,
    FeatureBins,
    SplitRules,
    SumLayout,
    sum_bits,
)
from weft.frontends.federated.crypto.keys import make_keys
from weft.frontends.federated.schema import Party
from weft.model.errors import PartyMessageError
from weft.testing.parts import PartRecord

GUEST, HOST = Party("guest", "1"), Party("host", "2")
BINS = FeatureBins.of(np.arange(12.0).reshape(6, 2), 3)
DERIVATIVES = {"plain": [1, 2, 3, 4, 5, 6]}
OPENING = {"derivatives": DERIVATIVES, "width": 20, "copies": 1, "rows": None}
LEVEL = {"splits": [], "ask": [0]}
SUMS = {
    "index": np.array([0, 1], dtype=np.int32),
    "right": np.array([False, True]),
    "counts": np.array([2, 4], dtype=np.int32),
    "found": 2,
    "beside": 0,
    "packed": {"plain": [(100 << 11) + 100]},
}


class Script:
    """A channel on which the other party says what a test gives it."""

    def __init__(self, **said: list[Any]) -> None:
        self._said = {name: list(values) for name, values in said.items()}

    def send(self, name: str, value: Any, to: Any) -> None:
        pass

    def receive(self, name: str, source: Party) -> Any:
        return self._said[name].pop(0)


def part(here: Party, channel: Script) -> ComponentPart:
    return ComponentPart(
        here=here,
        parties={"guest": ["1"], "host": ["2"]},
        job="job",
        component="boost",
        module="HeteroSecureBoost",
        parameters={},
        channel=channel,
        tracker=PartRecord(),
    )


def serve(opening: Any, levels: list[Any], choices: list[Any]) -> None:
    channel = Script(level=levels, choose=choices)
    HostTree(part(HOST, channel), make_keys("plain", 0).public, BINS, []).grow(opening, np.arange(2))


def test_what_a_guest_may_say_is_served() -> None:
    divided = {"splits": [[0, 1, 2, np.array([0b11000000], dtype=np.uint8)]], "ask": [1]}
    serve(OPENING, [LEVEL, divided, None], [[[0, [0, 1]]], []])


@pytest.mark.parametrize(
    ("opening", "level", "choice"),
    [
        ([], LEVEL, []),
        (OPENING | {"width": "many"}, LEVEL, []),
        (OPENING | {"width": 0}, LEVEL, []),
        (OPENING | {"width": 1 << 40}, LEVEL, []),
        (OPENING | {"derivatives": {"plain": [1]}}, LEVEL, []),
        (OPENING | {"copies": 2}, LEVEL, []),
        (OPENING | {"copies": 3, "derivatives": {"plain": [1, 2, 3, 4, 5, 6] * 3}}, LEVEL, []),
        (OPENING | {"copies": 0, "derivatives": {"plain": []}}, LEVEL, []),
        (OPENING | {"derivatives": 7}, LEVEL, []),
        (OPENING | {"rows": np.array([0, 1, 2, 3, 4, 6])}, LEVEL, []),
        (OPENING | {"rows": np.array([-1, 1, 2, 3, 4, 5])}, LEVEL, []),
        (OPENING | {"rows": "all"}, LEVEL, []),
        (OPENING, {"ask": [0]}, []),
        (OPENING, {"splits": [], "ask": [1]}, []),
        (OPENING, {"splits": [[3, 4, 5, np.zeros(1, dtype=np.uint8)]], "ask": []}, []),
        (OPENING, {"splits": [[0, 1, 2, np.zeros(2, dtype=np.uint8)]], "ask": []}, []),
        (OPENING, {"splits": [[0, 1, 2, None]], "ask": []}, []),
        (OPENING, LEVEL, [[0, []]]),
        (OPENING, LEVEL, [[0, [4]]]),
        (OPENING, LEVEL, [[0, [-1]]]),
        (OPENING, LEVEL, [[9, [0]]]),
        (OPENING, LEVEL, "best"),
    ],
)
def test_a_guest_that_says_something_else_is_refused(opening: Any, level: Any, choice: Any) -> None:
    with pytest.raises(PartyMessageError):
        serve(opening, [level, None], [choice])


DERIVATIVE = st.floats(-1, 1) | st.floats(-1e-9, 1e-9) | st.just(1e300)


@given(st.lists(st.tuples(DERIVATIVE, st.floats(0, 1)), min_size=1, max_size=40))
def test_sums_over_half_of_the_rows_of_a_tree_fit_and_return(rows: list[tuple[float, float]]) -> None:
    g, h = (np.array(one) for one in zip(*rows, strict=True))
    whole_g, whole_h = DerivativeScale.of(g, h).integers(g, h)
    layout, count = SumLayout.of(whole_h), max(1, len(rows) // 2)
    assert layout.width == sum_bits(len(rows)) * (1 if layout.constant is not None else 2) + 1
    for order in (np.argsort(g), np.argsort(-g), np.argsort(-h), np.argsort(-np.abs(g))):
        some = order[:count]
        total = sum(layout.joined(whole_g, whole_h)[some].tolist())
        assert -(2 ** (layout.width - 1)) <= total < 2 ** (layout.width - 1)
        found = layout.parted([total], np.array([count]))
        assert [int(one[0]) for one in found] == [whole_g[some].sum(), whole_h[some].sum()]


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40).filter(any))
def test_derivatives_are_rounded_to_a_part_of_the_mean_of_their_larger_half(values: list[float]) -> None:
    g = np.array(values)
    scale = DerivativeScale.of(g, np.ones(len(g)))
    mean = np.sort(np.abs(g))[-(len(g) // 2) :].mean()
    whole, _ = scale.integers(g, np.ones(len(g)))
    assert np.abs(np.ldexp(whole.astype(float), -scale.g_power) - g).max() <= mean / 2**8 * 1.01


def grow(sums: Any, sides: Any) -> None:
    channel = Script(sums=[sums], sides=[sides])
    tree = GuestTree(
        part(GUEST, channel), SplitRules(max_depth=1, min_impurity_split=-10.0), make_keys("plain", 0), BINS, []
    )
    tree.grow(np.array([1.0, 1, 1, -1, -1, -1]), np.ones(6), np.arange(6), np.arange(2), [LevelPlan(False, [HOST])])


def test_what_a_host_may_say_is_taken() -> None:
    grow([SUMS], [[0, np.array([0b11000000], dtype=np.uint8)]])


@pytest.mark.parametrize(
    "sums",
    [
        None,
        [],
        [SUMS, SUMS],
        [7],
        [SUMS | {"index": [0, 1]}],
        [SUMS | {"index": np.array([0, 2])}],
        [SUMS | {"index": np.array([-2, 1])}],
        [SUMS | {"index": np.array([0.0, 1.0])}],
        [SUMS | {"right": np.array([1, 0])}],
        [SUMS | {"counts": np.array([2])}],
        [SUMS | {"counts": np.array([2, 7])}],
        [SUMS | {"counts": np.array([-1, 2])}],
        [SUMS | {"found": 3}],
        [SUMS | {"found": -1}],
        [SUMS | {"found": 3, "beside": -1}],
        [SUMS | {"beside": 1}],
        [SUMS | {"packed": {"plain": [1, 2]}}],
        [SUMS | {"packed": "none"}],
    ],
    ids=str,
)
def test_sums_of_a_host_that_do_not_fit_are_refused(sums: Any) -> None:
    with pytest.raises(PartyMessageError):
        grow(sums, [[0, np.zeros(1, dtype=np.uint8)]])


@pytest.mark.parametrize(
    "sides",
    [None, [], [[0, None]], [["first", np.zeros(1, dtype=np.uint8)]], [[0, np.zeros(2, dtype=np.uint8)]], [[0]]],
)
def test_assignments_of_a_host_that_do_not_fit_are_refused(sides: Any) -> None:
    with pytest.raises(PartyMessageError):
        grow([SUMS], sides)


@pytest.mark.parametrize(
    "questions", [7, [[0]], [["a", None]], [[0, None]], [[1, np.zeros(1, dtype=np.uint8)]]], ids=str
)
def test_a_guest_that_asks_something_else_is_refused(questions: Any) -> None:
    channel = Script(**{"rows": [2], "ask/test": [questions, None]})
    host = part(HOST, channel)
    frame = PartyFrame(ids=np.array(["a", "b"]), columns={"x": np.array([1.0, 2.0])})
    model = {"kind": "HeteroSecureBoost", "features": ["x"], "splits": [["x", 1.0]]}
    with pytest.raises(PartyMessageError):
        run(replace(host, data={"test_data": [frame]}, models={"model": {"m": model}}))
