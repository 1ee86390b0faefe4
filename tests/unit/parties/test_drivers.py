"""The run of a job at its initiator, as it ends."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tests.unit.parties.works import TOY, toy_conf
from weft.frontends.federated.planning import read_job
from weft.frontends.federated.selection import component_limits
from weft.model.errors import RunCancelledError
from weft.parties.drivers import DriverCalls, DriverPlan, JobDriver

if TYPE_CHECKING:
    from weft.graph.task import TaskContext
    from weft.wiring.session import Session


def test_a_component_that_was_to_begin_when_the_job_ended_does_not_wait_for_an_end():
    job = read_job(json.dumps(TOY), json.dumps(toy_conf()))
    ctx = SimpleNamespace(vertex="secure_add_0", on_cancel=lambda _: None, cancelled=lambda: True)
    calls = DriverCalls(
        begin=lambda *_: driver.stop("canceled", "stopped by a user"),  # an ended job begins no attempt
        skip=lambda *_: None,
        halt=lambda *_: None,
        finish=lambda *_: None,
    )
    driver = JobDriver("job", DriverPlan(job, {}, {}, {}, component_limits(job)), cast("Session", None), calls)
    with pytest.raises(RunCancelledError, match="stopped by a user"):
        driver._component(cast("TaskContext", ctx), None)
