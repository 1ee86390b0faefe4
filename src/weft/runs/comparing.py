"""The comparison of two runs: what they were given, what they made, and the first change that explains the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.model.errors import WeftError
from weft.model.ids import item_name
from weft.runs.explaining import journal_facts
from weft.runs.reports.facts import metrics_of
from weft.runtime.cache import read_decisions
from weft.store.digests import ABSENT, Digester
from weft.store.opened import OPENED
from weft.store.state import read_description

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from weft.runs.reading import RunRecord, StepRecord
    from weft.runs.sources import ResumableSource, SourceHost
    from weft.store.results import ResultCache

SAME: Final = "same"
OTHER: Final = "other"
UNKNOWN: Final = "unknown"
_ENVIRONMENT: Final = (
    "backend",
    "durability",
    "docker_env",
    "mounts",
    "workers",
    "main_fs",
    "cache_off",
    "refresh",
    "from",
    "only",
    "targets",
    "isolation",
    "compat",
)
"""The keys of the descriptions of runs that are compared as their environment."""
_MOST_CAUSES: Final = 20
_MOST_ITEMS: Final = 5


class ComparedValue(Struct, frozen=True):
    """A value of two runs that differs; None: the run does not have it."""

    name: str
    first: Any
    second: Any


class ComparedOutput(Struct, frozen=True):
    """An output of two runs: `outcome` is same, other, first (only the first run has it), second, or unknown.

    `digests` are those of its contents, "" for a missing one.
    """

    name: str
    outcome: str
    digests: tuple[str, str]


class ComparedStep(Struct, frozen=True, kw_only=True):
    """A step of two runs; the state of one that a run does not have is "", its time None (in seconds).

    `causes` are the changes of what the step is given, except of outputs of other steps.
    """

    name: str
    states: tuple[str, str]
    seconds: tuple[float | None, float | None]
    causes: Sequence[str]
    outputs: Sequence[ComparedOutput]

    @property
    def differs(self) -> bool:
        """Whether the step has come to another result."""
        return self.states[0] != self.states[1] or any(one.outcome not in (SAME, UNKNOWN) for one in self.outputs)


class Comparison(Struct, frozen=True, kw_only=True):
    """Two runs side by side. `why` says in one line why their results differ, or that they do not.

    `same`: all states and all outputs are equal. `remarks` name what could not be compared.
    """

    first: str
    second: str
    same: bool
    why: str
    facts: Sequence[ComparedValue]
    environment: Sequence[ComparedValue]
    parameters: Sequence[ComparedValue]
    metrics: Sequence[ComparedValue]
    steps: Sequence[ComparedStep]
    remarks: Sequence[str]


class _Side:
    """One of the two runs, with what its folder tells of the inputs of its steps."""

    def __init__(self, run: RunRecord, host: SourceHost, cache: ResultCache, remarks: list[str]) -> None:
        self.run = run
        self.described: Mapping[str, Any] = _described(run)
        self.steps = {step.name: step for step in run.steps}
        self.needs: dict[str, set[str]] = {}
        self._digester = Digester(cache.index, lambda: int(cache.wall() * 1e9))
        leaves: dict[str, dict[str, str]] = {}
        if not run.of_session and not run.of_jobs:
            try:
                source = host.source_again(run.frontend, run.folder, run.file)
                for name, own in source.given(run.folder).items():
                    leaves[name] = {leaf: _without_id(text, run) for leaf, text in own.leaves.items()}
                self.needs = _ancestors(source, run.folder)
            except WeftError as error:
                remarks.append(f"the commands of {run.id} are not known: {error.message}")
        code = self.described.get("code")
        for name, own in code.items() if isinstance(code, dict) else ():
            leaves.setdefault(name, {}).update(own)
        self.static = leaves
        self.tasks = _asked(run, cache)

    def outputs(self, step: str) -> dict[str, str]:
        """Return the digests of the outputs of a step, and of its items, by name; ABSENT for a missing one."""
        found = {}
        for title, path in self.run.outputs.items():
            own, _, artifact = title.rpartition(".")
            if own == step or (own.startswith(f"{step}-") and own[len(step) + 1 :].isdigit()):
                try:
                    found[f"{own}.{artifact}"] = self._digester.of(path)
                except WeftError:
                    found[f"{own}.{artifact}"] = ""
        return found


def compare_runs(first: RunRecord, second: RunRecord, host: SourceHost, cache: ResultCache) -> Comparison:
    """Compare two runs, live or ended, by their folders, and their outputs by content."""
    remarks: list[str] = []
    sides = _Side(first, host, cache, remarks), _Side(second, host, cache, remarks)
    names = _in_order(sides)
    steps = [_compared_step(name, *sides, cache) for name in names]
    return Comparison(
        first=first.id,
        second=second.id,
        same=not any(step.differs for step in steps) and first.state == second.state,
        why=_why(sides, steps),
        facts=list(_unlike(_facts(first), _facts(second))),
        environment=list(_unlike(_environment(sides[0]), _environment(sides[1]))),
        parameters=list(_unlike(_parameters(first), _parameters(second))),
        metrics=list(_unlike(_numbers(first), _numbers(second))),
        steps=steps,
        remarks=list(dict.fromkeys(remarks)),
    )


def _described(run: RunRecord) -> Mapping[str, Any]:
    try:
        return read_description(run.folder)
    except (WeftError, OSError):  # its owner died before the description
        return {}


def _ancestors(source: ResumableSource, folder: Path) -> dict[str, set[str]]:
    """Return for each step all steps that it depends on."""
    graph = source.compiled(folder)
    step_of = {id: vertex.step or id for id, vertex in graph.vertices.items()}
    near: dict[str, set[str]] = {}
    for edge in graph.edges:
        near.setdefault(step_of[edge.dst], set()).add(step_of[edge.src])
    found = {}
    for step in set(step_of.values()):
        todo, seen = [step], set[str]()
        while todo:
            for above in near.get(todo.pop(), ()):
                if above not in seen:
                    seen.add(above)
                    todo.append(above)
        found[step] = seen - {step}
    return found


def _asked(run: RunRecord, cache: ResultCache) -> dict[str, dict[int, Mapping[str, str]]]:
    """Return the inputs of tasks as the cache was asked for them, by step and number."""
    found: dict[str, dict[int, Mapping[str, str]]] = {}
    for answer in read_decisions(run.folder):
        leaves = answer.get("leaves")
        if not isinstance(leaves, dict):
            try:
                entry = cache.index.entry(str(answer.get("key", "")))
            except WeftError:
                entry = None
            leaves = None if entry is None else entry.leaves
        if leaves is not None and answer.get("outcome") in ("hit", "miss"):
            found.setdefault(answer["step"], {})[answer.get("task", 0)] = leaves
    return found


def _in_order(sides: tuple[_Side, _Side]) -> list[str]:
    """Return the steps of both runs, those that others depend on first."""
    names = list(dict.fromkeys([*sides[0].steps, *sides[1].steps]))
    needs = {name: sides[0].needs.get(name, set()) | sides[1].needs.get(name, set()) for name in names}
    return sorted(names, key=lambda name: (len(needs[name]), names.index(name)))


def _compared_step(name: str, first: _Side, second: _Side, cache: ResultCache) -> ComparedStep:
    one, two = first.steps.get(name), second.steps.get(name)
    made = first.outputs(name), second.outputs(name)
    return ComparedStep(
        name=name,
        states=("" if one is None else one.state, "" if two is None else two.state),
        seconds=(_seconds(one), _seconds(two)),
        causes=_causes(name, first, second, cache),
        outputs=[_compared_output(title, *made) for title in dict.fromkeys([*made[0], *made[1]])],
    )


def _compared_output(name: str, first: Mapping[str, str], second: Mapping[str, str]) -> ComparedOutput:
    one, two = (side.get(name, ABSENT) for side in (first, second))
    digests = one.replace(ABSENT, ""), two.replace(ABSENT, "")
    if "" in (one, two):
        outcome = UNKNOWN
    elif one == two:
        outcome = SAME
    else:
        outcome = "second" if one == ABSENT else "first" if two == ABSENT else OTHER
    return ComparedOutput(name, outcome, digests)


def _seconds(step: StepRecord | None) -> float | None:
    return None if step is None or step.started is None or step.ended is None else step.ended - step.started


def _causes(name: str, first: _Side, second: _Side, cache: ResultCache) -> list[str]:
    """Return what a step was given otherwise in the second run, the changes by people first."""
    if name not in first.steps or name not in second.steps:
        return [f"only {(first if name in first.steps else second).run.id} has this step"]
    found = dict.fromkeys(_differences(first.static.get(name, {}), second.static.get(name, {}), cache))
    tasks = [first.tasks.get(name, {}), second.tasks.get(name, {})]
    for number in sorted(tasks[0].keys() & tasks[1].keys())[:_MOST_ITEMS]:
        of = f"{item_name(name, number)}: " if len(tasks[0]) > 1 else ""
        one, two = (_own(asked[number]) for asked in tasks)
        if not (_opened(one) and _opened(two)):  # one was asked for before it ran, when nobody knew what it would open
            one, two = ({name: own[name] for name in own.keys() - _opened(own)} for own in (one, two))
        more = _differences(one, two, cache)
        found |= dict.fromkeys(f"{of}{text}" for text in more if text not in found)
    return list(found)[:_MOST_CAUSES]


def _own(leaves: Mapping[str, str]) -> dict[str, str]:
    """Return the inputs of a task without the outputs of other steps among them."""
    return {
        name: text for name, text in leaves.items() if not name.startswith("input ") or name.startswith("input name")
    }


def _opened(leaves: Mapping[str, str]) -> set[str]:
    """Return the names of the inputs of a task that are known only after it ran."""
    return {name for name in leaves if name.startswith(OPENED)}


def _differences(old: Mapping[str, str], new: Mapping[str, str], cache: ResultCache) -> list[str]:
    return cache.differences(old, new) if old and new else []


def _why(sides: tuple[_Side, _Side], steps: Sequence[ComparedStep]) -> str:
    """Say which change explains that the results differ: the first one that lies at or above the first other result."""
    first, second = (side.run for side in sides)
    unlike = [step for step in steps if step.differs]
    # The failure of a step ends other steps, so it comes before them.
    other = next((step for step in unlike if "failed" in step.states), unlike[0] if unlike else None)
    cause = next((f"{step.name}: {step.causes[0]}" for step in steps if step.causes), "")
    if other is None:
        if first.state != second.state:
            return f"all steps have the same results, but {first.id} {first.state} and {second.id} {second.state}"
        return f"the results are the same, although {cause}" if cause else "the results are the same"
    above = {other.name} | sides[0].needs.get(other.name, set()) | sides[1].needs.get(other.name, set())
    for step in steps:
        if step.name in above and step.causes:
            return f"the results differ because of {step.name}: {step.causes[0]}"
    if "" in other.states:
        return f"the results differ because {other.causes[0]}: {other.name}"
    if other.states[0] != other.states[1]:
        ends = f"{other.states[0]} in {first.id} and {other.states[1]} in {second.id}"
        return f"the results differ because {other.name} {ends}"
    return (
        f"the results differ because {other.name} made something else of the same: it is not deterministic, "
        "or it reads what Weft does not know of"
    )


def _facts(run: RunRecord) -> dict[str, Any]:
    seconds = None if run.started is None or run.ended is None else round(run.ended - run.started - run.paused_s, 3)
    return {
        "state": run.state,
        "name": run.name,
        "file": run.file,
        "seconds": seconds,
        "error": run.message.partition("\n")[0] or None,
        "tags": dict(run.tags),
        "note": run.note,
    }


def _parameters(run: RunRecord) -> dict[str, Any]:
    return {name: _without_id(value, run) for name, value in run.parameters.items()}


def _without_id(value: Any, run: RunRecord) -> Any:
    """Return a value without the id of its run, which is always another one."""
    return value.replace(run.id, "{{PF_RUN_ID}}") if isinstance(value, str) else value


def _environment(side: _Side) -> dict[str, Any]:
    run = side.run
    own = {name: side.described.get(name) for name in _ENVIRONMENT}
    return {"weft": journal_facts(run).weft, "user": run.user, "host": run.host, "frontend": run.frontend, **own}


def _numbers(run: RunRecord) -> dict[str, float]:
    return {f"{one.source}: {one.name}": one.value for one in metrics_of(run)}


def _unlike(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[ComparedValue]:
    for name in dict.fromkeys([*first, *second]):
        one, two = first.get(name), second.get(name)
        if one != two:
            yield ComparedValue(name, one, two)
