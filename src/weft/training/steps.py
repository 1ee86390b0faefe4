"""The step kind `training`: jobs of a file, or declared by options, as one step of a pipeline.

The step runs its jobs in a run of their own inside the folder of the pipeline's run: the same compiler, controller and
replicas as `weft run FILE`. A further attempt of the step, also under a later owner, continues that run, so that the
replicas find their checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from weft import wiring
from weft.admin.settings import check_setting, load_settings
from weft.frontends.pipelines import function
from weft.frontends.pipelines.kinds import Complaints, StepFrame, StepKind, leaves_of
from weft.frontends.pipelines.states import NEWS
from weft.frontends.training.compiler import as_json, groups_of
from weft.frontends.training.desired import is_ours
from weft.frontends.training.endpoints import loopback_warnings
from weft.frontends.training.opened_reports import SPREAD, forget_opened, opened_in
from weft.frontends.training.reading import read_files
from weft.frontends.training.running import AUTO, TENSORBOARD
from weft.frontends.training.source import STEP, image_leaves, refuse_spread
from weft.frontends.training.surroundings import StepSurroundings
from weft.model.errors import JobFileError, RunCancelledError, TaskError, UsageError, WeftError
from weft.model.ids import loop_item
from weft.model.masking import without_secrets
from weft.model.records import as_dict
from weft.model.suggestions import did_you_mean
from weft.model.wording import MOST_TOLD, how_failed
from weft.operators.call import TIMED_OUT as TIMEOUT_STATUS
from weft.operators.mounts import BindMount
from weft.runs.active import RunEvents, RunMessage
from weft.runs.foreseeing import plan_jobs
from weft.runs.job_reasons import failed_beside, which_failure
from weft.runs.lending import lent_session
from weft.runs.reading import read_run
from weft.runs.records import Record
from weft.runs.service import RunService
from weft.runtime.clock import RealClock
from weft.store.digests import DIGEST
from weft.store.folders import safe_open
from weft.store.state import StateRoot, newest_run, read_description, read_status
from weft.training.jobs import ROLES, job
from weft.training.placed_time import PlacedTime
from weft.training.runs import backend_of

if TYPE_CHECKING:
    from weft.frontends.training.schema import JobFile, TrainingJob
    from weft.frontends.training.source import TrainingSource
    from weft.graph.task import TaskContext, TaskInput
    from weft.runs.active import ActiveRun, RunResult

_FILE: Final = "file"
_REPLICAS: Final = "replicas"
_FUNCTION: Final = ("function", "path", "item")
"""The options of a step whose replicas call a Python function, as of the step kind `python`."""
_PLACES: Final = ("isolation", "outer_network", "priority", "queue")
"""The options that are settings of `weft run`: they change no result."""
_HERE: Final = {"backend": "threads"}
"""The settings of a step at a machine: its jobs run there, whatever the backend of the pipeline is."""
_ARGUMENTS: Final = (
    "kind",
    "name",
    "command",
    "image",
    "env",
    "resources",
    "restart",
    "grace_s",
    "backoff_limit",
    "deadline_s",
    "clean",
    "elastic",
    "runtime",
    "success",
    "files",
    "namespace",
)
"""The options that are arguments of `weft.training.job`."""
_LONGEST_NEWS: Final = 2000
_COMPILED: Final = "/__pycache__/"
"""What the paths of compiled modules have, which Python replaces when their source has changed."""
_NUMBERS: Final = frozenset({_REPLICAS, "grace_s", "backoff_limit", "deadline_s"})


def run_step_jobs(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> dict[str, Any]:
    """Run the jobs of a step to their end (style TASK); return their conditions.

    TaskError: a job failed, with its reason and the replica whose failure it was, or it took too long.
    RunCancelledError: the step was stopped.
    """
    params = ctx.params
    name, options, folder = str(params["name"]), params["options"], str(params["folder"])
    try:
        files, file = _jobs_of(options, folder, params["cwd"], name)
        inner = StateRoot(Path(params["runs"]))
        run = inner.path.parent.parent
        session = lent_session(run)
        backend = {"backend": backend_of(None, session)} if session is not None else _HERE
        settings = load_settings({**_given(options, params["settings"]), **backend}, start=Path(folder))
        step = _surroundings(params, f"{run.name}/{name}", files, traced=params["traced"] and session is None)
        source = wiring.source_of_jobs(files, file, settings, StateRoot(run.parent.parent), step=step)
        with closing(RunService(wiring, settings, inner, session=session)) as service:
            ended = _to_end(ctx, service, source)
    except (RunCancelledError, TaskError):
        raise
    except WeftError as error:
        raise TaskError(error.message, task=name, hint=error.hint) from None
    if ctx.cancelled():
        raise RunCancelledError(f"step {name} was stopped")
    if ended.error is not None or ended.state != "succeeded":
        raise _failure(ended, name)
    if beside := failed_beside(read_run(ended.folder)):
        ctx.emit(NEWS, beside[:_LONGEST_NEWS])
    return {
        "run": ended.run_id,
        "jobs": _conditions(ended.folder),
        **_opened(ended.folder, options, folder, spread=session is not None),
        "spoilt": _scaled(ended.folder),
    }


def _opened(run: Path, options: Mapping[str, Any], folder: str, *, spread: bool) -> dict[str, Any]:
    """Return what the replicas of a run opened, as `StepKind` says; `folder` is that of the pipeline's file."""
    if spread:
        return {"unseen": SPREAD}
    opened, began = opened_in(run)
    if opened is None:
        return {"opened": None}
    said = as_dict(opened)
    if _FUNCTION[0] in options:
        said = function.with_code_in_part(said, options, folder)
    return {"opened": said, "began": began}


def _scaled(run: Path) -> str:
    """Return that the jobs of a run had other replicas than those of their file, which the key of a result has."""
    found = [f"{name}={count}" for job in read_status(run) for name, count in job.get("scaled", {}).items()]
    return f"weft scale changed the replicas ({', '.join(found)}); to keep one, write them in the job" if found else ""


def _surroundings(params: Mapping[str, Any], name: str, files: JobFile, *, traced: bool) -> StepSurroundings:
    variables, masked = dict(params["variables"]), params.get("masked", ())
    if _FUNCTION[0] in params["options"]:
        variables |= function.call_variables(params)
    shown = {key: without_secrets(value, masked) for key, value in variables.items()}
    work = [as_json(files.jobs), as_json(files.pods), shown, params["item"]]
    view = params.get("view")
    return StepSurroundings(
        name=name,
        inherited={key: value for key, value in params["env"].items() if key not in variables},
        variables=variables,
        masked=masked,
        folders=[str(params["cwd"]), str(params["folder"])],
        mounts=[BindMount(*bind) for bind in view.binds] if view is not None else [],
        digest=hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest(),
        traced=traced,
    )


def _to_end(ctx: TaskContext, service: RunService, source: TrainingSource) -> RunResult:
    """Begin or continue the run of the jobs, and follow it to its end; log their news, and tell them to the user."""
    events = RunEvents()
    log = Path(ctx.params["log"])
    active = _begin(service, source, events)

    def stop() -> None:
        with suppress(WeftError):  # it is just ending
            active.cancel("the step was stopped", force=True)

    ctx.on_cancel(stop)
    news, placed, limit = _StepNews(source.files.jobs), PlacedTime(source.files, RealClock()), ctx.params["timeout_s"]
    late = False
    with safe_open(log.parent, log.name, mode="a") as out:
        while True:
            try:
                event = events.take(None if late else placed.left(limit))
            except queue.Empty:
                late = True
                stop()
                continue
            if event is None:
                break
            placed.take(event)
            for line in _log_lines(event):
                out.write(f"{line}\n")
                out.flush()
            if told := news.of(event):
                ctx.emit(NEWS, told[:_LONGEST_NEWS])
    ended = active.result()
    if late and ended.state != "succeeded" and not ctx.cancelled():
        raise TaskError(placed.too_long(limit), task=str(ctx.params["name"]), status=TIMEOUT_STATUS)
    return ended


class _StepNews:
    """What the run of a pipeline tells about the jobs of a step: each failure and restart of a replica up to a limit,
    and what happens to a job, except its begin and its end, which are those of the step.
    """

    def __init__(self, jobs: Sequence[TrainingJob]) -> None:
        ends = ("created", "running", "succeeded", "complete", "failed")
        self._usual = tuple(f"{job.kind} {job.name} {word}" for job in jobs for word in ends)
        self._told: Counter[str] = Counter()

    def of(self, event: object) -> str:
        """Return the news of an event of their run, "" if it has none."""
        if isinstance(event, RunMessage):
            return event.text if event.text.startswith(TENSORBOARD) else ""
        if not isinstance(event, Record) or event.warned:
            return ""
        if event.index is None:
            usual = event.step or event.state or event.message.startswith(self._usual)
            return "" if usual else event.message
        line = _of_replica(event)
        if not line:
            return ""
        self._told[event.step] += 1
        if self._told[event.step] > MOST_TOLD:
            more = f"{event.step}: more replicas fail or restart; see weft show"
            return more if self._told[event.step] == MOST_TOLD + 1 else ""
        return line


def _of_replica(record: Record) -> str:
    """Return the line of a replica that fails or starts again, "" for other records."""
    if record.index is None:
        return ""
    who = loop_item(record.step, record.index)
    if record.state == "failed":
        return f"{who} failed: {how_failed(record.message).partition(chr(10))[0]}"
    if record.state == "running" and record.attempt > 0:
        return f"{who} starts again"
    return ""


def _begin(service: RunService, source: TrainingSource, events: RunEvents) -> ActiveRun:
    """Continue the last run of the step if it was the same work and has not succeeded; else begin one."""
    last = newest_run(service.state)
    if last is not None and source.step is not None:
        found = service.show(last.name)
        with suppress(WeftError):  # without a description it did not begin
            if found.state != "succeeded" and read_description(last).get(STEP) == source.step.digest:
                if not _goes_on_from(last, service.state.path.parent.parent):
                    forget_opened(last)
                return service.resume(last.name, events=events, source=source)
    return service.submit(source, events=events)


def _goes_on_from(last: Path, run: Path) -> bool:
    """Whether something that an attempt left may be a part of the result of the next one: checkpoints, jobs that have
    succeeded, or files outside of the folder of the pipeline's run. What is not known may.
    """
    opened, _ = opened_in(last)
    if opened is None:
        return True
    outside = (path for path in opened.written if not path.startswith(f"{run}/") and _COMPILED not in path)
    ended = any(word in ("Succeeded", "Complete") for word in _conditions(last).values())
    return ended or any(files for *_, files in os.walk(last / "checkpoints")) or any(map(os.path.isfile, outside))


def _log_lines(event: object) -> Iterator[str]:
    """Yield the lines of the log for an event: conditions of jobs, and replicas that fail or start again."""
    if isinstance(event, RunMessage):
        yield event.text
    elif isinstance(event, Record) and not event.step and not event.state and event.message:
        yield event.message
    elif isinstance(event, Record) and event.step and (line := _of_replica(event)):
        yield line


def _failure(ended: RunResult, step: str) -> TaskError:
    """Return the error of a step whose jobs failed: the reason of the job, then the replica whose failure it was."""
    jobs = read_status(ended.folder)
    said = [
        (f"{one['kind']} {one['name']}", str(condition["message"]))
        for one in jobs
        for condition in one["status"].get("conditions", ())
        if condition["type"] == "Failed" and condition["status"] == "True"
    ]
    error = ended.error
    first = "" if error is None else error.message
    status = error.status if isinstance(error, TaskError) else None
    task = error.task if isinstance(error, TaskError) else ""
    reason = "; ".join(f"{job} failed: {why}" for job, why in said) or f"the jobs of the step ended {ended.state}"
    label = f". {which_failure(jobs).capitalize()} failure" if task else ""
    if first and first not in reason and not any(why in first for _, why in said):
        reason = f"{reason.removesuffix('.')}{label}: {first}"
    return TaskError(reason, task=step, status=status, hint="" if error is None else error.hint)


def _conditions(folder: Path) -> dict[str, str]:
    """Return the last condition of each job."""
    found = {one["name"]: one["status"].get("conditions", ()) for one in read_status(folder)}
    return {name: conditions[-1]["type"] for name, conditions in found.items() if conditions}


# ------------------------------------------------------------------------------------------------------- the options


def _jobs_of(options: Mapping[str, Any], folder: str, cwd: str, step: str) -> tuple[JobFile, Path]:
    """Return the jobs of a step, and their file or the one that they stand for. Errors as of `weft run FILE`."""
    if _FILE in options:
        file = Path(folder, options[_FILE])
        files = read_files(str(file))
    else:
        given = {key: options[key] for key in _ARGUMENTS if options.get(key) is not None}
        given.setdefault("name", step.rpartition(".")[2].lower())
        given |= {"elastic": tuple(given["elastic"])} if "elastic" in given else {}
        given |= {"command": list(function.CALLER)} if _FUNCTION[0] in options else {}
        file = Path(cwd, f"{given['name']}.yaml")
        files = job(**given, **options[_REPLICAS]).files
    for one in files.jobs:
        if one.policy.suspend or not is_ours(one):
            field = "suspend" if one.policy.suspend else "managedBy"
            hint = f"Leave {field} out: a step is done when its jobs are."
            raise UsageError(
                f"the job {one.name} never starts here ({field}), so that its step would not end", hint=hint
            )
    return files, file


def check(options: Mapping[str, Any]) -> Complaints:
    """Return the mistakes in the options of such a step; their texts may hold templates."""
    if wrong := tuple(_wrong_places(options)):
        return wrong
    if (_FILE in options) == (_REPLICAS in options):
        return (("", "needs either file or replicas, such as  replicas: {worker: 2}"),)
    if _FILE in options:
        more = [name for name in options if name in (*_ARGUMENTS, *_FUNCTION)]
        if more:
            return tuple((name, "belongs to jobs without a file") for name in more)
        value = options[_FILE]
        plain = isinstance(value, str) and value and "{{" not in value
        return () if plain else ((_FILE, "must be the path of a job file, without templates"),)
    if _FUNCTION[0] in options and "command" in options:
        return (("command", "excludes function"),)
    if wrong := function.check({name: options[name] for name in _FUNCTION if name in options}):
        return wrong
    if not isinstance(options[_REPLICAS], Mapping):
        return ((_REPLICAS, "must map roles to numbers, such as {worker: 2}"),)
    unknown = [role for role in map(str, options[_REPLICAS]) if role not in ROLES]
    if unknown:
        known = f"There are: {', '.join(ROLES)}."
        return tuple((_REPLICAS, f"there is no role {role}. {did_you_mean(role, ROLES, known)}") for role in unknown)
    try:
        _jobs_of(_plausible(options), ".", ".", "job")
    except (JobFileError, UsageError) as error:
        told = error.message.removeprefix(f"{error.file}: ") if isinstance(error, JobFileError) else error.message
        told = f"{told}\n    {error.hint}" if error.hint else told
        return tuple((_option_of(text, options), text) for text in _with_hints(told.splitlines()))
    return ()


def _with_hints(lines: Iterable[str]) -> list[str]:
    """Return mistakes as one line each; the lines of a hint are indented."""
    found: list[str] = []
    for line in lines:
        if found and line.startswith(" "):
            found[-1] = f"{found[-1]}. {line.strip()}"
        else:
            found.append(line)
    return found


def _wrong_places(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the mistakes in options that are settings."""
    for name in _PLACES:
        value = options.get(name)
        if value is None or (isinstance(value, str) and "{{" in value):
            continue
        try:
            check_setting(name, value, "the value")
        except UsageError as error:
            yield name, f"{error.message}. {error.hint}" if error.hint else error.message


def _option_of(line: str, options: Mapping[str, Any]) -> str:
    """Return the option that a mistake is about, "" if none is known."""
    first = line.partition(":")[0].rpartition(".")[2].partition(" ")[0]
    return first if first in options else ""


def _plausible(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with values that pass in the place of templates in numbers."""
    found = dict(options)
    for name in _NUMBERS & found.keys():
        found[name] = _number(found[name])
    if "resources" in found and "{{" in json.dumps(found["resources"]):
        del found["resources"]
    return found


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _number(one) if name not in ("env", "command", "image") else one for name, one in value.items()}
    return 1 if isinstance(value, str) and "{{" in value else value


def leaves(options: Mapping[str, Any], folder: str, cwd: str) -> dict[str, str]:
    """Return what the result depends on: the jobs of the file, or the options, and what stands for their images."""
    files, file = _jobs_of(_plausible(options), folder, cwd, "job")
    images = image_leaves(files, file, cwd)
    if _FILE not in options:
        own = {name: value for name, value in options.items() if name not in (*_PLACES, *_FUNCTION)}
        called = {name: options[name] for name in _FUNCTION if name in options}
        return {**images, **leaves_of(own, folder, cwd), **(function.leaves(called, folder, cwd) if called else {})}
    found = {f"job {one.name} {path}": text for one in files.jobs for path, text in _fields(as_json(one), "")}
    found |= images
    found |= {f"pod {one.name}": _digest(one) for one in files.pods}
    for kind, held in (("config map", files.config_maps), ("secret", files.secrets)):
        found |= {f"{kind} {name}": _digest(one) for name, one in held.items()}
    return found


def _fields(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a record by their paths; the values of variables stay out of sight."""
    if isinstance(value, Mapping):
        inner = [pair for name, one in value.items() for pair in _fields(one, f"{path}.{name}" if path else name)]
        yield from inner or [(path, "{}")]
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, one in enumerate(value):
            name = f" {one['name']}" if isinstance(one, Mapping) and one.get("name") else ""
            yield from _fields(one, f"{path}[{number}{name}]")
    elif value is not None:
        yield path, f"{DIGEST}{_digest(value)}" if ".env[" in path else json.dumps(value)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(as_json(value), sort_keys=True).encode()).hexdigest()


def commands(options: Mapping[str, Any], folder: str, cwd: str) -> list[tuple[str, str]]:
    """Return the commands of the containers, with the folder that replicas start in; a function has none."""
    files, file = _jobs_of(_plausible(options), folder, cwd, "job")
    base = str(file if file.is_dir() else file.parent)
    found = dict.fromkeys(
        _text_of([*container.command, *container.args])
        for group in groups_of(files)
        for container in (*group.spec.template.init_containers, *group.spec.template.containers)
    )
    return [(text, base) for text in found if text and text != shlex.join(function.CALLER)]


def _text_of(words: Sequence[str]) -> str:
    """Return the words of a command as a text for sh: the text itself if they are a shell and a text."""
    if len(words) == 3 and words[1] == "-c" and os.path.basename(words[0]) in ("sh", "bash"):
        return words[2]
    return shlex.join(words)


def spreads(options: Mapping[str, Any], folder: str) -> bool:
    """Return whether the jobs may run at several machines: they use no names, which exist on one machine alone."""
    try:
        files, file = _jobs_of(_plausible(options), folder, folder, "job")
        refuse_spread(files, str(options.get("isolation", AUTO)), str(file))
    except WeftError:  # what is wrong is told elsewhere
        return False
    services = [service.name for service in files.services]
    if any(warning for one in files.jobs for warning in loopback_warnings(one, services, spread=True)):
        return False
    texts = [data for held in files.config_maps.values() for data in held.data.values()]
    return not any(f"{one.name}-".encode() in data for one in files.jobs for data in texts)


def examine(options: Mapping[str, Any], folder: str, step: StepFrame) -> list[str]:
    """Read the jobs before a run; return their warnings. Errors as of `weft run FILE` before the run."""
    files, file = _jobs_of(_plausible(options), folder, step.cwd, "job")
    return _source(files, file, folder, _given(options, {})).examine()


def unseen(options: Mapping[str, Any], folder: str, cwd: str, settings: Mapping[str, Any]) -> str:
    """Return why it cannot be told what the replicas open, "" if it can. Errors as of `examine`."""
    given = _given(options, settings)
    if _is_spread(options, folder, given):
        return SPREAD
    files, file = _jobs_of(_plausible(options), folder, cwd, "job")
    return _source(files, file, folder, given).unseen(cwd)


def misfit(options: Mapping[str, Any], folder: str, settings: Mapping[str, Any]) -> str:
    """Return why the jobs can never start on this machine, "" if they may. Errors as of `weft run FILE`."""
    given = _given(options, settings)
    if _is_spread(options, folder, given):
        return ""
    files, file = _jobs_of(_plausible(options), folder, folder, "job")
    plans = plan_jobs(_source(files, file, folder, given))
    gangs = [(plan, plan.gang.refusal) for plan in plans if plan.gang is not None and plan.gang.refusal]
    return "; ".join(f"{plan.kind} {plan.name} cannot start here: {why}" for plan, why in gangs)


def _given(options: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a step: those of its options go before those of the run."""
    return {**settings, **{key: options[key] for key in _PLACES if key in options}}


def _is_spread(options: Mapping[str, Any], folder: str, given: Mapping[str, Any]) -> bool:
    """Return whether the jobs run at the machines of a cluster by the settings of their step."""
    return load_settings(given, start=Path(folder)).backend == "ray" and spreads(options, folder)


def _source(files: JobFile, file: Path, folder: str, given: Mapping[str, Any] = MappingProxyType({})) -> TrainingSource:
    """Return the source of jobs that do not run yet; `given` are settings of the run."""
    settings = load_settings({**given, **_HERE}, start=Path(folder))
    inherited = StepSurroundings(name="", inherited={})
    return wiring.source_of_jobs(files, file, settings, settings.state_root(Path(folder)), step=inherited)


KIND: Final = StepKind(
    program=f"{__name__}:run_step_jobs",
    options=dict.fromkeys((_FILE, _REPLICAS, *_FUNCTION, *_ARGUMENTS, *_PLACES), False),
    check=check,
    leaves=leaves,
    commands=commands,
    examine=examine,
    unseen=unseen,
    misfit=misfit,
    timed=True,
    spreads=spreads,
)
