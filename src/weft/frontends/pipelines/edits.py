"""The effect of an edit on a resumed run: the steps that changed, with reasons.

A finished step stays valid while its inputs equal those of the edited pipeline and all steps before it stay valid.
Fields that only select when or where a step runs (`parallelism`, timeouts, retries, the cache, the order of steps) may
change freely. The name of the pipeline and its main file system must not change: they are part of the paths of all
outputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from weft.documents.problems import show
from weft.frontends.pipelines.caching import static_leaves
from weft.frontends.pipelines.language import START, Mount, walk
from weft.frontends.pipelines.resolved import DECIDE, REPEAT, ControlStep, ResolvedStep
from weft.frontends.pipelines.templates import as_text
from weft.store.differences import tell_changes

if TYPE_CHECKING:
    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.resolved import Node
    from weft.graph.logical import LogicalGraph

Code: TypeAlias = "Mapping[str, Mapping[str, str]]"
NEW: Final = "it is new in the file"


class PipelineEdit(Struct):
    """The changes of an edit, by users' names.

    `stale` has the steps to run again with reasons; `items` the same for single items of loops, `wider` the loops with
    another number of items. `inside` names dags with dynamic items all of whose steps are stale. `removed` are the
    removed steps.
    """

    stale: dict[str, str] = field(default_factory=dict)
    items: dict[tuple[str, int], str] = field(default_factory=dict)
    wider: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)

    def why(self, step: str) -> str:
        """Return the reason to run a whole step again; "" if there is none."""
        found = self.stale.get(step, "")
        dotted = step
        while not found and "." in dotted:
            dotted = dotted.rpartition(".")[0]
            stem, _, number = dotted.rpartition("-")
            found = self.inside.get(dotted) or (self.inside.get(stem, "") if number.isdigit() else "")
        return found


def refusal(old: Pipeline, new: Pipeline) -> str:
    """Return the reason why the run cannot continue with the edit; "" if it can."""
    if old.name != new.name:
        return f"the pipeline was called {show(old.name)}, and is called {show(new.name)} now"
    before, after = (replace(one.main_fs or Mount(), mark=START) for one in (old, new))
    if before != after:
        changed = [one for one in Mount.__struct_fields__ if getattr(before, one) != getattr(after, one)]
        return f"fs_options.main_fs has changed: {', '.join(changed)}"
    return ""


def compare(
    old: tuple[Pipeline, Sequence[Node]],
    new: tuple[Pipeline, Sequence[Node]],
    graph: LogicalGraph,
    code: tuple[Code, Code] = ({}, {}),
) -> PipelineEdit:
    """Compare two pipelines, with the nodes of all their parts, and return the changes.

    Both are resolved for the same run, so unchanged parts have equal paths. `code` has the code digests of steps then
    and now (`caching.code_of`); code without an earlier digest counts as unchanged.
    """
    edit = PipelineEdit()
    before = {node.id: node for node in old[1]}
    roots: dict[str, str] = {}
    for node in new[1]:
        was = before.get(node.id)
        if isinstance(node, ResolvedStep):
            reason = _step(old[0], was, new[0], node) or _code(code, node.name)
            items = {} if reason else _items(was, node)
            edit.items |= {(node.name, number): reason for number, reason in items.items()}
            before_n, n = _width(was), _width(node)
            if not reason and before_n != n:
                edit.wider[node.name] = f"it loops over {n} items, not {before_n}"
            if reason or items or before_n != n:
                roots.setdefault(node.id, reason)
        elif node.kind == DECIDE and (not isinstance(was, ControlStep) or was.params != node.params):
            roots.update(dict.fromkeys(node.members, f"the condition of {node.name} has changed"))
        elif node.kind == REPEAT:
            reason = _repeated(old[0], was, new[0], node) or _code(code, node.name)
            if reason:
                roots.setdefault(node.id, reason)
    _propagate(edit, new[1], graph, roots)
    names = {node.name for node in new[1]}
    edit.removed = [node.name for node in old[1] if isinstance(node, ResolvedStep) and node.name not in names]
    return edit


def _propagate(edit: PipelineEdit, nodes: Sequence[Node], graph: LogicalGraph, roots: Mapping[str, str]) -> None:
    """Record the roots and all their dependents."""
    by_id = {node.id: node for node in nodes}
    after: dict[str, list[str]] = {}
    for edge in graph.edges:
        after.setdefault(edge.src, []).append(edge.dst)
    todo = deque((id, reason, by_id[id].name if id in by_id else "") for id, reason in roots.items())
    seen = {id for id, reason in roots.items() if reason}  # so far only items of the others are stale
    while todo:
        id, reason, cause = todo.popleft()
        node = by_id.get(id)
        if node is not None and reason:
            if isinstance(node, ResolvedStep):
                edit.stale.setdefault(node.name, reason)
                cause = node.name
            elif node.kind == REPEAT:
                edit.inside.setdefault(node.name, reason)
                cause = node.name
        for other in after.get(id, ()):
            if other not in seen:
                seen.add(other)
                todo.append((other, f"{cause}, which comes before it, runs again", cause))


def _step(old: Pipeline, was: Node | None, new: Pipeline, step: ResolvedStep) -> str:
    """Return the reason why a step changed; "" if it is unchanged or only single items changed."""
    if not isinstance(was, ResolvedStep) or was.name != step.name:
        return NEW
    if was.not_run or step.not_run:
        return "it is no longer skipped" if was.not_run and not step.not_run else ""
    changes = tell_changes(static_leaves(old, was, was.docker_env), static_leaves(new, step, step.docker_env))
    if changes:
        return changes[0]
    other = next((name for name, places in step.places.items() if was.places[name] != places), None)
    if other is not None:
        return f"its input {other} is another artifact"
    if was.condition != step.condition:
        return "its condition has changed"
    alone = min(_width(was), _width(step)) < 2  # the records then do not distinguish items
    if was.lister != step.lister or (alone and was.items != step.items):
        return "what it loops over has changed"
    return ""


def _code(code: tuple[Code, Code], name: str) -> str:
    """Return the changed code of a step or of steps in a dag; "" if it is unchanged or unknown."""
    before, now = (one.get(name) for one in code)
    changes = tell_changes(before, now) if before is not None and now is not None else []
    return changes[0] if changes else ""


def _width(node: Node | None) -> int:
    """Return the number of items of a step's loop, as far as it is known."""
    return len(node.items or ()) if isinstance(node, ResolvedStep) else 0


def _items(was: Node | None, step: ResolvedStep) -> dict[int, str]:
    """Return the changed items of a step's loop."""
    before = was.items or () if isinstance(was, ResolvedStep) else ()
    pairs = enumerate(zip(before, step.items or (), strict=False))
    return {
        number: f"its item [{number}]: {show(as_text(one))} → {show(as_text(another))}"
        for number, (one, another) in pairs
        if one != another
    }


def _repeated(old: Pipeline, was: Node | None, new: Pipeline, control: ControlStep) -> str:
    """Return the reason why a dag with dynamic items changed."""
    if not isinstance(was, ControlStep):
        return NEW
    dotted = control.params["dag"]
    same = (
        was.params == control.params
        and _definition(old, dotted) == _definition(new, dotted)
        and _around(old, dotted) == _around(new, dotted)
    )
    return "" if same else "what the dag does has changed"


def _definition(pipeline: Pipeline, dotted: str) -> Any:
    return _plain(dict(walk(pipeline.entry_points)).get(dotted))


def _around(pipeline: Pipeline, dotted: str) -> tuple[Any, ...]:
    """Return the parts of the file that steps of a dag use."""
    inside = {name for name in pipeline.disabled_names if name.startswith(f"{dotted}.")}
    return pipeline.docker_env, pipeline.as_paddleflow, _plain(pipeline.extra_fs), inside


_FREE: Final = frozenset({"mark", "path", "cache", "timeout_s", "retry", "resources", "stderr"})
"""Fields of a component that do not affect its result."""


def _plain(value: Any) -> Any:
    """Return a part of a pipeline without positions in the file."""
    if isinstance(value, Struct):
        return type(value), {one: _plain(getattr(value, one)) for one in value.__struct_fields__ if one not in _FREE}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return value
