"""Fixtures of all tests of components."""

import pytest


@pytest.fixture(autouse=True)
def without_spu(monkeypatch):
    """Let components run their own protocols unless a test asks for SPU."""
    monkeypatch.delenv("WEFT_SPU", raising=False)
