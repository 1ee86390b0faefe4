"""Federated jobs end alike at all parties, whatever happens between them."""

import os
from collections import Counter

from tests.simulation.federation import run

COUNT = {"fast": 20, "soak": 10_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 300)


def test_jobs_end_alike_at_all_parties(seed):
    ends = Counter(run(at).job_status for at in range(seed, seed + COUNT))
    assert ends["success"]
    assert ends["failed"]
    assert ends["canceled"]
