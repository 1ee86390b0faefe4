"""Fixtures of all tests of components."""

import pytest


@pytest.fixture(autouse=True)
def without_providers(monkeypatch):
    """Let components run their own code unless a test asks for a provider."""
    for name in ("WEFT_SPU", "WEFT_TORCH"):
        monkeypatch.delenv(name, raising=False)
