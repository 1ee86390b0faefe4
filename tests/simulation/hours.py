"""Simulated cluster-hours under faults, summed up: `python -m tests.simulation.hours HOURS [FIRST SEED]`.

A cluster-hour is an hour of virtual time of one simulated cluster (2 to 20 workers on 1 to 3 nodes) from the moment at
which its first job is submitted to that at which its last one has ended. Nothing that is planned for later counts, and
neither do workers: a cluster of ten counts as much as one of two.

In every third session that computes nothing anything may be run twice and anybody be avoided; of those that compute two
in three run late tasks, or any, twice.
"""

import json
import sys
from collections import Counter

from tests.simulation.answers import random_answers
from tests.simulation.world import random_session

KINDS = {
    "stuck": ("not end", "nothing else went on"),
    "doubled": ("while it is stored", "overlaps", "is twice"),
    "lost": ("not held", "without its input", "are missing", "were freed before", "are freed"),
}
"""What a failure is called, by words of its message; whatever else goes wrong is `wrong`."""


def session(seed: int, sums: Counter[str]) -> str:
    """Run one hard session and add what it took to `sums`; return "", or what was wrong and how to repeat it."""
    computes, twice = seed % 5 == 0, seed % 3 == 0
    try:
        world, jobs = random_answers(seed) if computes else random_session(seed, hard=True, policies=twice)
    except Exception as error:  # noqa: BLE001
        kind = next((kind for kind, words in KINDS.items() if any(word in str(error) for word in words)), "wrong")
        sums[kind] += 1
        command = f"tests.simulation.world {seed} - hard{' twice' if twice else ''}"
        if computes:
            command = f"tests.simulation.answers {seed}"
        return f"seed {seed}, replay with: python -m {command}\n{type(error).__name__}: {error}"
    sums["sessions"] += 1
    sums["sessions_that_compute"] += computes
    sums["virtual_ms"] += int(1000 * world.ended_at)
    sums["jobs"] += len(jobs)
    sums["leases"] += world.leases
    sums["second_attempts"] += world.backups
    sums["faults"] += world.faults_made
    sums["messages"] += world.messages
    sums["messages_lost"] += world.messages_lost
    sums["deaths_of_the_owner"] += world.recoveries
    return ""


def run(hours: float, first: int) -> tuple[dict[str, float], list[str]]:
    """Run sessions from seed `first` on until they make up so many hours; return the sums and what was wrong."""
    sums: Counter[str] = Counter(stuck=0, doubled=0, lost=0, wrong=0)
    wrong = []
    seed = first
    while sums["virtual_ms"] < hours * 3_600_000:
        found = session(seed, sums)
        if found:
            wrong.append(found)
        seed += 1
    told: dict[str, float] = {"cluster_hours": round(sums.pop("virtual_ms") / 3_600_000, 2), **sums}
    return {**told, "first_seed": first, "last_seed": seed - 1}, wrong


def main(arguments: list[str]) -> int:
    """Print the sums as JSON, and how to repeat whatever was wrong; the exit status is 1 then."""
    told, wrong = run(float(arguments[0]), int(arguments[1]) if arguments[1:] else 0)
    sys.stdout.write("\n".join((json.dumps(told), *wrong, "")))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
