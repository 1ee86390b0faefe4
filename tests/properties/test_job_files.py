"""Whatever a job file holds, reading it ends with jobs or with one clear error that has a place."""

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.frontends.training import shapes
from weft.frontends.training.defaulting import defaulted
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.reading import read_text
from weft.frontends.training.runtimes import BUILT_IN
from weft.model.errors import DefinitionError, JobFileError

pytestmark = pytest.mark.slow

FIELDS = sorted(
    {
        field
        for shape in vars(shapes).values()
        if isinstance(shape, shapes.Shape)
        for field in (*shape.understood, *shape.unsupported)
    }
)
WORDS = [
    *FIELDS, "tfReplicaSpecs", "pytorchReplicaSpecs", "Worker", "Master", "PS", "Launcher", "node", "tensorflow",
    "Always", "None", "1Gi", "500m", "{{x}}", "é", "a" * 70, "", "kubeflow.org/v1", "-1",
    *KINDS, *BUILT_IN,
]  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-2, 2**40) | st.floats(-2, 2) | st.sampled_from(WORDS)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=40,
)


def attempt(text: str) -> str:
    """Read a text; return the kind of its end. Only a DefinitionError with the name of the file may come out."""
    try:
        found = read_text(text, "f.yaml")
    except DefinitionError as error:
        if not error.message.startswith("f.yaml") or len(str(error)) > 200_000:
            return "absurd message"
        return "refused"
    return "read" if all(defaulted(job) == job for job in found.jobs) else "defaults missing"


@given(TREES)
def test_random_documents(tree):
    assert attempt(json.dumps(tree)) in {"read", "refused"}


@given(st.sampled_from(sorted(KINDS)), TREES, TREES)
def test_random_specs(kind, spec, replica):
    version = "trainer.kubeflow.org/v1alpha1" if kind == "TrainJob" else "kubeflow.org/v1"
    if isinstance(spec, dict):
        spec = {**spec, KINDS[kind].spec_key: {"Worker": replica}}
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": "job"}, "spec": spec}
    assert attempt(json.dumps(document)) in {"read", "refused"}


def whole(rng: random.Random) -> dict[str, object]:
    """A job that is right but for chance."""
    kind = rng.choice([kind for kind in KINDS.values() if kind.name != "TrainJob"])
    replicas = {
        type: {
            "replicas": 1 if type in kind.single else rng.randint(1, 4),
            "restartPolicy": rng.choice(["Always", "OnFailure", "Never", "ExitCode"]),
            "template": {"spec": {"containers": [{"name": kind.container, "image": "i"}]}},
        }
        for type in kind.types
        if type in kind.required or rng.random() < 0.6
    }
    spec = {kind.spec_key: replicas, "runPolicy": {"backoffLimit": rng.randint(0, 3)}}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind.name, "metadata": {"name": "job"}, "spec": spec}


def mutate(tree: object, rng: random.Random) -> None:
    """Change one value, key or item somewhere in a tree."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
        if not keys:
            return
        key = rng.choice(keys)
        below = tree[key]  # type: ignore[index]
        if isinstance(below, dict | list) and below and rng.random() < 0.8:
            tree = below
            continue
        if isinstance(tree, dict) and rng.random() < 0.3:
            tree[rng.choice(WORDS)] = tree.pop(key)
        else:
            tree[key] = rng.choice([None, -1, 0, 2.5, True, [], {}, *rng.sample(WORDS, 3)])  # type: ignore[index]
        return


def test_mutated_jobs(seed):
    rng = random.Random(seed)
    ends: Counter[str] = Counter()
    for _ in range(2000):
        document = whole(rng)
        for _ in range(rng.choice([0, 1, 1, 3])):
            mutate(document, rng)
        ends[attempt(json.dumps(document))] += 1
    # Mutants that all end in one way would test nothing.
    assert min(ends["read"], ends["refused"]) > 200


def test_many_mistakes_are_cut_short():
    containers = [{"name": f"c{n}", "image": n} for n in range(1000)]
    spec = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": containers}}}}}
    document = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "j"}, "spec": spec}
    with pytest.raises(JobFileError, match="reading stopped there"):
        read_text(json.dumps(document), "f.yaml")
