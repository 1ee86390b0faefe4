"""Pipelines that name mount paths: what their steps find there, who sees it, and systems that do not allow it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.places import SOURCE, plan_pipeline, until
from tests.integration.test_pipeline import Place
from weft.admin.settings import Settings
from weft.model.errors import DefinitionError, TaskError
from weft.runs.reading import read_run
from weft.store.folders import shm_root
from weft.wiring import Surroundings, load_pipeline, resume_run, run_pipeline

ROOT = "/weft-test"
WEFT = [sys.executable, "-c", "import sys; from weft.cli.main import main; sys.exit(main())"]
SOMEBODY = 61234
AS_USER = ["unshare", "--user", f"--map-user={SOMEBODY}", f"--map-group={SOMEBODY}"]
"""Runs something as an ordinary user, even where the tests are run by root."""
REFUSING = [
    *("unshare", "--user", "--map-root-user", "sh", "-c"),
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"',
    "sh",
]
"""Runs something where neither mounting nor making a namespace is allowed."""


def works(*command: str) -> bool:
    try:
        return subprocess.run([*command, "true"], capture_output=True, timeout=180, check=False).returncode == 0
    except OSError:
        return False


mounting = pytest.mark.skipif(not works(*AS_USER, "unshare", "--user", "--mount"), reason="no namespaces here")
refusing = pytest.mark.skipif(not works(*REFUSING), reason="no namespaces here, or no setpriv")


@pytest.fixture
def place(tmp_path) -> Place:
    """A project with scripts that a file system `ppl` has."""
    for name, text in (
        ("numbers/make.sh", 'seq -s , -3 "$1" > "$PF_OUTPUT_ARTIFACT_ALL"'),
        ("part/part.sh", 'tr , "\\n" < "$PF_INPUT_ARTIFACT_ALL" | grep -c -- "$1" > "$PF_OUTPUT_ARTIFACT_COUNT"'),
        ("sum/sum.sh", 'cat $(echo "$PF_INPUT_ARTIFACT_COUNTS" | tr , " ") | paste -sd+ > "$PF_OUTPUT_ARTIFACT_SUM"'),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text + "\n")
    return Place(tmp_path)


def mount(name: str, **more: Any) -> dict[str, Any]:
    return {"extra_fs": [{"name": "ppl", "mount_path": f"{ROOT}-{name}", "sub_path": name, "read_only": True, **more}]}


DAG: dict[str, Any] = {
    "numbers": {
        "command": f"cd {ROOT}-numbers && sh make.sh {{{{last}}}}",
        "parameters": {"last": 3},
        "artifacts": {"output": ["all"]},
        **mount("numbers"),
    },
    "parts": {
        "deps": "numbers",
        "artifacts": {"input": {"all": "{{numbers.all}}"}, "output": {"count": "{{negative.count}}"}},
        "entry_points": {
            "negative": {
                "command": f"cd {ROOT}-part && sh part.sh -",
                "artifacts": {"input": {"all": "{{PF_PARENT.all}}"}, "output": ["count"]},
                **mount("part"),
            }
        },
    },
    "sum": {
        "deps": "parts",
        "command": f"cd {ROOT}-sum && sh sum.sh",
        "artifacts": {"input": {"counts": "{{parts.count}}"}, "output": ["sum"]},
        **mount("sum"),
    },
}
PPL = {"main_fs": {"name": "ppl"}}


def weft(place: Place, *prefix: str, arguments: Sequence[str] = ("run", "run.yaml"), **environ: str) -> tuple[int, str]:
    done = subprocess.run(
        [*prefix, *WEFT, *arguments],
        cwd=place.folder,
        env=os.environ | {"PYTHONPATH": str(SOURCE)} | environ,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def somebody(tmp_path_factory):
    """What runs as the user SOMEBODY leaves no folder of that user behind."""
    yield {"TMPDIR": str(tmp_path_factory.mktemp("temporary"))}
    shutil.rmtree(shm_root() / f"weft-{SOMEBODY}", ignore_errors=True)


@mounting
class TestExamples:
    """The shapes of PaddleFlow's own examples, with scripts of our own."""

    @pytest.mark.parametrize("prefix", [(), AS_USER], ids=["whoever tests", "an ordinary user"])
    def test_a_dag_whose_steps_find_scripts_at_absolute_paths(self, place, prefix, somebody):
        place.write(DAG, fs_options=PPL)
        code, said = weft(place, *prefix, **somebody)
        assert code == 0, said
        [sum] = place.folder.glob(".pipeline/run-000001/trial/sum-0-*/sum")
        assert sum.read_text() == "3\n"
        assert not list(Path("/").glob("weft-test*"))
        assert ROOT not in Path("/proc/self/mountinfo").read_text()

    def test_components_that_are_referred_to(self, place):
        component = {**DAG["sum"], "artifacts": {"input": {"counts": ""}, "output": ["sum"]}}
        component.pop("deps")
        sum = {
            "deps": "parts",
            "reference": {"component": "adder"},
            "artifacts": {"input": {"counts": "{{parts.count}}"}},
        }
        place.write({**DAG, "sum": sum}, fs_options=PPL, components={"adder": component})
        assert Path(place.run().outputs["sum.sum"]).read_text() == "3\n"

    def test_a_loop_over_an_artifact(self, place):
        (place.folder / "numbers" / "list.sh").write_text('echo "[1, 2, 3]" > "$PF_OUTPUT_ARTIFACT_ITEMS"\n')
        (place.folder / "part" / "square.sh").write_text('echo $(($1 * $1)) > "$PF_OUTPUT_ARTIFACT_COUNT"\n')
        steps = {
            "list": {
                "command": f"cd {ROOT}-numbers && sh list.sh",
                "artifacts": {"output": ["items"]},
                **mount("numbers"),
            },
            "each": {
                "deps": "list",
                "command": f"cd {ROOT}-part && sh square.sh {{{{PF_LOOP_ARGUMENT}}}}",
                "loop_argument": "{{items}}",
                "artifacts": {"input": {"items": "{{list.items}}"}, "output": ["count"]},
                **mount("part"),
            },
            "sum": {
                **DAG["sum"],
                "deps": "each",
                "artifacts": {"input": {"counts": "{{each.count}}"}, "output": ["sum"]},
            },
        }
        place.write(steps, fs_options=PPL)
        assert Path(place.run().outputs["sum.sum"]).read_text() == "1+4+9\n"

    def test_one_file_system_at_several_paths_from_a_folder_of_its_own(self, place):
        folder = place.folder / "several"
        for name in ("main", "all", "own"):
            (folder / "scripts" / name).mkdir(parents=True)
            (folder / "scripts" / name / "run.sh").write_text(f'echo {name} > "$PF_OUTPUT_ARTIFACT_SAID"\n')
        place.file = folder / "run.yaml"
        out = {"artifacts": {"output": ["said"]}}
        own = {"name": "ppl", "sub_path": "several/scripts/own", "mount_path": f"{ROOT}/own"}
        place.write(
            {
                "main": {"command": "cd scripts/main && sh run.sh", **out},
                "all": {"command": f"cd {ROOT}/all && sh run.sh", **out},
                "own": {"command": f"cd {ROOT}/own && sh run.sh && ls {ROOT}/main/scripts", "extra_fs": [own], **out},
            },
            fs_options={
                "main_fs": {"name": "ppl", "sub_path": "several", "mount_path": f"{ROOT}/main"},
                "extra_fs": [{"name": "ppl", "sub_path": "several/scripts/all", "mount_path": f"{ROOT}/all"}],
            },
        )
        result = place.run()
        assert result.error is None
        assert [Path(path).read_text() for path in result.outputs.values()] == ["main\n", "all\n", "own\n"]
        assert all(path.startswith(f"{folder}/.pipeline/") for path in result.outputs.values())


@mounting
class TestWhatAStepSees:
    def run(
        self, place: Place, command: str, *extra: dict[str, Any], main: dict[str, Any] | None = None, **step: Any
    ) -> str:
        options = {"main_fs": {"name": "ppl", **(main or {})}, "extra_fs": list(extra)}
        place.write({"a": {"command": command, **step}}, fs_options=options)
        assert place.run().error is None, place.log("a")
        return place.log("a")

    def test_the_main_file_system_is_at_its_default_path(self, place):
        path = "/home/paddleflow/storage/mnt/fs-{{PF_USER_NAME}}-ppl"
        assert self.run(place, f"cat {path}/numbers/make.sh; pwd") == (
            (place.folder / "numbers" / "make.sh").read_text() + f"{place.folder}\n"
        )

    def test_what_is_written_belongs_to_the_user_and_stays(self, place):
        extra = {"name": "ppl", "sub_path": "new/deep", "mount_path": f"{ROOT}-out"}
        self.run(place, f"echo kept > {ROOT}-out/file; id -u; id -g", extra)
        made = place.folder / "new" / "deep" / "file"
        assert (made.read_text(), made.stat().st_uid, made.stat().st_gid) == ("kept\n", os.getuid(), os.getgid())
        assert place.log("a") == f"{os.geteuid()}\n{os.getegid()}\n"

    def test_one_may_lie_in_another_that_has_no_such_folder(self, place):
        outer = {"name": "ppl", "sub_path": "numbers", "mount_path": f"{ROOT}-outer"}
        inner = {"name": "ppl", "sub_path": "part", "mount_path": f"{ROOT}-outer/deep/inner"}
        said = self.run(place, f"ls {ROOT}-outer {ROOT}-outer/deep/inner; touch {ROOT}-outer/kept", inner, outer)
        assert said.split() == [f"{ROOT}-outer:", "deep", "make.sh", f"{ROOT}-outer/deep/inner:", "part.sh"]
        assert (place.folder / "numbers" / "kept").exists()
        assert list((place.folder / "numbers/deep/inner").iterdir()) == [], "the mount point stays, empty"

    def test_its_mount_point_is_made_behind_no_link(self, place, tmp_path_factory):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        (place.folder / "numbers" / "link").symlink_to(elsewhere)
        outer = {"name": "ppl", "sub_path": "numbers", "mount_path": f"{ROOT}-outer"}
        inner = {"name": "ppl", "sub_path": "part", "mount_path": f"{ROOT}-outer/link/inner"}
        place.write({"a": {"command": "true", "extra_fs": [outer, inner]}}, fs_options=PPL)
        assert "the mount point" in str(place.run().error)
        assert list(elsewhere.iterdir()) == []

    def test_read_only_is_read_only_below_too(self, place):
        extra = {"name": "ppl", "mount_path": ROOT, "sub_path": "part", "read_only": True}
        said = self.run(place, f"touch {ROOT}/x || echo refused; touch part/y && echo allowed", extra)
        assert said.endswith("refused\nallowed\n")
        assert not (place.folder / "part" / "x").exists()

    @pytest.mark.skipif(os.path.realpath("/bin/sh").startswith(sys.base_prefix), reason="the shell lies there too")
    def test_a_mount_may_hide_the_python_that_runs_weft(self, place):
        extra = [{"name": "ppl", "mount_path": sys.base_prefix, "sub_path": "part", "read_only": True}]
        place.write({"a": {"command": f"ls {sys.base_prefix}", "extra_fs": extra}}, fs_options=PPL)
        assert place.run().error is None
        assert place.log("a") == "part.sh\n"

    def test_the_rest_of_the_system_is_as_it_was(self, place):
        before = sorted(os.listdir("/"))
        said = self.run(place, "ls -A /", {"name": "ppl", "mount_path": f"{ROOT}-x", "sub_path": "part"})
        assert sorted(said.split()) == sorted([*before, "weft-test-x"])

    def test_a_copy_of_a_folder_takes_nothing_that_would_be_lost(self, place):
        extra = {"name": "ppl", "mount_path": f"{ROOT}-x", "sub_path": "part"}
        assert self.run(place, "mkdir /weft-test-y || echo refused", extra).endswith("refused\n")

    def test_steps_can_make_namespaces_of_their_own(self, place):
        extra = {"name": "ppl", "mount_path": f"{ROOT}-x", "sub_path": "part"}
        assert self.run(place, "unshare --user echo made", extra) == "made\n"

    def test_a_step_that_is_over_its_time_is_ended_with_all_that_it_started(self, place):
        place.write(
            {"a": {"command": "sleep 3600 & echo $!; sleep 3600", "x-weft": {"timeout_s": 1}, **mount("part")}},
            fs_options=PPL,
        )
        result = place.run()
        assert isinstance(result.error, TaskError)
        assert "timeout of 1 s" in result.error.message
        assert not psutil.pid_exists(int(place.log("a").split()[0]))

    def test_nothing_outlives_weft(self, place):
        place.write({"a": {"command": "echo $$; sleep 3600 & sleep 3600", **mount("part")}}, fs_options=PPL)
        process = place.start()
        log = place.folder_of() / "logs" / "a.0.log"
        pid = int(until(lambda: log.exists() and log.read_text().strip()))
        below = [pid, *(child.pid for child in until(lambda: psutil.Process(pid).children()))]
        process.kill()
        process.communicate()
        until(lambda: not any(psutil.pid_exists(one) for one in below), "the end of the step")


class TestWhereItCannotBe:
    @refusing
    def test_a_step_that_needs_a_mount_fails_and_says_why(self, place):
        place.write(DAG, fs_options=PPL)
        code, said = weft(place, *REFUSING)
        assert code == 1
        assert (
            "step numbers cannot start: it needs folders at its mount paths, and this system allows its users" in said
        )
        assert "Make the mount paths lead to their folders, such as by links" in said

    @refusing
    def test_a_link_at_the_mount_path_will_do(self, place, tmp_path_factory):
        link = tmp_path_factory.mktemp("links") / "part"
        link.symlink_to(place.folder / "part")
        extra = [{"name": "ppl", "mount_path": str(link), "sub_path": "part"}]
        place.write({"a": {"command": f"ls {link}/", "extra_fs": extra}})
        (place.folder / "weft.toml").write_text('[fs]\nppl = "."\n')
        code, said = weft(place, *REFUSING)
        assert code == 0, said
        assert place.log("a") == "part.sh\n"

    @refusing
    def test_a_step_runs_without_the_path_of_the_main_file_system(self, place):
        named = "ls part /home/paddleflow/storage/mnt/fs-{{PF_USER_NAME}}-ppl || true"
        place.write({"a": {"command": "ls part"}, "b": {"command": named, "deps": "a"}}, fs_options=PPL)
        code, said = weft(place, *REFUSING)
        assert code == 0, said
        messages = {step.name: step.message for step in read_run(place.folder_of()).steps}
        assert messages["a"] == ""
        assert "nothing is at its mount paths: this system allows its users no more" in messages["b"]

    def test_a_main_path_that_cannot_be_made_is_told_to_those_who_name_it(self, place):
        path = place.folder / "missing"
        steps = {"a": {"command": "ls part"}, "b": {"command": f"ls {path} || true", "deps": "a"}}
        place.write(steps, fs_options={"main_fs": {"name": "ppl", "mount_path": str(path)}})
        result = place.run()
        assert result.error is None
        messages = {step.name: step.message for step in read_run(result.folder).steps}
        assert messages["a"] == ""
        assert f"it does without a mount: there is no {path} to mount" in messages["b"]

    def test_a_missing_folder_is_named(self, place):
        place.write({"a": {"command": "true", **mount("nowhere")}}, fs_options=PPL)
        error = place.run().error
        assert f"nothing to mount at {ROOT}-nowhere: No such file or directory: {place.folder}/nowhere" in str(error)

    @pytest.mark.parametrize(("path", "said"), [("/usr", "would hide /usr/"), ("work", "would hide the folder")])
    def test_what_can_never_be_is_refused_before_the_run(self, place, path, said):
        extra = [{"name": "ppl", "mount_path": str(place.folder) if path == "work" else path, "sub_path": "part"}]
        place.write({"a": {"command": "true", "extra_fs": extra}}, fs_options=PPL)
        for begin in (run_pipeline, plan_pipeline):
            with pytest.raises(DefinitionError, match=f"step a cannot start: a mount at .* {said}"):
                begin(load_pipeline(str(place.file)), Settings(workers=1))
        assert not (place.folder / ".pipeline").exists()
        assert run_pipeline(load_pipeline(str(place.file), around=Surroundings(mounts=False)), Settings()).error is None

    def test_so_it_is_before_a_run_goes_on_with_an_edited_file(self, place):
        place.write({"a": {"command": "test -e repaired", **mount("part")}}, fs_options=PPL)
        began = place.run()
        assert began.state == "failed"
        extra = [{"name": "ppl", "mount_path": "/usr", "sub_path": "part"}]
        place.write({"a": {"command": "true", "extra_fs": extra}}, fs_options=PPL)
        with pytest.raises(DefinitionError, match=r"step a cannot start: a mount at .* would hide /usr/"):
            resume_run(began.folder, Settings(workers=1), file=str(place.file))
        assert read_run(began.folder).state == "failed"

    def test_mounts_can_be_turned_off(self, place):
        command = f"test ! -e {ROOT}-part && echo none"
        place.write({"a": {"command": command, **mount("part")}}, fs_options=PPL)
        result = run_pipeline(load_pipeline(str(place.file), around=Surroundings(mounts=False)), Settings(workers=1))
        assert result.error is None
        assert place.log("a") == "none\n"
        assert json.loads((result.folder / "run.json").read_text())["mounts"] is False
        code, said = weft(place, WEFT_MOUNTS="off")
        assert code == 0, said
