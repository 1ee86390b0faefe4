"""The tables of the fields of Kubernetes objects: those that are understood, and those that have no effect here.

Source: the schemas of kubeflow.org/v1 (training operator 1.9, with its pod templates of core/v1), of
trainer.kubeflow.org/v1alpha1, and of jobset.x-k8s.io/v1alpha2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from weft.model.wording import with_article


class Shape(Struct, frozen=True):
    """The fields of one kind of map. `unsupported` fields are known to Kubernetes and have no effect on one machine;
    each has the default of Kubernetes, which changes nothing when it is given. `elsewhere` are hints for fields that
    people look for here, and that belong to another map.
    """

    name: str
    understood: frozenset[str]
    unsupported: Mapping[str, str]
    elsewhere: Mapping[str, str] = {}


def shape(name: str, understood: str, unsupported: str = "", **defaults: str) -> Shape:
    """Return a shape from lists of words; `defaults` are unsupported fields with the defaults of Kubernetes."""
    return Shape(name, frozenset(understood.split()), {**dict.fromkeys(unsupported.split(), ""), **defaults})


def _misplaced(form: Shape, *others: tuple[Shape, str]) -> Shape:
    """Return a shape that gives the right place of the fields of others: (shape, place)."""
    known = form.understood | form.unsupported.keys()
    hints = {
        key: f"{key} belongs to {place}"
        for other, place in others
        for key in (*other.understood, *other.unsupported)
        if key not in known
    }
    return Shape(form.name, form.understood, form.unsupported, hints)


# -------------------------------------------------------------------------------------------------------------- objects

_SERVER: Final = (
    "uid generation resourceVersion creationTimestamp deletionTimestamp deletionGracePeriodSeconds selfLink"
    " managedFields"
)
METADATA: Final = shape(
    "metadata", f"name generateName namespace labels annotations {_SERVER}", "finalizers ownerReferences"
)
TUNING: Final = shape("weft.dev/tune", "history candidates seconds steps measure")
CANDIDATE: Final = shape("a candidate", "replicas requests")
OBJECT: Final = shape("a job", "apiVersion kind metadata spec status")
CONFIG_MAP: Final = shape("a ConfigMap", "apiVersion kind metadata data binaryData", immutable="false")
SECRET: Final = shape("a Secret", "apiVersion kind metadata data stringData type", immutable="false")
SERVICE: Final = shape("a Service", "apiVersion kind metadata spec status")
SERVICE_SPEC: Final = shape(
    "the spec of a Service",
    "selector ports clusterIP clusterIPs",
    "allocateLoadBalancerNodePorts externalIPs externalName externalTrafficPolicy healthCheckNodePort ipFamilies"
    " ipFamilyPolicy loadBalancerClass loadBalancerIP loadBalancerSourceRanges sessionAffinityConfig"
    " trafficDistribution",
    type="ClusterIP",
    internalTrafficPolicy="Cluster",
    publishNotReadyAddresses="true",
    sessionAffinity="None",
)
SERVICE_PORT: Final = shape("a port of a Service", "name port targetPort protocol", "appProtocol nodePort")
CLAIM: Final = shape("a PersistentVolumeClaim", "apiVersion kind metadata spec status")
CLAIM_SPEC: Final = shape(
    "the spec of a claim",
    "accessModes resources storageClassName volumeMode volumeName",
    "selector dataSource dataSourceRef volumeAttributesClassName",
)
PRIORITY_CLASS: Final = shape(
    "a PriorityClass",
    "apiVersion kind metadata value description",
    "globalDefault",
    preemptionPolicy="PreemptLowerPriority",
)

# ----------------------------------------------------------------------------------------------------------------- pods

POD: Final = shape("a Pod", "apiVersion kind metadata spec status")
_POD_SPEC: Final = shape(
    "the spec of a pod",
    "containers initContainers volumes restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds hostNetwork"
    " hostAliases nodeSelector priorityClassName securityContext",
    "affinity automountServiceAccountToken dnsConfig ephemeralContainers hostIPC hostPID hostUsers hostname"
    " hostnameOverride imagePullSecrets nodeName os overhead priority readinessGates resourceClaims resources"
    " runtimeClassName schedulingGates schedulingGroup serviceAccount serviceAccountName setHostnameAsFQDN"
    " shareProcessNamespace subdomain tolerations topologySpreadConstraints",
    dnsPolicy="ClusterFirst",
    enableServiceLinks="true",
    preemptionPolicy="PreemptLowerPriority",
    schedulerName="default-scheduler",
)
_OF_CONTAINERS: Final = (
    "name image command args workingDir env envFrom ports resources volumeMounts readinessProbe livenessProbe"
    " startupProbe lifecycle imagePullPolicy securityContext"
)
_USUAL_IN_CONTAINERS: Final = {
    "stdin": "false",
    "stdinOnce": "false",
    "tty": "false",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
CONTAINER: Final = shape(
    "a container",
    _OF_CONTAINERS,
    "resizePolicy restartPolicy restartPolicyRules volumeDevices",
    **_USUAL_IN_CONTAINERS,
)
INIT_CONTAINER: Final = shape(
    "an init container",
    f"{_OF_CONTAINERS} restartPolicy",
    "resizePolicy restartPolicyRules volumeDevices",
    **_USUAL_IN_CONTAINERS,
)
POD_SPEC: Final = _misplaced(_POD_SPEC, (CONTAINER, "a container"))
POD_TEMPLATE: Final = _misplaced(
    shape("a pod template", "apiVersion kind metadata spec"), (_POD_SPEC, "spec below the template")
)
ENV: Final = shape("a variable", "name value valueFrom")
VALUE_FROM: Final = shape(
    "the source of a value", "configMapKeyRef fieldRef resourceFieldRef secretKeyRef", "fileKeyRef"
)
KEY_REF: Final = shape("the reference to a key", "name key optional")
FIELD_REF: Final = shape("a fieldRef", "fieldPath", apiVersion="v1")
RESOURCE_REF: Final = shape("a resourceFieldRef", "resource divisor containerName")
ENV_FROM: Final = shape("an entry of envFrom", "configMapRef secretRef prefix")
NAME_REF: Final = shape("a reference", "name optional")
PORT: Final = shape("a port", "containerPort name protocol", "hostIP hostPort")
RESOURCES: Final = shape("resources", "requests limits", "claims")
MOUNT: Final = shape(
    "a volume mount", "name mountPath readOnly subPath", "mountPropagation recursiveReadOnly subPathExpr"
)
PROBE: Final = shape(
    "a probe",
    "exec httpGet tcpSocket grpc initialDelaySeconds periodSeconds timeoutSeconds successThreshold failureThreshold"
    " terminationGracePeriodSeconds",
)
EXEC: Final = shape("exec", "command")
HTTP_GET: Final = shape("httpGet", "path port host scheme httpHeaders")
HTTP_HEADER: Final = shape("an entry of httpHeaders", "name value")
TCP_SOCKET: Final = shape("tcpSocket", "port host")
GRPC: Final = shape("grpc", "port service")
SECURITY_CONTEXT: Final = shape(
    "a securityContext",
    "runAsUser runAsGroup",
    "allowPrivilegeEscalation appArmorProfile capabilities fsGroup fsGroupChangePolicy privileged procMount"
    " readOnlyRootFilesystem runAsNonRoot seLinuxChangePolicy seLinuxOptions seccompProfile supplementalGroups"
    " supplementalGroupsPolicy sysctls windowsOptions",
)
LIFECYCLE: Final = shape("lifecycle", "preStop postStart", "stopSignal")
HANDLER: Final = shape("a handler of lifecycle", "exec sleep", "httpGet tcpSocket")
SLEEP: Final = shape("sleep", "seconds")
HOST_ALIAS: Final = shape("an entry of hostAliases", "ip hostnames")
VOLUME: Final = shape(
    "a volume",
    "name emptyDir hostPath persistentVolumeClaim configMap secret downwardAPI projected",
    "awsElasticBlockStore azureDisk azureFile cephfs cinder csi ephemeral fc flexVolume flocker gcePersistentDisk"
    " gitRepo glusterfs image iscsi nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos"
    " vsphereVolume",
)
EMPTY_DIR: Final = shape("emptyDir", "medium sizeLimit")
HOST_PATH: Final = shape("hostPath", "path type")
CLAIM_SOURCE: Final = shape("persistentVolumeClaim", "claimName readOnly")
CONFIG_MAP_SOURCE: Final = shape("configMap", "name items defaultMode optional")
SECRET_SOURCE: Final = shape("secret", "secretName items defaultMode optional")
DOWNWARD: Final = shape("downwardAPI", "items defaultMode")
PROJECTED: Final = shape("projected", "sources defaultMode")
PROJECTED_SOURCE: Final = shape(
    "a source of projected",
    "configMap secret downwardAPI",
    "clusterTrustBundle podCertificate serviceAccountToken",
)
PROJECTED_KEYS: Final = shape("the source", "name items optional")
PROJECTED_DOWNWARD: Final = shape("downwardAPI", "items")
KEY_ITEM: Final = shape("an item", "key path mode")
FIELD_ITEM: Final = shape("an item", "path mode fieldRef resourceFieldRef")

# ---------------------------------------------------------------------------------------------------- kubeflow.org/v1

RUN_POLICY: Final = shape(
    "runPolicy",
    "cleanPodPolicy ttlSecondsAfterFinished activeDeadlineSeconds backoffLimit schedulingPolicy suspend managedBy",
)
SCHEDULING_POLICY: Final = shape(
    "schedulingPolicy", "minAvailable queue minResources priorityClass scheduleTimeoutSeconds"
)
REPLICA_SPEC: Final = _misplaced(
    shape("a replica type", "replicas restartPolicy template"), (_POD_SPEC, "template.spec")
)
ELASTIC_POLICY: Final = shape(
    "elasticPolicy",
    "minReplicas maxReplicas rdzvBackend rdzvPort rdzvHost rdzvId rdzvConf standalone nProcPerNode maxRestarts",
    "metrics",
)
PADDLE_ELASTIC_POLICY: Final = shape("elasticPolicy", "minReplicas maxReplicas maxRestarts", "metrics")
RDZV_CONF: Final = shape("an entry of rdzvConf", "key value")
SPECS: Final[Mapping[str, Shape]] = {
    kind: _misplaced(shape(f"the spec of {with_article(kind)}", fields), (RUN_POLICY, "runPolicy: spec.runPolicy"))
    for kind, fields in {
        "TFJob": "runPolicy tfReplicaSpecs successPolicy enableDynamicWorker",
        "PyTorchJob": "runPolicy pytorchReplicaSpecs elasticPolicy nprocPerNode",
        "MPIJob": "runPolicy mpiReplicaSpecs slotsPerWorker cleanPodPolicy mainContainer",
        "XGBoostJob": "runPolicy xgbReplicaSpecs",
        "PaddleJob": "runPolicy paddleReplicaSpecs elasticPolicy",
        "JAXJob": "runPolicy jaxReplicaSpecs",
    }.items()
}

# ------------------------------------------------------------------------------------ trainer.kubeflow.org/v1alpha1

TRAIN_JOB_SPEC: Final = shape(
    "the spec of a TrainJob",
    "runtimeRef initializer trainer runtimePatches podTemplateOverrides podSpecOverrides labels annotations suspend"
    " activeDeadlineSeconds managedBy",
)
RUNTIME_REF: Final = shape("runtimeRef", "name apiGroup kind")
INITIALIZER: Final = shape("initializer", "dataset model")
INITIALIZER_SOURCE: Final = shape("an initializer", "storageUri env secretRef")
TRAINER: Final = shape("trainer", "image command args env numNodes resourcesPerNode numProcPerNode")
RUNTIME_PATCH: Final = shape("an entry of runtimePatches", "manager time trainingRuntimeSpec")
RUNTIME_SPEC_PATCH: Final = shape("trainingRuntimeSpec", "template")
JOB_SET_TEMPLATE: Final = shape("the template of a JobSet", "metadata spec")
JOB_SET_SPEC_PATCH: Final = shape("the spec of a JobSet patch", "replicatedJobs")
REPLICATED_JOB_PATCH: Final = shape("a patch of a replicated job", "name template")
JOB_TEMPLATE: Final = shape("the template of a Job", "metadata spec")
JOB_SPEC_PATCH: Final = shape("the spec of a Job patch", "template")
_PATCHED: Final = (
    "volumes initContainers containers nodeSelector terminationGracePeriodSeconds",
    "serviceAccountName imagePullSecrets securityContext affinity tolerations schedulingGates",
)
POD_SPEC_PATCH: Final = shape("the spec of a pod patch", *_PATCHED)
POD_SPEC_OVERRIDE: Final = shape("an entry of podSpecOverrides", f"targetJobs {_PATCHED[0]}", _PATCHED[1])
POD_TEMPLATE_OVERRIDE: Final = shape("an entry of podTemplateOverrides", "targetJobs metadata spec")
TARGET_JOB: Final = shape("an entry of targetJobs", "name")
CONTAINER_PATCH: Final = shape("the patch of a container", "name env volumeMounts", "securityContext")
RUNTIME_SPEC: Final = shape("the spec of a runtime", "mlPolicy podGroupPolicy template")
ML_POLICY: Final = shape("mlPolicy", "numNodes torch mpi jax xgboost", "flux")
TORCH_POLICY: Final = shape("torch", "numProcPerNode", "envInjection")
MPI_POLICY: Final = shape("mpi", "numProcPerNode mpiImplementation runLauncherAsNode", "sshAuthMountPath")
BARE_POLICY: Final = shape("this policy", "")
POD_GROUP_POLICY: Final = shape("podGroupPolicy", "coscheduling volcano")
COSCHEDULING: Final = shape("coscheduling", "scheduleTimeoutSeconds")
VOLCANO: Final = shape("volcano", "", "networkTopology")
JOB_SET_SPEC: Final = shape(
    "the spec of a JobSet",
    "replicatedJobs",
    "coordinator failurePolicy managedBy network startupPolicy successPolicy suspend ttlSecondsAfterFinished",
)
REPLICATED_JOB: Final = shape("a replicated job", "name replicas dependsOn template", "groupName")
DEPENDS_ON: Final = shape("an entry of dependsOn", "name status")
JOB_SPEC: Final = shape(
    "the spec of a Job",
    "template parallelism completions backoffLimit",
    "activeDeadlineSeconds backoffLimitPerIndex managedBy manualSelector maxFailedIndexes podFailurePolicy"
    " podReplacementPolicy selector successPolicy suspend ttlSecondsAfterFinished",
    completionMode="Indexed",
)
