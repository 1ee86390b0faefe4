"""Runs of the command line on a Ray cluster of several nodes on this machine: pipelines and queries."""

import json
import signal
import subprocess
import sys

import psutil
import pytest

from tests.integration.places import Project, until
from tests.integration.ray_clusters import LOADED, running_cluster

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
ON_RAY = ("run", "run.yaml", "--backend", "ray")


@pytest.fixture(scope="module")
def cluster():
    with running_cluster(2) as found:
        yield found


@pytest.fixture
def project(tmp_path, cluster):
    made = Project(tmp_path / "project")
    made.loaded = LOADED
    made.environ["RAY_ADDRESS"] = cluster.address
    return made


def meeting(number, marks):
    """Return a step that writes the name of its Ray worker, and waits for another step beside it."""
    mark = marks / str(number)
    wait = f"touch {mark}; while [ $(ls {marks} | wc -l) -lt 2 ]; do sleep 0.02; done"
    return {"command": f"{wait}; ps -o ppid= -p $PPID > {{{{who}}}}", "artifacts": {"output": ["who"]}}


def commands_of(project):
    """Return the processes that work in the folder of a project."""
    there = psutil.process_iter(["cmdline", "cwd"])
    mine = [process.info for process in there if process.info["cwd"] == str(project.folder)]
    return [about for about in mine if "sh" in (about["cmdline"] or [""])[0]]


def test_steps_run_at_all_machines_and_a_later_run_takes_them_from_the_cache(project, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    steps = {"a": meeting(1, marks), "b": meeting(2, marks)}
    steps["both"] = {
        "deps": "a,b",
        "command": "cat {{one}} {{two}} | sort -u | wc -l > {{count}}",
        "artifacts": {"input": {"one": "{{a.who}}", "two": "{{b.who}}"}, "output": ["count"]},
    }
    project.write(steps, cache={"enable": True})
    code, out, err = project.weft(*ON_RAY)
    assert code == 0, err
    counts = list(project.folder.glob(".pipeline/*/*/both-*/count"))
    assert [count.read_text().strip() for count in counts] == ["2"], "each machine has a pool of guardians of its own"
    code, out, err = project.weft(*ON_RAY)
    assert code == 0, err
    assert out.count("taken from the cache") == 3


def test_a_failed_step_shows_its_last_lines_and_fails_the_run(project):
    project.write({"a": {"command": "echo alas >&2; exit 3"}})
    code, out, err = project.weft(*ON_RAY)
    assert code == 1
    assert "alas" in out + err
    assert "exit code 3" in out + err


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_an_interrupted_run_leaves_no_command_and_is_resumed(project, number, status):
    project.write(
        {"a": {"command": "echo once >> starts"}, "b": {"command": "touch here; test -e go || sleep 600", "deps": "a"}}
    )
    process = project.start(*ON_RAY)
    until(lambda: (project.folder / "here").exists(), "the step")
    process.send_signal(number)
    _, err = process.communicate(timeout=180)
    assert process.returncode == status
    assert "***" not in err, "no stack of Ray's handler"
    until(lambda: not commands_of(project), "the end of the command")
    (project.folder / "go").touch()
    code, _, err = project.weft("resume", "run-000001")
    assert code == 0, err
    assert (project.folder / "starts").read_text() == "once\n"
    described = json.loads((project.folder_of() / "run.json").read_text())
    assert described["backend"] == "ray"


@pytest.fixture
def holder(cluster, tmp_path):
    """A run that holds all cores of the cluster until its file `go` is there."""
    made = Project(tmp_path / "holder")
    made.loaded = LOADED
    made.environ["RAY_ADDRESS"] = cluster.address
    made.write({"a": {"command": "touch here; while ! test -e go; do sleep 0.05; done"}})
    process = made.start(*ON_RAY)
    until(lambda: (made.folder / "here").exists(), "the step of the other run")
    yield
    (made.folder / "go").touch()
    process.communicate(timeout=180)


def waits(process):
    """Return once a command line has said that it waits for cores."""
    lines = iter(process.stderr.readline, "")
    assert any("waits for" in line and "core" in line for line in lines), "it ended"


def test_a_signal_ends_the_wait_for_cores_and_nothing_is_recorded(project, holder):
    project.write({"a": {"command": "touch began"}})
    process = project.start(*ON_RAY)
    waits(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "No run was started." in err
    process = project.start(*ON_RAY, "--detach")
    waits(process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 143, err
    (project.folder / "t.csv").write_text("a\n1\n")
    process = project.start("sql", "SELECT sum(a) FROM t", "t.csv", "--mode", "stages", "--backend", "ray")
    waits(process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=180)
    assert process.returncode == 130
    assert not list(project.root.runs.glob("run-*"))
    assert not (project.folder / "began").exists()


def test_the_commands_of_a_killed_run_end_and_another_backend_resumes_it(project):
    project.write(
        {"a": {"command": "echo once >> starts"}, "b": {"command": "touch here; test -e go || sleep 600", "deps": "a"}}
    )
    process = project.start(*ON_RAY)
    until(lambda: (project.folder / "here").exists(), "the step")
    process.kill()
    process.communicate()
    until(lambda: not commands_of(project), "the end of the command")
    (project.folder / "go").touch()
    code, _, err = project.weft("resume", "run-000001", "--backend", "threads")
    assert code == 0, err
    assert (project.folder / "starts").read_text() == "once\n"


def test_a_step_whose_machine_is_lost_runs_again_at_another_one(project, cluster):
    extra = cluster.add_node(num_cpus=1)
    project.write(
        {
            f"s{number}": {
                "command": f"touch here-{number}; while ! test -e go; do sleep 0.02; done; echo done >> ends-{number}"
            }
            for number in range(3)
        }
    )
    process = project.start(*ON_RAY)
    until(lambda: len(list(project.folder.glob("here-*"))) == 3, "the steps")
    cluster.remove_node(extra, allow_graceful=False)
    until(lambda: len(commands_of(project)) == 2, "the end of the command of the lost machine")
    (project.folder / "go").touch()
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert {file.read_text() for file in project.folder.glob("ends-*")} == {"done\n"}


def test_steps_of_machines_that_share_no_folder_get_files_by_a_url(project, tmp_path):
    steps = {
        "a": {"command": "pwd > {{where}}; echo a", "artifacts": {"output": ["where"]}},
        "b": {
            "deps": "a",
            "command": "cp {{from}} {{copy}}",
            "artifacts": {"input": {"from": "{{a.where}}"}, "output": ["copy"]},
        },
    }
    project.write(steps)
    code, _, err = project.weft(*ON_RAY, "--storage", f"file://{tmp_path}/shared")
    assert code == 0, err
    (copy,) = project.folder.glob(".pipeline/*/*/b-*/copy")
    assert copy.read_text().strip()
    assert not copy.read_text().startswith(str(project.folder))
    code, out, _ = project.weft("logs", "@last/a")
    assert (code, out) == (0, "a\n")


def test_queries_run_in_stages_at_the_machines(project):
    (project.folder / "t.csv").write_text("a,b\n" + "".join(f"{row % 7},{row}\n" for row in range(1000)))
    query = "SELECT a, sum(b) AS s FROM t GROUP BY a ORDER BY a LIMIT 2"
    code, out, err = project.weft("sql", query, "t.csv", "--backend", "ray", "--csv")
    assert code == 0, err
    sums = [sum(row for row in range(1000) if row % 7 == of) for of in (0, 1)]
    assert out.split() == ["a,s", f"0,{sums[0]}", f"1,{sums[1]}"]


def test_an_unknown_backend_is_refused(project):
    code, _, err = project.weft("sql", "SELECT 1", "--backend", "rey")
    assert code != 0
    assert "there is no backend 'rey'" in err


def test_prints_of_tasks_go_to_the_standard_error(project):
    (project.folder / "told.py").write_text(
        "import weft\n"
        "def told(x):\n"
        "    print('told by a task')\n"
        "    return x\n"
        "if __name__ == '__main__':\n"
        "    graph = weft.Graph('g')\n"
        "    one = graph.add(told, items=[7]).keep()\n"
        "    with weft.Session('ray') as session:\n"
        "        print(session.run(graph).value(one), flush=True)\n"
    )
    found = subprocess.run(
        [sys.executable, "told.py"], cwd=project.folder, env=project.env(), capture_output=True, text=True, timeout=180
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == "7\n"
    assert "told by a task" in found.stderr
    assert "weft-end" not in found.stderr
    assert "(raylet)" not in found.stderr


def test_the_cluster_is_named_by_an_option(project):
    address = project.environ.pop("RAY_ADDRESS")
    project.write({"a": {"command": "echo done"}})
    code, _, err = project.weft(*ON_RAY, "--cluster", address)
    assert code == 0, err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--env", "gone.txt"), "gone.txt cannot be read: No such file"),
        (("--working-dir", "gone"), "gone is no folder"),
        (("--cluster", "ray://127.0.0.1:1"), "no Ray cluster answers at ray://127.0.0.1:1"),
    ],
)
def test_what_the_machines_cannot_have_is_said_before_the_run(project, options, said):
    project.write({"a": {"command": "touch here"}})
    code, _, err = project.weft(*ON_RAY, *options)
    assert code == 2, err
    assert said in err
    assert not list(project.folder.rglob("here"))
    (project.folder / "rows.csv").write_text("a\n1\n")
    if options[0] != "--working-dir":
        code, _, err = project.weft("sql", "SELECT a FROM rows", "rows.csv", "--mode", "stages", *ON_RAY[2:], *options)
        assert code == 2, err
        assert said in err
