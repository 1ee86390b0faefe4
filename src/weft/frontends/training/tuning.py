"""What a job leaves to its control vertex: the annotation `weft.dev/tune`, and what follows from measurements.

The annotation is a map in YAML or JSON. With `history` the replicas request what those of earlier runs used. Of the
`candidates` the best of a trial is taken: numbers of replicas and resources, by replica type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.documents import yaml
from weft.documents.problems import Problems, choices, join
from weft.frontends.training import shapes
from weft.frontends.training.fields import Fields, ReadingContext
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.schema import Candidate, JobTuning
from weft.model.digests import hex_digest
from weft.model.errors import DocumentError
from weft.model.suggestions import nearest
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.documents.problems import FilePosition
    from weft.frontends.training.schema import Container, JobFile, PodTemplate, TrainingJob

TUNE: Final = "weft.dev/tune"
"""The annotation of a job that asks for tuning."""
CPU: Final = "cpu"
MEMORY: Final = "memory"
GPU: Final = "nvidia.com/gpu"
HEADROOM: Final = 1.25
"""What is requested of what was used."""
LEAST: Final[Mapping[str, float]] = {CPU: 0.1, MEMORY: 64 << 20}
"""The least that history requests."""
AS_GOOD: Final = 0.95
"""A candidate with this part of the best measure is as good: the first of such candidates is taken."""
MOST_CANDIDATES: Final = 16
_UNITS: Final[Mapping[str, float]] = {CPU: 0.1, MEMORY: 1 << 20}


class TuningChoice(Struct, frozen=True, kw_only=True):
    """What was decided for a job, and why: numbers of replicas and requested resources, by replica type.

    `reasons` tells why a type requests what it does, where that is not `because`.
    """

    replicas: Mapping[str, int] = {}
    requests: Mapping[str, Mapping[str, float]] = {}
    because: str = ""
    reasons: Mapping[str, str] = {}


class TrialMeasure(Struct, frozen=True):
    """What a trial of a candidate has measured: `rate` is the more the better; None with the reason in `failure`."""

    candidate: Candidate
    rate: float | None
    unit: str = ""
    failure: str = ""


# ------------------------------------------------------------------------------------------------------------- reading


def read_tuning(job: TrainingJob, mark: FilePosition, problems: Problems) -> JobTuning | None:
    """Return what the annotation of a job asks for, None without one; `mark` is its place. Mistakes are collected."""
    text = job.annotations.get(TUNE)
    if text is None:
        return None
    path = f"metadata.annotations[{TUNE}]"
    try:
        node = yaml.load(text, Problems(problems.file, problems.kind))
    except DocumentError as error:
        problems.add(mark, path, error.message, error.hint)
        return None
    fields = Fields(_moved(node, mark), path, shapes.TUNING, ReadingContext(problems))
    seconds = fields.number("seconds", 1, 86_400)
    candidates = tuple(_candidates(job, fields))
    if not candidates and not fields.truth("history"):
        problems.add(mark, path, "asks for nothing", "write history: true, or candidates: [{Worker: 1}, {Worker: 2}]")
    return JobTuning(
        history=fields.truth("history"),
        candidates=candidates,
        seconds=JobTuning().seconds if seconds is None else seconds,
        steps=fields.number("steps", 1),
        measure=fields.text("measure"),
    )


def _candidates(job: TrainingJob, fields: Fields) -> Iterator[Candidate]:
    node = fields.node("candidates")
    if node is None:
        return
    if not isinstance(node, yaml.Sequence) or not 1 <= len(node.items) <= MOST_CANDIDATES:
        fields.wrong_at("candidates", f"must be a list of 1 to {MOST_CANDIDATES} maps, is {yaml.describe(node)}")
        return
    for at, item in enumerate(node.items):
        path = f"{join(fields.path, 'candidates')}[{at}]"
        if not isinstance(item, yaml.Mapping) or not item.entries:
            fields.wrong(item.mark, path, f"must be a map of replica types, is {yaml.describe(item)}")
            continue
        replicas: dict[str, int] = {}
        requests: dict[str, dict[str, float]] = {}
        for name, value in item.entries.items():
            type = next((known for known in job.replicas if known.lower() == name.lower()), "")
            if not type:
                near = nearest(name, job.replicas)
                hint = f"Did you mean {near}?" if near else f"the job has: {choices(job.replicas)}"
                fields.wrong(item.keys[name], join(path, name), "is no replica type of the job", hint)
                continue
            type = next((known for known in KINDS[job.kind].types if known.lower() == type.lower()), type)
            own = value if isinstance(value, yaml.Mapping) else _number_only(value)
            one = Fields(own, join(path, name), shapes.CANDIDATE, fields.context)
            count = one.number("replicas", 1, 1000)
            if count is not None:
                replicas[type] = count
            if amounts := _amounts(one):
                requests[type] = amounts
        yield Candidate(replicas=replicas, requests=requests)


def _number_only(value: yaml.Node) -> yaml.Mapping:
    """Return a number of replicas as the map that it stands for."""
    return yaml.Mapping({"replicas": value}, {"replicas": value.mark}, value.mark)


def _amounts(fields: Fields) -> dict[str, float]:
    found = fields.quantities("requests") if "requests" in fields else {}
    return {(GPU if name == "gpu" else name): amount for name, amount in found.items()}


def _moved(node: yaml.Node, mark: FilePosition) -> yaml.Node:
    """Return a node at a position: an annotation is one text of its file."""
    if isinstance(node, yaml.Mapping):
        entries = {key: _moved(value, mark) for key, value in node.entries.items()}
        return yaml.Mapping(entries, dict.fromkeys(entries, mark), mark)
    if isinstance(node, yaml.Sequence):
        return yaml.Sequence(tuple(_moved(item, mark) for item in node.items), mark)
    return yaml.Scalar(node.value, node.text, mark)


# ------------------------------------------------------------------------------------------------------------ the jobs


def tuned(job: TrainingJob, replicas: Mapping[str, int], requests: Mapping[str, Mapping[str, float]]) -> TrainingJob:
    """Return a job with numbers of replicas, and with the resources that each replica of a type requests."""
    specs = dict(job.replicas)
    for type, count in replicas.items():
        specs[type] = replace(specs[type], replicas=count)
    for type, amounts in requests.items():
        specs[type] = replace(specs[type], template=_requesting(job, specs[type].template, amounts))
    return replace(job, replicas=specs)


def _requesting(job: TrainingJob, template: PodTemplate, amounts: Mapping[str, float]) -> PodTemplate:
    """Return a pod that requests amounts: its main container takes what the others leave of them."""
    main = _main_of(job, template)
    others = [one for one in template.containers if one is not main]
    own = {name: max(amount - sum(map(requested(name), others)), 0.0) for name, amount in amounts.items()}
    limits = {name: max(limit, own.get(name, 0.0)) for name, limit in main.limits.items()}
    changed = replace(main, requests={**main.limits, **main.requests, **own}, limits=limits)
    return replace(template, containers=tuple(changed if one is main else one for one in template.containers))


def requested(name: str) -> Any:
    """Return the function from a container to what it requests of a resource, its limit where it requests nothing."""
    return lambda container: container.requests.get(name, container.limits.get(name, 0.0))


def _main_of(job: TrainingJob, template: PodTemplate) -> Container:
    name = job.main_container or KINDS[job.kind].container
    return next((one for one in template.containers if one.name == name), template.containers[0])


def fingerprint_of(files: JobFile, room: Sequence[float]) -> str:
    """Return the fingerprint of the work of the jobs that have a history, "" if none has one.

    Numbers of replicas, resources and labels may differ between runs of the same work; programs, images, variables,
    candidates and the machine may not: `room` is what it has, nothing for a cluster.
    """
    said: list[Any] = []
    for job in files.jobs:
        if job.tuning is None or not job.tuning.history:
            continue
        parts = {
            type: [[one.image, one.command, one.args, one.env] for one in spec.template.containers]
            for type, spec in sorted(job.replicas.items())
        }
        said.append([job.kind, job.namespace, job.name, parts, job.tuning])
    if not said:
        return ""
    plain = msgspec.to_builtins([said, list(room)])
    return hex_digest(json.dumps(plain, sort_keys=True).encode())


# ------------------------------------------------------------------------------------------------------ from measures


def from_history(job: TrainingJob, usage: Mapping[str, Mapping[str, float]], runs: int) -> TuningChoice:
    """Return the requests that follow from the most that replicas of each type used in some earlier runs.

    A request is `HEADROOM` times that, at least `LEAST`, and at most the limit of the file.
    """
    requests: dict[str, dict[str, float]] = {}
    reasons: dict[str, str] = {}
    for type, spec in job.replicas.items():
        used = {name: usage.get(type, {}).get(name, 0.0) for name in (CPU, MEMORY)}
        for name, most in used.items():
            if not most:
                continue
            wanted = math.ceil(round(most * HEADROOM / _UNITS[name], 6)) * _UNITS[name]
            limits = [one.limits[name] for one in spec.template.containers if name in one.limits]
            top = sum(limits) if len(limits) == len(spec.template.containers) else math.inf
            requests.setdefault(type, {})[name] = min(max(wanted, LEAST[name]), top)
            before = sum(map(requested(name), spec.template.containers))
            told = f"{amount_text(name, requests[type][name])} in place of {amount_text(name, before)}"
            text = f"{type} {name} {told} (used {amount_text(name, most)})"
            reasons[type] = f"{reasons[type]}, {text}" if type in reasons else text
    if not requests:
        return TuningChoice()
    said = f"history of {counted(runs, 'run')}: "
    reasons = {type: said + text for type, text in reasons.items()}
    return TuningChoice(
        requests=requests,
        because=said + ", ".join(text.removeprefix(said) for text in reasons.values()),
        reasons=reasons,
    )


def amount_text(name: str, amount: float) -> str:
    """Return an amount of a resource for users."""
    if name != MEMORY:
        return f"{amount:.3g}"
    return f"{amount / (1 << 20):,.0f} MiB" if amount else "0"


def rate_of(reports: Iterable[Sequence[Mapping[str, Any]]], measure: str) -> tuple[float | None, str]:
    """Return the rate of a trial from the reports of its replicas, oldest first, and its unit; None: they tell none.

    It is the sum over the replicas: of the last value of the metric `measure`, else of steps per second.
    """
    rates = [rate for lines in reports if (rate := _rate(lines, measure)) is not None]
    return (sum(rates), measure or "steps/s") if rates else (None, "")


def _rate(lines: Sequence[Mapping[str, Any]], measure: str) -> float | None:
    if measure:
        values = [line.get("metrics", {}).get(measure) for line in lines]
        return next((float(one) for one in reversed(values) if isinstance(one, int | float)), None)
    steps = [(line["step"], line["time"]) for line in lines if "step" in line and "time" in line]
    if len(steps) < 2 or steps[-1][1] <= steps[0][1] or steps[-1][0] <= steps[0][0]:
        return None
    return float((steps[-1][0] - steps[0][0]) / (steps[-1][1] - steps[0][1]))


def words_of(candidate: Candidate) -> str:
    """Return a candidate for users: `Worker 2, cpu 1`."""
    parts = []
    for type in dict.fromkeys((*candidate.replicas, *candidate.requests)):
        amounts = [f"{name} {amount_text(name, amount)}" for name, amount in candidate.requests.get(type, {}).items()]
        count = [str(candidate.replicas[type])] if type in candidate.replicas else []
        parts.append(f"{type} {', '.join([*count, *amounts])}")
    return "; ".join(parts)


def best_of(measured: Iterable[TrialMeasure]) -> TuningChoice:
    """Return the first of the candidates that are as good as the best one; none if no trial has measured anything.

    Rates of different units are not compared: those of the first unit count.
    """
    every = list(measured)
    unit = next((one.unit for one in every if one.rate is not None), "")
    rates = [one.rate for one in every if one.rate is not None and one.unit == unit]
    told = ", ".join(f"{words_of(one.candidate)}: {_rate_text(one)}" for one in every)
    if not rates:
        return TuningChoice(because=f"no trial has measured anything, the file decides ({told})")
    best = next(one for one in every if one.unit == unit and one.rate is not None and one.rate >= AS_GOOD * max(rates))
    chosen = best.candidate
    because = f"trials: {words_of(chosen)} is the best ({told})"
    return TuningChoice(replicas=chosen.replicas, requests=chosen.requests, because=because)


def _rate_text(one: TrialMeasure) -> str:
    if one.rate is None:
        return one.failure
    return f"{one.rate:,.0f} {one.unit}" if one.rate >= 100 else f"{one.rate:.3g} {one.unit}"
