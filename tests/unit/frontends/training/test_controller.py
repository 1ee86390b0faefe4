"""The tasks of the engine as pods, and the answers of the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from msgspec import Struct

from weft.engine.policy import ControlledBubble
from weft.frontends.training.compiler import as_json, groups_of
from weft.frontends.training.controller import (
    FIRST_DELAY_S,
    RESUME,
    SCALE,
    SCALED_BEFORE,
    SUSPEND,
    TUNE,
    prepare,
    reconcile,
)
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.schema import (
    EXIT_CODE,
    NEVER,
    Container,
    JobFile,
    JobTuning,
    PlainPod,
    PodTemplate,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
    TrainingJob,
)
from weft.graph.control import AnswerKind, ControlAnswer

TEMPLATE = PodTemplate(containers=(Container(name="tensorflow", image="e/n", command=("true",)),))
ROWS = 8


class FakeTask(NamedTuple):
    state: str = "held"
    starts: int = 0
    restarts: int = 0
    code: int | None = None
    failure: str = ""
    message: str = ""
    started_at: float | None = None
    ended_at: float | None = None


class FakeRequest(NamedTuple):
    name: str
    payload: Any = None


class FakeChange(Struct, frozen=True):
    vertex: str
    index: int


class FakeView(NamedTuple):
    now: float
    vertices: Mapping[str, Sequence[FakeTask]]
    changed: Sequence[FakeChange] = ()
    requests: Sequence[FakeRequest] = ()
    bubbles: Mapping[str, Any] = MappingProxyType({})


class Cluster:
    """A fake of the engine: it does at once what the controller decides."""

    def __init__(self, *jobs: TrainingJob, pods: Sequence[PlainPod] = ()) -> None:
        files = JobFile(jobs=jobs, pods=tuple(pods))
        groups = {group.vertex: [group.job.name, group.type] for group in groups_of(files)}
        self.jobs = prepare(as_json(jobs), groups, [pod.name for pod in pods], "fixed")
        self.tasks = {vertex: [FakeTask() for _ in range(ROWS)] for vertex in groups}
        self.memo: Any = None
        self.now = 1000.0
        self.outcome = ""
        self.woken_at: float | None = None
        self.gangs: dict[str, Any] = {}
        self.told: dict[str, list[FakeTask]] = {}

    def news(self) -> list[FakeChange]:
        """Return the tasks with news since the last time."""
        before, self.told = self.told, {vertex: list(tasks) for vertex, tasks in self.tasks.items()}
        return [
            FakeChange(vertex, index)
            for vertex, tasks in self.tasks.items()
            for index, task in enumerate(tasks)
            if vertex not in before or before[vertex][index] != task
        ]

    def ask(self, *requests: FakeRequest) -> list[ControlAnswer]:
        view: Any = FakeView(self.now, self.tasks, self.news(), requests, self.gangs)
        answers, self.memo = reconcile(view, self.memo, self.jobs)
        for one in answers:
            for index in range(one.lo, one.hi):
                task = self.tasks[one.vertex][index]
                if one.kind is AnswerKind.START:
                    task = task._replace(state="running", starts=task.starts + 1, code=None, started_at=self.now)
                else:
                    task = task._replace(state="held")
                self.tasks[one.vertex][index] = task
            if one.kind is AnswerKind.CONCLUDE:
                self.outcome = one.outcome
            if one.kind is AnswerKind.WAKE:
                self.woken_at = one.at
        return answers

    def end(self, vertex: str, index: int, code: int) -> None:
        state = "succeeded" if code == 0 else "failed"
        message = "" if code == 0 else f"exit {code}"
        self.tasks[vertex][index] = self.tasks[vertex][index]._replace(
            state=state, code=code, message=message, ended_at=self.now
        )

    def states(self, vertex: str) -> list[str]:
        return [task.state for task in self.tasks[vertex] if task.state != "held"]

    def conditions(self, name: str = "job") -> dict[str, str]:
        return {one["type"]: one["status"] for one in self.memo["statuses"][name]["conditions"]}


def job(
    name: str = "job", policy: str = NEVER, run: RunPolicy | None = None, kind: str = "TFJob", **replicas: int
) -> TrainingJob:
    specs = {
        type: ReplicaSpec(template=TEMPLATE, replicas=count, restart_policy=policy) for type, count in replicas.items()
    }
    return TrainingJob(kind=kind, name=name, replicas=specs, policy=run or RunPolicy())


def test_all_replicas_start_and_the_chief_ends_the_run():
    cluster = Cluster(job(Chief=1, PS=1, Worker=2))
    cluster.ask()
    assert [len(cluster.states(vertex)) for vertex in ("chief", "ps", "worker")] == [1, 1, 2]
    cluster.ask()
    assert cluster.conditions() == {"Created": "True", "Running": "True"}
    assert cluster.ask() == []
    cluster.end("chief", 0, 0)
    cluster.ask()
    assert cluster.outcome == "succeeded"
    assert cluster.states("ps") == cluster.states("worker") == []


def test_the_run_fails_by_the_replica_that_failed_first():
    cluster = Cluster(job(Worker=3))
    cluster.ask()
    cluster.end("worker", 2, 7)
    cluster.now += 1
    cluster.end("worker", 1, 1)
    answers = cluster.ask()
    end = answers[-1]
    assert (end.kind, end.outcome, end.task, end.text) == (AnswerKind.CONCLUDE, "failed", "worker[2]", "exit 7")


def test_a_pod_is_created_again_at_once_then_after_pauses():
    cluster = Cluster(job(policy=EXIT_CODE, Chief=1))
    cluster.ask()
    for starts, pause in ((2, 0.0), (3, FIRST_DELAY_S), (4, 2 * FIRST_DELAY_S)):
        cluster.end("chief", 0, 130)
        cluster.ask()
        if pause:
            assert cluster.states("chief") == ["failed"]
            assert cluster.woken_at == cluster.now + pause
            cluster.now += pause
            cluster.ask()
        assert cluster.tasks["chief"][0].starts == starts
    cluster.end("chief", 0, 0)
    cluster.ask()
    assert cluster.outcome == "succeeded"


def test_a_suspended_job_forgets_pods_that_wait_for_their_pause():
    cluster = Cluster(job(policy=EXIT_CODE, Chief=1, Worker=1))
    cluster.ask()
    for _ in range(2):
        cluster.end("worker", 0, 130)
        cluster.ask()
    assert cluster.memo["delayed"]["worker"]
    cluster.ask(FakeRequest(SUSPEND))
    cluster.ask()
    assert cluster.memo["delayed"]["worker"] == {}
    assert cluster.states("chief") == []
    assert cluster.conditions()["Suspended"] == "True"
    cluster.ask(FakeRequest(RESUME))
    cluster.ask()
    assert cluster.conditions()["Suspended"] == "False"
    assert cluster.states("chief") == ["running"]


def test_users_scale_a_replica_type():
    cluster = Cluster(job(Chief=1, Worker=2))
    cluster.ask()
    cluster.ask(FakeRequest(SCALE, {"worker": 4, "unknown": 3}))
    cluster.ask()
    assert len(cluster.states("worker")) == 4
    cluster.ask(FakeRequest(SCALE, {"worker": 1}))
    cluster.ask()
    assert len(cluster.states("worker")) == 1
    assert cluster.outcome == ""


def test_a_deadline_wakes_the_controller():
    cluster = Cluster(job(run=RunPolicy(deadline_s=30), Worker=1))
    cluster.ask()
    assert cluster.woken_at == cluster.now + 30
    cluster.now += 30
    cluster.ask()
    assert cluster.outcome == "failed"


def test_the_run_lasts_until_all_jobs_have_ended():
    cluster = Cluster(job("one", Worker=1), job("two", Worker=1))
    cluster.ask()
    cluster.end("one.worker", 0, 0)
    cluster.ask()
    assert cluster.outcome == ""
    cluster.end("two.worker", 0, 3)
    cluster.ask()
    assert cluster.outcome == "failed"
    assert cluster.conditions("one")["Succeeded"] == "True"
    assert cluster.conditions("two")["Failed"] == "True"


def test_pods_beside_the_jobs_run_as_long_as_these():
    cluster = Cluster(job(Worker=1), pods=[PlainPod(name="store", template=TEMPLATE)])
    cluster.ask()
    assert cluster.states("pod.store") == ["running"]
    cluster.ask(FakeRequest(SUSPEND))
    assert cluster.states("pod.store") == []
    cluster.ask(FakeRequest(RESUME))
    assert cluster.states("pod.store") == ["running"]
    cluster.end("worker", 0, 0)
    cluster.ask()
    assert cluster.outcome == "succeeded"


def test_an_unchanged_view_changes_no_memo():
    cluster = Cluster(job(Chief=1, Worker=2))
    cluster.ask()
    cluster.ask()
    before = cluster.memo
    cluster.ask()
    assert cluster.memo is before


class FakeGang(NamedTuple):
    granted: bool = False
    asks: int = 2
    reason: str = "needs 2 cores at once, 0 are free"
    never: bool = False


def gang_view(cluster: Cluster, gang: FakeGang, *requests: FakeRequest) -> Any:
    return FakeView(cluster.now, cluster.tasks, cluster.news(), requests, {"job.gang": gang})


def started(answers: Sequence[ControlAnswer]) -> list[tuple[int, int]]:
    return [(one.lo, one.hi) for one in answers if one.kind is AnswerKind.START]


def test_the_least_available_pods_start_and_further_ones_one_after_another():
    cluster = Cluster(job(Worker=4, run=RunPolicy(scheduling=SchedulingPolicy(min_available=2))))
    answers, memo = reconcile(gang_view(cluster, FakeGang()), None, cluster.jobs)
    assert started(answers) == [(0, 2)]
    cluster.tasks["worker"][:2] = [FakeTask(state="waiting")] * 2
    answers, memo = reconcile(gang_view(cluster, FakeGang()), memo, cluster.jobs)
    assert started(answers) == []
    cluster.tasks["worker"][:2] = [FakeTask(state="running", starts=1, started_at=1000.0)] * 2
    answers, memo = reconcile(gang_view(cluster, FakeGang(granted=True, asks=0)), memo, cluster.jobs)
    assert started(answers) == [(2, 3)]
    cluster.tasks["worker"][2] = FakeTask(state="waiting")
    answers, memo = reconcile(gang_view(cluster, FakeGang(granted=True, asks=0)), memo, cluster.jobs)
    assert started(answers) == []  # its gang has not asked for it yet
    answers, memo = reconcile(gang_view(cluster, FakeGang(asks=1)), memo, cluster.jobs)
    assert started(answers) == []
    cluster.tasks["worker"][0] = FakeTask(state="waiting", starts=1, restarts=1)
    cluster.tasks["worker"][2] = FakeTask(state="running", starts=1, started_at=1000.0)
    answers, memo = reconcile(gang_view(cluster, FakeGang(granted=True, asks=0)), memo, cluster.jobs)
    assert started(answers) == [(3, 4)]  # one that starts again has its place


def test_a_gang_without_a_place_is_told_and_fails_at_its_limit():
    cluster = Cluster(job(Worker=1, run=RunPolicy(scheduling=SchedulingPolicy(timeout_s=5))))
    _, memo = reconcile(gang_view(cluster, FakeGang()), None, cluster.jobs)
    cluster.tasks["worker"][0] = FakeTask(state="waiting")
    answers, memo = reconcile(gang_view(cluster, FakeGang()), memo, cluster.jobs)
    assert [one.at for one in answers if one.kind is AnswerKind.WAKE] == [1005.0]
    told = [event for event in memo["events"] if event[3] == "FailedScheduling"]
    assert [event[4] for event in told] == ["needs 2 cores at once, 0 are free"]
    cluster.now = 1005.0
    answers, memo = reconcile(gang_view(cluster, FakeGang()), memo, cluster.jobs)
    assert answers[-1].outcome == "failed"
    assert answers[-1].text == (
        "TFJob job found no place within 5 s (scheduleTimeoutSeconds): needs 2 cores at once, 0 are free"
    )


def test_a_job_that_ends_waits_no_longer_for_further_replicas():
    cluster = Cluster(job(Chief=1, Worker=1, run=RunPolicy(scheduling=SchedulingPolicy(min_available=1))))
    _, memo = reconcile(gang_view(cluster, FakeGang()), None, cluster.jobs)
    cluster.tasks["chief"][0] = FakeTask(state="running", starts=1, started_at=1000.0)
    cluster.tasks["worker"][0] = FakeTask(state="waiting")
    _, memo = reconcile(gang_view(cluster, FakeGang(asks=1)), memo, cluster.jobs)
    assert memo["queued"] == {"job": "needs 2 cores at once, 0 are free"}
    cluster.tasks["chief"][0] = FakeTask(state="succeeded", starts=1, code=0, started_at=1000.0, ended_at=1001.0)
    _, memo = reconcile(gang_view(cluster, FakeGang(asks=1)), memo, cluster.jobs)
    assert memo["statuses"]["job"]["conditions"][-1]["type"] == "Succeeded"
    assert not memo.get("queued")


def test_a_preempted_job_is_suspended_and_goes_on_when_it_is_admitted():
    cluster = Cluster(job(Worker=2))
    cluster.ask()
    cluster.ask()
    cluster.ask(FakeRequest("preempt", {"by": "run-000007"}))
    cluster.ask()
    assert cluster.states("worker") == []
    suspended = cluster.memo["statuses"]["job"]["conditions"][-1]
    assert suspended["message"] == (
        "TFJob job is suspended. It was preempted by run-000007, and goes on when there is room."
    )
    assert cluster.ask() == []
    cluster.ask(FakeRequest("readmit", None))
    cluster.ask()
    assert len(cluster.states("worker")) == 2
    assert cluster.conditions() == {"Created": "True", "Suspended": "False", "Running": "True"}


def test_a_preempted_job_that_its_user_suspends_goes_on_by_a_resume_alone():
    cluster = Cluster(job(Worker=2))
    cluster.ask()
    cluster.ask(FakeRequest("preempt", {"by": "run-000007"}))
    cluster.ask()
    cluster.ask(FakeRequest(SUSPEND))
    suspended = cluster.memo["statuses"]["job"]["conditions"][-1]
    assert (suspended["type"], suspended["message"]) == ("Suspended", "TFJob job is suspended.")


def test_a_train_job_ends_the_run_when_it_is_complete():
    cluster = Cluster(job(kind="TrainJob", node=2))
    cluster.ask()
    for index in range(2):
        cluster.end("node", index, 0)
    cluster.ask()
    assert cluster.conditions()["Complete"] == "True"
    assert cluster.outcome == "succeeded"


def wait_for_gang(cluster: Cluster, name: str, vertex: str) -> None:
    """Let all tasks of a vertex wait for a gang that can never be."""
    cluster.gangs[f"{name}.gang"] = FakeGang(never=True, reason="it needs 9 slots")
    cluster.tasks[vertex] = [
        task._replace(state="waiting") if task.state == "running" else task for task in cluster.tasks[vertex]
    ]


def test_a_job_whose_gang_can_never_be_has_failed_and_the_engine_ends_the_run():
    cluster = Cluster(job(Worker=3))
    cluster.ask()
    wait_for_gang(cluster, "job", "worker")
    assert cluster.ask() == []
    assert cluster.conditions()["Failed"] == "True"
    assert "it needs 9 slots" in str(cluster.memo["statuses"]["job"])


def test_a_job_whose_gang_can_never_be_does_not_end_others():
    cluster = Cluster(job("one", Worker=3, run=RunPolicy(clean_pod_policy="None")), job("two", Worker=1))
    cluster.ask()
    wait_for_gang(cluster, "one", "one.worker")
    cluster.ask()
    cluster.gangs.clear()
    assert cluster.states("one.worker") == []
    assert cluster.states("two.worker") == ["running"]
    cluster.end("two.worker", 0, 0)
    cluster.ask()
    assert cluster.outcome == "failed"
    assert cluster.conditions("two")["Succeeded"] == "True"


def test_a_scale_that_can_never_be_is_undone_with_the_reason():
    cluster = Cluster(job(Chief=1, Worker=2))
    cluster.ask()
    cluster.ask(FakeRequest(SCALE, {"worker": 6}))
    wait_for_gang(cluster, "job", "worker")
    cluster.ask()
    cluster.gangs.clear()
    cluster.ask()
    assert len(cluster.states("worker")) == 2
    assert cluster.outcome == ""
    assert ["ScaleRefused", "worker=6 is undone: it needs 9 slots"] in [event[3:] for event in cluster.memo["events"]]


def test_a_scale_that_can_never_be_leaves_the_replicas_that_have_their_places():
    cluster = Cluster(job(Chief=1, Worker=2))
    cluster.gangs["job.gang"] = FakeGang(granted=True, asks=0)
    cluster.ask()
    cluster.ask(FakeRequest(SCALE, {"worker": 3}))
    starts = [task.starts for task in cluster.tasks["worker"]]
    cluster.ask(FakeRequest(SCALE, {"worker": 6}))
    for index in (3, 4, 5):
        cluster.tasks["worker"][index] = cluster.tasks["worker"][index]._replace(state="waiting")
    cluster.gangs["job.gang"] = FakeGang(granted=True, never=True, reason="it needs 9 slots")
    cluster.ask()
    cluster.gangs["job.gang"] = FakeGang(granted=True, asks=0)
    cluster.ask()
    assert cluster.states("worker") == ["running"] * 3
    assert [task.starts for task in cluster.tasks["worker"]][:3] == starts[:3] == [1, 1, 1]
    assert cluster.outcome == ""
    assert [event[4] for event in cluster.memo["events"] if event[3] == "ScaleRefused"] == [
        "worker=6 is undone: it needs 9 slots"
    ]


def test_a_number_that_has_lost_its_places_for_good_gives_way_to_that_of_the_file():
    cluster = Cluster(job(Chief=1, Worker=1))
    cluster.gangs["job.gang"] = FakeGang(granted=True, asks=0)
    cluster.ask()
    cluster.ask(FakeRequest(SCALE, {"worker": 3}))
    cluster.ask(FakeRequest(SCALE, {"worker": 4}))
    cluster.gangs["job.gang"] = FakeGang(never=True, reason="it needs 5 slots")
    cluster.ask()
    assert cluster.memo["scale"] == {"worker": 3}
    cluster.ask()
    assert cluster.memo["scale"] == {}
    assert cluster.conditions()["Running"] == "True"


def test_workers_of_torch_end_by_themselves_after_the_master():
    spec = ReplicaSpec(template=TEMPLATE, replicas=1, restart_policy=NEVER)
    cluster = Cluster(TrainingJob(kind="PyTorchJob", name="job", replicas={"Master": spec, "Worker": spec}))
    cluster.ask()
    cluster.end("master", 0, 0)
    cluster.ask()
    assert cluster.conditions()["Succeeded"] == "True"
    assert cluster.outcome == ""
    assert cluster.states("worker") == ["running"]
    assert cluster.memo["lingering"] == ["job"]
    assert cluster.woken_at == cluster.now + KINDS["PyTorchJob"].linger_s
    cluster.end("worker", 0, 0)
    cluster.ask()
    assert cluster.outcome == "succeeded"
    assert cluster.memo["lingering"] == []


def test_workers_that_none_leaves_end_by_themselves_after_the_first():
    cluster = Cluster(job(Worker=2, PS=1, run=RunPolicy(clean_pod_policy="None")))
    cluster.ask()
    cluster.end("worker", 0, 0)
    cluster.ask()
    assert cluster.conditions()["Succeeded"] == "True"
    assert cluster.outcome == ""
    assert cluster.memo["lingering"] == ["job"]
    cluster.now += 1e6
    cluster.ask()
    assert "running" in cluster.states("worker")
    cluster.end("worker", 1, 0)
    cluster.ask()
    assert cluster.outcome == "succeeded", "a parameter server has no end of its own"


def test_workers_and_evaluators_that_none_leaves_end_by_themselves_after_the_chief():
    cluster = Cluster(job(Chief=1, Worker=1, Evaluator=1, PS=1, run=RunPolicy(clean_pod_policy="None")))
    cluster.ask()
    cluster.ask()
    cluster.end("chief", 0, 0)
    cluster.ask()
    assert cluster.conditions()["Succeeded"] == "True"
    assert cluster.outcome == ""
    cluster.tasks["worker"][0] = cluster.tasks["worker"][0]._replace(state="waiting", restarts=2)
    cluster.end("evaluator", 0, 1)
    cluster.ask()
    assert cluster.outcome == "", "a worker that starts again has not come to its end"
    cluster.end("worker", 0, 0)
    cluster.ask()
    assert cluster.outcome == "succeeded", "a parameter server has no end of its own"
    assert cluster.conditions() == {"Created": "True", "Running": "False", "Succeeded": "True"}


@pytest.mark.parametrize("policy", ["All", "Running", None])
@pytest.mark.parametrize("types", [{"Chief": 1, "Worker": 1, "Evaluator": 1}, {"Worker": 2}])
def test_other_workers_end_with_the_run(policy, types):
    cluster = Cluster(job(**types, run=RunPolicy(clean_pod_policy=policy)))
    cluster.ask()
    cluster.end("chief" if "Chief" in types else "worker", 0, 0)
    cluster.ask()
    assert cluster.outcome == "succeeded"


def test_a_worker_of_torch_that_does_not_end_is_stopped():
    spec = ReplicaSpec(template=TEMPLATE, replicas=1, restart_policy=NEVER)
    cluster = Cluster(TrainingJob(kind="PyTorchJob", name="job", replicas={"Master": spec, "Worker": spec}))
    cluster.ask()
    cluster.end("master", 0, 0)
    cluster.ask()
    cluster.now += KINDS["PyTorchJob"].linger_s
    cluster.ask()
    assert cluster.outcome == "succeeded"
    assert cluster.states("worker") == []


def test_a_job_whose_gang_has_waited_too_long_has_failed_and_others_go_on():
    late = RunPolicy(scheduling=SchedulingPolicy(timeout_s=5), clean_pod_policy="None")
    cluster = Cluster(job("one", Worker=1, run=late), job("two", Worker=1))
    cluster.ask()
    cluster.gangs["one.gang"] = FakeGang()
    cluster.tasks["one.worker"][0] = FakeTask(state="waiting")
    cluster.ask()
    cluster.now = 1005.0
    cluster.ask()
    assert cluster.conditions("one") == {"Created": "True", "Failed": "True"}
    failed = cluster.memo["statuses"]["one"]
    assert failed["conditions"][-1]["reason"] == "ScheduleTimeout"
    assert failed["completed_at"] == 1005.0
    assert cluster.states("one.worker") == []
    assert cluster.outcome == ""
    cluster.gangs.clear()
    cluster.end("two.worker", 0, 0)
    cluster.ask()
    assert cluster.outcome == "failed"


def test_a_job_of_another_controller_is_left_alone():
    other = RunPolicy(managed_by="kueue.x-k8s.io/multikueue")
    cluster = Cluster(job("one", Worker=1, run=other), job("two", Worker=1))
    cluster.ask()
    assert cluster.states("one.worker") == []
    assert "one" not in cluster.memo["statuses"]
    cluster.end("two.worker", 0, 0)
    cluster.ask()
    assert cluster.outcome == "succeeded"


def test_a_service_is_deleted_once():
    cluster = Cluster(job(Worker=2))
    cluster.ask()
    cluster.end("worker", 0, 1)
    cluster.ask()
    cluster.tasks["worker"][1] = cluster.tasks["worker"][1]._replace(state="stopping")
    cluster.ask()
    deleted = [event[4] for event in cluster.memo["events"] if event[3] == "SuccessfulDeleteService"]
    assert sorted(deleted) == sorted(set(deleted))


def test_pods_beside_jobs_that_are_all_suspended_do_not_run():
    server = PlainPod(name="etcd", namespace="default", template=TEMPLATE)
    cluster = Cluster(job(Worker=1, run=RunPolicy(suspend=True)), pods=[server])
    cluster.ask()
    assert cluster.states("pod.etcd") == []
    cluster.ask(FakeRequest(RESUME))
    cluster.ask()
    assert cluster.states("pod.etcd") == ["running"]


# -------------------------------------------------------------------------------------------------------------- tuning


def tuned_cluster() -> Cluster:
    spec = ReplicaSpec(template=TEMPLATE, replicas=3, restart_policy=NEVER)
    job = TrainingJob(kind="TFJob", name="j", replicas={"Worker": spec}, tuning=JobTuning(history=True))
    return Cluster(job)


def choice(replicas: dict[str, int]) -> FakeRequest:
    return FakeRequest(TUNE, {"job": "j", "replicas": replicas, "because": "it was measured"})


def test_a_tuned_job_waits_for_its_control_vertex():
    cluster = tuned_cluster()
    assert cluster.ask() == []
    assert [one["type"] for one in cluster.memo["statuses"]["j"]["conditions"]] == ["Created"]
    assert cluster.memo["events"] == []
    cluster.ask(choice({"worker": 2}))
    assert [task.state for task in cluster.tasks["worker"]][:3] == ["running", "running", "held"]
    assert next(event[3:] for event in cluster.memo["events"]) == ["Tuned", "it was measured"]


def test_the_first_choice_counts_and_users_may_change_it():
    cluster = tuned_cluster()
    cluster.ask(choice({}))
    assert [task.state for task in cluster.tasks["worker"]].count("running") == 3
    cluster.ask(choice({"worker": 1}))  # as after a resume
    assert [task.state for task in cluster.tasks["worker"]].count("running") == 3
    cluster.ask(FakeRequest(SCALE, {"worker": 1}))
    assert [task.state for task in cluster.tasks["worker"]].count("running") == 1


def test_numbers_of_an_earlier_process_last_unless_the_controller_knows_newer_ones():
    cluster = Cluster(job(Chief=1, Worker=2))
    cluster.ask(FakeRequest(RESUME), FakeRequest(SCALED_BEFORE, {"worker": 4}))
    assert len(cluster.states("worker")) == 4
    cluster.ask(FakeRequest(SCALE, {"worker": 3}))
    cluster.ask(FakeRequest(SCALED_BEFORE, {"worker": 4}))
    cluster.ask()
    assert len(cluster.states("worker")) == 3


def test_a_number_that_users_set_lasts_when_a_resumed_job_takes_its_choice_again():
    cluster = tuned_cluster()
    cluster.ask(FakeRequest(RESUME), FakeRequest(SCALED_BEFORE, {"worker": 1}))
    cluster.ask(choice({"worker": 2}))
    assert [task.state for task in cluster.tasks["worker"]].count("running") == 1


def test_a_suspended_job_stays_so_when_it_is_tuned():
    cluster = tuned_cluster()
    cluster.ask(FakeRequest(SUSPEND))
    cluster.ask(choice({"worker": 2}))
    assert {task.state for task in cluster.tasks["worker"]} == {"held"}
    cluster.ask(FakeRequest(RESUME))
    assert [task.state for task in cluster.tasks["worker"]].count("running") == 2


def test_pods_that_may_not_start_yet_are_not_told_as_created():
    cluster = Cluster(job(Worker=4, run=RunPolicy(scheduling=SchedulingPolicy(min_available=2))))
    cluster.gangs["job.gang"] = FakeGang()
    for _ in range(3):
        cluster.ask()
    created = [event[4] for event in cluster.memo["events"] if event[3] == "SuccessfulCreatePod"]
    assert created == ["Created pod: job-worker-0", "Created pod: job-worker-1"]


def test_a_job_over_its_backoff_limit_fails_by_the_replica_that_failed():
    cluster = Cluster(job(Chief=1, PS=1, policy="OnFailure", run=RunPolicy(backoff_limit=1)))
    cluster.ask()
    task = cluster.tasks["chief"][0]
    cluster.tasks["chief"][0] = task._replace(state="starting", restarts=2, code=3, message="exit 3", ended_at=1001.0)
    (end,) = [one for one in cluster.ask() + cluster.ask() if one.kind is AnswerKind.CONCLUDE][:1]
    assert (end.text, end.task) == ("exit 3", "chief[0]")


def test_a_job_over_its_backoff_limit_fails_by_its_last_failure_and_not_by_one_that_was_mended():
    cluster = Cluster(job(Worker=2, policy="OnFailure", run=RunPolicy(backoff_limit=2)))
    cluster.ask()
    first, second = cluster.tasks["worker"][:2]
    cluster.tasks["worker"][0] = first._replace(state="starting", restarts=2, code=3, message="exit 3", ended_at=1003.0)
    cluster.tasks["worker"][1] = second._replace(restarts=1, code=22, message="exit 22", ended_at=1002.0)
    (end,) = [one for one in cluster.ask() + cluster.ask() if one.kind is AnswerKind.CONCLUDE][:1]
    assert (end.text, end.task) == ("exit 3", "worker[0]")


def test_the_time_between_an_interruption_and_its_resume_counts_for_no_deadline():
    cluster = Cluster(job("long", Worker=1, run=RunPolicy(deadline_s=10)), job("done", Worker=1))
    cluster.ask()
    cluster.end("done.worker", 0, 0)
    cluster.ask()
    cluster.now += 1000
    cluster.ask(FakeRequest(RESUME))
    assert cluster.conditions("long") == {"Created": "True", "Running": "True"}
    assert [cluster.memo["statuses"][name]["started_at"] for name in ("long", "done")] == [cluster.now, 1000.0]
    cluster.now += 10
    cluster.ask()
    assert cluster.conditions("long")["Failed"] == "True"


def backed_off(cluster: Cluster) -> list[str]:
    return [event[4].partition(";")[0] for event in cluster.memo["events"] if event[3] == "BackOff"]


def test_restarts_in_place_without_a_limit_are_told_at_each_doubling():
    cluster = Cluster(job(Worker=2, policy="OnFailure"))
    cluster.ask()
    for restarts in range(1, 14):
        task = cluster.tasks["worker"][1]
        for state in ("waiting", "running"):
            cluster.tasks["worker"][1] = task._replace(state=state, restarts=restarts, code=3, ended_at=cluster.now)
            cluster.ask()
    assert backed_off(cluster) == [f"restart {count} of worker-1" for count in (3, 6, 12)]
    assert cluster.memo["restarts"] == {"worker": {"1": 13}}


def test_restarts_as_new_pods_are_counted_too():
    cluster = Cluster(job(Worker=1, policy=EXIT_CODE))
    for _ in range(4):
        cluster.ask()
        cluster.now += 100
        cluster.ask()
        cluster.ask()
        assert cluster.states("worker") == ["running"]
        cluster.end("worker", 0, 137)
    assert backed_off(cluster) == ["restart 3 of worker-0"]


def test_restarts_within_a_limit_are_not_told():
    for limit in (RunPolicy(backoff_limit=20), RunPolicy(deadline_s=1000)):
        cluster = Cluster(job(Worker=1, policy="OnFailure", run=limit))
        cluster.ask()
        cluster.tasks["worker"][0] = cluster.tasks["worker"][0]._replace(restarts=9, code=3)
        cluster.ask()
        assert backed_off(cluster) == []


def test_a_job_is_deleted_once_after_its_time_to_live():
    cluster = Cluster(job("short", run=RunPolicy(ttl_s=5), Chief=1), job("long", Chief=1))
    cluster.ask()
    cluster.end("short.chief", 0, 0)
    cluster.ask()
    for _ in range(3):
        cluster.now += 10
        cluster.ask()
    assert [line[3] for line in cluster.memo["events"]].count("SuccessfulDeleteJob") == 1
    assert cluster.memo["counters"]["short"]["jobs_deleted_total"] == 1


def test_what_is_done_is_counted_once():
    cluster = Cluster(job(policy=EXIT_CODE, PS=1, Worker=2))
    for _ in range(3):
        cluster.ask()
    counters = cluster.memo["counters"]["job"]
    assert counters == {"jobs_created_total": 1, "created_pods_total": 3, "succeeded_service_creation_total": 3}
    for code in (130, 137, 130):  # the second and third replacements wait for their pauses
        cluster.end("worker", 1, code)
        for _ in range(3):
            cluster.ask()
        cluster.now += 60
        cluster.ask()
    counters = cluster.memo["counters"]["job"]
    assert counters.pop("jobs_restarted_total") >= 1
    assert counters == {
        "jobs_created_total": 1,
        "created_pods_total": 6,
        "failed_pods_total": 3,
        "deleted_pods_total": 3,
        "succeeded_service_creation_total": 3,
    }
    cluster.ask(FakeRequest(SCALE, {"worker": 1}))
    cluster.ask(FakeRequest(SUSPEND))
    cluster.ask()
    counters = cluster.memo["counters"]["job"]
    assert (counters["created_pods_total"], counters["deleted_pods_total"]) == (6, 6)
    cluster.ask(FakeRequest(RESUME))
    cluster.ask()
    counters = cluster.memo["counters"]["job"]
    assert (counters["created_pods_total"], counters["succeeded_service_creation_total"]) == (8, 5)
    cluster.end("worker", 0, 0)
    cluster.ask()
    cluster.ask()
    counters = cluster.memo["counters"]["job"]
    assert (counters["created_pods_total"], counters["deleted_pods_total"]) == (8, 7)  # the worker that succeeded stays
    assert (counters["failed_pods_total"], counters["succeeded_service_creation_total"]) == (3, 5)


def test_pods_without_a_place_and_pod_groups_are_counted_when_they_come():
    policy = RunPolicy(scheduling=SchedulingPolicy(min_available=2))
    cluster = Cluster(job(run=policy, Worker=4))
    cluster.gangs = {"job.gang": ControlledBubble("job.gang", False, 2)}
    cluster.ask()
    counters = cluster.memo["counters"]["job"]
    assert (counters["created_pods_total"], counters["created_pod_groups_total"]) == (2, 1)
    assert counters["succeeded_service_creation_total"] == 2
    cluster.gangs = {"job.gang": ControlledBubble("job.gang", True, 0)}
    for _ in range(3):
        cluster.ask()
    counters = cluster.memo["counters"]["job"]
    assert (counters["created_pods_total"], counters["succeeded_service_creation_total"]) == (4, 4)
    cluster.ask(FakeRequest(SUSPEND))
    cluster.ask(FakeRequest(RESUME))
    for index in range(4):
        cluster.end("worker", index, 0)
    cluster.ask()
    cluster.ask()
    counters = cluster.memo["counters"]["job"]
    assert (counters["created_pod_groups_total"], counters["deleted_pod_groups_total"]) == (2, 2)
