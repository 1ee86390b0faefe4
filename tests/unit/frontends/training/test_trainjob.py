"""A TrainJob and its runtime as one job: counts, overrides, patches, and what the trainer refuses."""

import pytest

from weft.frontends.training.reading import read_text
from weft.frontends.training.schema import EnvSource, EnvVar, Port, TrainingJob
from weft.frontends.training.validation import update_errors
from weft.model.errors import JobFileError

API = "apiVersion: trainer.kubeflow.org/v1alpha1\n"
RUNTIME = (
    API
    + """\
kind: TrainingRuntime
metadata: {name: own}
spec:
  mlPolicy: {numNodes: 3, torch: {}}
  podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 9}}
  template:
    metadata: {labels: {from: runtime}}
    spec:
      replicatedJobs:
        - name: dataset-initializer
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
            spec:
              template: {spec: {containers: [{name: dataset-initializer, image: init}]}}
        - name: node
          dependsOn: [{name: dataset-initializer, status: Complete}]
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec:
              backoffLimit: 2
              template:
                spec:
                  restartPolicy: Never
                  containers:
                    - name: node
                      image: base
                      command: [run]
                      env: [{name: A, value: runtime}, {name: B, value: runtime}]
                      resources: {limits: {cpu: 1, memory: 1Gi}}
                    - {name: side, image: side}
        - name: extra
          replicas: 2
          template: {spec: {parallelism: 3, template: {spec: {containers: [{name: x, image: y}]}}}}
"""
)
PATCHES = """
  runtimePatches:
    - manager: a.io/b
      trainingRuntimeSpec:
        template:
          metadata: {labels: {team: t}}
          spec:
            replicatedJobs:
              - name: node
                template:
                  spec:
                    template:
                      metadata: {annotations: {n: "1"}}
                      spec:
                        terminationGracePeriodSeconds: 3
                        volumes: [{name: v, emptyDir: {}}]
                        containers: [{name: side, env: [{name: S, value: s}], volumeMounts: [{name: v, mountPath: /v}]}]
"""


def train(spec: str, runtime: str = "torch-distributed", kind: str = "ClusterTrainingRuntime") -> str:
    ref = f"{{name: {runtime}, kind: {kind}, apiGroup: trainer.kubeflow.org}}"
    return f"{API}kind: TrainJob\nmetadata: {{name: job}}\nspec:\n  runtimeRef: {ref}\n{spec}"


def job_of_text(text: str) -> TrainingJob:
    (job,) = read_text(text, "f.yaml").jobs
    return job


def own(spec: str) -> TrainingJob:
    return job_of_text(train(spec, "own", "TrainingRuntime") + "---\n" + RUNTIME)


def test_replicated_jobs_are_the_replica_types():
    job = own("")
    assert {name: spec.replicas for name, spec in job.replicas.items()} == {
        "dataset-initializer": 1,
        "node": 3,
        "extra": 6,
    }
    assert job.replicas["node"].after == (("dataset-initializer", "Complete"),)
    assert [spec.restart_policy for spec in job.replicas.values()] == ["OnFailure", "Never", "OnFailure"]
    assert (job.kind, job.runtime, job.policy.backoff_limit) == ("TrainJob", "torch", 2)
    assert job.policy.clean_pod_policy == "Running"
    assert job.policy.scheduling is not None
    assert job.policy.scheduling.timeout_s == 9
    assert all(spec.template.labels == {"from": "runtime"} for spec in job.replicas.values())


def test_the_trainer_of_the_job_overrides_its_runtime():
    job = own(
        "  trainer: {image: mine, args: [x], numNodes: 5, numProcPerNode: 2, env: [{name: B, value: job}],"
        " resourcesPerNode: {limits: {memory: 2Gi}, requests: {cpu: 1}}}\n"
    )
    node, side = job.replicas["node"].template.containers
    assert (job.replicas["node"].replicas, job.nproc_per_node) == (5, "2")
    assert (node.image, node.command, node.args) == ("mine", ("run",), ("x",))
    assert node.env == (EnvVar("A", "runtime"), EnvVar("B", "job"))
    assert (node.limits, node.requests) == ({"cpu": 1, "memory": 2**31}, {"cpu": 1})
    assert node.ports == (Port(29500),)
    assert (side.image, side.env, side.ports) == ("side", (), ())


def test_the_initializer_gets_its_source():
    dataset = "{storageUri: hf://a/b, env: [{name: E, value: e}], secretRef: {name: token}}"
    job = own(f"  initializer: {{dataset: {dataset}}}\n")
    (container,) = job.replicas["dataset-initializer"].template.containers
    assert container.env == (EnvVar("STORAGE_URI", "hf://a/b"), EnvVar("E", "e"))
    assert container.env_from == (EnvSource("token", secret=True),)


def test_patches_of_the_runtime():
    job = own(PATCHES)
    template = job.replicas["node"].template
    assert template.labels == {"from": "runtime", "team": "t"}
    assert (template.annotations, template.grace_s) == ({"n": "1"}, 3)
    assert [volume.name for volume in template.volumes] == ["v"]
    assert template.containers[1].env == (EnvVar("S", "s"),)
    assert [mount.path for mount in template.containers[1].mounts] == ["/v"]
    assert job.replicas["extra"].template.volumes == ()


OVERRIDE = (
    "volumes: [{name: v, emptyDir: {}}], serviceAccountName: someone,"
    " containers: [{name: side, env: [{name: S, value: s}], volumeMounts: [{name: v, mountPath: /v}]}]"
)


@pytest.mark.parametrize(
    ("field", "override", "labels"),
    [
        ("podTemplateOverrides", f"metadata: {{labels: {{team: t}}}}, spec: {{{OVERRIDE}}}", {"team": "t"}),
        ("podSpecOverrides", OVERRIDE, {}),
    ],
)
def test_the_overrides_of_earlier_trainers_are_patches(field, override, labels):
    job = own(f"  labels: {{all: pods}}\n  {field}: [{{targetJobs: [{{name: node}}], {override}}}]\n")
    template = job.replicas["node"].template
    assert template.labels == {"from": "runtime", "all": "pods", **labels}
    assert [volume.name for volume in template.volumes] == ["v"]
    assert template.containers[1].env == (EnvVar("S", "s"),)
    assert [mount.path for mount in template.containers[1].mounts] == ["/v"]
    extra = job.replicas["extra"].template
    assert (extra.labels, extra.volumes) == ({"from": "runtime", "all": "pods"}, ())


@pytest.mark.parametrize(
    ("runtime", "policy", "nodes", "expected"),
    [
        ("torch-distributed", "torch", None, {"node": 1}),
        ("jax-distributed", "jax", 4, {"node": 4}),
        ("xgboost-distributed", "xgboost", 2, {"node": 2}),
        ("plain", "plain", 3, {"node": 3}),
        ("mpi-distributed", "mpi", 3, {"node": 3, "launcher": 1}),
        ("deepspeed-distributed", "mpi", 3, {"node": 2, "launcher": 1}),
        ("deepspeed-distributed", "mpi", 1, {"node": 1, "launcher": 1}),
    ],
)
def test_runtimes_that_no_file_has_to_give(runtime, policy, nodes, expected):
    job = job_of_text(train("" if nodes is None else f"  trainer: {{numNodes: {nodes}}}\n", runtime))
    assert (job.runtime, {name: spec.replicas for name, spec in job.replicas.items()}) == (policy, expected)


def test_the_processes_of_an_mpi_node():
    for trainer, expected in (
        ("{numProcPerNode: 4}", 4),
        ("{}", 1),
        ("{resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}", 8),
        ("{numProcPerNode: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}", 2),
    ):
        job = job_of_text(train(f"  trainer: {trainer}\n", "deepspeed-distributed"))
        assert (job.slots_per_worker, job.launcher_is_node) == (expected, True)


@pytest.mark.parametrize(
    ("of_runtime", "of_job", "expected"),
    [
        ("", "", None),
        ("numProcPerNode: 3", "", "3"),
        ("numProcPerNode: gpu", "", "gpu"),
        ("numProcPerNode: 3", "numProcPerNode: auto", "auto"),
        ("numProcPerNode: auto", "numProcPerNode: 2", "2"),
        ("", "numProcPerNode: cpu", "cpu"),
    ],
)
def test_the_processes_of_a_torch_node_are_those_of_the_job_else_of_its_runtime(of_runtime, of_job, expected):
    text = train(f"  trainer: {{{of_job}}}\n", "own", "TrainingRuntime") + "---\n"
    found = read_text(text + RUNTIME.replace("torch: {}", f"torch: {{{of_runtime}}}"), "f.yaml")
    assert [job.nproc_per_node for job in found.jobs] == [expected]
    assert found.warnings == ()


def test_the_policy_of_the_job():
    policy = job_of_text(train("  suspend: true\n  activeDeadlineSeconds: 7\n")).policy
    assert (policy.suspend, policy.deadline_s, policy.managed_by) == (True, 7, None)


@pytest.mark.parametrize(
    ("spec", "runtime", "message", "hint"),
    [
        (
            "",
            "torch-distribute",
            "5:15: spec.runtimeRef.name: there is no ClusterTrainingRuntime",
            "mean torch-distrib",
        ),
        ("  trainer: {numNodes: -1}\n", "plain", "6:23: spec.trainer.numNodes: Invalid value: -1", ""),
        ("  trainer: {numNodes: 10001}\n", "plain", "Invalid value: 10001: must be at most 10000", ""),
        ("  trainer: {numProcPerNode: 0}\n", "plain", "must be greater than or equal to 1", ""),
        ("  trainer: {numProcPerNode: gpus}\n", "plain", "must have an int value or [auto cpu gpu]", "mean gpu?"),
        ('  trainer: {numProcPerNode: "4"}\n', "plain", "must be a whole number", "leave out the quotes"),
        ("  trainer: {numProcPerNode: auto}\n", "mpi-distributed", "must have an int value for MPI TrainJob", ""),
        ("  trainer: {image: x, imagePull: y}\n", "plain", "spec.trainer.imagePull: unknown field", "mean image?"),
        ("  managedBy: me\n", "plain", 'Unsupported value: "me": supported values: "trainer.kubeflow.org', ""),
        ("  activeDeadlineSeconds: 0\n", "plain", "must be greater than or equal to 1", ""),
        (
            "  trainer: {env: [{name: PET_NNODES, value: x}]}\n",
            "torch-distributed",
            "6:12: spec.trainer.env: Invalid value: must not have reserved envs, invalid envs configured: [PET_NNODES]",
            "",
        ),
        (
            "  initializer: {model: {storageUri: hf://x}}\n",
            "plain",
            "must have model-initializer job when trainJob is configured with input modelConfig",
            "",
        ),
        ("  initializer: {model: {storageUri: x}}\n", "plain", "or it must be a valid URI (scheme://...)", ""),
        (PATCHES, "plain", "must not have container that doesn't exist in the runtime job node", ""),
        (
            PATCHES.replace("name: node", "name: nodes"),
            "plain",
            "must not have replicated job that doesn't",
            "mean node",
        ),
        (PATCHES.replace("name: side", "name: node"), "plain", "must not have envs for the dataset-initializer,", ""),
        (
            "  podTemplateOverrides: [{targetJobs: [{name: nodes}]}]\n",
            "plain",
            "6:25: spec.podTemplateOverrides: Invalid value: must not have targetJob that doesn't exist in the runtime",
            "mean node",
        ),
        ("  podSpecOverrides: [{volumes: []}]\n", "plain", "spec.podSpecOverrides[0].targetJobs: Required value", ""),
    ],
)
def test_mistakes_in_a_train_job(spec, runtime, message, hint):
    with pytest.raises(JobFileError) as caught:
        read_text(train(spec, runtime), "f.yaml")
    assert message in caught.value.message
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("torch: {}", "torch: {}, jax: {}", "Only one of the policy can be configured"),
        (
            "name: node\n                      image",
            "name: main\n                      image",
            "must have container node",
        ),
        ("torch: {}", "torch: {numProcPerNode: all}", "torch.numProcPerNode: Invalid value"),
        ("torch: {}", "mpi: {numProcPerNode: auto}", "mpi.numProcPerNode: must be a whole number"),
        ("replicas: 2", "replicas: -1", "must be greater than or equal to 0"),
        ("status: Complete", "status: Done", 'Unsupported value: "Done": supported values: "Ready", "Complete"'),
    ],
)
def test_mistakes_in_a_runtime(old, new, message):
    assert old in RUNTIME
    with pytest.raises(JobFileError) as caught:
        read_text(train("", "own", "TrainingRuntime") + "---\n" + RUNTIME.replace(old, new), "f.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("  suspend: true\n", []),
        ("  trainer: {image: other}\n", ["spec.trainer: Invalid value: changed: field is immutable"]),
        ("  activeDeadlineSeconds: 7\n", ["spec.activeDeadlineSeconds: Invalid value: changed: field is immutable"]),
        (
            "  managedBy: kueue.x-k8s.io/multikueue\n",
            ['spec.managedBy: Invalid value: "kueue.x-k8s.io/multikueue": field is immutable'],
        ),
    ],
)
def test_changes_of_a_train_job(spec, expected):
    assert update_errors(job_of_text(train("")), job_of_text(train(spec))) == expected


def test_a_missing_runtime_is_one_mistake():
    with pytest.raises(JobFileError) as caught:
        read_text(API + "kind: TrainJob\nmetadata: {name: job}\nspec: {}\n", "f.yaml")
    assert caught.value.message == "f.yaml:4:7: spec.runtimeRef: Required value"
    assert "torch-distributed" in caught.value.hint


def test_a_patch_of_mounts_is_allowed_while_the_job_is_as_it_was():
    mounts = PATCHES.replace("name: side, env: [{name: S, value: s}],", "name: node,")
    assert update_errors(own(""), own(mounts)) == []
