"""Pipelines whose file systems are folders and object stores that a flag or the project names."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.places import plan_pipeline
from tests.integration.test_mounts import mounting, weft
from tests.integration.test_pipeline import Place
from tests.objects import Objects
from weft.admin.settings import Settings
from weft.model.errors import NotFoundError, PipelineError, TaskError, UsageError
from weft.runtime.cache import read_decisions
from weft.wiring import Surroundings, load_pipeline, resume_run, run_pipeline

if TYPE_CHECKING:
    from weft.runs.active import RunResult

URL = "objects://bucket/ppl"
STEPS: dict[str, Any] = {
    "make": {
        "command": "sh scripts/make.sh > {{words}}",
        "artifacts": {"output": ["words"]},
        "cache": {"enable": True, "fs_scope": [{"name": "ppl", "path": "scripts/make.sh"}]},
    },
    "count": {
        "command": "sh scripts/count.sh < {{words}} > {{lines}}",
        "deps": "make",
        "artifacts": {"input": {"words": "{{make.words}}"}, "output": ["lines"]},
        "cache": {"enable": True, "fs_scope": [{"name": "ppl", "path": "scripts/count.sh"}]},
    },
}
PPL = {"main_fs": {"name": "ppl"}}


@pytest.fixture
def place(tmp_path) -> Place:
    (tmp_path / "project").mkdir()
    return Place(tmp_path / "project")


@pytest.fixture
def objects() -> Iterator[Objects]:
    store = Objects()
    store.pipe_file("/bucket/ppl/scripts/make.sh", b"printf 'a\\nb\\n'")
    store.pipe_file("/bucket/ppl/scripts/count.sh", b"wc -l | tr -d ' '")
    store.pipe_file("/bucket/ppl/other/large", b"never asked for")
    yield store
    Objects.clear()


class Ran:
    """One run, with what it told."""

    def __init__(self, place: Place, given: Mapping[str, str], **around: Any) -> None:
        self.notes: list[str] = []
        loaded = load_pipeline(str(place.file), around=Surroundings(file_systems=given, **around))
        self.result: RunResult = run_pipeline(loaded, Settings(workers=1), on_note=self.notes.append)

    def answers(self) -> list[str]:
        return [said["outcome"] for said in read_decisions(self.result.folder)]

    def text(self, output: str) -> str:
        assert self.result.error is None, self.result.error
        return Path(self.result.outputs[output]).read_text()


class TestFolders:
    def test_a_flag_names_the_folder_of_a_file_system(self, place, tmp_path):
        (tmp_path / "data").mkdir()
        place.write({"a": {"command": "pwd"}}, fs_options=PPL)
        for given in (str(tmp_path / "data"), f"file://{tmp_path}/data"):
            assert Ran(place, {"ppl": given}).result.error is None
        assert place.log("a") == f"{tmp_path}/data\n"

    def test_a_flag_wins_over_the_project(self, place, tmp_path):
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        (place.folder / "weft.toml").write_text('[fs]\nppl = "../one"\n')
        place.write({"a": {"command": "pwd"}}, fs_options=PPL)
        Ran(place, {"ppl": str(tmp_path / "two")})
        assert place.log("a") == f"{tmp_path}/two\n"

    def test_it_names_the_main_file_system_of_a_file_that_names_none(self, place, tmp_path):
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "script").write_text("1")
        cache = {"enable": True, "fs_scope": [{"name": "ppl", "path": "script"}]}
        place.write({"a": {"command": "pwd > {{out}}", "artifacts": {"output": ["out"]}, "cache": cache}})
        given = {"ppl": str(tmp_path / "data")}
        assert Ran(place, given).text("a.out") == f"{tmp_path}/data\n"
        assert Ran(place, given).answers() == ["hit"]
        (tmp_path / "data" / "script").write_text("2")
        assert Ran(place, given).answers() == ["miss"]

    def test_that_holds_for_dags_that_repeat(self, place, tmp_path):
        (tmp_path / "data").mkdir()
        place.write(
            {
                "list": {"command": "echo '[1, 2]' > {{out}}", "artifacts": {"output": ["out"]}},
                "each": {
                    "deps": "list",
                    "loop_argument": "{{items}}",
                    "artifacts": {"input": {"items": "{{list.out}}"}},
                    "entry_points": {"a": {"command": "pwd"}},
                },
            }
        )
        assert Ran(place, {"ppl": str(tmp_path / "data")}).result.error is None
        assert place.log("each%2Ea") == place.log("each-1%2Ea") == f"{tmp_path}/data\n"

    @mounting
    def test_further_ones_are_mounted(self, place, tmp_path):
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "file").write_text("found\n")
        extra = [{"name": "data", "mount_path": "/weft-test-data"}]
        place.write({"a": {"command": "cat /weft-test-data/file", "extra_fs": extra}})
        assert Ran(place, {"data": str(tmp_path / "data")}).result.error is None
        assert place.log("a") == "found\n"

    def test_one_that_nothing_is_given_for_is_named(self, place):
        place.write({"a": {"command": "true", "extra_fs": [{"name": "data", "mount_path": "/x"}]}})
        loaded = load_pipeline(str(place.file))
        assert loaded.warnings == ["no folder is given for the file system data: -f data=FOLDER names one"]
        with pytest.raises(UsageError, match=r"file system data, which steps mount\n.*-f data=FOLDER"):
            run_pipeline(loaded, Settings(workers=1))
        assert not (place.folder / ".weft" / "runs").exists() or not list((place.folder / ".weft" / "runs").iterdir())
        assert Ran(place, {}, mounts=False).result.error is None

    def test_a_name_that_the_file_does_not_have(self, place):
        place.write({"a": {"command": "true", "extra_fs": [{"name": "data", "mount_path": "/x"}]}})
        with pytest.raises(UsageError, match=r"names no file system `dat`\n.*data\. Did you mean data\?"):
            Ran(place, {"dat": "."})
        with pytest.raises(UsageError, match=r"`a/../b` cannot name a file system\n.*The file names: data"):
            Ran(place, {"a/../b": "."})

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"ppl": "/weft/no/such"}, "-f ppl is '/weft/no/such'; it must be an existing folder, or a URL"),
            ({"ppl": "file:///weft/no"}, "must be an existing folder"),
            ({"ppl": ".", "pll": "."}, "names no file system `pll`\nIt names: ppl"),
        ],
    )
    def test_what_is_given_must_make_sense(self, place, given, told):
        place.write({"a": {"command": "true"}}, fs_options=PPL)
        with pytest.raises(UsageError) as caught:
            Ran(place, given)
        assert told in str(caught.value)

    def test_a_scope_must_be_of_what_is_given(self, place):
        cache = {"enable": True, "fs_scope": [{"name": "ppl", "path": "x"}]}
        place.write({"a": {"command": "true", "cache": cache}})
        with pytest.raises(PipelineError, match="no file system `ppl` is mounted"):
            Ran(place, {"other": "."})


class TestStores:
    def test_steps_work_in_a_copy_and_outputs_are_sent(self, place, objects):
        place.write(STEPS, fs_options=PPL)
        ran = Ran(place, {"ppl": URL})
        assert ran.text("count.lines") == "2\n"
        assert ran.notes == [f"{URL}: fetched 3 files, 47 bytes"]
        sent = list(objects.find("/bucket/ppl/.pipeline"))
        assert [name.rpartition("/")[2] for name in sent] == ["lines", "words"]
        assert all(name.startswith("/bucket/ppl/.pipeline/run-000001/trial/") for name in sent)

    def test_a_scope_counts_though_nothing_mounts_it(self, place, objects):
        cache = {"enable": True, "fs_scope": [{"name": "ppl", "path": "scripts/make.sh"}]}
        place.write(
            {"a": {"command": "pwd", "cache": cache}}, fs_options={"main_fs": {"name": "ppl", "sub_path": "work"}}
        )
        assert [Ran(place, {"ppl": URL}).answers() for _ in range(2)] == [["miss"], ["hit"]]
        objects.pipe_file("/bucket/ppl/scripts/make.sh", b"other")
        assert Ran(place, {"ppl": URL}).answers() == ["miss"]

    def test_results_are_used_again_and_sent_again(self, place, objects):
        place.write(STEPS, fs_options=PPL)
        Ran(place, {"ppl": URL})
        Objects.fetched.clear()
        objects.pipe_file("/bucket/ppl/scripts/make.sh", b"printf 'a\\nb\\n'")  # the same once more
        again = Ran(place, {"ppl": URL})
        assert again.answers() == ["hit", "hit"]
        assert (Objects.fetched, again.notes) == ([], [])
        assert len(objects.find("/bucket/ppl/.pipeline/run-000002")) == 2

    def test_a_change_in_the_store_runs_what_depends_on_it(self, place, objects):
        place.write(STEPS, fs_options=PPL)
        Ran(place, {"ppl": URL})
        objects.pipe_file("/bucket/ppl/scripts/count.sh", b"wc -c")
        loaded = load_pipeline(str(place.file), around=Surroundings(file_systems={"ppl": URL}))
        assert [one.outcome for one in plan_pipeline(loaded, Settings())] == ["hit", "run"]
        assert Ran(place, {"ppl": URL}).answers() == ["hit", "miss"]

    def test_only_what_is_mounted_is_fetched(self, place, objects):
        place.write({"a": {"command": "ls"}}, fs_options={"main_fs": {"name": "ppl", "sub_path": "scripts"}})
        assert Ran(place, {"ppl": URL}).result.error is None
        assert place.log("a") == "count.sh\nmake.sh\n"
        assert not [name for name in Objects.fetched if "other" in name]

    @mounting
    def test_further_ones_are_mounted_and_what_is_written_there_is_sent(self, place, objects):
        extra = [{"name": "ppl", "mount_path": "/weft-test-s", "sub_path": "scripts"}]
        place.write({"a": {"command": "cd /weft-test-s && sh make.sh > new", "extra_fs": extra}})
        (place.folder / "weft.toml").write_text(f'[fs]\nppl = "{URL}"\n')
        ran = Ran(place, {})
        assert ran.notes[-1] == f"{URL}: sent 1 files that steps wrote beside their outputs"
        assert objects.cat_file("/bucket/ppl/scripts/new") == b"a\nb\n"

    def test_ids_of_runs_that_the_store_knows_are_passed_over(self, place, objects):
        objects.pipe_file("/bucket/ppl/.pipeline/run-000001/x", b"of another machine")
        place.write(STEPS, fs_options=PPL)
        assert Ran(place, {"ppl": URL}).result.run_id == "run-000002"

    def test_outputs_that_cannot_be_sent_fail_the_step_and_a_resume_sends_them(self, place, objects):
        place.write({"make": {**STEPS["make"], "x-weft": {"retry": {"user": 0}}}}, fs_options=PPL)
        notes: list[str] = []

        def refuse(note: str) -> None:
            notes.append(note)
            Objects.error = PermissionError(13, "Permission denied")

        loaded = load_pipeline(str(place.file), around=Surroundings(file_systems={"ppl": URL}))
        objects.pipe_file("/bucket/ppl/.pipeline/x", b"")
        result = run_pipeline(loaded, Settings(workers=1), on_note=refuse)
        assert isinstance(result.error, TaskError)
        assert f"the outputs of step make were not sent: {URL} cannot be written: Permission denied" in str(
            result.error
        )
        Objects.error = None
        objects.pipe_file("/bucket/ppl/scripts/make.sh", b"exit 1")  # a resume works with what the run began with
        assert resume_run(result.folder, Settings(workers=1)).error is None
        assert len(objects.find("/bucket/ppl/.pipeline/run-000001")) == 1

    def test_what_is_not_there_is_said(self, place):
        place.write(STEPS, fs_options=PPL)
        Objects.error = FileNotFoundError("bucket")
        try:
            with pytest.raises(NotFoundError, match="cannot be listed: there is no bucket"):
                Ran(place, {"ppl": URL})
        finally:
            Objects.error = None


def test_the_command_line_takes_folders_and_urls(place, tmp_path):
    there = tmp_path / "there"
    (there / "scripts").mkdir(parents=True)
    (there / "scripts" / "make.sh").write_text("echo a")
    (there / "scripts" / "count.sh").write_text("wc -l")
    place.write(STEPS, fs_options=PPL)
    code, said = weft(place, arguments=("run", "run.yaml", "-f", f"ppl=local://{there}", "--state-dir", "state"))
    assert code == 0, said
    assert "note: local://" in said
    assert len(list(there.glob(".pipeline/run-000001/trial/*/*"))) == 2
    assert (place.folder / "state" / "fs").is_dir()
    plan = weft(place, arguments=("plan", "run.yaml", "-f", f"ppl=local://{there}", "--state-dir", "state", "--json"))
    assert [step["outcome"] for step in json.loads(plan[1])["steps"]] == ["hit", "hit"]
    assert "-f 'ppl' is not of the form" in weft(place, arguments=("run", "run.yaml", "-f", "ppl"))[1]
