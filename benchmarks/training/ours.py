"""The cases on Weft."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from benchmarks.harness import expect
from weft.frontends.training.desired import desired
from weft.frontends.training.observed import RUNNING, Observed, Pod
from weft.frontends.training.schema import ON_FAILURE, PodTemplate, ReplicaSpec, TrainingJob
from weft.operators.call import CommandSpec, run_guarded
from weft.operators.mounts import plan
from weft.operators.network import Isolation, NetworkMember, NetworkSpec, ReplicaPlace, open_network

REPLICAS = 1_000
ISOLATED = 20
CALLS = 500


def reconcile() -> dict[str, float]:
    """Ask the controller of a job with 1,000 running replicas 500 times."""
    numbers = {"Chief": 1, "PS": 9, "Worker": REPLICAS - 10}
    job = TrainingJob(
        kind="TFJob",
        name="job",
        replicas={
            type: ReplicaSpec(template=PodTemplate(), replicas=number, restart_policy=ON_FAILURE)
            for type, number in numbers.items()
        },
    )
    places = [(type, index) for type, number in numbers.items() for index in range(number)]
    pods = [Pod(type=type, index=index, phase=RUNNING) for type, index in places]
    services = {type: frozenset(range(number)) for type, number in numbers.items()}
    observed = Observed(pods=tuple(pods), services=services)
    observed = replace(observed, status=desired(job, observed, 0).status)
    begin = time.perf_counter()
    for call in range(CALLS):
        if call % 2:
            pods[call] = replace(pods[call], restarts=call)
            observed = replace(observed, pods=tuple(pods))
        answer = desired(job, observed, call)
    seconds = time.perf_counter() - begin
    expect(answer.actions, ())
    expect(sum(one.active for one in answer.status.replicas.values()), REPLICAS)
    return {"calls_per_s": CALLS / seconds}


def namespaces() -> dict[str, float]:
    """Run 20 trivial replicas at once in namespaces and as plain processes."""
    with TemporaryDirectory(prefix="weft-benchmark-") as folder, ThreadPoolExecutor(ISOLATED) as threads:
        members = tuple(NetworkMember(name=f"job-worker-{index}") for index in range(ISOLATED))
        network = NetworkSpec(members=members, folder=Path(folder) / "network")

        def run(name: str, place: ReplicaPlace) -> int | None:
            view = plan(place.mounts, folder, name).view
            log = Path(folder) / f"{name}.log"
            spec = CommandSpec(
                argv=("true",), env={}, cwd=Path(folder), log=log, name=name, view=view, sandbox=place.sandbox
            )
            return run_guarded(spec).exit_code

        def run_all(place: Callable[[str], ReplicaPlace]) -> float:
            begin = time.perf_counter()
            codes = list(threads.map(lambda member: run(member.name, place(member.name)), members))
            expect(codes, [0] * ISOLATED)
            return time.perf_counter() - begin

        plain = min(run_all(lambda _: ReplicaPlace()) for _ in range(2))  # the first starts the guardians
        begin = time.perf_counter()
        opened = open_network(network, Isolation.NAMESPACE)
        opening = time.perf_counter() - begin
        isolated = run_all(opened.place)
        opened.close()
    return {"seconds": (opening + isolated - plain) / ISOLATED}


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {"namespaces": namespaces, "reconcile": reconcile}
