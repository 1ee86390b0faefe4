"""From the text of a file to records, and the mistakes in it with their places."""

import base64

import pytest

from weft.frontends.training.quantities import quantity, quantity_hint
from weft.frontends.training.reading import read_files, read_text
from weft.frontends.training.schema import (
    Container,
    ContainerProbe,
    EnvSource,
    EnvVar,
    FileItem,
    KeyRef,
    PodTemplate,
    Port,
    Volume,
    VolumeMount,
)
from weft.model.errors import ForbiddenError, InputLimitError, JobFileError, NotFoundError

SMALL = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: small
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: tensorflow
              image: i
"""

WHOLE = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: whole, namespace: team, labels: {a: b}, creationTimestamp: null}
spec:
  successPolicy: AllWorkers
  enableDynamicWorker: yes
  runPolicy:
    cleanPodPolicy: Running
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 3600
    backoffLimit: 3
    suspend: true
    managedBy: kubeflow.org/training-operator
    schedulingPolicy:
      minAvailable: 2
      queue: q
      minResources: {cpu: 500m, memory: 1Gi}
      priorityClass: high
      scheduleTimeoutSeconds: 9
  tfReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: ExitCode
      template:
        metadata: {labels: {app: x}, annotations: {n: "1"}}
        spec:
          terminationGracePeriodSeconds: 5
          activeDeadlineSeconds: 100
          hostNetwork: true
          hostname: h
          restartPolicy: OnFailure
          schedulerName: s
          priorityClassName: high
          hostAliases: [{ip: 10.0.0.1, hostnames: [a, b]}]
          dnsPolicy: ClusterFirst
          tolerations: [{key: gpu}]
          initContainers: [{name: init, image: busybox}]
          containers:
            - name: tensorflow
              image: tf:2
              imagePullPolicy: Always
              securityContext: {runAsUser: 7, privileged: true}
              command: [python]
              args: [train.py, "--x=1"]
              workingDir: /code
              env:
                - {name: A, value: "1"}
                - {name: B}
                - {name: C, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
                - name: D
                  valueFrom:
                    resourceFieldRef: {containerName: tensorflow, resource: limits.memory, divisor: 1Mi}
                - {name: E, valueFrom: {configMapKeyRef: {name: cm, key: k, optional: true}}}
                - {name: F, valueFrom: {secretKeyRef: {name: s, key: k}}}
              envFrom: [{prefix: P_, configMapRef: {name: cm}}, {secretRef: {name: s, optional: true}}]
              ports: [{containerPort: 2223, name: tfjob-port}]
              resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi, nvidia.com/gpu: 1}}
              volumeMounts: [{name: data, mountPath: /data, readOnly: true, subPath: x}]
              readinessProbe: {tcpSocket: {port: tfjob-port}, periodSeconds: 2, successThreshold: 2}
              livenessProbe:
                httpGet: {path: live, port: 80, host: h, scheme: HTTPS, httpHeaders: [{name: A, value: b}]}
                initialDelaySeconds: 3
                failureThreshold: 1
                terminationGracePeriodSeconds: 7
              startupProbe: {exec: {command: ["true"]}, timeoutSeconds: 4}
              lifecycle: {preStop: {exec: {command: [save]}}, postStart: {sleep: {seconds: 2}}}
          volumes:
            - {name: data, persistentVolumeClaim: {claimName: c, readOnly: true}}
            - {name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
            - {name: tmp, emptyDir: {}}
            - {name: host, hostPath: {path: /mnt, type: Directory}}
            - {name: cm, configMap: {name: cm, defaultMode: 0400, items: [{key: k, path: p, mode: 0o755}]}}
            - {name: s, secret: {secretName: s, optional: true}}
            - {name: down, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
            - {name: both, projected: {sources: [{configMap: {name: cm}}, {secret: {name: s}}]}}
            - {name: far, nfs: {server: x, path: /}}
"""


def test_every_field_of_a_job_and_its_pods():
    found = read_text(WHOLE, "f.yaml")
    (job,) = found.jobs
    assert (job.name, job.namespace, job.labels, job.success_policy) == ("whole", "team", {"a": "b"}, "AllWorkers")
    assert job.dynamic_workers
    policy = job.policy
    assert (policy.clean_pod_policy, policy.ttl_s, policy.deadline_s, policy.backoff_limit) == ("Running", 60, 3600, 3)
    assert policy.suspend
    assert policy.managed_by == "kubeflow.org/training-operator"
    scheduling = policy.scheduling
    assert scheduling is not None
    assert scheduling.min_resources == {"cpu": 0.5, "memory": 2**30}
    assert (scheduling.min_available, scheduling.queue, scheduling.priority_class, scheduling.timeout_s) == (
        2, "q", "high", 9,
    )  # fmt: skip
    spec = job.replicas["Worker"]
    assert (spec.replicas, spec.restart_policy) == (2, "ExitCode")
    assert spec.template == PodTemplate(
        labels={"app": "x"},
        annotations={"n": "1"},
        containers=(CONTAINER,),
        init_containers=(Container(name="init", image="busybox"),),
        volumes=VOLUMES,
        restart_policy="OnFailure",
        grace_s=5,
        deadline_s=100,
        host_network=True,
        host_aliases={"10.0.0.1": ("a", "b")},
        priority_class="high",
        ignored=IGNORED,
    )
    assert found.warnings == (
        f"f.yaml:1:1: TFJob whole has fields without effect here: {', '.join(IGNORED)}",
        "f.yaml: TFJob whole needs the Secret s, which no file gives: add it to them",
        "f.yaml: TFJob whole needs the ConfigMap cm, which no file gives: add it to them",
    )


def test_config_maps_and_secrets_of_the_same_file_are_found():
    warnings = read_text(WHOLE + "---\n" + BESIDE, "f.yaml").warnings
    assert not [warning for warning in warnings if "no file gives" in warning]


POD = "spec.tfReplicaSpecs[Worker].template.spec"
IGNORED = (
    f"{POD}.hostname",
    f"{POD}.schedulerName",
    f"{POD}.tolerations",
    f"{POD}.volumes[8].nfs",
    f"{POD}.hostNetwork",
    f"{POD}.containers[0].securityContext.privileged",
)
CONTAINER = Container(
    name="tensorflow",
    image="tf:2",
    command=("python",),
    args=("train.py", "--x=1"),
    working_dir="/code",
    env=(
        EnvVar("A", "1"),
        EnvVar("B"),
        EnvVar("C", field="status.podIP"),
        EnvVar("D", resource="limits.memory", divisor=2**20),
        EnvVar("E", config_map=KeyRef("cm", "k", optional=True)),
        EnvVar("F", secret=KeyRef("s", "k")),
    ),
    env_from=(EnvSource("cm", prefix="P_"), EnvSource("s", secret=True, optional=True)),
    ports=(Port(2223, "tfjob-port"),),
    requests={"cpu": 0.5, "memory": 2**30},
    limits={"cpu": 2, "memory": 2**31, "nvidia.com/gpu": 1},
    mounts=(VolumeMount("data", "/data", read_only=True, sub_path="x"),),
    readiness=ContainerProbe(port="tfjob-port", period_s=2, successes=2),
    liveness=ContainerProbe(
        port=80, http="/live", scheme="HTTPS", host="h", headers=(("A", "b"),), delay_s=3, failures=1, grace_s=7
    ),
    startup=ContainerProbe(command=("true",), timeout_s=4),
    pre_stop=("save",),
    post_start=("sleep", "2"),
    pull_policy="Always",
    user="7",
)
VOLUMES = (
    Volume(name="data", kind="claim", source="c", read_only=True),
    Volume(name="shm", kind="memory", size_limit=2**30),
    Volume(name="tmp", kind="empty"),
    Volume(name="host", kind="host", source="/mnt", host_type="Directory"),
    Volume(name="cm", kind="config_map", source="cm", mode=0o400, items=(FileItem("k", "p", 0o755),)),
    Volume(name="s", kind="secret", source="s", optional=True),
    Volume(name="down", kind="downward", items=(FileItem("metadata.name", "name"),)),
    Volume(
        name="both",
        kind="projected",
        parts=(Volume(name="both", kind="config_map", source="cm"), Volume(name="both", kind="secret", source="s")),
    ),
    Volume(name="far", kind="empty"),
)

BESIDE = """\
apiVersion: v1
kind: Service
metadata: {name: etcd}
spec:
  clusterIP: None
  selector: {app: etcd}
  ports: [{name: client, port: 2379, targetPort: client}, {port: 2380}]
---
apiVersion: v1
kind: Pod
metadata: {name: etcd-server, labels: {app: etcd}}
spec: {containers: [{name: etcd, image: etcd}], restartPolicy: Always}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {k: v}
binaryData: {b: AAE=}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
type: Opaque
data: {k: c2VjcmV0, over: eA==}
stringData: {over: plain}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r}
rules: []
---
"""


def test_what_stands_beside_a_job():
    found = read_text(BESIDE + SMALL, "f.yaml")
    (service,), (pod,) = found.services, found.pods
    assert (service.selector, service.headless) == ({"app": "etcd"}, True)
    assert service.ports == ((2379, "client"), (2380, 2380))
    assert (pod.name, pod.template.restart_policy, pod.template.labels) == ("etcd-server", "Always", {"app": "etcd"})
    assert found.config_maps["cm"].data == {"k": b"v", "b": b"\0\1"}
    assert found.secrets["s"].data == {"k": b"secret", "over": b"plain"}
    assert (found.claims, found.priority_classes) == (("c",), {"high": 1000})
    assert found.warnings == ("f.yaml:37:1: Role r (rbac.authorization.k8s.io/v1) is left out: it has no meaning here",)


def test_a_list_of_objects_is_read_as_its_items():
    items = "".join(f"  {line}\n" for line in SMALL.splitlines())
    text = "apiVersion: v1\nkind: List\nitems:\n-" + items[1:]
    assert [job.name for job in read_text(text, "f.yaml").jobs] == ["small"]


def test_a_folder_is_read_as_one_file(tmp_path):
    (tmp_path / "b.yaml").write_text(SMALL)
    (tmp_path / "a.yml").write_text(BESIDE)
    (tmp_path / "params.json").write_text('{"lr": 1}')
    (tmp_path / "note.txt").write_text("{{")
    found = read_files(str(tmp_path))
    assert [job.name for job in found.jobs] == ["small"]
    assert [(one.name, two.name) for one, two in zip(found.services, found.pods, strict=True)] == [
        ("etcd", "etcd-server")
    ]
    assert f"{tmp_path}/params.json:1:1: left out: it is no Kubernetes object" in found.warnings


def test_mistakes_of_several_files_come_together(tmp_path):
    (tmp_path / "a.yaml").write_text(SMALL.replace("image: i", "image: 1"))
    (tmp_path / "b.yaml").write_text(SMALL.replace("replicas: 2", 'replicas: "2"'))
    with pytest.raises(JobFileError) as caught:
        read_files(str(tmp_path))
    lines = [line for line in caught.value.message.splitlines() if not line.startswith("    ")]
    assert lines == [
        f"{tmp_path}/a.yaml:13:22: {POD}.containers[0].image: must be text, is the number 1",
        f"{tmp_path}/b.yaml:4:3: metadata.name: there is a TFJob `small` already, at {tmp_path}/a.yaml:4",
        f"{tmp_path}/b.yaml:8:17: spec.tfReplicaSpecs[Worker].replicas: must be a whole number, is the text `2`",
    ]


@pytest.mark.parametrize(
    ("old", "new", "place", "message", "hint"),
    [
        ("replicas: 2", "replica: 2", (8, 7), "spec.tfReplicaSpecs[Worker].replica: unknown field", "mean replicas?"),
        ("tfReplicaSpecs:", "cleanPodPolicy: All\n  tfReplicaSpecs:", (6, 3), "unknown field", "spec.runPolicy"),
        ("replicas: 2", "containers: []", (8, 7), "unknown field", "containers belongs to template.spec"),
        (
            "          containers:",
            "          image: x\n          containers:",
            (11, 11),
            "unknown field",
            "a container",
        ),
        ("replicas: 2", 'replicas: "2"', (8, 17), "must be a whole number, is the text `2`", "leave out the quotes"),
        ("replicas: 2", "replicas: 2.5", (8, 17), "must be a whole number, is the number 2.5", ""),
        ("image: i", "image: i\n              args: [1]", (14, 22), "args[0]: must be text", 'put it in quotes: "1"'),
        ("image: i", "image: i\n              args: x", (14, 21), "args: must be a list, is the text `x`", ""),
        ("image: i", "image: i\n              ports: [{}]", (14, 23), "ports[0].containerPort: Required value", ""),
        ("kubeflow.org/v1", "kubeflow.org/v1beta2", (1, 13), "`kubeflow.org/v1beta2` is not read", "kubeflow.org/v1"),
        ("kind: TFJob", "kind: TfJobs", (2, 7), "`TfJobs` is no kind of jobs", "Did you mean TFJob?"),
        ("kind: TFJob\n", "", (1, 1), "kind: Required value", "needs a job"),
        ("name: tensorflow", "name: tf", (12, 13), "container with name tensorflow", "rename the container"),
        ("name: small", "name: My_Job", (4, 9), "metadata.name: Invalid value", "Did you mean my-job?"),
        (
            "image: i",
            "image: i\n              resources: {limits: {gpus: 1}}",
            (14, 35),
            "resources.limits.gpus: Invalid value: `gpus`: must be a standard resource for containers",
            "write nvidia.com/gpu",
        ),
        (
            "image: i",
            "image: i\n              resources: {requests: {memori: 1Gi}}",
            (14, 37),
            "must be a standard resource for containers",
            "Did you mean memory?",
        ),
        (
            "image: i",
            "image: i\n              env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIp}}}]",
            (14, 65),
            "fieldRef.fieldPath: Unsupported value: `status.podIp`",
            "Did you mean status.podIP?",
        ),
        (
            "image: i",
            "image: i\n              env: [{name: A, valueFrom: {resourceFieldRef: {resource: cpu}}}]",
            (14, 72),
            "resourceFieldRef.resource: Unsupported value: `cpu`",
            "write limits.cpu",
        ),
        (
            "image: i",
            "image: i\n              resources: {limits: {memory: 4GB}}",
            (14, 44),
            "resources.limits.memory: must be a quantity, is `4GB`",
            "Did you mean 4Gi?",
        ),
        (
            "image: i",
            "image: i\n              resources: {limits: {cpu: 1}, requests: {cpu: 2}}",
            (14, 55),
            "the request of `cpu` is more than its limit",
            "",
        ),
        (
            "image: i",
            "image: i\n              volumeMounts: [{name: dat, mountPath: /x}]\n          volumes: [{name: data}]",
            (14, 37),
            'volumeMounts[0].name: Not found: "dat"',
            "Did you mean data?",
        ),
        (
            "image: i",
            "image: i\n              env: [{name: A=B}]",
            (14, 28),
            "env[0].name: Invalid value",
            "other than =",
        ),
        (
            "image: i",
            "image: i\n              env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: p}}}]",
            (14, 52),
            "may not be specified when `value` is not empty",
            "",
        ),
        (
            "image: i",
            "image: i\n              command: python 'my file.py'",
            (14, 24),
            "command: must be a list, is the text",
            'write ["python", "my file.py"]',
        ),
        (
            "image: i",
            "image: i\n              env: {A: x}",
            (14, 20),
            "env: must be a list, is a map",
            'each entry begins with a dash: "- name: ..."',
        ),
    ],
)
def test_a_mistake_has_its_place_and_a_hint(old, new, place, message, hint):
    text = SMALL.replace(old, new, 1)
    assert text != SMALL
    with pytest.raises(JobFileError) as caught:
        read_text(text, "f.yaml")
    assert message in caught.value.message.splitlines()[0]
    assert (caught.value.line, caught.value.column) == place
    assert hint in str(caught.value)


def test_the_fields_of_a_spec_have_the_article_of_their_kind():
    text = SMALL.replace("TFJob", "MPIJob").replace("tfR", "mpiR").replace("spec:", "spec:\n  elasticPolicy: {}", 1)
    with pytest.raises(JobFileError) as caught:
        read_text(text, "f.yaml")
    assert "the spec of an MPIJob has: cleanPodPolicy" in str(caught.value)


@pytest.mark.parametrize("namespace", ["Team", "a.b", "../../x", "-a", "a" * 64])
def test_a_namespace_is_a_label(namespace):
    with pytest.raises(
        JobFileError, match=r"metadata.namespace: Invalid value: .* must be a lower case RFC 1123 label"
    ):
        read_text(SMALL.replace("name: small", f'name: small\n  namespace: "{namespace}"'), "f.yaml")
    assert read_text(SMALL.replace("name: small", "name: small\n  namespace: 1-a"), "f.yaml").jobs[0].namespace == "1-a"


@pytest.mark.parametrize("name", ["../x", "@team/x", "Data", "a/b"])
def test_a_claim_of_a_volume_has_a_name_that_claims_have(name):
    claim = f'volumes: [{{name: v, persistentVolumeClaim: {{claimName: "{name}"}}}}]'
    with pytest.raises(JobFileError, match=r"claimName: Invalid value: .* must be a lower case RFC 1123 subdomain"):
        read_text(SMALL.replace("          containers:", f"          {claim}\n          containers:"), "f.yaml")


@pytest.mark.parametrize(
    ("text", "line", "before"),
    [
        (SMALL.replace("name: small", "name: small\n  namespace: other"), "metadata.name", "TFJob `small`"),
        (SMALL.replace("TFJob", "PyTorchJob").replace("tfR", "pytorchR").replace("tensorflow", "pytorch"), "", "TFJob"),
    ],
)
def test_names_of_one_run_count_for_all_namespaces_and_kinds_of_jobs(text, line, before):
    with pytest.raises(JobFileError) as caught:
        read_text(f"{SMALL}---\n{text}", "f.yaml")
    assert f"there is a {before}" in caught.value.message
    assert line in caught.value.message
    assert "rename one" in str(caught.value)


def test_fields_of_another_version_of_a_kind_are_named_in_the_hint():
    text = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 1
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiImplementation: OpenMPI
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs: {}
"""
    with pytest.raises(JobFileError) as caught:
        read_text(text, "f.yaml")
    told = str(caught.value)
    assert "`kubeflow.org/v2beta1` is not read" in told
    assert "write apiVersion: kubeflow.org/v1, and leave out spec.sshAuthMountPath, spec.mpiImplementation" in told
    assert "slotsPerWorker" not in told


def test_config_maps_of_two_namespaces_do_not_replace_each_other():
    one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: NAME}\ndata: {a: NAME}\n---\n"
    with pytest.raises(JobFileError, match="there is a ConfigMap `c` already"):
        read_text(one.replace("NAME", "dev") + one.replace("NAME", "prod") + SMALL, "f.yaml")


def test_no_message_shows_a_secret():
    for field, value in (
        ("data", "hunter2!"),
        ("stringData", 31337),
        ("stringData", "[31337]"),
        ("data", "{a: 31337}"),
    ):
        text = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{field}: {{k: {value}}}\n---\n{SMALL}"
        with pytest.raises(JobFileError) as caught:
            read_text(text, "f.yaml")
        assert "hunter2" not in str(caught.value)
        assert "31337" not in str(caught.value)
    data = base64.b64encode(b"hunter2").decode()
    text = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\ndata: {{k: {data}}}\n---\n{SMALL}"
    assert "hunter2" not in repr(read_text(text, "f.yaml"))


def test_a_file_without_a_job_says_what_it_has():
    with pytest.raises(JobFileError, match="there is no training job; it has Role r"):
        read_text(BESIDE, "f.yaml")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(NotFoundError):
        read_files(str(tmp_path / "missing.yaml"))
    (tmp_path / "large.yaml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(InputLimitError, match="larger than 1024 KiB"):
        read_files(str(tmp_path / "large.yaml"))
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "a.yaml").symlink_to(tmp_path / "large.yaml")
    with pytest.raises(ForbiddenError):
        read_files(str(folder))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        ("2", 2),
        ("1.5", 1.5),
        (".5Gi", 2**29),
        ("1Gi", 2**30),
        ("1G", 1e9),
        ("100k", 1e5),
        ("1e3", 1000),
        ("1E", 1e18),
        ("2E2", 200),
        ("1Ei", 2**60),
        ("10u", 1e-5),
        ("-1", -1),
    ],
)
def test_quantities(text, value):
    assert quantity(text) == value


@pytest.mark.parametrize(
    ("text", "meant"), [("4GB", "4Gi"), ("4 gi", "4Gi"), ("2cores", ""), ("", ""), ("1.2.3", ""), ("0x1", "")]
)
def test_what_is_no_quantity(text, meant):
    with pytest.raises(ValueError, match="quantity"):
        quantity(text)
    assert (f"Did you mean {meant}?" in quantity_hint(text)) == bool(meant)
