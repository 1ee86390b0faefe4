"""Secrets of steps: where they come from, and that graphs and keys have only their names."""

import json
import os
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.frontends.pipelines import secrets
from weft.frontends.pipelines.caching import static_leaves
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.resolve import resolve
from weft.model import masking
from weft.model.errors import PipelineError, UsageError
from weft.worker.bounded_log import MaskedLog

NAME = "WHAT_NOBODY_MAY_KNOW"


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch):
    monkeypatch.setattr(secrets, "_held", {})
    for variable in (NAME, f"{NAME}_FILE"):
        monkeypatch.delenv(variable, raising=False)


def leaves(env: dict[str, object]) -> dict[str, str]:
    text = json.dumps({"name": "p", "entry_points": {"s": {"command": "true", "env": env}}})
    pipeline = parse_pipeline(text, "run.yaml")
    (step,) = resolve(pipeline, run_id="run-000001", user="me", root="/data")
    return static_leaves(pipeline, step, "")


def test_a_key_has_the_name_of_a_secret_and_not_its_value(monkeypatch):
    found = []
    for value in ("one-value", "other-value"):
        monkeypatch.setenv(NAME, value)
        found.append(leaves({"TOKEN": {"secret": NAME}}))
    assert found[0] == found[1]
    assert found[0]["secret TOKEN"] == NAME
    assert leaves({"TOKEN": {"secret": "ANOTHER"}}) != found[0]


def test_the_environment_comes_before_a_file_and_a_file_before_the_keyring(monkeypatch, tmp_path):
    keyring = types.ModuleType("keyring")
    keyring.get_password = lambda service, name: {("weft", NAME): "of the keyring"}.get((service, name))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", keyring)

    def found() -> str:
        secrets.hold_secrets({NAME: "s"})
        return secrets.secret(NAME, "s")

    assert found() == "of the keyring"
    (tmp_path / "file").write_text("of the file\n")
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "file"))
    assert found() == "of the file"
    monkeypatch.setenv(NAME, "of the environment")
    assert found() == "of the environment"


def test_a_missing_one_is_an_error_with_the_ways_to_give_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)  # not installed
    with pytest.raises(UsageError, match=f"step s needs the secret {NAME}") as caught:
        secrets.hold_secrets({NAME: "s"})
    assert f"Set {NAME}, or {NAME}_FILE" in caught.value.hint


@pytest.mark.parametrize(
    ("value", "said"), [("", "is empty"), ("x\0", "holds a NUL"), ("x" * (secrets.MAX_BYTES + 1), "exceeds")]
)
def test_a_value_that_no_variable_can_have_is_refused(monkeypatch, tmp_path, value, said):
    (tmp_path / "file").write_text(value)
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=said):
        secrets.hold_secrets({NAME: "s"})


def test_a_file_that_cannot_be_read_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="gone, which cannot be read: No such file"):
        secrets.hold_secrets({NAME: "s"})
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path))
    with pytest.raises(UsageError, match=r"cannot be read|no file"):
        secrets.hold_secrets({NAME: "s"})


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"TOKEN": {"secrets": NAME}}, "unknown key"),
        ({"TOKEN": {}}, "is missing"),
        ({"TOKEN": {"secret": "{{x}}"}}, "cannot name a secret"),
        ({"TOKEN": {"secret": 5}}, "must be text"),
        ({"PF_JOB_MODE": {"secret": NAME}}, "cannot be a secret"),
        ({"PATH": {"secret": NAME}}, "cannot be a secret"),
        ({"TOKEN": ["x"]}, r"must be text, a number or \{secret: NAME\}"),
    ],
)
def test_mistakes_are_told(env, said):
    with pytest.raises(PipelineError, match=said):
        leaves(env)


def test_a_pipeline_in_python_names_secrets_too():
    @weft.command(env={"TOKEN": {"secret": NAME}})
    def ask():
        return "true"

    @weft.pipeline
    def asking():
        ask()

    assert f"secret: {NAME}" in asking.to_yaml()


def test_lines_of_a_value_are_masked_and_short_ones_are_not(monkeypatch):
    monkeypatch.setenv(NAME, "first line\nend\n")
    assert secrets.texts_to_mask([NAME, "NOT_THERE"]) == ["first line\nend\n", "first line\nend", "first line"]


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a password pass passwords! pass-word, wordword-1 word password", "a *** pass ***s! pass-***, *** *** ***"),
        ("port 15432 5432 54321 at 5432", "port 15432 *** 54321 at ***"),
        ("5432", "***"),
        ("wordword words -word", "wordword words -***"),
        ("wordword-1word", "***word"),
    ],
)
def test_a_log_masks_secrets_wherever_its_input_is_cut(tmp_path, piece, text, shown):
    assert shown_in_a_log(tmp_path / "log", text, ["password", "wordword-1", "word", "5432"], piece) == shown


@given(st.text("ab-é", max_size=40), st.lists(st.text("ab-", min_size=1, max_size=10), max_size=4), st.integers(1, 9))
def test_logs_and_messages_mask_alike(tmp_path_factory, text, given_secrets, piece):
    log = tmp_path_factory.mktemp("log") / "log"
    assert shown_in_a_log(log, text, given_secrets, piece) == masking.without_secrets(text, given_secrets)


def shown_in_a_log(path, text, texts, piece):
    own = [(text.encode(), *masking.whole_word_ends(text)) for text in texts]
    log, data = MaskedLog(os.fsencode(path), 1000, 1000, own), text.encode()
    for at in range(0, len(data), piece):
        log.write(data[at : at + piece])
    log.close()
    return path.read_text("utf-8")
