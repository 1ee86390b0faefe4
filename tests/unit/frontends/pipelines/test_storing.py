"""What machines without the folder of a run get of it, and how paths are moved there and back."""

import pytest

from weft.frontends.pipelines.away import Relocation
from weft.frontends.pipelines.loading import load_pipeline
from weft.frontends.pipelines.options import Surroundings
from weft.frontends.pipelines.storing import StepStorage, check_size, object_name
from weft.graph.spec import HERE, MachineAddress
from weft.model.errors import InputLimitError, InternalError, UsageError

THERE = MachineAddress("other", "10.0.0.2")


def test_paths_are_moved_wherever_they_stand_and_back():
    move = Relocation([("/srv/me/p", "/w/tree/0"), ("/srv/me/p/.weft", "/w/state")])
    text = "cd /srv/me/p; cat /srv/me/p/a,/srv/me/p/.weft/runs x=/srv/me/p '/srv/me/p'"
    moved = "cd /w/tree/0; cat /w/tree/0/a,/w/state/runs x=/w/tree/0 '/w/tree/0'"
    assert move.text(text) == moved
    assert move.back.text(moved) == text


@pytest.mark.parametrize("text", ["/srv/me/pp", "/srv/me/p-2/a", "/data/srv/me/p", "x/srv/me/p", "/srv/me/p.txt"])
def test_other_paths_are_not_moved(text):
    assert Relocation([("/srv/me/p", "/w")]).text(text) == text


def test_values_keep_their_types_and_texts_of_json_are_read():
    move = Relocation([("/p", "/w")])
    assert move.of({"a": ["/p/x", 1, None], "b": ("/p", True)}) == {"a": ["/w/x", 1, None], "b": ("/w", True)}
    assert move.params({"cache": '["/p/\\u00e9"]', "cwd": "/p"}) == {"cache": '["/w/\\u00e9"]', "cwd": "/w"}


def test_artifacts_have_names_below_the_run():
    assert object_name("k", "/p", "run-1", "/p/.pipeline/run-1/n/s-0/out") == "k/n/s-0/out"
    assert object_name("k", "/p", "run-1", "/p/data/x") == "k/project/data/x"
    assert object_name("k", "/p", "run-1", "/p/.pipeline/run-2/n/s/out") == "k/project/.pipeline/run-2/n/s/out"


def test_a_project_that_is_too_large_names_its_largest_parts(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(bytes(900))
    (tmp_path / "small").write_bytes(bytes(200))
    check_size([str(tmp_path)], lambda path, name: False, 1100)
    with pytest.raises(InputLimitError, match=r"1,100 bytes .* more than 1,000: data 900, small 200") as caught:
        check_size([str(tmp_path)], lambda path, name: False, 1000)
    assert ".weftignore" in caught.value.hint
    check_size([str(tmp_path)], lambda path, name: name == "data", 1000)


@pytest.fixture
def storage(tmp_path):
    run = tmp_path / "project" / ".weft" / "runs" / "run-1"
    (run / "logs").mkdir(parents=True)
    made = StepStorage(f"file://{tmp_path}/there", "key", run, [str(tmp_path / "project")], spread=True)
    made.open()
    yield made
    made.close()


def test_a_step_in_the_process_of_the_run_works_in_its_folder(storage):
    assert storage.answer(["arrive", "a", 0, []], HERE, dict) is None


def test_each_attempt_has_a_log_of_its_own(storage, tmp_path):
    logs = tmp_path / "project" / ".weft" / "runs" / "run-1" / "logs"
    (logs / "a.0.log").touch()
    (logs / "a.1.log").touch()
    assert storage.answer(["arrive", "a", 0, []], THERE, dict)["attempt"] == 2
    storage.answer(["log", "a.2.log", 0, b"one two", False], THERE, dict)
    storage.answer(["log", "a.2.log", 3, b"!", True], THERE, dict)
    assert (logs / "a.2.log").read_bytes() == b"one!"


@pytest.mark.parametrize(
    "question",
    [
        ["log", "../a.log", 0, b"x", False],
        ["log", "status.json", 0, b"x", False],
        ["arrive", "a", 0, ["/etc/passwd"]],
        ["nonsense"],
    ],
)
def test_a_machine_names_no_other_files(storage, question):
    with pytest.raises(InternalError):
        storage.answer(question, THERE, dict)


def test_an_output_of_another_name_is_not_taken(storage, tmp_path):
    described = {"name": "key/other.1", "digest": "d", "size": 1}
    with pytest.raises(InternalError, match="was written as"):
        storage.answer(["output", str(tmp_path / "project" / "x"), described], THERE, dict)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("x-weft: {kind: training, with: {file: job.yaml}}", "replicas of step a need a folder"),
        ("extra_fs: [{name: data, mount_path: /data}]\n    command: ls", "step a mounts the file system data"),
    ],
)
def test_what_needs_a_shared_folder_is_refused_before_the_run(tmp_path, more, said):
    (tmp_path / "data").mkdir()
    (tmp_path / "run.yaml").write_text(f"name: p\nentry_points:\n  a:\n    {more}\n")
    (tmp_path / "job.yaml").write_text(
        "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: j}\nspec: {tfReplicaSpecs: {Worker: {replicas: 1, "
        "template: {spec: {containers: [{name: tensorflow, image: i, command: ['true']}]}}}}}\n"
    )
    given = {"data": str(tmp_path / "data")} if "data" in more else {}
    around = Surroundings(storage="s3://bucket/x", file_systems=given)
    loaded = load_pipeline(str(tmp_path / "run.yaml"), around=around).at(many_machines=True)
    with pytest.raises(UsageError, match=said) as caught:
        loaded.claim("run-000001", tmp_path / ".weft" / "runs" / "run-000001", [])
    assert caught.value.hint


def test_a_new_run_at_one_machine_needs_no_storage(tmp_path):
    (tmp_path / "run.yaml").write_text("name: p\nentry_points: {a: {command: ls}}\n")
    loaded = load_pipeline(str(tmp_path / "run.yaml"), around=Surroundings(storage="s3://bucket/x"))
    assert loaded.at(many_machines=False).prepare(print).around.storage == ""
    assert loaded.at(many_machines=True).prepare(print).around.storage == "s3://bucket/x"


def test_nobody_scales_steps(storage):
    with pytest.raises(UsageError, match="no replicas"):
        storage.limits("a")
