"""What a report tells of a run: all facts, read from the folder of the run and, while it runs, from its owner."""

from __future__ import annotations

import json
import os
import stat
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.engine.waiting import HELD
from weft.model.errors import NotFoundError, WeftError
from weft.model.ids import item_name, loop_item
from weft.runs.explaining import explain_run, journal_facts, waits_within
from weft.runs.job_reasons import reasons_of_jobs
from weft.runs.logs import tail_start
from weft.runs.reading import read_run
from weft.runs.reasons import recorded_reasons
from weft.runs.records import ACTIVE, read_records
from weft.runs.reports.drawn import DrawnGraph, drawn_graph
from weft.runs.reports.spans import AttemptSpan, spans_of
from weft.runs.step_tree import tree
from weft.runtime.cache import read_decisions
from weft.store.places import project_of
from weft.store.state import list_inner_runs, owned, read_description

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from weft.engine.explain import Explained
    from weft.engine.waiting import Wait
    from weft.runs.reading import ItemRecord, RunRecord, StepRecord
    from weft.runs.reasons import Reasons
    from weft.runs.sources import SourceHost
    from weft.store.results import ResultCache
    from weft.store.state import LogFile

    OpenCache = Callable[[Callable[[str], None]], AbstractContextManager[ResultCache]]

MOST_OUTPUTS: Final = 200
"""The number of outputs that a report lists."""
MOST_LOGS: Final = 12
"""The number of failed tasks whose logs a report quotes."""
LOG_LINES: Final = 40
MOST_INNER: Final = 100
"""The number of runs begun by steps that a report tells."""
_LOG_BYTES: Final = 16 << 10
_MOST_FILES: Final = 2_000
_METRIC_BYTES: Final = 64 << 10
_MOST_METRICS: Final = 40
_DEEPEST: Final = 3
_LARGEST: Final = 1e100  # NaN is not below it, either
_BROKEN: Final = ("failed", "interrupted")


class OutputFact(Struct, frozen=True):
    """An output of a run: `kind` is file, folder, missing or other, `size` in bytes.

    A folder with too many files to count has `size` None. `digest` is that of its content, if the cache has it.
    """

    name: str
    path: Path
    kind: str
    size: int | None = None
    files: int = 1
    digest: str = ""


class InputFact(Struct, frozen=True):
    """An input of a step as the key of its result names it, with the digest of its content."""

    step: str
    name: str
    digest: str


class MetricFact(Struct, frozen=True):
    """A number in a JSON output (`source`), or in the last report of a replica."""

    source: str
    name: str
    value: float


class LogEnd(Struct, frozen=True):
    """The last lines of the log of the last attempt of a task that failed. `whole`: these are all lines."""

    task: str
    message: str
    path: Path
    lines: str
    whole: bool


class RunReport(Struct, frozen=True, kw_only=True):
    """The facts of a report about one run. `made` is its time, in seconds since 1970.

    `rows` are the steps with their dags and the depth of each. `busy_s` is the time of all attempts of tasks in
    seconds, None if it is not known. `inner` are the runs that steps have begun themselves. `remarks` name what is
    missing.
    """

    run: RunRecord
    made: float
    live: bool
    weft: str
    description: Mapping[str, Any]
    project: Path
    explained: Explained
    graph: DrawnGraph
    rows: Sequence[tuple[int, StepRecord]]
    spans: Mapping[str, Sequence[AttemptSpan]]
    busy_s: float | None
    reasons: Mapping[str, Reasons]
    waits: Sequence[Wait]
    job_reasons: Sequence[str]
    inputs: Sequence[InputFact]
    outputs: Sequence[OutputFact]
    metrics: Sequence[MetricFact]
    logs: Sequence[LogEnd]
    inner: Sequence[tuple[str, RunRecord]]
    remarks: Sequence[str]


def graph_of_run(run: RunRecord, host: SourceHost) -> DrawnGraph:
    """Return the graph of a run with the states of its vertices."""
    return drawn_graph(run, explain_run(run, host))


def report_run(run: RunRecord, host: SourceHost, now: float, open_cache: OpenCache) -> RunReport:
    """Return the facts of a report about a run, live or ended, at `now` (seconds since 1970).

    `open_cache` opens the cache of the state folder, which has the digests of outputs.
    """
    live = owned(run.folder) and run.state in ACTIVE
    explained = explain_run(run, host)
    spans = spans_of(read_records(run.folder), run.ended if run.ended is not None else now, alive=live)
    journal = journal_facts(run)
    busy = journal.busy_s if run.of_session else sum(span.seconds for each in spans.values() for span in each)
    remarks = [explained.remark] if explained.remark else []
    if run.of_session and busy is None:
        remarks.append("the time in tasks is not known, because the journal was cut")
    outputs = [_output(name, Path(path)) for name, path in list(run.outputs.items())[:MOST_OUTPUTS]]
    inputs, digests = _from_cache(run, open_cache, remarks)
    waiting = run.ended is None or run.state in ("suspended", "interrupted")
    waits = [wait for wait in waits_within(run, "", host) if wait.kind != HELD] if waiting else []
    begun = list_inner_runs(run.folder)
    if len(begun) > MOST_INNER:
        remarks.append(f"of the {len(begun):,} runs that steps have begun, the first {MOST_INNER} are told")
    inner = [(one.name, read_run(one.folder)) for one in begun[:MOST_INNER]]
    return RunReport(
        run=run,
        made=now,
        live=live,
        weft=journal.weft,
        description=_description(run.folder),
        project=project_of(run.folder.parent.parent),
        explained=explained,
        graph=drawn_graph(run, explained),
        rows=tree(run),
        spans=spans,
        busy_s=busy,
        reasons=recorded_reasons(run) if not run.of_jobs else {},
        waits=waits,
        job_reasons=reasons_of_jobs(run, "", host).lines() if run.of_jobs else (),
        inputs=inputs,
        outputs=[_with_digest(one, digests) for one in outputs],
        metrics=list(_metrics(run, outputs)),
        logs=list(_log_ends([("", run), *((f"{name}/", one) for name, one in inner)])),
        inner=inner,
        remarks=remarks,
    )


def _description(folder: Path) -> Mapping[str, Any]:
    """Return the description of a run; that of a run whose owner died before it wrote one is empty."""
    try:
        return read_description(folder)
    except NotFoundError:
        return {}


# --------------------------------------------------------------------------------------------------- inputs and outputs


def _output(name: str, path: Path) -> OutputFact:
    """Return what lies at the path of an output."""
    try:
        found = path.stat()
    except OSError:
        return OutputFact(name, path, "missing")
    if stat.S_ISREG(found.st_mode):
        return OutputFact(name, path, "file", found.st_size)
    if not stat.S_ISDIR(found.st_mode):
        return OutputFact(name, path, "other")
    size = files = 0
    for above, _, names in os.walk(path):
        for one in names:
            if files >= _MOST_FILES:
                return OutputFact(name, path, "folder", None, files)
            with suppress(OSError):
                size += os.lstat(os.path.join(above, one)).st_size
            files += 1
    return OutputFact(name, path, "folder", size, files)


def _with_digest(output: OutputFact, digests: Mapping[str, str]) -> OutputFact:
    return OutputFact(output.name, output.path, output.kind, output.size, output.files, digests.get(output.name, ""))


def _from_cache(run: RunRecord, open_cache: OpenCache, remarks: list[str]) -> tuple[list[InputFact], dict[str, str]]:
    """Return the inputs of steps, and the digests of outputs by `step.name`, as the answers of the cache tell them.

    No step without a cache has any.
    """
    inputs: list[InputFact] = []
    digests: dict[str, str] = {}
    answers = {(answer["step"], answer.get("task", 0)): answer for answer in read_decisions(run.folder)}
    answers = {task: answer for task, answer in answers.items() if answer.get("outcome") in ("hit", "miss")}
    if not answers:
        return inputs, digests
    shown = list(answers.items())[:MOST_OUTPUTS]
    with ExitStack() as undo:
        try:
            index = undo.enter_context(open_cache(remarks.append)).index
            entries = {task: index.entry(str(answer.get("key", ""))) for task, answer in shown}
        except WeftError as error:
            remarks.append(f"the digests of outputs are not known: {error.message}")
            entries = {}
    for task, answer in shown:
        name, entry = item_name(*task), entries.get(task)
        leaves = answer.get("leaves") or (entry.leaves if entry is not None else {})
        for leaf, digest in leaves.items():
            kind, _, rest = leaf.partition(" ")
            if kind in ("file", "input") and not rest.startswith("name ") and isinstance(digest, str):
                inputs.append(InputFact(name, rest, digest))
        if entry is not None:
            digests |= {f"{name}.{output}": one.digest for output, one in entry.outputs.items()}
    return inputs[: 2 * MOST_OUTPUTS], digests


# -------------------------------------------------------------------------------------------------------------- metrics


def metrics_of(run: RunRecord, *, live: bool = False) -> list[MetricFact]:
    """Return the numbers in small JSON files among the outputs of a run, and those that replicas have reported.

    With `live` also those in the outputs of steps that still run.
    """
    outputs = {**run.outputs}
    if live:
        planned = _description(run.folder).get("outputs")
        outputs = {**planned, **outputs} if isinstance(planned, dict) else outputs
    return list(_metrics(run, [_output(name, Path(path)) for name, path in list(outputs.items())[:MOST_OUTPUTS]]))


def _metrics(run: RunRecord, outputs: Sequence[OutputFact]) -> Iterator[MetricFact]:
    """Yield the numbers in small JSON files among the outputs, and those that replicas have reported."""
    for output in outputs:
        if output.kind == "file" and output.size is not None and 0 < output.size <= _METRIC_BYTES:
            found = islice(_numbers(_json_of(output.path), "", 0), _MOST_METRICS)
            yield from (MetricFact(output.name, name, value) for name, value in found)
    for job in run.jobs:
        for replica, report in job.get("reports", {}).items():
            for name, value in _numbers({**report, "time": None}, "", 0):
                yield MetricFact(f"{job['name']} {replica}", name.removeprefix("metrics."), value)


def _json_of(path: Path) -> Any:
    """Return the JSON object in a file; None if it has none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or file.read(1) != b"{":
                return None
            return json.loads(b"{" + file.read(_METRIC_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _numbers(value: Any, name: str, depth: int) -> Iterator[tuple[str, float]]:
    """Yield the numbers in objects of JSON, with the path of each: `test.accuracy`."""
    if isinstance(value, dict) and depth < _DEEPEST:
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and name and abs(value) < _LARGEST:
        yield name, value


# ----------------------------------------------------------------------------------------------------------------- logs


def _log_ends(runs: Sequence[tuple[str, RunRecord]]) -> Iterator[LogEnd]:
    """Yield the ends of the logs of failed tasks, of a run and of those that its steps have begun."""
    left = MOST_LOGS
    for prefix, run in runs:
        for name, part, log in _broken(run):
            if left == 0:
                return
            left -= 1
            lines, whole = _end_of(log.path)
            yield LogEnd(f"{prefix}{name}", part.message.partition("\n")[0], log.path, lines, whole)


def _broken(run: RunRecord) -> Iterator[tuple[str, StepRecord | ItemRecord, LogFile]]:
    for step in run.steps:
        parts: list[tuple[int | None, StepRecord | ItemRecord]] = (
            [(number, item) for number, item in sorted(step.items.items())] if step.items else [(None, step)]
        )
        for number, part in parts:
            if part.state not in _BROKEN:
                continue
            logs = [log for log in step.logs if number is None or (log.index or 0) == number]
            if logs:
                yield (step.name if number is None else loop_item(step.name, number)), part, logs[-1]


def _end_of(path: Path) -> tuple[str, bool]:
    """Return the last lines of a log, and whether these are all."""
    start = tail_start(path, LOG_LINES)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = max(start, size - _LOG_BYTES)
            file.seek(start)
            return file.read(_LOG_BYTES).decode(errors="replace"), start == 0
    except OSError:
        return "", False
