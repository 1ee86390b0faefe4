"""What all tests share: the Hypothesis profiles, and a seed that a failure prints."""

import os
import secrets

import pytest
from hypothesis import HealthCheck, settings

# `too_slow` times the machine, not the test.
common = settings(deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", common, max_examples=20)
settings.register_profile("ci", common, max_examples=100)
settings.register_profile("soak", common, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def seed(record_property) -> int:
    """A fresh seed, or the one in WEFT_SEED to repeat a failure, which prints it."""
    value = int(os.environ.get("WEFT_SEED") or secrets.randbits(32))
    record_property("seed", value)
    print(f"repeat with WEFT_SEED={value}")
    return value
