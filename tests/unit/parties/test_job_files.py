"""The files of a job on the command line: mistakes with the places of the user's own text."""

import json

import pytest

from tests.unit.frontends.federated.test_files import component, conf_2, dsl
from weft.model.errors import FederatedFileError, NotFoundError, UsageError
from weft.parties.job_files import read_changes, read_files


def write(folder, *, conf=None, graph=None):
    (folder / "conf.json").write_text(json.dumps(conf_2() if conf is None else conf, indent=2))
    (folder / "dsl.json").write_text(json.dumps(dsl() if graph is None else graph, indent=2))


def told(folder, dsl="dsl.json"):
    with pytest.raises((FederatedFileError, UsageError)) as caught:
        read_files(folder, "conf.json", dsl)
    return str(caught.value)


def test_good_files_are_returned_as_they_are(tmp_path):
    write(tmp_path)
    assert read_files(tmp_path, "conf.json", "dsl.json") == (dsl(), conf_2())


def test_a_mistake_has_file_line_and_column(tmp_path):
    write(tmp_path)
    text = (tmp_path / "conf.json").read_text().replace('"alpha": 0.5', '"alpha": "half"')
    (tmp_path / "conf.json").write_text(text)
    lines = text.splitlines()
    line = next(at for at, one in enumerate(lines, 1) if "half" in one)
    column = lines[line - 1].index('"half"') + 1
    path = "component_parameters.role.host.1.hetero_lr_0.alpha"
    assert told(tmp_path) == f"conf.json:{line}:{column}: {path}: must be a number, is the text `half`"


@pytest.mark.parametrize(("file", "key"), [("conf.json", "initiator"), ("dsl.json", "module")])
@pytest.mark.parametrize("job_type", ["train", "predict"])
def test_a_key_given_twice_is_refused(tmp_path, file, key, job_type):
    write(tmp_path, conf=conf_2(job_parameters={"common": {"job_type": job_type}}))
    path = tmp_path / file
    path.write_text(path.read_text().replace(f'"{key}":', f'"{key}": "first", "{key}":', 1))
    assert f"the key `{key}` is already given on line" in told(tmp_path)
    assert "Remove one of the two, or give it another name." in told(tmp_path)
    assert told(tmp_path).startswith(f"{file}:")


def test_a_module_that_does_not_run_has_its_place(tmp_path):
    graph = dsl()
    graph["components"]["rsa_0"] = component("Rsa", data={"train_data": ["reader_0.data"]})
    write(tmp_path, graph=graph)
    assert "components.rsa_0: the module Rsa does not run on Weft yet" in told(tmp_path)
    assert told(tmp_path).startswith("dsl.json:")


def test_a_prediction_takes_what_it_does_not_say_from_its_model(tmp_path):
    short = {"dsl_version": 2, "job_parameters": {"common": {"job_type": "predict", "model_version": "7"}}}
    write(tmp_path, conf=short)
    assert read_files(tmp_path, "conf.json", None) == ({}, short)
    assert "a prediction does not train, and hetero_lr_0 would" in told(tmp_path)


def test_a_job_that_trains_needs_a_dsl(tmp_path):
    write(tmp_path)
    assert "needs a DSL" in told(tmp_path, None)


def test_what_is_no_file_of_a_job_is_refused(tmp_path):
    write(tmp_path)
    for names in (("conf.json", "none.json"), ("none.json", None)):
        with pytest.raises(NotFoundError):
            read_files(tmp_path, *names)
    write(tmp_path, conf=[])
    assert told(tmp_path) == "conf.json:1:1: must be an object, is a list\nWrite it in braces: { ... }"
    (tmp_path / "conf.json").write_text('{"role": ')
    assert told(tmp_path).startswith("conf.json:1:10: not valid JSON: Expecting value")
    for comment in ("// the parties", "/* the parties */"):
        (tmp_path / "conf.json").write_text(f'{{"dsl_version": 2, {comment}\n"role": {{}}}}')
        assert "\nRemove the comment: JSON has none." in told(tmp_path)
    (tmp_path / "conf.json").write_bytes(b"\xff")
    assert told(tmp_path) == "conf.json: byte 0 is not UTF-8\nSave it as UTF-8."


@pytest.mark.parametrize("file", ["conf.json", "dsl.json"])
def test_a_file_that_is_null_is_refused(tmp_path, file):
    write(tmp_path)
    (tmp_path / file).write_text("null")
    assert told(tmp_path).startswith(f"{file}:1:1: must be an object, is null")


def test_changes_are_parameters_alone(tmp_path):
    (tmp_path / "changes.json").write_text('{"component_parameter": {}}')
    with pytest.raises(FederatedFileError, match=r"changes\.json:1:2: component_parameter: unknown field"):
        read_changes(tmp_path, "changes.json")
