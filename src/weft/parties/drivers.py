"""The runs of the initiator: each job is a graph of components on the engine of its party.

The task of a component agrees with all parties on an attempt, and waits for its end (`compile_components`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.frontends.federated.compiler import compile_components
from weft.frontends.federated.coordination.coordinator import CANCELED, FAILED, LOST, PASSED, SUCCESS, TIMEOUT
from weft.model.errors import RunCancelledError, TaskError

if TYPE_CHECKING:
    from weft.frontends.federated.schema import ComponentLimits, FederatedJob
    from weft.graph.task import TaskContext
    from weft.runtime.run import Run
    from weft.wiring.session import Session

MOST_LOST: Final = 8
"""The number of attempts of a component that may be lost with a server before it fails."""


class ComponentEnd(NamedTuple):
    """How an attempt of a component has ended: its status, and the reason if it is no success."""

    status: str
    reason: str = ""


class DriverCalls(NamedTuple):
    """What a driver asks for: to begin an attempt of a component (the present one, if it runs already), to leave one
    out, to stop one, and to finish the job, each by the job's id.
    """

    begin: Callable[[str, str], None]
    skip: Callable[[str, str], None]
    halt: Callable[[str, str, str], None]
    finish: Callable[[str, str, str], None]


class DriverPlan(NamedTuple):
    """What of a job runs in its present epoch.

    `done` are components that do not run, `ends` those that have ended otherwise before the server was started again.
    """

    job: FederatedJob
    done: Mapping[str, str]
    ends: Mapping[str, ComponentEnd]
    rules: Mapping[str, str]
    limits: Mapping[str, ComponentLimits]


class JobDriver:
    """Runs the components of one job in the order of its graph."""

    def __init__(self, id: str, plan: DriverPlan, session: Session, calls: DriverCalls) -> None:
        self.id, self._plan, self._calls = id, plan, calls
        self._session = session
        self._ends: dict[str, ComponentEnd] = {}
        self._changed = threading.Condition()
        self._statuses = dict(plan.done)
        self._stopped = ""
        self._status = ""
        self._left = False
        self._run: Run | None = None

    def start(self) -> None:
        """Start the run."""
        selected = [name for name in self._plan.job.dsl.order if name not in self._plan.done]
        graph = compile_components(
            self._plan.job,
            self.id,
            self._component,
            selected=selected,
            rules=self._plan.rules,
            limits=self._plan.limits,
        )
        if not selected:
            self._calls.finish(self.id, SUCCESS, "")
            return
        self._run = self._session.submit(graph)
        threading.Thread(target=self._wait, name=f"job-{self.id}", daemon=True).start()

    def stop(self, status: str, reason: str) -> None:
        """Stop all components; the job ends with this status."""
        with self._changed:
            self._status, self._stopped = status, reason
            self._changed.notify_all()
        if self._run is not None:
            self._run.cancel(reason)

    def leave(self) -> None:
        """End the run alone: the server ends, and the job goes on at its next start."""
        with self._changed:
            self._left = True
            self._changed.notify_all()

    def ended(self, component: str, end: ComponentEnd) -> None:
        """Tell that an attempt of a component has ended at all parties."""
        with self._changed:
            self._ends[component] = end
            self._changed.notify_all()

    # ------------------------------------------------------------------------------------------------------- inside

    def _component(self, ctx: TaskContext, _inputs: object) -> str:
        """The body of a component's task.

        TaskError: the component has failed. RunCancelledError: it was stopped.
        """
        component = ctx.vertex
        if (before := self._plan.ends.get(component)) is not None:
            self._statuses[component] = before.status
            raise TaskError(before.reason or f"{component} ended as {before.status}", task=component)
        if why := self._skipped(component):
            self._statuses[component] = PASSED
            self._calls.skip(self.id, component)
            return why
        ctx.on_cancel(lambda: self._calls.halt(self.id, component, self._stopped or "stopped"))
        for _ in range(MOST_LOST + 1):
            with self._changed:
                self._ends.pop(component, None)
            self._calls.begin(self.id, component)
            with self._changed:
                # An attempt of a job that ends has ended before; one that was to begin then never does.
                self._changed.wait_for(lambda: component in self._ends or self._status or self._left)
                why = self._stopped if self._status else "the server of the party ends"
                end = self._ends.get(component, ComponentEnd(CANCELED, why))
            if end.status != LOST or ctx.cancelled():
                break
        self._statuses[component] = FAILED if end.status == LOST else end.status
        if end.status == CANCELED or (end.status != SUCCESS and ctx.cancelled()):
            raise RunCancelledError(end.reason or "stopped")
        if end.status != SUCCESS:
            raise TaskError(end.reason or f"{component} ended as {end.status}", task=component)
        return SUCCESS

    def _skipped(self, component: str) -> str:
        """Return why a component does not run by its trigger rule, "" if it runs."""
        rule = self._plan.rules.get(component, "")
        above = [self._statuses.get(name, CANCELED) for name in self._plan.job.dsl.upstream[component]]
        if rule == "all_failed" and any(status == SUCCESS for status in above):
            return "a component before it has succeeded"
        if rule == "none_failed" and any(status in (FAILED, TIMEOUT) for status in above):
            return "a component before it has failed"
        return ""

    def _wait(self) -> None:
        assert self._run is not None
        self._run.wait()
        error = self._run.error()
        if self._left:
            return
        if self._stopped:
            status, reason = self._status, self._stopped
        elif error is None:
            status, reason = SUCCESS, ""
        else:
            timed_out = TIMEOUT in self._statuses.values()
            status, reason = TIMEOUT if timed_out else FAILED, str(error.message)
        self._run.forget()
        self._calls.finish(self.id, status, reason)
