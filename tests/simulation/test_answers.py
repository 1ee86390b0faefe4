"""The scenarios compute what a plain program would, through lost workers, bad networks and dead owners."""

import os

import pytest

from tests.simulation.answers import ANSWERS, EXAMPLES, UNANSWERED, random_answers

COUNT = {"fast": 5, "soak": 1_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 20)


def test_every_scenario_has_an_answer():
    files = {path.stem for path in EXAMPLES.glob("*.py")} - {"show"}
    assert {*ANSWERS, *UNANSWERED} == files
    assert not ANSWERS.keys() & UNANSWERED


def test_answers_are_right(seed):
    ended = []
    backups = 0
    for at in range(seed, seed + COUNT):
        try:
            world, jobs = random_answers(at)
        except Exception as error:
            raise AssertionError(f"seed {at}, replay with: python -m tests.simulation.answers {at}\n{error}") from error
        ended += [job.outcome.state for job in jobs if job.outcome is not None]
        backups += world.backups
    assert backups or COUNT < 20
    assert ended.count("succeeded") > 0.8 * len(ended)


def test_a_worker_that_was_given_up_streams_to_nobody():
    names = ("bubble", "conditional_join", "dynamic_parallelism", "limit", "patch", "pruning", "skew", "straggler")
    random_answers(974, names)


@pytest.mark.parametrize("seed", [966, 1055, 1363])
def test_a_limit_takes_nothing_that_was_lost_for_what_was_never_made(seed):
    random_answers(seed, ["limit"])


@pytest.mark.parametrize("seed", [1, 24])
def test_who_has_lost_a_race_is_not_forgotten(seed):
    random_answers(seed)  # its worker died after the end of the job; half of a lease was done by a rival that failed


@pytest.mark.parametrize("seed", [7200190, 7201580])
def test_what_was_decided_before_a_report_and_what_a_stopped_lease_says_is_judged_by_what_was_known_then(seed):
    random_answers(seed)


def test_a_straggler_ends_though_its_owner_dies_again_and_again():
    random_answers(7221000)


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_wrong_answer_is_noticed(name, monkeypatch):
    vertex, _, of = ANSWERS[name]
    monkeypatch.setattr("tests.simulation.answers.ANSWERS", {name: (vertex, ["another"], of)})
    monkeypatch.setattr("tests.simulation.answers.random_hardship", lambda rng: {})
    with pytest.raises(AssertionError, match="is not"):
        random_answers(1)


def test_readers_of_an_earlier_life_of_a_job_end_with_it():
    """Nothing is planned for them once the job has ended: their streams never come."""
    world, _ = random_answers(1_000_005)
    assert not world._moments
