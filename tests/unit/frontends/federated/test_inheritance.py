"""What a job takes from an earlier one."""

import json

import pytest

from weft.frontends.federated.planning import read_job
from weft.frontends.federated.schema import Party
from weft.frontends.federated.selection import inheritance, selected_components
from weft.model.errors import NotFoundError, UsageError
from weft.parties.part_folders import PartFolders

TOY = {"components": {name: {"module": "SecureAddExample"} for name in ("a_0", "b_0")}}
GUEST = Party("guest", "1")


def job_with(given):
    conf = {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1], "host": [2]},
        "job_parameters": {"common": {"inheritance_info": given}},
    }
    return read_job(json.dumps(TOY), json.dumps(conf))


def test_inherited_components_do_not_run():
    job = job_with({"job_id": "7", "component_list": ["a_0"]})
    assert inheritance(job) == ("7", ("a_0",))
    assert selected_components(job) == {"b_0"}
    assert inheritance(job_with({})) == ("", ())
    assert selected_components(job_with({"job_id": "7", "component_list": []})) == {"a_0", "b_0"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"component_list": ["a_0"]}, "needs job_id"),
        ({"job_id": "7", "component_list": "a_0"}, "needs job_id"),
        ({"job_id": "7", "component_list": ["c_0"]}, "'c_0'"),
    ],
)
def test_wrong_inheritance_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        inheritance(job_with(given))


def test_files_of_an_earlier_job_belong_to_both(tmp_path):
    folders = PartFolders(tmp_path)
    old = folders.component("old", GUEST, "a_0")
    (old / "2-1").mkdir(parents=True)
    (old / "2-1" / "model.json").write_text("{}")
    (old / "current").write_text("2-1")
    for _ in range(2):
        folders.inherit("old", "new", GUEST, "a_0")
    folders.remove("old")
    assert (folders.current("new", GUEST, "a_0") / "model.json").read_text() == "{}"
    with pytest.raises(NotFoundError, match="left nothing"):
        folders.inherit("old", "third", GUEST, "a_0")
