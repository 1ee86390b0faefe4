"""The protocol between a session and its nodes, over a network that breaks: by seed, on a virtual clock."""

import os
import random
from typing import Any

import pytest

from tests.simulation.clusters import random_cluster
from weft.backends.pulse import BEAT_S, Pulse
from weft.worker.link import LOST_S, ORPHAN_S

COUNT = {"fast": 5, "soak": 5_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 25)


@pytest.mark.parametrize("gang", [0, 4])
def test_jobs_compute_the_same_whatever_happens_between_the_session_and_its_nodes(seed, gang):
    """With a gang, tasks exchange values while they run: through streams, from running tasks, behind services."""
    lost = faults = 0
    for at in range(seed, seed + COUNT):
        try:
            world = random_cluster(at, gang)
        except Exception as error:
            raise AssertionError(
                f"seed {at}, replay with: python -m tests.simulation.clusters {at} {gang}\n{error}"
            ) from error
        lost += sum(node.dead for node in world.cluster._nodes.values())
        faults += world.net.faults_made
    assert COUNT < 20 or (lost > COUNT / 5 and faults > COUNT)


@pytest.mark.parametrize("seed", [110, 658, 871])
def test_an_output_that_was_made_again_at_its_node_is_not_deleted_with_the_first(seed):
    random_cluster(seed)


@pytest.mark.parametrize("seed", [20, 145, 659])
def test_inputs_of_a_lease_whose_node_is_lost_before_it_is_sent_are_not_held_for_ever(seed):
    random_cluster(seed)


@pytest.mark.parametrize("seed", [92, 174, 306])
def test_a_gang_waits_for_a_node_in_the_place_of_a_lost_one(seed):
    random_cluster(seed, 4)


@pytest.mark.parametrize("seed", [425, 699])
def test_a_block_of_a_stream_that_a_drained_node_hands_on_is_no_output_of_a_vertex(seed):
    random_cluster(seed, 4)


@pytest.mark.parametrize("seed", [280, 385, 815])
def test_a_task_waits_for_a_value_that_is_made_again_while_it_runs(seed):
    random_cluster(seed, 4)


def given_up(latency_s: float, cut_at: float, cut: set[str], phase: float) -> dict[str, float]:
    """Return when session and node give each other up, if what the ends in `cut` send is lost from `cut_at` on."""
    ends = {"session": Pulse(0.0, leads=True), "node": Pulse(0.0, leads=False)}
    other = {"session": "node", "node": "session"}
    arriving: list[tuple[float, str, list[Any]]] = []
    found: dict[str, float] = {}
    for tick in range(100_000):
        now = tick / 100
        for name, pulse in ends.items():
            if name in found or (name == "node" and now < phase):
                continue
            if pulse.lost(now):
                found[name] = now
            elif (beats := pulse.beats(now)) and not (name in cut and now >= cut_at):
                arriving.append((now + latency_s, other[name], beats))
        while arriving and arriving[0][0] <= now:
            _, name, beats = arriving.pop(0)
            ends[name].take(beats, now)
        if "node" in found and "node" not in cut:
            found.setdefault("session", now)  # it hears of the end of the connection
        if len(found) == 2:
            break
    return found


def test_the_node_gives_up_first_whatever_direction_is_cut_and_however_late_messages_are(seed):
    rng = random.Random(seed)
    for _ in range(40):
        latency_s, cut_at = rng.choice([0.0, 0.1, 1.0, 3.0]), 20 + 20 * rng.random()
        cut = rng.choice([{"session"}, {"node"}, {"session", "node"}])
        found = given_up(latency_s, cut_at, cut, BEAT_S * rng.random())
        about = f"{latency_s=} {cut_at=} {cut=} {found=}"
        assert found["node"] <= found["session"], about
        assert found["session"] - cut_at < LOST_S + latency_s + 2 * BEAT_S, about
        assert "node" not in cut or found["session"] - found["node"] > LOST_S - ORPHAN_S - 0.1, about


def test_a_process_that_stood_still_knows_it_before_it_takes_anything():
    node, session = Pulse(0.0, leads=False), Pulse(0.0, leads=True)
    assert node.take(session.beats(BEAT_S), 100.0) == []
    assert node.lost(100.0)


def test_a_beat_is_no_message():
    node, session = Pulse(0.0, leads=False), Pulse(0.0, leads=True)
    assert node.beats(BEAT_S / 2) == []
    (beat,) = node.beats(BEAT_S)
    assert session.take([beat, (7, "x")], BEAT_S) == [(7, "x")]
    assert not session.lost(BEAT_S + LOST_S - 0.01)
    assert session.lost(BEAT_S + LOST_S)
