"""Policies: pure functions from what was measured to what should be decided. One idea, one file."""
