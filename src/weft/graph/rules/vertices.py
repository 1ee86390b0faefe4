"""The rules of one vertex: name, tasks, resources, retries, and what users are shown of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Final

from weft.graph.logical import (
    DEFAULT_RETRY,
    Backoff,
    LogicalGraph,
    Range,
    RestartPolicy,
    Retry,
    SameAs,
    Source,
    Vertex,
    VertexKind,
    exit_codes,
)
from weft.graph.rules.size import MAX_TASKS, check_count
from weft.model.errors import CapacityError, GraphError
from weft.model.failures import RetryClass
from weft.model.ids import is_name
from weft.model.resources import ONE_SLOT, ONE_SLOT_ONLY, Resources
from weft.model.suggestions import did_you_mean
from weft.model.wording import counted

_MOST_SHOWN = 10_000
MOST_PRIORITY: Final = 1_000


def check_vertices(
    graph: LogicalGraph,
    vertices: Iterable[Vertex],
    capacity: Sequence[Resources] | None,
    *,
    many_machines: bool = False,
) -> list[str]:
    """Check each vertex by itself; return the ids of the services."""
    services: list[str] = []
    slot_fits = capacity is None or any(ONE_SLOT.fits(worker) for worker in capacity)
    table, limits, service = graph.vertices, graph.limits, VertexKind.SERVICE
    for vertex in vertices:
        id = vertex.id
        if not is_name(id):
            raise bad_name("vertex", id)
        if table.get(id) is not vertex:
            raise GraphError(
                f"vertex {id!r} stands under another id in graph.vertices", subject=id, rule="unique-vertex"
            )
        n, items = vertex.parallelism, vertex.program.items
        if type(n) is not int or not 0 <= n <= MAX_TASKS:
            _check_parallelism(vertex)
        if items is not None and type(n) is int and len(items) != n:
            raise GraphError(
                f"vertex {id!r} has {counted(n, 'task')} and {counted(len(items), 'item')}", subject=id, rule="items"
            )
        if vertex.resources is not ONE_SLOT_ONLY:
            check_resources(id, vertex.resources, limits)
            if capacity is not None:
                check_fits(vertex, capacity, many_machines=many_machines)
        elif not slot_fits:
            check_fits(vertex, capacity or (), many_machines=many_machines)
        if vertex.retry is not DEFAULT_RETRY:
            _check_retry(vertex, vertex.retry)
        if vertex.restart is not None:
            _check_restart(vertex)
        if vertex.expands and vertex.cache_key is not None:
            raise GraphError(
                f"vertex {id!r} expands the graph and has a cache key; decisions cannot be cached",
                subject=id,
                rule="expander-cache",
                hint="Remove the cache key, or set expands=False.",
            )
        if vertex.timeout_s is not None:
            check_timeout(f"vertex {id!r}", id, vertex.timeout_s)
        if vertex.output_bytes is not None and not (whole(vertex.output_bytes) and vertex.output_bytes >= 0):
            raise GraphError(f"vertex {id!r} has an output of {vertex.output_bytes!r} bytes", subject=id, rule="output")
        scratch = vertex.scratch_bytes
        if (type(scratch) is not int or scratch < 0) and not (whole(scratch) and scratch >= 0):
            raise GraphError(f"vertex {id!r} needs scratch space of {scratch!r} bytes", subject=id, rule="scratch")
        if vertex.priority and not (whole(vertex.priority) and -MOST_PRIORITY <= vertex.priority <= MOST_PRIORITY):
            raise GraphError(
                f"vertex {id!r} has the priority {vertex.priority!r}",
                subject=id,
                rule="priority",
                hint=f"Give a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}.",
            )
        if vertex.kind is service:
            _check_service(vertex)
            if not vertex.controlled:  # that one ends with the job
                services.append(id)
        if vertex.label or vertex.outputs is not None:
            _check_shown(vertex)
    return services


def _check_shown(vertex: Vertex) -> None:
    """Check the texts for users: the label and the names of the output files."""
    for field, name in (("label", vertex.label), *(("output", name) for name in vertex.outputs or ())):
        if not isinstance(name, str) or len(name) > _MOST_SHOWN or not name.isprintable():
            raise GraphError(
                f"{field} {str(name)[:60]!r} of vertex {vertex.id!r} is not a printable text of at most "
                f"{_MOST_SHOWN} characters",
                subject=vertex.id,
                rule=field,
            )


def bad_name(what: str, name: object) -> GraphError:
    """Return the error for a name that is not allowed."""
    return GraphError(
        f"{what} name {name!r} is not allowed",
        subject=str(name),
        rule="name",
        hint="Use up to 200 letters, digits, '_', '.', '-' and '/'; no '..', '//' or '/.'; a letter or digit first.",
    )


def _check_parallelism(vertex: Vertex) -> None:
    n, id = vertex.parallelism, vertex.id
    if isinstance(n, Range):
        if not (whole(n.lo) and whole(n.hi) and 0 <= n.lo <= n.hi and n.hi >= 1):
            raise GraphError(
                f"vertex {id!r} has between {n.lo} and {n.hi} tasks",
                subject=id,
                rule="parallelism",
                hint="Range(lo, hi) needs 0 <= lo <= hi and hi >= 1.",
            )
    elif not isinstance(n, (Source, SameAs)) and not (whole(n) and n >= 0):
        raise GraphError(
            f"vertex {id!r} has {n!r} tasks",
            subject=id,
            rule="parallelism",
            hint="Give a whole number of at least 0, Range(lo, hi), Source(vertex) or SameAs(vertex).",
        )
    largest = n.hi if isinstance(n, Range) else n
    if isinstance(largest, int):
        check_count(id, largest)


def whole(n: object) -> bool:
    """Return whether `n` is a whole number, which True and False are not."""
    return isinstance(n, int) and not isinstance(n, bool)


def number(n: object) -> bool:
    """Return whether `n` is a number, which True and False are not."""
    return isinstance(n, (int, float)) and not isinstance(n, bool)


def check_resources(id: str, resources: Sequence[Resources], limits: Mapping[str, int]) -> None:
    """Raise GraphError unless `resources` are sound alternatives whose tokens `limits` counts."""
    if not resources or not isinstance(resources, (tuple, list)):
        raise GraphError(
            f"vertex {id!r} has no resources",
            subject=id,
            rule="resources",
            hint="Give a tuple of at least one Resources(...).",
        )
    for needs in resources:
        if not _sane(needs):
            raise GraphError(
                f"vertex {id!r} asks for {needs!r}",
                subject=id,
                rule="resources",
                hint="Give Resources(...) whose cpu is a number and whose memory and gpu are whole, none below 0, "
                "whose tokens are pairs of a name and a count, and whose custom resources are pairs of a name and an "
                "amount above 0, each name once.",
            )
        for token, count in needs.tokens:
            _check_token(id, token, count, limits)


def _sane(needs: Resources) -> bool:
    return (
        isinstance(needs, Resources)
        and number(needs.cpu)
        and 0 <= needs.cpu < inf
        and all(whole(count) and count >= 0 for count in (needs.memory, needs.gpu))
        and isinstance(needs.gpu_type, str)
        and isinstance(needs.tokens, tuple)
        and all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in needs.tokens)
        and isinstance(needs.custom, tuple)
        and all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in needs.custom)
        and all(number(amount) and 0 < amount < inf for _, amount in needs.custom)
        and len({name for name, _ in needs.custom}) == len(needs.custom)
    )


def _check_token(id: str, token: str, count: int, limits: Mapping[str, int]) -> None:
    limit = limits.get(token)
    if limit is None:
        raise GraphError(
            f"vertex {id!r} takes tokens {token!r}, but the graph has no limit of that name",
            subject=id,
            rule="tokens",
            hint=did_you_mean(token, limits) or f"Set the number of tokens: limits={{{token!r}: ...}}.",
        )
    if not (whole(count) and 1 <= count <= limit):
        raise GraphError(f"vertex {id!r} takes {count!r} of the {limit} tokens {token!r}", subject=id, rule="tokens")


def check_limit(token: str, count: int) -> None:
    """Raise GraphError unless a job may have `count` tokens."""
    if not whole(count) or count < 1:
        raise GraphError(
            f"limit {token!r} is {count!r}; it must be a whole number of at least 1", subject=token, rule="tokens"
        )


def check_fits(vertex: Vertex, capacity: Sequence[Resources], *, many_machines: bool = False) -> None:
    """Raise CapacityError if a vertex asks for more than any worker has; `capacity` lists what each has.

    On `many_machines` of a cluster that is what each machine has.
    """
    if any(needs.fits(worker) for needs in vertex.resources for worker in capacity):
        return
    wants = " or ".join(f"({needs})" for needs in vertex.resources)
    has = "; ".join(dict.fromkeys(f"({worker})" for worker in capacity)) or "none"
    gpus = min(needs.gpu for needs in vertex.resources)
    hint = "Ask for less, or give more: memory= and gpus= of the session, --memory and --gpus of the command line."
    if many_machines and gpus > max([worker.gpu for worker in capacity], default=0):
        hint = f"Ask for less, or add a machine with {counted(gpus, 'GPU')} to the cluster: {_join('gpus', gpus)}"
    elif many_machines:
        hint = "Ask for less, or add a machine that has it to the cluster; memory: memory= of the session, --memory."
    there = {name for worker in capacity for name, _ in worker.custom}
    if unknown := [name for needs in vertex.resources for name, _ in needs.custom if name not in there]:
        given = f"ray start --resources='{{\"{unknown[0]}\": 1}}'"
        hint = did_you_mean(unknown[0], there) or f"No node has {unknown[0]!r}; a machine of a Ray cluster: {given}"
    cores = max([worker.cpu for worker in capacity], default=0.0)
    least = min(needs.cpu for needs in vertex.resources)
    if least > cores > 0:
        hint = f"cpu counts cores, and this asks for {least - cores:g} too many: give cpu={cores:g} or less"
        if many_machines:
            hint += f", or add a machine with {ceil(least)} cores to the cluster: {_join('cpus', ceil(least))}"
            hint += ". A session with workers= takes a part of the cores of each machine."
        else:
            hint += f", or open the session with workers={ceil(least)} (on the command line --workers {ceil(least)})."
    raise CapacityError(f"vertex {vertex.id!r} asks for {wants}, more than any worker has: {has}", hint=hint)


def _join(what: str, number: int) -> str:
    """Return the command by which a machine with so much joins a Ray cluster."""
    return f"ray start --address=HOST:6379 --num-{what}={number}"


def _check_restart(vertex: Vertex) -> None:
    if vertex.restart is RestartPolicy.ALWAYS and vertex.kind is not VertexKind.SERVICE and not vertex.controlled:
        raise GraphError(
            f"vertex {vertex.id!r} has restart=always, so its tasks would never end",
            subject=vertex.id,
            rule="restart",
            hint="Use restart=on_failure, or make it a SERVICE, which ends with its last consumer.",
        )


def check_backoff(backoff: Backoff) -> None:
    """Raise GraphError unless the restarts of a job may wait this long."""
    numbers = all(map(number, (backoff.delay_s, backoff.factor, backoff.max_s)))
    counted = backoff.limit is None or (whole(backoff.limit) and backoff.limit >= 0)
    if not (counted and numbers and 0 <= backoff.delay_s <= backoff.max_s < inf and 1 <= backoff.factor < inf):
        raise GraphError(
            f"the graph has an impossible backoff: {backoff}",
            rule="backoff",
            hint="The limit is None or at least 0, the factor at least 1, and delay_s from 0 to max_s.",
        )


def _check_retry(vertex: Vertex, retry: Retry) -> None:
    counts = [retry[each] for each in RetryClass]
    longest = retry.delay_s if retry.max_delay_s is None else retry.max_delay_s
    numbers = all(map(whole, counts)) and all(
        map(number, (retry.delay_s, retry.memory_factor, retry.factor, longest, retry.jitter))
    )
    if not (
        numbers
        and min(counts) >= 0
        and 0 <= retry.delay_s <= longest < inf
        and 1 <= retry.memory_factor < inf
        and 1 <= retry.factor < inf
        and 0 <= retry.jitter <= 1
    ):
        raise GraphError(
            f"vertex {vertex.id!r} has an impossible retry: {retry}",
            subject=vertex.id,
            rule="retry",
            hint="Counts and the delay are at least 0, the largest delay at least the delay, the factors at least 1, "
            "and the jitter is from 0 to 1.",
        )
    for entry in retry.on:
        try:
            exit_codes(entry)
        except ValueError as error:
            raise GraphError(
                f"vertex {vertex.id!r} has an impossible retry: {entry!r} in `on` {error}",
                subject=vertex.id,
                rule="retry",
            ) from None


def check_timeout(what: str, subject: str, seconds: float) -> None:
    """Raise GraphError unless a vertex or bubble may have this time limit."""
    if not (number(seconds) and 0 < seconds < inf):
        raise GraphError(
            f"{what} has a timeout of {seconds!r} seconds; it must be a number above 0", subject=subject, rule="timeout"
        )


def _check_service(vertex: Vertex) -> None:
    if vertex.expands:
        raise GraphError(
            f"vertex {vertex.id!r} expands the graph and is a SERVICE, which has no value to expand it with",
            subject=vertex.id,
            rule="expander-finite",
            hint="Make it finite, or set expands=False.",
        )
