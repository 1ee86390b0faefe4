"""The final environment of a container: order, references, fields, resources, config maps and secrets."""

import pytest

from weft.frontends.training.expansion import (
    PodFacts,
    expanded,
    expanded_text,
    expanded_words,
    field_value,
    file_value,
    resource_value,
)
from weft.frontends.training.schema import EnvSource, EnvVar, JobFile, KeyRef, KeyValues
from weft.model.errors import DefinitionError

FACTS = PodFacts(
    name="j-worker-0", namespace="team", uid="u-1", ip="10.0.0.7", node="laptop", node_ip="10.0.0.1",
    labels={"app": "mnist"}, annotations={"batch.kubernetes.io/job-completion-index": "3"},
    requests={"cpu": 0.25}, limits={"cpu": 1.5, "memory": 64 << 20}, allocatable={"cpu": 8, "ephemeral-storage": 1e9},
)  # fmt: skip
FILE = JobFile(
    jobs=(),
    config_maps={"settings": KeyValues(name="settings", data={"rate": b"0.1", "a=b": b"no", "odd.name": b"yes"})},
    secrets={"login": KeyValues(name="login", data={"user": b"ada", "password": b"p4ss", "raw": b"\xff\x00"})},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$(A)", "foo"),
        ("$(A)-$(B)", "foo-bar"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$foo"),
        ("$$$$(A)", "$$(A)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$(A", "$(A"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A)$", "foo$"),
        ("$()", "$()"),
        ("$($(A)", "$($(A)"),
        ("$(A$(B))", "$(A$(B))"),
        ("$(EMPTY)|", "|"),
        ("\n$(A)\n$$", "\nfoo\n$"),
    ],
)
def test_references(text: str, expected: str) -> None:
    assert expanded_text(text, {"A": "foo", "B": "bar", "EMPTY": ""}) == expected


def test_words_of_a_command() -> None:
    assert expanded_words(["echo", "$(A)", "$$(A)"], {"A": "1"}) == ["echo", "1", "$(A)"]


def test_a_variable_refers_to_those_before_it() -> None:
    variables = [
        EnvVar("FIRST", "1"), EnvVar("SECOND", "$(FIRST)2"), EnvVar("EARLY", "$(LATE)"), EnvVar("LATE", "x"),
        EnvVar("FIRST", "again"), EnvVar("THIRD", "$(FIRST)"), EnvVar("NOTHING"),
    ]  # fmt: skip
    assert expanded(variables, (), FACTS, FILE).values == {
        "FIRST": "again", "SECOND": "12", "EARLY": "$(LATE)", "LATE": "x", "THIRD": "again", "NOTHING": "",
    }  # fmt: skip


def test_a_value_is_expanded_once() -> None:
    variables = [EnvVar("A", "$$(B)"), EnvVar("B", "b"), EnvVar("C", "$(A)")]
    assert expanded(variables, (), FACTS, FILE).values["C"] == "$(B)"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "j-worker-0"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "mnist"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "3"),
        ("spec.nodeName", "laptop"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "10.0.0.7"),
        ("status.podIPs", "10.0.0.7"),
        ("status.hostIP", "10.0.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, expected: str) -> None:
    assert field_value(path, FACTS) == expected


def test_an_unknown_field_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(DefinitionError, match=r"status\.podIp.*\n.*status\.podIP"):
        field_value("status.podIp", FACTS)
    with pytest.raises(DefinitionError, match="no field"):
        field_value("metadata.labels", FACTS)


@pytest.mark.parametrize(
    ("path", "divisor", "expected"),
    [
        ("limits.cpu", 0, "2"),
        ("limits.cpu", 0.001, "1500"),
        ("requests.cpu", 0.1, "3"),
        ("requests.cpu", 0, "1"),
        ("limits.memory", 1 << 20, "64"),
        ("limits.memory", 0, str(64 << 20)),
        ("requests.memory", 1e6, "68"),
        ("limits.ephemeral-storage", 1e9, "1"),
        ("requests.ephemeral-storage", 0, "0"),
        ("limits.nvidia.com/gpu", 0, "0"),
    ],
)
def test_resources_of_the_container(path: str, divisor: float, expected: str) -> None:
    assert resource_value(path, divisor, FACTS) == expected


def test_an_unknown_resource_is_an_error() -> None:
    with pytest.raises(DefinitionError, match=r"limits\.cpu"):
        resource_value("cpu", 0, FACTS)


def test_keys_of_config_maps_and_secrets() -> None:
    variables = [
        EnvVar("RATE", config_map=KeyRef("settings", "rate")),
        EnvVar("PASSWORD", secret=KeyRef("login", "password")),
        EnvVar("URL", "db://$(user):$(PASSWORD)@host"),
        EnvVar("MAYBE", config_map=KeyRef("settings", "nothing", optional=True)),
        EnvVar("GONE", secret=KeyRef("nothing", "key", optional=True)),
    ]
    sources = [EnvSource("settings", prefix="S_"), EnvSource("nothing", optional=True)]
    found = expanded(variables, [*sources, EnvSource("login2", secret=True, optional=True)], FACTS, FILE)
    assert found.values == {
        "S_rate": "0.1",
        "S_odd.name": "yes",
        "RATE": "0.1",
        "PASSWORD": "p4ss",
        "URL": "db://$(user):p4ss@host",
    }
    assert found.secrets == ("p4ss",)
    assert "p4ss" not in repr(found)


def test_all_keys_of_a_secret_are_secret_and_can_be_referred_to() -> None:
    file = JobFile(jobs=(), secrets={"login": KeyValues(name="login", data={"user": b"ada", "word": b"longer"})})
    found = expanded([EnvVar("WHO", "$(user)!")], [EnvSource("login", secret=True)], FACTS, file)
    assert found.values == {"user": "ada", "word": "longer", "WHO": "ada!"}
    assert found.secrets == ("longer", "ada"), "the longest first: one may contain another"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (EnvVar("A", config_map=KeyRef("setings", "rate")), r"config map 'setings' .*\n(.*\n)*.*kind: ConfigMap"),
        (EnvVar("A", secret=KeyRef("nothing", "key")), r"secret 'nothing' (.*\n)*.*kind: Secret(.*\n)*.*key: \.\.\."),
        (EnvVar("A", config_map=KeyRef("settings", "rat")), r"'settings' has no key 'rat'\n.*rate"),
        (EnvVar("A", secret=KeyRef("login", "raw")), "A contains a NUL byte"),
    ],
)
def test_what_is_missing_is_named_with_what_to_write(variable: EnvVar, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        expanded([variable], (), FACTS, FILE)
    assert "p4ss" not in str(caught.value)
    with pytest.raises(DefinitionError, match="does not stand in the file"):
        expanded((), [EnvSource("nothing")], FACTS, FILE)


def test_a_file_may_have_all_labels_and_annotations() -> None:
    facts = PodFacts(name="p", labels={"z": "1", "app": 'say "hi"'}, annotations={})
    assert file_value("metadata.labels", facts) == 'app="say \\"hi\\""\nz="1"'
    assert file_value("metadata.annotations", facts) == ""
    assert file_value("metadata.name", facts) == "p"
    with pytest.raises(DefinitionError, match="no field"):
        file_value("metadata.bogus", facts)
