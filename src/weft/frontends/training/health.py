"""The health of a container by its probes: a state machine without threads or a clock.

Until its startup probe has succeeded, the other probes of a container wait. A probe changes its mind after as many
equal results in a row as its threshold says. A container with a readiness probe is not ready before the first success.
A failed startup or liveness probe ends the container. Source: `pkg/kubelet/prober` of Kubernetes 1.33.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weft.frontends.training.schema import Container, ContainerProbe

UNHEALTHY: Final = "Unhealthy"
"""The reason of events about failed probes, as the kubelet writes it."""


class ProbeKind(Enum):
    """What a probe decides."""

    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"


class ContainerHealth:
    """The health of one start of a container. Times are seconds of any clock."""

    def __init__(self, container: Container, started_at: float) -> None:
        self._probes: dict[ProbeKind, ContainerProbe] = {
            kind: probe
            for kind, probe in (
                (ProbeKind.STARTUP, container.startup),
                (ProbeKind.LIVENESS, container.liveness),
                (ProbeKind.READINESS, container.readiness),
            )
            if probe is not None
        }
        self._due = {kind: started_at + probe.delay_s for kind, probe in self._probes.items()}
        self._row = dict.fromkeys(self._probes, 0)
        self._last: dict[ProbeKind, bool] = {}
        self._said = dict.fromkeys(self._probes, "it has not been checked yet")
        self.started = ProbeKind.STARTUP not in self._probes
        """Whether the startup probe has succeeded, or there is none."""
        self._passes = ProbeKind.READINESS not in self._probes
        self.failed: ProbeKind | None = None
        """The probe for which the container has to end."""

    def __iter__(self) -> Iterator[ProbeKind]:
        """Yield the kinds of its probes."""
        return iter(self._probes)

    def probe(self, kind: ProbeKind) -> ContainerProbe:
        """Return a probe."""
        return self._probes[kind]

    @property
    def ready(self) -> bool:
        """Whether the container takes part in the service of its pod."""
        return self.started and self._passes

    @property
    def why_not_ready(self) -> str:
        """Return which probe the container waits for, and what it said last; "" if it is ready."""
        if self.ready:
            return ""
        kind = ProbeKind.READINESS if self.started else ProbeKind.STARTUP
        return f"{kind.value} probe: {self._said[kind]}"

    def due(self, kind: ProbeKind) -> float | None:
        """Return when a probe is made next; None: not before the startup probe has succeeded, or never again."""
        if self.failed is not None or self.started is (kind is ProbeKind.STARTUP):
            return None
        return self._due[kind]

    def note(self, kind: ProbeKind, begun_at: float, now: float, why: str) -> None:
        """Take the result of a probe that began at a time; `why` is "" after a success, else the reason."""
        probe, well = self._probes[kind], not why
        self._due[kind] = max(begun_at + probe.period_s, now)
        self._row[kind] = self._row[kind] + 1 if self._last.get(kind) is well else 1
        self._last[kind], self._said[kind] = well, why or "it needs more successes in a row"
        if self._row[kind] < (probe.successes if well else probe.failures):
            return
        if kind is ProbeKind.READINESS:
            self._passes = well
        elif not well:
            self.failed = kind
        elif kind is ProbeKind.STARTUP:
            self.started = True

    def failure(self) -> str:
        """Return why the container has to end."""
        assert self.failed is not None
        times = self._probes[self.failed].failures
        return (
            f"its {self.failed.value} probe failed {times} time{'s' * (times != 1)} in a row: {self._said[self.failed]}"
        )
