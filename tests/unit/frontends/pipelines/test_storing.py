"""What machines without the folder of a run get of it, and how paths are moved there and back."""

import pytest

from weft.frontends.pipelines.away import Relocation
from weft.frontends.pipelines.storing import StepStorage, check_size, object_name
from weft.graph.spec import HERE, MachineAddress
from weft.model.errors import InputLimitError, InternalError, UsageError

THERE = MachineAddress("other", "10.0.0.2")


def test_paths_are_moved_wherever_they_stand_and_back():
    move = Relocation([("/home/me/p", "/w/tree/0"), ("/home/me/p/.weft", "/w/state")])
    text = "cd /home/me/p; cat /home/me/p/a,/home/me/p/.weft/runs x=/home/me/p '/home/me/p'"
    moved = "cd /w/tree/0; cat /w/tree/0/a,/w/state/runs x=/w/tree/0 '/w/tree/0'"
    assert move.text(text) == moved
    assert move.back.text(moved) == text


@pytest.mark.parametrize("text", ["/home/me/pp", "/home/me/p-2/a", "/data/home/me/p", "x/home/me/p", "/home/me/p.txt"])
def test_other_paths_are_not_moved(text):
    assert Relocation([("/home/me/p", "/w")]).text(text) == text


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


def test_nobody_scales_steps(storage):
    with pytest.raises(UsageError, match="no replicas"):
        storage.limits("a")
