"""The attempts of the steps of a run, from its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from weft.runs.records import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.runs.records import Record


class AttemptSpan(Struct, frozen=True):
    """The time of an attempt (counted from 0) of a step, or of item `index` of it, in seconds since 1970.

    `state` is the one in which it ended, or `running`.
    """

    step: str
    index: int | None
    attempt: int
    started: float
    ended: float
    state: str

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, self.ended - self.started)


def spans_of(records: Iterable[Record], end: float, *, alive: bool) -> dict[str, list[AttemptSpan]]:
    """Return the attempts of each step, in order of their starts.

    An attempt without an end goes on until `end`, in seconds since 1970, or until another owner took over the run: it
    was interrupted then. `alive`: the run has an owner, so that attempts without an end still run.
    """
    found: dict[str, list[AttemptSpan]] = {}
    open_: dict[tuple[str, int | None], tuple[int, float]] = {}
    last = 0.0

    def close(key: tuple[str, int | None], time: float, state: str) -> None:
        begun = open_.pop(key, None)
        if begun is not None:
            attempt, started = begun
            found.setdefault(key[0], []).append(AttemptSpan(key[0], key[1], attempt, started, time, state))

    for record in records:
        key = record.step, record.index
        if not record.step:
            if record.state == "pending":  # another owner resumes the run
                for left in list(open_):
                    close(left, last, INTERRUPTED)
        elif record.state == "running":
            close(key, record.time, "failed")
            open_[key] = record.attempt, record.time
        elif record.ended or record.state == "pending":
            close(key, record.time, record.state if record.ended else "failed")
        last = record.time
    for left in list(open_):
        close(left, max(end, open_[left][1]), "running" if alive else INTERRUPTED)
    for name, spans in found.items():
        if any(span.index is not None for span in spans):  # the record of the whole loop adds nothing
            found[name] = [span for span in spans if span.index is not None]
        found[name].sort(key=lambda span: (span.started, span.index or 0))
    return found


def without_pauses(
    spans: Mapping[str, Sequence[AttemptSpan]], pauses: Sequence[tuple[float, float]]
) -> dict[str, list[AttemptSpan]]:
    """Return attempts as if the times without an owner had not been: what came after them is that much earlier."""

    def moved(time: float) -> float:
        return time - sum(max(0.0, min(time, last) - first) for first, last in pauses)

    return {
        name: [structs.replace(span, started=moved(span.started), ended=moved(span.ended)) for span in found]
        for name, found in spans.items()
    }
