"""Pipelines whose steps run at nodes that do not have the folder of the run: files travel by a URL."""

from contextlib import closing, contextmanager

import fsspec
import psutil
import pytest
from msgspec.structs import replace

from tests.forked_nodes import ForkedNodes
from tests.integration.places import Commands, Project, until
from tests.objects import Objects
from tests.servers import SECRET, s3_bucket, s3_endpoint
from weft import wiring
from weft.backends.cluster import Cluster
from weft.model.errors import WeftError
from weft.runs.active import RunEvents
from weft.runs.reading import read_run
from weft.runs.requests import RunRequest
from weft.runs.service import RunService
from weft.wiring import concrete

__all__ = ["s3_bucket", "s3_endpoint"]


THREADS = concrete.BACKENDS["threads"]


class Apart(Project):
    """A project whose steps run at the nodes of a cluster; they find their files by a URL."""

    def __init__(self, folder, url):
        super().__init__(folder)
        self.nodes: ForkedNodes
        self.settings = replace(self.settings, storage=url)

    @contextmanager
    def service(self):
        with closing(RunService(wiring, self.settings, self.root)) as found:
            yield found

    def run(self):
        """Run the pipeline to its end, and return the result."""
        with self.begun() as active:
            active.wait(180)
        return active.result()

    @contextmanager
    def begun(self):
        with self.service() as service:
            active = service.submit(service.load(RunRequest(str(self.file))), events=RunEvents(records=False))
            yield active
            active.wait(180)

    def resume(self, run="@last"):
        with self.service() as service:
            active = service.resume(run, events=RunEvents(records=False))
            active.wait(180)
            return active.result()

    def shared(self):
        """Return the names of the objects at the URL."""
        system, path = fsspec.url_to_fs(self.settings.storage)
        system.invalidate_cache()
        return [name[len(path) :].lstrip("/") for name in system.find(path)]


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    """The folder in which the nodes have theirs: no project lies there."""
    return tmp_path_factory.mktemp("machines")


@pytest.fixture
def make(monkeypatch, tmp_path, temporary):
    """Return what makes a project; each session has nodes of its own, of one process each."""
    opened = []

    def made(url="", nodes=2):
        project = Apart(tmp_path / "project", url or f"file://{tmp_path}/shared")

        def begin(at):
            with monkeypatch.context() as here:
                here.setenv("TMPDIR", str(temporary))
                project.nodes = ForkedNodes(nodes, 1, grace_s=3.0)
            opened.append(project.nodes)
            return Cluster(project.nodes.nodes, project.nodes.secret, at.store, grace_s=at.grace_s)

        monkeypatch.setitem(concrete.BACKENDS, "threads", begin)
        return project

    yield made
    for started in opened:
        started.close()


def step(command, deps="", inputs=None, outputs=(), **more):
    artifacts = {"input": inputs or {}, "output": list(outputs)}
    return {"command": command, "deps": deps, "artifacts": artifacts, **more}


WORK = {
    "make": step("pwd > {{where}}; sh scripts/make.sh {{data}}; echo made", outputs=["data", "where"]),
    "count": step("pwd; ls {{data}} | wc -l > {{count}}", "make", {"data": "{{make.data}}"}, ["count"]),
    "read": step(
        "cat {{data}}/b/c {{count}} > {{text}}",
        "make,count",
        {"data": "{{make.data}}", "count": "{{count.count}}"},
        ["text"],
    ),
}


def of(project, step_and_output, run="run-000001"):
    step, output = step_and_output.split(".")
    (found,) = project.folder.glob(f".pipeline/{run}/*/{step}-*/{output}")
    return found


def write_scripts(project):
    (project.folder / "scripts").mkdir()
    (project.folder / "scripts" / "make.sh").write_text(
        "mkdir -p $1/b; echo one > $1/a; echo two > $1/b/c; ln -s a $1/l\n"
    )


def check_three_steps(project, temporary):
    write_scripts(project)
    project.write(WORK, cache={"enable": True})
    result = project.run()
    assert result.state == "succeeded", result.error
    assert of(project, "read.text").read_text().split() == ["two", "3"]
    where = of(project, "make.where").read_text()
    assert where.startswith(str(temporary)), where
    assert not where.startswith(str(project.folder)), where
    made = of(project, "make.data")
    assert made.joinpath("l").is_symlink()
    assert made.joinpath("l").read_text() == "one\n"
    (log,) = project.folder_of().glob("logs/make.*.log")
    assert "made" in log.read_text()
    assert result.outputs["read.text"] == str(of(project, "read.text"))
    assert [name for name in project.shared() if not name.startswith("projects/")] == [], "the run has all of it"
    again = project.run()
    assert again.state == "succeeded", again.error
    steps = read_run(project.folder_of("run-000002")).steps
    assert [one.attempts for one in steps] == [0, 0, 0], "they were taken from the cache"
    assert of(project, "read.text", "run-000002").read_text().split() == ["two", "3"]
    there = project.shared()
    (archive,) = {".".join(name.split(".")[:2]) for name in there if not name.endswith(".json")}
    assert len(there) == 4, "the project did not change: its archive, the description, and two runs that use it"
    with project.service() as service:
        assert list(service.delete(["run-000001"])) == ["run-000001"]
        assert archive in project.shared()
        assert list(service.delete(["run-000002"])) == ["run-000002"]
    assert project.shared() == []


def test_steps_exchange_files_and_folders_and_a_second_run_takes_them_from_the_cache(make, temporary):
    project = make()
    check_three_steps(project, temporary)
    project.nodes.close()
    assert not list(temporary.rglob("work")), "the work folders go with the nodes"


def test_the_same_by_s3_whose_credentials_are_nowhere(make, temporary, s3_bucket):
    project = make(f"s3://{s3_bucket}/some/prefix")
    check_three_steps(project, temporary)
    texts = [file.read_bytes() for file in project.root.path.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in text for text in texts)


def test_a_failed_step_is_tried_again_elsewhere_and_its_log_comes_while_it_runs(make):
    project = make()
    command = "echo here; test -e go || { echo alas; exit 3; }"
    project.write({"a": step(f"{command}; touch {{{{out}}}}", outputs=["out"])})
    result = project.run()
    assert result.state == "failed"
    assert "exit code 3" in str(result.error)
    (log,) = project.folder_of().glob("logs/a.*.log")
    assert log.read_text() == "here\nalas\n"
    assert not list(project.folder.glob(".pipeline/*/*/a-*/out*"))
    (project.folder / "go").touch()
    assert project.resume().state == "succeeded"
    assert of(project, "a.out").read_text() == ""
    assert len(list(project.folder_of().glob("logs/a.*.log"))) == 2, "each attempt has a log of its own"


def test_a_step_whose_node_is_killed_runs_again_with_its_inputs_at_another_one(make, tmp_path, temporary):
    project = make()
    marks = tmp_path / "marks"
    marks.mkdir()
    project.write(
        {
            "a": step("echo a > {{one}}", outputs=["one"]),
            "b": step(
                f"echo begun; echo $PPID > {marks}/$$; until test -e {marks}/go; do sleep 0.05; done; "
                "cat {{one}} > {{two}}",
                "a",
                {"one": "{{a.one}}"},
                ["two"],
            ),
        }
    )
    with project.begun() as active:
        until(lambda: list(marks.iterdir()), "the step")
        logs = until(lambda: [one for one in project.folder_of().glob("logs/b.*.log") if one.read_text()], "its log")
        assert logs[0].read_text() == "begun\n", "while it runs"
        node = node_of(int(next(marks.iterdir()).read_text()), project.nodes)
        node.kill()
        until(lambda: len(list(marks.iterdir())) == 2, "another start")
        (marks / "go").touch()
        active.wait(180)
    assert active.result().state == "succeeded", active.result().error
    assert of(project, "b.two").read_text() == "a\n"
    project.nodes.close()
    assert list(temporary.rglob("work")), "a killed node leaves its folder to the next one"
    project.write({"c": step("true")})
    assert project.run().state == "succeeded"
    project.nodes.close()
    assert not list(temporary.rglob("work"))


def node_of(pid, nodes):
    """Return the process of the node that a process belongs to."""
    above = {one.pid for one in psutil.Process(pid).parents()}
    return next(process for process in nodes.processes if process.pid in above)


def test_a_cancelled_run_leaves_nothing_at_the_url_and_is_resumed(make, tmp_path):
    project = make()
    steps = {
        "a": step("echo a >> {{one}}", outputs=["one"]),
        "b": step(
            f"touch {tmp_path}/here; test -e go || sleep 600; cp {{{{one}}}} {{{{two}}}}",
            "a",
            {"one": "{{a.one}}"},
            ["two"],
        ),
    }
    project.write(steps)
    with project.begun() as active:
        until((tmp_path / "here").exists, "the step")
        assert of(project, "a.one").read_text() == "a\n", "it is here as soon as its step is done"
        assert any("/a-" in name for name in project.shared())
        active.cancel("enough")
    assert active.result().state == "terminated"
    assert all(name.startswith("projects/") for name in project.shared())
    (project.folder / "go").touch()
    assert project.resume().state == "succeeded"
    assert of(project, "b.two").read_text() == "a\n"
    assert read_run(project.folder_of()).steps[0].attempts == 1


def test_a_run_goes_on_at_one_machine_alone(make, monkeypatch):
    project = make()
    project.write(
        {
            "a": step("echo a > {{one}}", outputs=["one"]),
            "b": step("test -e go && cp {{one}} {{two}}", "a", {"one": "{{a.one}}"}, ["two"]),
        }
    )
    assert project.run().state == "failed"
    (project.folder / "go").touch()
    monkeypatch.setitem(concrete.BACKENDS, "threads", THREADS)
    assert project.resume().state == "succeeded"
    assert of(project, "b.two").read_text() == "a\n"


def test_loops_conditions_and_functions_of_python_find_their_files(make):
    project = make()
    (project.folder / "work.py").write_text(
        "def total(parts, out):\n    out.write_text(str(sum(int(p.read_text()) for p in parts)))\n"
    )
    project.write(
        {
            "list": step("echo '[1, 2, 3]' > {{items}}", outputs=["items"]),
            "square": step(
                "echo $(({{PF_LOOP_ARGUMENT}} * {{PF_LOOP_ARGUMENT}})) > {{out}}",
                "list",
                {"items": "{{list.items}}"},
                ["out"],
                loop_argument="{{items}}",
            ),
            "sum": step(
                "cat $(echo {{parts}} | tr , ' ') | paste -sd+ | bc > {{total}}",
                "square",
                {"parts": "{{square.out}}"},
                ["total"],
            ),
            "big": step("echo big > {{word}}", "sum", {"total": "{{sum.total}}"}, ["word"], condition="{{total}} > 10"),
        }
    )
    result = project.run()
    assert result.state == "succeeded", result.error
    assert of(project, "sum.total").read_text() == "14\n"
    assert of(project, "big.word").read_text() == "big\n"


def test_files_of_secrets_and_what_is_ignored_stay_here(make, monkeypatch):
    project = make()
    token = project.folder / "token.txt"
    token.write_text("hush-hush\n")
    (project.folder / "large.bin").write_text("large-one")
    (project.folder / ".weftignore").write_text("# not for steps\n*.bin\n")
    monkeypatch.setenv("TOKEN_FILE", str(token))
    env = {"TOKEN": {"secret": "TOKEN"}}
    project.write(
        {
            "a": step(
                "test ! -e token.txt && test ! -e large.bin && echo token $TOKEN > {{out}}; echo $TOKEN",
                outputs=["out"],
            )
            | {"env": env}
        }
    )
    result = project.run()
    assert result.state == "succeeded", result.error
    system, _ = fsspec.url_to_fs(project.settings.storage)
    everything = b"".join(system.cat_file(f"{project.settings.storage}/{name}") for name in project.shared())
    assert b"run.yaml" in everything
    assert b"hush-hush" not in everything
    assert b"large-one" not in everything
    (log,) = project.folder_of().glob("logs/a.*.log")
    assert log.read_text() == "***\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--storage", "s3://b/p"], "not for the backend 'threads'"),
        (["--storage", "s3://me:hush@b/p", "--backend", "ray"], "credentials in the URL"),
        (["--storage", "here", "--backend", "ray"], "no URL"),
        (["-d", "--storage", "objects://b/p", "--backend", "ray"], "cannot hold a run in the background"),
    ],
)
def test_a_command_line_that_cannot_work_is_refused_at_once(tmp_path, monkeypatch, words, said):
    project = Project(tmp_path / "project")
    monkeypatch.chdir(project.folder)
    project.write({"a": {"command": "touch ran"}})
    _, err = Commands(project.folder)("run", "run.yaml", *words, code=2)
    assert said in err
    assert "hush" not in err
    assert not (project.folder / "ran").exists()
    Objects.clear()


def test_a_run_that_lies_here_alone_is_not_resumed_at_a_cluster(make, monkeypatch):
    project = make(nodes=1)
    project.write({"a": step("false")})
    assert project.run().state == "failed"
    monkeypatch.chdir(project.folder)
    _, err = Commands(project.folder)("resume", "run-000001", "-d", "--backend", "ray", code=2)
    assert "was not in a cluster" in err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gs://nowhere/x", "gcsfs"),
        ("nothing://nowhere", "is not a file system"),
        ("file:///proc/nowhere", "cannot write to file:///proc/nowhere"),
    ],
)
def test_a_url_that_cannot_be_used_fails_the_run_before_its_steps(make, url, said):
    project = make(url, nodes=1)
    project.write({"a": step("touch ran")})
    with project.service() as service, pytest.raises(WeftError) as caught:
        service.submit(service.load(RunRequest(str(project.file))))
    assert said in caught.value.message
    assert caught.value.hint
    assert read_run(project.folder_of()).state == "failed"
