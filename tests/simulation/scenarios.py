"""Random jobs that use every word of the graph: services, choices, expanders, patches, streams, events, caches.

`random_scenario` draws everything from one generator, so that a seed repeats it. Vertices carry the scenario's
prefix: several scenarios may run as jobs of one session, and what their tasks answer and emit is found by the
vertex's name alone.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.engine.decisions import (
    Avoid,
    BackUp,
    Decision,
    Emit,
    Fail,
    Finish,
    Readmit,
    Remake,
    Schedule,
    SetEdge,
    SetParallelism,
    SetResources,
    WeighTasks,
)
from weft.engine.policy import BLAME, STRAGGLERS, ManagerFactory, Moment, VertexManager, View
from weft.graph.builder import Graph, InputSpec, VertexHandle, after, gather, grid, one_to_one, shuffle
from weft.graph.grid import group, ungroup
from weft.graph.logical import (
    BROADCAST,
    NONE,
    ONE_TO_ONE,
    SEQUENTIAL,
    Choice,
    Edge,
    Manager,
    MovementKind,
    OnFailure,
    Outcome,
    Patch,
    Range,
    Retry,
    Scheduling,
    Source,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
)
from weft.graph.validate import validate
from weft.model.errors import GraphError
from weft.model.program import Program
from weft.model.resources import Placement, Resources

WORDS = (
    "events", "fractions", "one_success", "concurrent", "services", "choices", "expanders", "patches", "decisions",
    "bubbles", "streams", "resources", "cache", "retries", "timeouts", "managers",
)  # fmt: skip
"""What a scenario may use; each is there in about a third of them."""


class Waves(VertexManager):
    """A manager that lets tasks go in waves, and ends the vertex when `enough` have finished (0: never)."""

    moments = frozenset((Moment.STARTED, Moment.FINISHED))
    holds = True
    counts = True

    def __init__(self, grow: int = 2, enough: int = 0) -> None:
        self.grow = grow
        self.enough = enough

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """See `VertexManager.decide`."""
        if self.enough and view.finished >= self.enough:
            return (Finish(view.vertex, "enough"),), memo
        if max(view.finished, view.over) < view.released:
            return (), memo
        wave = (memo or 0) * self.grow + 1
        return (Schedule(view.vertex, view.released + wave),), wave


class Fit(VertexManager):
    """A manager that settles the width of its vertex when all its sources have ended."""

    moments = frozenset((Moment.SOURCE_ENDED,))
    holds = False
    counts = True

    def __init__(self, n: int = 2) -> None:
        self.n = n

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """See `VertexManager.decide`."""
        if memo or not all(each.ended for each in view.inputs):
            return (), memo
        return (SetParallelism(view.vertex, self.n),), True


MANAGERS: dict[str, ManagerFactory] = {"waves": Waves, "fit": Fit}


def work(*inputs: object) -> int:
    """Stand for any task body."""
    return len(inputs)


@dataclass(slots=True)
class Scenario:
    """A graph, what its expanders answer (called once for each attempt), which events its vertices emit, and which
    services end by themselves. `most_served` is how many workers all services together may hold.
    """

    graph: Graph
    words: frozenset[str]
    answers: dict[str, Callable[[], Any]] = field(default_factory=dict)
    emits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    brief: set[str] = field(default_factory=set)
    most_served: int = 0


def random_scenario(
    rng: random.Random, prefix: str = "", *, most_vertices: int = 8, words: frozenset[str] | None = None
) -> Scenario:
    """Return a legal graph with its answers and events."""
    if words is None:
        words = frozenset(word for word in WORDS if rng.random() < 0.3)
    return _Draw(rng, prefix, words).scenario(most_vertices)


class _Draw:
    def __init__(self, rng: random.Random, prefix: str, words: frozenset[str]) -> None:
        self.rng = rng
        self.prefix = prefix
        self.words = words
        self.graph = Graph(f"{prefix or 'r'}andom", limits={"slots": rng.randint(1, 3)})
        self.graph.on_failure = rng.choice(list(OnFailure))
        self.made = Scenario(self.graph, words)
        self.nodes: list[VertexHandle] = []
        self.count = 0

    def scenario(self, most: int) -> Scenario:
        rng = self.rng
        for _ in range(rng.randint(1, most)):
            kinds = ["plain"] * 4
            kinds += [w for w in ("choices", "expanders", "patches", "decisions", "managers") if w in self.words]
            getattr(self, f"add_{rng.choice(kinds)}")()
        if not self.nodes:
            self.add_plain()
        if "services" in self.words:
            self.add_services()
        if self.words & {"bubbles", "streams"}:
            self.add_bubbles()
        validate(self.graph)
        return self.made

    # -------------------------------------------------------------------------------------------------- vertices

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{self.prefix}{kind}{self.count}"

    def some(self, most: int = 3) -> list[VertexHandle]:
        return self.rng.sample(self.nodes, k=min(len(self.nodes), self.rng.randint(0, most)))

    def reads(self, source: VertexHandle, n: object) -> InputSpec:
        """A random legal way for a vertex of `n` tasks to read `source`."""
        rng = self.rng
        width = source.parallelism
        ways = ["gather", "shuffle", "after"]
        if isinstance(n, int) and width == n:
            ways += ["same"] * 4
        if isinstance(n, int) and isinstance(width, int) and n and width:
            if width % n == 0 and width > n:
                ways += ["group"] * 3
            if n % width == 0 and n > width:
                ways += ["ungroup"]
            if width > n > 1:
                ways += ["window"]
        way = rng.choice(ways)
        options: dict[str, Any] = {}
        chance = rng.random()
        if "fractions" in self.words and chance < 0.2:
            options["fraction"] = rng.choice([0.3, 0.5, 1.0])
        elif "events" in self.words and chance < 0.4:
            options["event"] = "e"
            self.made.emits[source.id] = ("e",)
            if rng.random() < 0.3:
                options["concurrent"] = True
        elif "concurrent" in self.words and chance < 0.6:
            options["concurrent"] = True
            if rng.random() < 0.5:
                options["when"] = Trigger.SOURCE_CONFIGURED
        elif way == "after" and chance < 0.8:
            options["outcome"] = rng.choice([Outcome.ANY, Outcome.SUCCESS])
        if way == "same":
            return one_to_one(source, **options)
        if way == "group":
            assert isinstance(width, int)
            assert isinstance(n, int)
            return grid(source, group(0, width // n), src=(width,), dst=(n,), **options)
        if way == "ungroup":
            assert isinstance(width, int)
            assert isinstance(n, int)
            return grid(source, ungroup(0, n // width), src=(width,), dst=(n,), **options)
        if way == "window":
            assert isinstance(width, int)
            assert isinstance(n, int)
            return (
                grid(source, group(0, 2, step=1), src=(width,), dst=(width,), **options)
                if n == width
                else gather(source)
            )
        if way == "shuffle":
            return shuffle(source, rng.choice([None, None, 3]), **options)
        return gather(source, **options) if way == "gather" else after(source, **options)

    def fields(self) -> dict[str, Any]:
        rng = self.rng
        extra: dict[str, Any] = {}
        if "resources" in self.words and rng.random() < 0.4:
            extra["resources"] = rng.choice(
                [
                    (Resources(cpu=0, tokens=(("slots", 1),)),),
                    (Resources(cpu=2),),
                    (Resources(cpu=0),),
                    (Resources(memory=60),),
                    (Resources(gpu=1), Resources(cpu=2)),
                    (Resources(tokens=(("slots", 1),)),),
                ]
            )
        if "resources" in self.words and rng.random() < 0.1:
            extra["placement"] = Placement(node="node0")
        if "retries" in self.words and rng.random() < 0.5:
            extra["retry"] = Retry(
                user=rng.randint(0, 3), memory=rng.randint(0, 3), delay_s=rng.choice([0.0, 0.0, 0.5])
            )
        if rng.random() < 0.15:
            extra["keep"] = True
        if "timeouts" in self.words and rng.random() < 0.3:
            extra["timeout_s"] = rng.choice([2.5, 50.0])
        if "cache" in self.words and rng.random() < 0.4:
            extra["cache_key"] = "key"
        return extra

    def add(self, kind: str, *inputs: VertexHandle | InputSpec, n: Any, **fields: Any) -> VertexHandle:
        node = self.graph.add(work, *inputs, n=n, name=self.name(kind), **fields)
        self.nodes.append(node)
        return node

    def add_plain(self) -> None:
        rng = self.rng
        sources = self.some()
        n: object = rng.choice([0, 1, 1, 2, 3, 4, 8, rng.randint(1, 12)])
        if sources and rng.random() < 0.5 and isinstance(sources[0].parallelism, int):
            n = sources[0].parallelism
            if n and n % 2 == 0 and rng.random() < 0.5:
                n = n // 2
        if "one_success" in self.words and len(sources) > 1 and rng.random() < 0.5:
            inputs = [after(source, outcome=Outcome.ONE_SUCCESS) for source in sources]
        else:
            inputs = [self.reads(source, n) for source in sources]
        self.add("v", *inputs, n=n, **self.fields())

    def add_managers(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            n = rng.choice([1, 3, 8])
            waves = Manager("waves", {"grow": rng.randint(1, 3), "enough": rng.choice([0, 0, 2])})
            links = [self.reads(source, n) for source in self.some(2)]
            self.add("m", *links, n=n, manager=waves, **self.fields())
            return
        sources = self.some(2)
        inputs = [rng.choice([gather, lambda node: shuffle(node, 4)])(source) for source in sources]
        if not inputs:
            return
        fit = Manager("fit", {"n": rng.randint(0, 5)})
        self.add("m", *inputs, n=Range(1, 4), manager=fit, **self.fields())

    def add_expanders(self) -> None:
        rng = self.rng
        own = self.fields()
        own.pop("cache_key", None)  # a cache keeps values, not answers
        plan = self.add("x", *[self.reads(s, 1) for s in self.some(2)], n=1, expands=True, **own)
        width = rng.randint(0, 6)
        self.made.answers[plan.id] = lambda: width if width % 2 else list(range(width))
        inputs = [rng.choice([after, gather])(plan)]
        inputs += [rng.choice([gather, shuffle])(s) for s in self.some(1) if s.id != plan.id]
        load = self.add("l", *inputs, n=Source(plan.id), **self.fields())
        if rng.random() < 0.5:
            self.nodes.append(self.graph.add(work, load, name=self.name("w"), **self.fields()))

    def add_choices(self) -> None:
        rng = self.rng
        decider = self.add("d", *[self.reads(s, 1) for s in self.some(2)], n=1, expands=True)
        branches: dict[str, list[VertexHandle]] = {}
        ends: list[VertexHandle] = []
        for branch in ("yes", "no")[: rng.randint(1, 2)]:
            first = self.graph.add(
                work, rng.choice([after, gather])(decider), n=rng.randint(1, 4), name=self.name("b"), **self.fields()
            )
            branches[branch] = [first]
            if rng.random() < 0.6:
                n = first.parallelism
                branches[branch].append(
                    self.graph.add(work, self.reads(first, n), n=n, name=self.name("b"), **self.fields())
                )
            ends.append(branches[branch][-1])
        if len(branches) == 1:
            branches["no"] = []
        inputs = [rng.choice([gather, after, shuffle])(end) for end in ends]
        self.add("j", *inputs, n=rng.randint(1, 2), **self.fields())
        self.graph.choice(decider, name=None, **branches)
        taken = rng.choice(sorted(branches))
        self.made.answers[decider.id] = lambda: taken

    def add_patches(self) -> None:
        rng = self.rng
        expander = self.add("p", *[self.reads(s, 1) for s in self.some(2)], n=1, expands=True)
        report = self.add("t", after(expander), n=rng.choice([1, 2]), **self.fields())
        old = [node.id for node in self.nodes if isinstance(node.parallelism, int) and node.id != report.id]
        n = rng.randint(1, 4)
        a, b = f"{expander.id}/a", f"{expander.id}/b"
        vertices = [Vertex(a, Program(work), n), Vertex(b, Program(work), n, keep=rng.random() < 0.3)]
        source = rng.choice([expander.id, rng.choice(old)])
        edges = [
            Edge(source, a, rng.choice([gather, shuffle])(expander).movement),
            Edge(a, b, ONE_TO_ONE),
            Edge(b, report.id, rng.choice([gather, shuffle])(expander).movement),
        ]
        if source != expander.id and rng.random() < 0.5:
            edges.append(Edge(expander.id, a, NONE, storage=Storage.NONE))
        drops = (f"{expander.id}->{report.id}",) if rng.random() < 0.5 else ()
        choices: tuple[Choice, ...] = ()
        if rng.random() < 0.2:
            c, d = f"{expander.id}/c", f"{expander.id}/d"
            vertices += [Vertex(c, Program(work), 1, expands=True), Vertex(d, Program(work), 2)]
            edges += [Edge(a, c, NONE, storage=Storage.NONE), Edge(c, d, NONE, storage=Storage.NONE)]
            choices = (Choice(f"{expander.id}-choice", c, {"yes": (d,), "no": ()}),)
            answer = rng.choice(["yes", "no"])
            self.made.answers[c] = lambda: answer
        if rng.random() < 0.2:
            s = f"{expander.id}/s"
            cores = self.cores()
            self.made.most_served += cores
            vertices.append(Vertex(s, Program(work), 1, VertexKind.SERVICE, resources=(Resources(cpu=cores),)))
            edges.append(Edge(s, b, NONE, Scheduling(True, Trigger.SOURCE_RUNNING), Storage.NONE))

        def answer_patch() -> Patch:
            return Patch(
                tuple(_copy_vertex(v) for v in vertices), tuple(_copy_edge(e) for e in edges), drops, (), choices
            )

        self.made.answers[expander.id] = answer_patch

    def add_decisions(self) -> None:
        rng = self.rng
        decider = self.add("q", *[self.reads(s, 1) for s in self.some(2)], n=1, expands=True)
        target = rng.choice(self.nodes)
        decision: Any = rng.choice(
            [
                SetResources(target.id, (Resources(cpu=rng.choice([0, 1, 2])),)),
                Finish(target.id, "enough"),
                Emit(target.id, "e"),
                Fail(target.id, "no use"),
                SetParallelism(target.id, rng.randint(0, 4)),
            ]
        )
        if self.graph.edges and rng.random() < 0.3:
            edge = rng.choice(self.graph.edges)
            if edge.movement.move is not MovementKind.NONE:
                movement = (None, BROADCAST, ONE_TO_ONE)[len(self.graph.edges) % 3]  # no number is drawn for it
                decision = SetEdge(edge.id, scheduling=SEQUENTIAL, movement=movement)
        self.made.answers[decider.id] = lambda: [decision]

    # ------------------------------------------------------------------------------------------- what joins them

    def legal(self) -> bool:
        try:
            validate(self.graph)
        except GraphError:
            return False
        return True

    def add_services(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 2)):
            cores = self.cores()
            service = self.graph.service(
                work, name=self.name("s"), n=rng.randint(1, 2), resources=(Resources(cpu=cores),)
            )
            self.made.most_served += 2 * cores
            if rng.random() < 0.3:
                self.made.brief.add(service.id)
            for consumer in rng.sample(self.nodes, k=min(len(self.nodes), rng.randint(1, 2))):
                self.graph.edges.append(
                    Edge(
                        service.id,
                        consumer.id,
                        NONE,
                        Scheduling(True, Trigger.SOURCE_RUNNING),
                        Storage.NONE,
                        name=f"{service.id}-{consumer.id}",
                    )
                )

    def cores(self) -> int:
        """How many cores a service takes, drawn beside the other draws: those of a seed stay as they were."""
        if "resources" not in self.words:
            return 1
        beside = random.Random()
        beside.setstate(self.rng.getstate())
        return random.Random(beside.getrandbits(64)).choice([1, 2, 3])

    def add_bubbles(self) -> None:
        rng = self.rng
        graph = self.graph
        for _ in range(rng.randint(1, 2)):
            taken = {id for bubble in graph.bubbles for id in bubble.vertices}
            edges = [e for e in graph.edges if not {e.src, e.dst} & taken and e.movement.move is not MovementKind.NONE]
            if not edges:
                return
            edge = rng.choice(edges)
            chosen = [edge.src, edge.dst]
            more = [id for id in graph.vertices if id not in taken and id not in chosen]
            if more and rng.random() < 0.3:
                chosen.append(rng.choice(more))
            before = edge.scheduling, edge.storage
            if "streams" in self.words and graph.vertices[edge.src].kind is VertexKind.FINITE:
                edge.scheduling = Scheduling(True, rng.choice([Trigger.SOURCE_CONFIGURED, Trigger.SOURCE_RUNNING]))
                edge.storage = rng.choice([Storage.EPHEMERAL, Storage.EPHEMERAL, Storage.LOCAL])
            bubble = graph.bubble(
                *[VertexHandle(graph, id, graph.vertices[id].parallelism) for id in chosen],
                name=f"{self.prefix}bubble{len(graph.bubbles)}",
                timeout_s=rng.choice([1.5, 5.0, 30.0]),
                prewarmed=rng.random() < 0.3,
            )
            if not self.legal():
                graph.bubbles.remove(bubble)
                edge.scheduling, edge.storage = before


def _copy_vertex(vertex: Vertex) -> Vertex:
    return Vertex(
        vertex.id,
        Program(work),
        vertex.parallelism,
        vertex.kind,
        resources=vertex.resources,
        keep=vertex.keep,
        expands=vertex.expands,
    )


def _copy_edge(edge: Edge) -> Edge:
    return Edge(edge.src, edge.dst, edge.movement, edge.scheduling, edge.storage, name=edge.name)


class Reckless(VertexManager):
    """A policy that has anything run twice, at any time."""

    moments: frozenset[Any] = frozenset()
    holds = False
    counts = False

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def decide(self, view: Any, memo: Any) -> tuple[list[Decision], Any]:
        """Back up some, weigh others."""
        decisions: list[Decision] = []
        for attempt in view.attempts:
            dice = self.rng.random()
            if dice < 0.6:
                decisions.append(BackUp(attempt.lease, "chaos"))
            elif dice < 0.8:
                decisions.append(WeighTasks(attempt.lease))
        return decisions, (memo or 0) + 1


class Suspicious(Reckless):
    """A policy that blames whom it likes."""

    def decide(self, view: Any, memo: Any) -> tuple[list[Decision], Any]:
        """Avoid some, readmit some, even all and those that are gone; have outputs made again on the word of one."""
        decisions: list[Decision] = []
        workers = [*(each.worker for each in view.workers), *(fault.worker for fault in view.faults)]
        for worker in workers:
            dice = self.rng.random()
            if dice < 0.3:
                decisions.append(Avoid(worker, self.rng.choice([0.1, 5.0, 1000.0]), "chaos"))
            elif dice < 0.4:
                decisions.append(Readmit(worker, "chaos"))
        unread = [fault.unread or fault.task for fault in view.faults if self.rng.random() < 0.5]
        decisions += [Remake(vertex, index, "chaos") for vertex, index in unread]
        return decisions, (memo or 0) + 1


def reckless(rng: random.Random) -> dict[str, ManagerFactory]:
    """The policies of a job that may run anything twice and avoid anybody."""
    return {STRAGGLERS: lambda: Reckless(rng), BLAME: lambda: Suspicious(rng)}
