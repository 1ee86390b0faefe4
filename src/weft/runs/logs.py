"""The logs of a run, by step, item and attempt."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from weft.model.errors import NotFoundError
from weft.runs.inner import inner_runs, the_inner_run, with_logs
from weft.runs.reading import RunRecord, read_run
from weft.runs.records import ACTIVE
from weft.store.state import list_container_logs, list_inner_runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from weft.store.state import LogFile


class RunLogs(Struct, frozen=True):
    """The logs of a run or a step at one moment, one for each task."""

    run: RunRecord
    logs: Sequence[LogFile]
    mixed: bool = False
    """Whether they are of replicas, whose lines are printed together."""

    @property
    def active(self) -> bool:
        """Whether the run has not ended, so that the logs may grow."""
        return self.run.state in ACTIVE


def logs_of(folder: Path, step: str = "", attempt: int | None = None) -> RunLogs:
    """Return the logs of the latest attempt of each task, or of the named attempt; of all steps if none is named.

    `step` is a step or an item of one (`step-2`, `step[2]`), of replicas also with a container (`worker-2/sidecar`),
    of a step with replicas also with one of them (`train/worker-2`). NotFoundError: it does not exist.
    """
    run = read_run(folder)
    if not run.of_jobs:
        return _with_inner(run, step, attempt)
    named = step
    step, slash, container = step.partition("/")
    one, item = run.task(step) if step else (None, None)
    steps = run.steps if one is None else [one]
    found = [log for each in steps for log in each.logs]
    if slash:
        beside = [log for log in list_container_logs(folder) if log.step in {each.name for each in steps}]
        found = [log for log in beside if log.container == container]
        if not found:
            names = ", ".join(dict.fromkeys(log.container for log in beside))
            own = f"That of its main container: weft logs {run.id}/{step}"
            hint = f"There are: {names}. {own}" if names else own
            raise NotFoundError(f"{step} of {run.id} has no log of a container {container!r}", hint=hint)
    else:
        found += _only_logs(folder, {each.name for each in steps}, found)
    mixed = not step or any(each.name == named for each in run.steps)
    return RunLogs(run, _latest(found, item, attempt), mixed)


def _only_logs(folder: Path, steps: Collection[str], own: Iterable[LogFile]) -> list[LogFile]:
    """Return the logs of containers of replicas whose main container has never run, such as after a failed init one."""
    begun = {(log.step, log.index) for log in own}
    there = list_container_logs(folder)
    return [log for log in there if log.step in steps and (log.step, log.index) not in begun]


def _latest(logs: Sequence[LogFile], item: int | None, attempt: int | None) -> list[LogFile]:
    """Return the log of the latest attempt, or of the named one, of each container of each task or of the item."""
    latest: dict[tuple[str, int | None, str], LogFile] = {}
    for log in logs:
        if attempt in (None, log.attempt) and item in (None, log.index or 0):
            latest[(log.step, log.index, log.container)] = log
    return list(latest.values())


def _with_inner(run: RunRecord, step: str, attempt: int | None) -> RunLogs:
    """Return the logs of steps, with those of the replicas that steps have begun; of a named replica, that alone."""
    step, slash, replica = step.partition("/")
    if slash:
        begun = the_inner_run(run, step)
        found = logs_of(begun.folder, replica, attempt)
        return RunLogs(run, list(with_logs((), [begun], lambda _: found.logs)), found.mixed)
    one, item = run.task(step) if step else (None, None)
    own = _latest([log for each in (run.steps if one is None else [one]) for log in each.logs], item, attempt)
    inner = list_inner_runs(run.folder) if one is None else inner_runs(run, step)
    if attempt is not None or not inner:
        return RunLogs(run, own)
    return RunLogs(run, list(with_logs(own, inner, lambda begun: logs_of(begun.folder).logs)), bool(step))


def tail_start(path: Path, lines: int) -> int:
    """Return the offset of the last `lines` lines of a file."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            if lines == 0:
                return end
            at, left = end, lines
            while at > 0:
                start = max(0, at - 65_536)
                file.seek(start)
                block = file.read(at - start)
                if at == end and block.endswith(b"\n"):
                    block = block[:-1]
                found = len(block)
                while (found := block.rfind(b"\n", 0, found)) >= 0:
                    left -= 1
                    if left == 0:
                        return start + found + 1
                at = start
    except OSError:
        pass
    return 0
