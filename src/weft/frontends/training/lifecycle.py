"""The life of one start of a container: its hooks and its probes, beside its command.

`postStart` runs after the start, then the probes begin. A failed hook, startup probe or liveness probe ends the
container. `preStop` runs before SIGTERM, within the grace period. Source: `pkg/kubelet` of Kubernetes 1.33.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from weft.frontends.training.health import UNHEALTHY, ContainerHealth, ProbeKind
from weft.model.errors import WeftError
from weft.operators.call import explained, last_lines, run_guarded

if TYPE_CHECKING:
    from weft.frontends.training.opened_reports import OpenedReports
    from weft.frontends.training.schema import Container, ContainerProbe
    from weft.operators.call import CommandSpec, StopCommand

LEAST_GRACE_S: Final = 2.0
"""The seconds that a container has after SIGTERM at least, however long its `preStop` took."""
KILLING: Final = "Killing"
FAILED_POST_START: Final = "FailedPostStartHook"
FAILED_PRE_STOP: Final = "FailedPreStopHook"
"""The reasons of events, as the kubelet writes them."""
_LOG_BYTES: Final = 64 << 10


TakeEnd = Callable[["StopCommand"], None]
"""Takes the function that ends a command before its time."""


def execute(spec: CommandSpec, timeout_s: float | None, take_end: TakeEnd, reports: OpenedReports | None = None) -> str:
    """Run a command beside a container; return why it failed, "" after a success. Its log has this run alone.

    `reports` take what it opens.
    """
    spec = replace(spec, timeout_s=timeout_s, grace_s=0.0, log_head_bytes=_LOG_BYTES, log_tail_bytes=_LOG_BYTES)
    with suppress(OSError):
        spec.log.unlink()
    try:
        run = run_guarded if reports is None else reports.run
        result = run(spec, on_cancel=take_end)
    except WeftError as error:
        return error.message
    if result.ok:
        return ""
    if result.cause == "timeout":
        return f"took longer than {timeout_s:g} s"
    said = " ".join(last_lines(spec.log, start=result.log_start, count=3))
    how = f"ended with exit code {result.status}{explained(result.status)}"
    return f"{how}: {said}" if said else how


class ContainerHost(Protocol):
    """The replica, as its containers need it."""

    @property
    def reports(self) -> OpenedReports | None:
        """What takes what the container and its hooks open, where anybody asks for it."""
        ...

    def beside(self, container: Container, words: Sequence[str], name: str) -> CommandSpec:
        """Return a command that runs in a running container, with a log of its own."""
        ...

    def reach(self, container: Container, probe: ContainerProbe, take_end: TakeEnd) -> str:
        """Check a port of a running container; return why it failed, "" after a success."""
        ...

    def note_ready(self, container: Container, why_not: str) -> None:
        """Take why a container is not ready, "" if it is."""
        ...

    def note_event(self, at: float, reason: str, message: str) -> None:
        """Take a warning for the user; `at` is in seconds since 1970."""
        ...


class ContainerLife:
    """The hooks and probes of one start of a container with a grace period."""

    def __init__(self, container: Container, host: ContainerHost, grace_s: float) -> None:
        self._container, self._host, self._grace_s = container, host, grace_s
        self._changed = threading.Condition()
        self._health: ContainerHealth | None = None
        self._closed = False
        self._stop: StopCommand | None = None
        self._ends: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []
        self.why_ended = ""
        """Why the container was ended for its health, "" if it was not."""

    def begin(self) -> None:
        """Take note that the command runs."""
        if self._container.has_probes:
            self._host.note_ready(self._container, "it has just started")
        if self._container.has_probes or self._container.post_start:
            self._run(self._begin)

    def take_stop(self, stop: StopCommand) -> None:
        """Take the function that ends the command."""
        self._stop = stop

    def stop(self, grace_s: float | None = None) -> None:
        """End the container: its `preStop`, then SIGTERM, then SIGKILL after the rest of the grace period."""
        if self._container.pre_stop:
            self._run(self._stop_after_hook, self._grace_s if grace_s is None else grace_s)
        elif self._stop is not None:
            self._stop(grace_s)

    def close(self) -> None:
        """End the hooks and probes of an ended container."""
        with self._changed:
            self._closed = True
            ends, threads = list(self._ends), list(self._threads)
            self._changed.notify_all()
        for end in ends:
            end()
        for thread in threads:
            thread.join()

    # ------------------------------------------------------------------------------------------------------ hooks

    def _run(self, body: Callable[..., None], *arguments: object) -> None:
        """Run a part of this life in a thread of its own, unless it is over."""
        thread = threading.Thread(target=body, args=arguments, daemon=True)
        with self._changed:
            if self._closed:
                return
            self._threads.append(thread)
            thread.start()

    def _begin(self) -> None:
        if self._container.post_start:
            why = self._execute(self._container.post_start, "postStart", None, self._host.reports)
            if why and not self._closed:
                self._host.note_event(time.time(), FAILED_POST_START, f"{self._container.name}: {why}")
                self._end(f"its postStart hook {why}", None)
                return
        health = ContainerHealth(self._container, time.monotonic())
        with self._changed:
            self._health = health
        for kind in health:
            self._run(self._watch, health, kind)

    def _stop_after_hook(self, grace_s: float) -> None:
        begun = time.monotonic()
        why = self._execute(self._container.pre_stop, "preStop", grace_s, self._host.reports)
        if why and not self._closed:
            self._host.note_event(time.time(), FAILED_PRE_STOP, f"{self._container.name}: {why}")
        if self._stop is not None:
            self._stop(max(LEAST_GRACE_S, grace_s - (time.monotonic() - begun)))

    def _execute(
        self, words: Sequence[str], name: str, timeout_s: float | None, reports: OpenedReports | None = None
    ) -> str:
        """Run a command in the container; return why it failed, "" after a success."""
        return execute(self._host.beside(self._container, words, name), timeout_s, self._take_end, reports)

    def _take_end(self, end: StopCommand) -> None:
        with self._changed:
            self._ends.append(end)
            closed = self._closed
        if closed:
            end()

    # ----------------------------------------------------------------------------------------------------- probes

    def _watch(self, health: ContainerHealth, kind: ProbeKind) -> None:
        """Make the probes of a kind until the container or its health has ended."""
        probe, told = health.probe(kind), ""
        while self._wait(health, kind):
            begun = time.monotonic()
            if probe.command:
                why = self._execute(probe.command, f"{kind.value}Probe", probe.timeout_s)
            else:
                why = self._host.reach(self._container, probe, self._take_end)
            with self._changed:
                if self._closed or health.failed is not None:
                    return
                was_ready = health.ready
                health.note(kind, begun, time.monotonic(), why)
                self._changed.notify_all()
            if why and why != told:
                self._host.note_event(
                    time.time(), UNHEALTHY, f"{self._container.name}: {kind.value} probe failed: {why}"
                )
            told = why
            if health.ready is not was_ready or not health.ready:
                self._host.note_ready(self._container, health.why_not_ready)
            if health.failed is kind:
                self._end(health.failure(), probe.grace_s)

    def _wait(self, health: ContainerHealth, kind: ProbeKind) -> bool:
        """Wait until a probe is due; False: none will be."""
        with self._changed:
            while not self._closed and health.failed is None:
                due = health.due(kind)
                left = None if due is None else due - time.monotonic()
                if left is not None and left <= 0:
                    return True
                if kind is ProbeKind.STARTUP and health.started:
                    return False
                self._changed.wait(left)
        return False

    def _end(self, why: str, grace_s: float | None) -> None:
        self.why_ended = why
        self._host.note_event(time.time(), KILLING, f"{self._container.name} is ended: {why}")
        self.stop(grace_s)
