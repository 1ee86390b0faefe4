"""The users' words for states of training jobs."""

from __future__ import annotations

from typing import Final

from weft.graph.projection import Projection

PROJECTION: Final = Projection("training")
"""Runs have the words of all front ends; conditions and replica statuses come from the controller."""
