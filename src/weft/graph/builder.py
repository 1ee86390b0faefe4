"""`Graph`: the public low-level API, which builds graphs in few lines.

::

    g = Graph("words")
    parts = g.map(read, paths)                         # one task a path
    counts = g.add(count, shuffle(parts, partitions=8))  # 8 tasks, each gets its piece of every part
    total = g.reduce(add, counts)                      # a tree

Functions stay plain: one positional argument per input; the return value is the output. A plain node as input is read
one to one if both sides have equally many tasks, and by all tasks if it has one task. For everything else there is a
wrapper: `one_to_one`, `gather`, `shuffle`, `grid`, `after`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import count
from math import prod
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct

from weft.graph.arguments import FIELDS, OPTIONS, check_keywords, check_params, wrong_type
from weft.graph.axes import TO_ALL, Axis, GridMap, group, whole_number
from weft.graph.items import is_labelled
from weft.graph.logical import (
    AFTER_ANY,
    BROADCAST,
    DEFAULT_BACKOFF,
    GRAPH,
    NONE,
    ONE_TO_ONE,
    SEQUENTIAL,
    Backoff,
    Bubble,
    Choice,
    Edge,
    LogicalGraph,
    Manager,
    Movement,
    MovementKind,
    OnFailure,
    Outcome,
    Parallelism,
    Range,
    SameAs,
    Scheduling,
    Source,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
    scatter_gather,
)
from weft.graph.task import LATER, LATER_HINT, runs_later
from weft.graph.validate import mark_results, validate
from weft.model.errors import GraphError
from weft.model.ids import as_name
from weft.model.program import NO_PARAMS, Program, Style, is_named
from weft.model.resources import Resources
from weft.model.wording import type_of

if TYPE_CHECKING:
    from weft.graph.arguments import Wanted
    from weft.graph.keywords import LinkOptions, VertexFields

_FINITE, _FUNCTION = VertexKind.FINITE, Style.FUNCTION
Target = str | Callable[..., Any]
"""A function, or its name: `"package.module:function"`."""


class VertexHandle(Struct, eq=False):
    """A vertex of a graph under construction; the input of other vertices."""

    graph: Graph
    id: str
    parallelism: Parallelism

    @property
    def vertex(self) -> Vertex:
        """The vertex itself, for rarely used fields."""
        return self.graph.vertices[self.id]

    def keep(self) -> VertexHandle:
        """Keep the values of this vertex for the session, even if other vertices read them."""
        self.vertex.keep = True
        return self

    def __repr__(self) -> str:
        return f"<{self.id} x {width_text(self.parallelism)}>"


class InputSpec:
    """A node and the way in which it is read; made by the wrappers."""

    __slots__ = ("blocking", "movement", "name", "node", "scheduling", "storage")

    def __init__(
        self,
        node: VertexHandle,
        movement: Movement,
        scheduling: Scheduling,
        storage: Storage,
        blocking: bool,
        name: str,
    ) -> None:
        self.node = node
        self.movement = movement
        self.scheduling = scheduling
        self.storage = storage
        self.blocking = blocking
        self.name = name


def one_to_one(node: VertexHandle, **options: Unpack[LinkOptions]) -> InputSpec:
    """Let task i read task i."""
    return _link(node, ONE_TO_ONE, options)


def controlled(node: VertexHandle, event: str = "ready") -> InputSpec:
    """Wait until the control vertex `node` emits `event`, after its decisions about the reader."""
    return after(node, concurrent=True, when=Trigger.EVENT, event=event)


def gather(node: VertexHandle, **options: Unpack[LinkOptions]) -> InputSpec:
    """Give every task the list of all values of `node`."""
    return _link(node, BROADCAST, options)


def shuffle(node: VertexHandle, partitions: int | None = None, **options: Unpack[LinkOptions]) -> InputSpec:
    """Give task p the list of piece p of every value.

    The function of `node` returns a list with one piece for each partition, or a mapping `{partition: piece}`: then
    tasks get the pieces that are there, and partitions without one cost nothing.

    The default for `partitions` is the number of tasks of the reading vertex.
    """
    if partitions is None:
        return _link(node, scatter_gather(), options)
    parts = whole_number(partitions, "partitions of shuffle")
    if parts < 1:
        raise GraphError(
            f"a shuffle needs at least 1 partition, not {parts}",
            rule="partitions",
            hint="Leave the number out for as many as the reading vertex has tasks.",
        )
    return _link(node, scatter_gather(parts), options)


def grid(
    node: VertexHandle,
    *axes: Axis,
    src: Sequence[int],
    dst: Sequence[int],
    partial: bool = False,
    pieces: bool = False,
    **options: Unpack[LinkOptions],
) -> InputSpec:
    """Map the chunk grid `src` of `node` to the grid `dst`: one `Axis` of `weft.graph.grid` for each axis of `dst`.

    With `partial` some tasks may read nothing of `node`; every task gets a list. With `pieces` the function of `node`
    returns a list with one piece for each task that reads it, and every task gets the list of its own pieces.
    """
    for axis in axes:
        if not isinstance(axis, Axis):
            raise wrong_type("an axis of grid", axis, "an Axis made by copy, group, ... of weft.graph.grid")
    return _link(
        node,
        Movement(MovementKind.GRID, grid=GridMap(_shape(src, "src"), _shape(dst, "dst"), axes, partial, pieces)),
        options,
    )


def custom(
    node: VertexHandle, router: str, params: Mapping[str, Any] | None = None, **options: Unpack[LinkOptions]
) -> InputSpec:
    """Route with the router registered as `router` in `weft.graph.routing.CUSTOM`; `params` are JSON."""
    if not isinstance(router, str):
        raise wrong_type("router of custom", router, "the name of a registered router")
    if params is not None:
        check_params("custom", "", params)
    return _link(
        node, Movement(MovementKind.CUSTOM, name=router, params=tuple(sorted((params or {}).items()))), options
    )


def after(node: VertexHandle, **options: Unpack[LinkOptions]) -> InputSpec:
    """Start after `node` (after any end of it with `outcome=Outcome.ANY`) and read none of its values."""
    return _link(node, NONE, options)


def _shape(shape: Sequence[int], what: str) -> tuple[int, ...]:
    if not isinstance(shape, Iterable):
        raise wrong_type(f"{what} of grid", shape, "a sequence of whole numbers")
    return tuple(whole_number(size, f"a size in {what} of grid") for size in shape)


def _link(node: VertexHandle, movement: Movement, options: LinkOptions) -> InputSpec:
    if not isinstance(node, VertexHandle):
        raise GraphError(
            f"a wrapper takes a node, not {type_of(node)}",
            rule="input",
            hint="Pass a node that `add` returned.",
        )
    storage = Storage.NONE if movement.move is MovementKind.NONE else Storage.LOCAL
    concurrent = node.vertex.kind is VertexKind.SERVICE
    if not options:
        scheduling = _scheduling(concurrent, {}) if concurrent else SEQUENTIAL
        return InputSpec(node, movement, scheduling, storage, False, "")
    check_keywords(f"an input from {node.id!r}", node.id, options, OPTIONS)
    concurrent = options.get("concurrent", concurrent)
    return InputSpec(
        node,
        movement,
        _scheduling(concurrent, options),
        options.get("storage", storage),
        options.get("blocking", False),
        options.get("name", ""),
    )


def _scheduling(concurrent: bool, options: LinkOptions) -> Scheduling:
    when = options.get("when")
    fraction = options.get("fraction", 1.0)
    event = options.get("event", "")
    if when is None:
        if event:
            when = Trigger.EVENT
        elif concurrent:
            when = Trigger.SOURCE_RUNNING
        else:
            when = Trigger.FRACTION if "fraction" in options else Trigger.ALL_DONE
    return Scheduling(concurrent, when, fraction, event, options.get("outcome", Outcome.SUCCESS))


Reads = VertexHandle | InputSpec
"""An input of a vertex."""


class Graph(LogicalGraph):
    """A `LogicalGraph` with methods that add vertices together with their input edges."""

    def __init__(
        self,
        name: str = "graph",
        *,
        on_failure: OnFailure = OnFailure.FAIL_FAST,
        limits: Mapping[str, int] | None = None,
        frontend: str = GRAPH,
        backoff: Backoff = DEFAULT_BACKOFF,
        controller: Manager | str | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise wrong_type("name of a graph", name, "text")
        if not isinstance(on_failure, OnFailure):
            raise wrong_type(f"on_failure of graph {name!r}", on_failure, "an OnFailure", name)
        if not isinstance(limits, (Mapping, NoneType)):
            raise wrong_type(f"limits of graph {name!r}", limits, "a mapping of token to count", name)
        if not isinstance(backoff, Backoff):
            raise wrong_type(f"backoff of graph {name!r}", backoff, "a Backoff", name)
        if not isinstance(controller, (Manager, str, NoneType)):
            raise wrong_type(f"controller of graph {name!r}", controller, "a Manager, or the name of one", name)
        super().__init__(
            name,
            on_failure=on_failure,
            limits=dict(limits or {}),
            frontend=frontend,
            backoff=backoff,
            controller=Manager(controller) if isinstance(controller, str) else controller,
        )
        self._counts: dict[str, int] = {}

    # ------------------------------------------------------------------------------------------------- vertices

    def add(
        self,
        fn: Target,
        *inputs: Reads,
        n: Parallelism | None = None,
        items: Sequence[Any] | None = None,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **fields: Unpack[VertexFields],
    ) -> VertexHandle:
        """Add a vertex that calls `fn(item, *inputs, **params)` in each of its tasks.

        `items` gives each task its own first argument. `n` is the number of tasks: by default the number of items, else
        the width of the inputs, else 1. The id is `name`, or the function's name made unique. GraphError: the name is
        taken or an input does not fit.
        """
        return self._add(fn, inputs, n, items, name, params, _FUNCTION, fields)

    def task(
        self,
        fn: Target,
        *inputs: Reads,
        n: Parallelism | None = None,
        items: Sequence[Any] | None = None,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **fields: Unpack[VertexFields],
    ) -> VertexHandle:
        """Add a vertex whose function is called `fn(ctx, inputs)`: the full contract of `weft.graph.task`."""
        return self._add(fn, inputs, n, items, name, params, Style.TASK, fields)

    def service(
        self,
        fn: Target,
        *inputs: Reads,
        n: Parallelism | None = None,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **fields: Unpack[VertexFields],
    ) -> VertexHandle:
        """Add a SERVICE vertex, called `fn(ctx, inputs)`: it lives until its last live consumer has ended.

        A plain service node as input of another vertex is an order-only concurrent edge: the consumer starts when all
        tasks of the service run, and reaches them with `ctx.endpoints`.
        """
        fields["kind"] = VertexKind.SERVICE
        return self._add(fn, inputs, n, None, name, params, Style.TASK, fields)

    def control(
        self,
        fn: Target,
        *,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **fields: Unpack[VertexFields],
    ) -> VertexHandle:
        """Add a control vertex, called `fn(ctx, inputs)`: a service that takes no core and changes other vertices.

        It may change its readers (`controlled`, or itself as a plain input), through `ctx.set_resources`,
        `ctx.set_parallelism` and `ctx.patch`, and ends with the last of them.
        """
        refused = {"resources": "takes no core and so no resources", "n": "has one task and so no n"}
        for field, reason in refused.items():
            if field in fields:
                raise GraphError(
                    f"control vertex {name or _base_name(fn)!r} {reason}",
                    subject=name or "",
                    rule="control",
                    hint=f"Leave out {field}=, or use graph.service for a service that computes.",
                )
        fields["resources"] = _LIGHT
        return self.service(fn, n=1, name=name, params=params, **fields)

    def map(
        self,
        fn: Target,
        over: VertexHandle | Iterable[Any] | None = None,
        *inputs: Reads,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **fields: Unpack[VertexFields],
    ) -> VertexHandle:
        """Call `fn` once for each item of `over`, which is required, or for each task's value if `over` is a node."""
        if isinstance(over, VertexHandle):
            return self._add(fn, (one_to_one(over), *inputs), None, None, name, params, _FUNCTION, fields)
        given: Mapping[str, Any] = fields
        if over is None and "n" in given:
            raise GraphError(
                f"map takes items, and n={given['n']!r} is a number of tasks",
                hint="Give the items, such as map(fn, range(3)), or use add(fn, n=3) for a function without an item.",
            )
        if not isinstance(over, Iterable):
            raise wrong_type(
                "the second argument of map",
                over,
                "a node or an iterable of items",
                hint="Further inputs, such as gather(x), follow it; or use add.",
            )
        items = over if isinstance(over, Sequence) else list(over)
        return self._add(fn, inputs, None, items, name, params, _FUNCTION, fields)

    def reduce(
        self,
        fn: Target,
        node: VertexHandle,
        arity: int = 2,
        *,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **fields: Unpack[VertexFields],
    ) -> VertexHandle:
        """Combine all values of `node` by a tree; `fn` gets a list of up to `arity` values and returns one such value.

        Neighbours are combined, in order. Returns the last level, which has one task.
        """
        id = self._own(node, "what reduce combines")
        arity = whole_number(arity, "arity of reduce")
        if arity < 2:
            raise GraphError(f"a reduction needs an arity of at least 2, not {arity}", subject=id, rule="arity")
        width = self._root(node.parallelism, id)
        if not isinstance(width, int):
            raise GraphError(
                f"reduce needs the number of tasks of {node.id!r}, which is known only during the run",
                subject=node.id,
                rule="fixed-parallelism",
                hint="Use gather(node) and one task, or a shuffle.",
            )
        if not width:
            raise GraphError(f"{node.id!r} has no tasks to reduce", subject=node.id, rule="parallelism")
        while True:
            levels = -(-width // arity)
            link = gather(node) if width == 1 else grid(node, group(0, arity), src=(width,), dst=(levels,))
            last = levels == 1
            own = fields.copy()
            if not last:
                own.pop("keep", None)
            node = self._add(fn, (link,), levels, None, name if last else None, params, _FUNCTION, own)
            width = levels
            if last:
                return node

    def _add(
        self,
        fn: Target,
        inputs: tuple[Reads, ...],
        n: Parallelism | None,
        items: Sequence[Any] | None,
        name: str | None,
        params: Mapping[str, Any] | None,
        style: Style,
        fields: VertexFields,
    ) -> VertexHandle:
        if isinstance(fn, str):
            if not is_named(fn):
                raise GraphError(
                    f"{fn[:100]!r} is not the name of a function",
                    rule="program",
                    hint="Write 'package.module:function'.",
                )
        elif not callable(fn):
            raise wrong_type("the function of a vertex", fn, "a function or 'module:function'")
        elif runs_later(fn):
            raise GraphError(f"{getattr(fn, '__name__', str(fn))!r} {LATER}", rule="program", hint=LATER_HINT)
        if name is None:
            id = self._unique(fn)
        elif isinstance(name, str):
            id = name
        else:
            raise wrong_type("name of a vertex", name, "text", hint="The number of tasks is n=.")
        if items is not None:
            _check_items(id, items)
        if params is None:
            params = NO_PARAMS
        else:
            check_params(f"vertex {id!r}", id, params)
        if n is None:
            n = len(items) if items is not None else self._width(inputs)
        elif type(n) is not int and not isinstance(n, (Range, Source, SameAs)):
            n = _count(n)
        if type(n) is int and n < 0:
            raise GraphError(
                f"vertex {id!r} has {n} tasks", subject=id, rule="parallelism", hint="Use 0 or more tasks."
            )
        vertices = self.vertices
        if name is not None and id in vertices:
            raise GraphError(f"vertex {id!r} exists already", subject=id, rule="unique-vertex")
        program = Program(fn, params, items, style)
        vertex = _vertex(id, program, n, fields) if fields else Vertex(id, program, n)
        if len(inputs) == 1 and not fields:
            self.edges.append(self._edge(inputs[0], id, n))
        elif inputs:
            edges = [self._edge(reads, id, n) for reads in inputs]
            if len(edges) > 1:
                _tell_apart(edges)
            if fields and fields.get("final"):
                edges = [self._whatever_the_end(edge) for edge in edges]
            self.edges += edges
        vertices[id] = vertex
        return VertexHandle(self, id, n)

    def _whatever_the_end(self, edge: Edge) -> Edge:
        """Let an edge into a final vertex wait for any end of its source, unless its scheduling was given."""
        if edge.scheduling is SEQUENTIAL and not self.vertices[edge.src].final:
            edge.scheduling = AFTER_ANY
        return edge

    def _edge(self, reads: Reads, id: str, n: Parallelism) -> Edge:
        if type(reads) is VertexHandle:
            if reads.graph is not self:
                raise self._foreign(reads)
            if reads.parallelism == n and type(n) is int and self.vertices[reads.id].kind is _FINITE:
                return Edge(reads.id, id)
            reads = self._plain(reads, id, n)
        if not isinstance(reads, InputSpec):
            raise GraphError(
                f"an input of {id!r} is {type_of(reads)}, not a node",
                subject=id,
                rule="input",
                hint="Inputs are nodes; give values with items= (one for each task) or params= (the same for all).",
            )
        node = reads.node
        if node.graph is not self:
            raise self._foreign(node)
        return Edge(node.id, id, reads.movement, reads.scheduling, reads.storage, reads.blocking, reads.name)

    def _plain(self, node: VertexHandle, id: str, n: Parallelism) -> InputSpec:
        """Return the input that a bare node stands for."""
        if self.vertices[node.id].kind is VertexKind.SERVICE:
            return after(node)
        theirs, ours = self._root(node.parallelism, node.id), self._root(n, "")
        if theirs == ours:
            return one_to_one(node)
        if theirs == 1:
            return InputSpec(node, Movement(MovementKind.GRID, grid=TO_ALL), SEQUENTIAL, Storage.LOCAL, False, "")
        raise GraphError(
            f"vertex {id!r} has {width_text(n)} tasks, but its input {node.id!r} has {width_text(node.parallelism)}",
            subject=f"{node.id}->{id}",
            rule="plain-input",
            hint=f"Use gather({node.id}) for all values, shuffle({node.id}) for a piece of each, or grid(...).",
        )

    def _root(self, n: Parallelism, id: str) -> int | str | Parallelism:
        """Follow SameAs to a fixed number, else to the id of the vertex that decides (`id` is the owner of `n`)."""
        for _ in range(len(self.vertices) + 1):
            if isinstance(n, int):
                return n
            if not isinstance(n, SameAs) or n.vertex not in self.vertices:
                break
            id = n.vertex
            n = self.vertices[id].parallelism
        return id or n

    def _width(self, inputs: tuple[Reads, ...]) -> Parallelism:
        """Return the parallelism that the inputs imply: of a one-to-one input, a grid, a shuffle, or a plain node."""
        plain: Parallelism = 1
        for reads in inputs:
            if type(reads) is VertexHandle:
                if plain == 1 and self.vertices.get(reads.id, _NOTHING).kind is _FINITE:
                    n = reads.parallelism
                    plain = n if type(n) is int else _same(reads)
                continue
            if not isinstance(reads, InputSpec):
                continue
            movement = reads.movement
            if movement.move is MovementKind.ONE_TO_ONE:
                return _same(reads.node)
            if movement.move is MovementKind.GRID and movement.grid is not None and -1 not in movement.grid.dst:
                return prod(movement.grid.dst)
            if movement.move is MovementKind.SCATTER_GATHER:
                return movement.partitions or _same(reads.node)
        return plain

    def _unique(self, fn: Target) -> str:
        base = _as_base(fn.__name__) if type(fn) is FunctionType else _base_name(fn)
        vertices = self.vertices
        if base not in vertices:
            return base
        count = self._counts.get(base, 1) + 1
        while (id := f"{base}-{count}") in vertices:
            count += 1
        self._counts[base] = count
        return id

    def _own(self, node: VertexHandle, what: str) -> str:
        """Return the id of a node of this graph. GraphError: another graph's node, or no node."""
        if not isinstance(node, VertexHandle):
            raise wrong_type(what, node, "a node", hint="Pass a node that `add` returned.")
        if node.graph is not self:
            raise self._foreign(node)
        return node.id

    def _foreign(self, node: VertexHandle) -> GraphError:
        there = node.graph.name
        owner = f"graph {there!r}, not to {self.name!r}" if there != self.name else f"another graph {there!r}"
        return GraphError(
            f"vertex {node.id!r} belongs to {owner}",
            subject=node.id,
            rule="foreign-node",
        )

    # ------------------------------------------------------------------------------------------- what is around them

    def bubble(
        self,
        *nodes: VertexHandle,
        name: str | None = None,
        prewarmed: bool = False,
        timeout_s: float = 30.0,
        whole: bool = False,
    ) -> Bubble:
        """Allocate `nodes` together, all or nothing; after `timeout_s` seconds without a grant the bubble shrinks,
        unless it is `whole`.
        """
        id = _group_name("bubble", name, self.bubbles)
        given = {"prewarmed": prewarmed, "timeout_s": timeout_s, "whole": whole}
        check_keywords(f"bubble {id!r}", id, given, _BUBBLE)
        members = tuple(self._own(node, f"a member of bubble {id!r}") for node in nodes)
        made = Bubble(id, members, prewarmed, timeout_s, whole)
        self.bubbles.append(made)
        return made

    def choice(
        self, decider: VertexHandle, /, *, name: str | None = None, **branches: VertexHandle | Iterable[VertexHandle]
    ) -> Choice:
        """Run only the branch that the value of `decider` (a string) names; the others are SKIPPED.

        A branch is one node or several. Vertices without a predecessor in their own branch wait for the decider.
        """
        id = _group_name("choice", name, self.choices)
        made = Choice(
            id,
            self._own(decider, f"the decider of choice {id!r}"),
            {
                branch: tuple(
                    self._own(node, f"a member of branch {branch!r}")
                    for node in (nodes if isinstance(nodes, Iterable) else (nodes,))
                )
                for branch, nodes in branches.items()
            },
        )
        decider.vertex.expands = True
        for ids in made.branches.values():
            inside = {decider.id, *ids}
            led = {edge.dst for edge in self.edges if edge.src in inside}
            self.edges += [Edge(decider.id, id, NONE, storage=Storage.NONE) for id in ids if id not in led]
        self.choices.append(made)
        return made

    def finish(self) -> Graph:
        """Keep the values of the vertices that no edge reads, check the graph, and return it."""
        mark_results(self)
        validate(self)
        return self


_NOTHING = Vertex("", Program(""))
_LIGHT = (Resources(cpu=0),)
_BUBBLE: Wanted = {
    "prewarmed": ((bool,), "True or False"),
    "timeout_s": ((int, float), "a number of seconds"),
    "whole": ((bool,), "True or False"),
}


def _group_name(what: str, name: str | None, groups: Sequence[Bubble | Choice]) -> str:
    """Return the given name, or `what` with the next free number."""
    if name is None:
        taken = {made.id for made in groups}
        return next(id for at in count(len(groups) + 1) if (id := f"{what}-{at}") not in taken)
    if not isinstance(name, str):
        raise wrong_type(f"name of a {what}", name, "text")
    return name


def _check_items(id: str, items: Sequence[Any]) -> None:
    if not isinstance(items, (list, tuple)) and (is_labelled(items) or not hasattr(items, "__getitem__")):
        raise wrong_type(f"items of vertex {id!r}", items, "a sequence", id, "Pass a list; map takes any iterable.")


def _same(node: VertexHandle) -> Parallelism:
    n = node.parallelism
    return n if isinstance(n, (int, SameAs)) else SameAs(node.id)


def width_text(n: Parallelism) -> str:
    """Return a parallelism as text: `8`, `1 to 8`, `as x says`, `as many as x`."""
    if isinstance(n, Range):
        return f"{n.lo} to {n.hi}"
    if isinstance(n, Source):
        return f"as {n.expander} says"
    return f"as many as {n.vertex}" if isinstance(n, SameAs) else str(n)


def tasks_text(vertex: Vertex) -> str:
    """Return the number of tasks of a vertex as `width_text` does; the helper that lists its items is not named."""
    n = vertex.parallelism
    if isinstance(n, Source) and n.expander.startswith(f"{vertex.id}/"):
        return "as many as its list has"
    return width_text(n)


def _count(n: object) -> int:
    try:
        return whole_number(n, "n")
    except GraphError as error:
        error.hint = "Give a whole number, Range(lo, hi), Source(vertex) or SameAs(vertex)."
        raise


def _vertex(id: str, program: Program, n: Parallelism, fields: VertexFields) -> Vertex:
    check_keywords(f"vertex {id!r}", id, fields, FIELDS)
    resources = fields.get("resources")
    if isinstance(resources, Resources):
        fields["resources"] = (resources,)
    manager = fields.get("manager")
    if isinstance(manager, str):
        fields["manager"] = Manager(manager)
    return Vertex(id, program, n, **fields)  # type: ignore[arg-type]


def _tell_apart(edges: list[Edge]) -> None:
    """Name the second and later edges from one source, whose default ids would be equal."""
    seen: dict[str, int] = {}
    for edge in edges:
        count = seen[edge.src] = seen.get(edge.src, 0) + 1
        if count > 1 and not edge.name:
            edge.name = f"{edge.src}->{edge.dst}.{count}"


def _base_name(fn: Target) -> str:
    if isinstance(fn, str):
        return _as_base(fn.rpartition(":")[2].rpartition(".")[2])
    while isinstance(fn, partial):
        fn = fn.func
    known = getattr(fn, "__name__", None)
    return _as_base(known if isinstance(known, str) else type(fn).__name__)


@lru_cache(maxsize=256)
def _as_base(name: str) -> str:
    if name.isidentifier() and name.isascii() and len(name) < 150:
        return name
    return "lambda" if name == "<lambda>" else as_name(name)
