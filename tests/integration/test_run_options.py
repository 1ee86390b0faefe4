"""Commands on runs of small pipelines: targets, tags and notes, and what stays of old runs."""

import json
import re
import runpy
import signal
from pathlib import Path
from typing import ClassVar

import pytest

from tests.integration.places import Commands, Project, until
from weft.model.errors import UsageError

RUNS = """
name: words
entry_points:
  fetch:
    command: echo {{word}} > {{pages}} && echo raw > {{raw}}
    parameters: {word: a}
    artifacts: {output: [pages, raw]}
  each:
    command: echo {{PF_LOOP_ARGUMENT}} > {{piece}}
    loop_argument: [1, 2]
    deps: fetch
    artifacts: {output: [piece]}
  count:
    command: wc -l < {{text}} > {{counts}}
    deps: fetch
    artifacts: {input: {text: "{{fetch.pages}}"}, output: [counts]}
  other:
    command: "true"
"""


@pytest.fixture
def weft(tmp_path, monkeypatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUNS)
    return Commands(tmp_path)


def planned(weft: Commands, *targets: str) -> list[str]:
    words = [word for target in targets for word in ("--target", target)]
    return [step["step"] for step in weft.json("plan", "run.yaml", *words)["steps"]]


def test_only_what_a_target_needs_runs(weft):
    run = weft.json("run", "run.yaml", "--target", "count/counts")["run"]
    assert [step["name"] for step in run["steps"]] == ["fetch", "count"]
    (counts,) = (path for name, path in run["outputs"].items() if name == "count.counts")
    own = Path(counts).relative_to(weft.folder)
    for target in (str(own), counts, "count", "count.counts", ".pipeline/last/words/count/counts"):
        assert planned(weft, target) == ["fetch", "count"], target
    assert planned(weft, str(own).replace("run-000001", "run-000009")) == ["fetch", "count"]
    assert planned(weft, "each-1/piece", "other") == ["fetch", "other", "each-0", "each-1"]
    assert planned(weft, "fetch/raw") == ["fetch"]


DAGS = """
name: dags
entry_points:
  two:
    entry_points:
      deep:
        command: echo 1 > {{y}}
        artifacts: {output: [y]}
      beside:
        command: "true"
      below:
        entry_points:
          last:
            command: echo 1 > {{z}}
            artifacts: {output: [z]}
        artifacts: {output: {w: "{{last.z}}"}}
    artifacts: {output: {y: "{{deep.y}}", w: "{{below.w}}"}}
  all:
    loop_argument: [1, 2]
    entry_points:
      deep:
        command: echo 1 > {{y}}
        artifacts: {output: [y]}
    artifacts: {output: {y: "{{deep.y}}"}}
"""


def test_an_output_of_a_dag_is_a_target(weft):
    (weft.folder / "run.yaml").write_text(DAGS)
    for target in ("two/y", "two.y", "two.deep/y"):
        assert planned(weft, target) == ["two.deep"], target
    assert planned(weft, "two/w") == ["two.below.last"]
    assert planned(weft, "all/y") == ["all.deep", "all-1.deep"]
    _, err = weft("run", "run.yaml", "--target", "two/x", code=2)
    assert "two/y" in err


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("coun", "Did you mean count?"),
        ("count/count", "Did you mean count/counts?"),
        (".pipeline/run-000001/words/nothing/here", "There are: "),
        ("missing/file.txt", "There are: "),
    ],
)
def test_unknown_targets_start_nothing(weft, target, hint):
    _, err = weft("run", "run.yaml", "--target", target, code=2)
    assert f"nothing makes the target '{target}'" in err
    assert hint in err
    assert weft.json("ls")["total"] == 0
    assert "--only excludes --target" in weft("plan", "run.yaml", "--target", "count", "--only", "fetch", code=2)[1]


def test_a_run_of_targets_is_resumed_as_such(weft):
    text = RUNS.replace("wc -l <", "test -e go && wc -l <")
    (weft.folder / "run.yaml").write_text(text)
    weft("run", "run.yaml", "--target", "count", code=1)
    (weft.folder / "go").touch()
    run = weft.json("resume", "@last")["run"]
    assert [(step["name"], step["state"]) for step in run["steps"]] == [("fetch", "succeeded"), ("count", "succeeded")]
    assert "limited to count" in weft("resume", "@last", code=7)[1]


def test_tags_and_notes(weft):
    run = weft.json("run", "run.yaml", "--tag", "stage=test", "--tag", "keep", "--note", "first try")["run"]
    assert (run["tags"], run["note"]) == ({"stage": "test", "keep": ""}, "first try")
    assert weft.json("run", "run.yaml", "--only", "other")["run"]["tags"] == {}
    assert [row["id"] for row in weft.json("ls", "--tag", "stage=test")["runs"]] == ["run-000001"]
    assert weft.json("ls", "--tag", "stage=prod")["runs"] == []
    assert weft.json("tag", "2", "stage=prod", "x=1") == {
        "schema": "weft.tag/1",
        "run": "run-000002",
        "tags": {"stage": "prod", "x": "1"},
    }
    assert weft.json("tag", "2", "--remove", "x")["tags"] == {"stage": "prod"}
    assert weft.json("note", "2", "<b>bold</b>")["note"] == "<b>bold</b>"
    assert [row["tags"] for row in weft.json("ls")["runs"]] == [{"stage": "prod"}, {"stage": "test", "keep": ""}]
    assert re.search(r"TAGS\n.* stage=prod\n.* stage=test, keep\n", weft("ls")[0])
    told, _ = weft("show", "2")
    assert "stage=prod" in told
    assert "<b>bold</b>" in told
    weft("report", "2", "-o", "page.html")
    page = (weft.folder / "page.html").read_text()
    assert "stage=prod" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    for words in (("tag", "2"), ("tag", "2", "1x"), ("tag", "2", "--remove", "y"), ("run", "run.yaml", "--tag", "=")):
        weft(*words, code=2)
    assert weft.json("ls")["total"] == 2


def test_the_last_runs_of_each_pipeline_stay(weft):
    for name in ("a", "b", "a", "a"):
        weft.json("run", "run.yaml", "--only", "other", "-n", name)
    weft.json("tag", "1", "keep")
    would = weft.json("prune", "--keep-last", "1", "--dry-run")
    assert (would["runs"], would["deleted"]) == (["run-000003"], False)
    assert weft.json("prune", "--keep-last", "1", "--name", "b")["runs"] == []
    assert weft.json("prune", "--keep-last", "1")["runs"] == ["run-000003"]
    assert [row["id"] for row in weft.json("ls")["runs"]] == ["run-000004", "run-000002", "run-000001"]


def test_the_last_outputs_have_a_stable_path(weft):
    weft("run", "run.yaml")
    last = weft.folder / ".pipeline" / "last" / "words"
    assert (last / "fetch" / "pages").read_text() == "a\n"
    assert (last / "each-1" / "piece").read_text() == "2\n"
    weft("run", "run.yaml", "-p", "word=b")
    weft("run", "run.yaml", "-p", "word=c", "--target", "fetch")
    assert (last / "fetch" / "pages").read_text() == "b\n", "a part of the pipeline changes nothing"
    text = RUNS.replace('"true"', '"false"')
    (weft.folder / "run.yaml").write_text(text)
    weft("run", "run.yaml", "-p", "word=d", code=1)
    assert (last / "fetch" / "pages").read_text() == "b\n"
    assert planned(weft, ".pipeline/last/words/count/counts") == ["fetch", "count"]
    weft("delete", "2")
    assert not last.is_symlink()


def test_old_runs_go_after_a_run(weft):
    weft.environ["WEFT_KEEP_LAST"] = "2"
    for _ in range(3):
        _, err = weft("run", "run.yaml", "--only", "other")
    assert "note: deleted run-000001: keep_last is 2" in err
    weft("tag", "2", "keep")
    weft("run", "run.yaml", "--only", "other", "-n", "another")
    weft("run", "run.yaml", "--only", "other")
    assert [row["id"] for row in weft.json("ls")["runs"]] == [f"run-{n:06d}" for n in (5, 4, 3, 2)]


def test_a_resumed_run_is_not_the_old_one(weft):
    (weft.folder / "run.yaml").write_text(RUNS.replace('"true"', "test -e go"))
    weft("run", "run.yaml", code=1)
    (weft.folder / "go").touch()
    weft("run", "run.yaml")
    weft.environ["WEFT_KEEP_LAST"] = "1"
    assert weft.json("resume", "1")["run"]["state"] == "succeeded"
    assert [row["id"] for row in weft.json("ls")["runs"]] == ["run-000001"]
    assert (weft.folder / ".pipeline" / "last" / "words" / "fetch" / "pages").read_text() == "a\n"


def test_the_end_of_a_run_whose_folder_has_gone_is_told_as_json(weft):
    (weft.folder / "run.yaml").write_text('{name: x, entry_points: {a: {command: "true"}}}')
    gone = weft.folder / ".weft" / "runs" / "run-000001"
    run = weft.json("run", "run.yaml", "--notify", f"mv {gone} {weft.folder / 'moved'}")["run"]
    assert (run["id"], run["state"]) == ("run-000001", "succeeded")


def test_the_end_of_a_run_is_told(weft):
    told = weft.folder / "told"
    notify = f"sh -c 'cat > {told}'"
    weft("run", "run.yaml", "--target", "other", "--notify", notify, "--tag", "a=1", "-p", "word=confidential")
    notice = json.loads(told.read_text())
    assert (notice["run"], notice["state"], notice["error"], notice["tags"]) == (
        "run-000001",
        "succeeded",
        None,
        {"a": "1"},
    )
    assert (notice["schema"], notice["name"], notice["steps"]) == ("weft.notice/1", "words", {"succeeded": 1})
    assert "confidential" not in told.read_text()
    (weft.folder / "run.yaml").write_text(RUNS.replace('"true"', '"false"'))
    weft.environ["WEFT_NOTIFY"] = notify
    weft("run", "run.yaml", code=1)
    notice = json.loads(told.read_text())
    assert (notice["state"], notice["failed"], notice["error"]["code"]) == ("failed", ["other"], "WEFT501")
    _, err = weft("resume", "@last", "--notify", "sh -c 'exit 4'", code=1)
    assert "the notice about run-000002 was not delivered: sh ended with exit code 4" in err
    _, err = weft("run", "run.yaml", "--notify", "ftp://example.org", code=2)
    assert "no URL of http or https" in err
    _, err = weft("run", "run.yaml", "--notify", "secret:HOOK_OF_NOBODY", code=2)
    assert "the setting notify needs the secret HOOK_OF_NOBODY" in err
    assert weft.json("ls")["total"] == 2
    weft.environ["WEFT_NOTIFY"] = "https://example.org/token"
    assert "token" not in weft("config", "show")[0] + weft("config", "show", "--json")[0]


def test_the_end_of_a_cancelled_run_in_the_background_is_told(tmp_path):
    place = Project(tmp_path)
    place.write({"long": {"command": "touch began; sleep 600"}})
    program = f"sh -c 'cat > {tmp_path}/part && mv {tmp_path}/part {tmp_path}/told.json'"
    code, run, err = place.weft("run", "run.yaml", "-d", "-q", "--notify", program)
    assert (code, run) == (0, "run-000001\n"), err
    until((tmp_path / "began").exists)
    assert place.weft("cancel", "run-000001")[0] == 0
    until((tmp_path / "told.json").exists)
    assert json.loads((tmp_path / "told.json").read_text())["state"] == "terminated"


def test_an_interrupt_of_the_notice_leaves_the_end_of_the_run(tmp_path):
    place = Project(tmp_path)
    place.write({"short": {"command": "true"}})
    process = place.start("run", "run.yaml", "-q", "--notify", f"sh -c 'touch {tmp_path}/told; sleep 600 & wait'")
    try:
        until((tmp_path / "told").exists)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (0, "run-000001\n"), err
    assert "the wait for it was interrupted" in err


BOOK = """
import weft

@weft.command
def fetch(pages: weft.Output):
    return f'echo a > "{pages}"'

@weft.command
def count(pages: weft.Input, counts: weft.Output):
    return f'wc -l < "{pages}" > "{counts}"'

@weft.pipeline
def book():
    count(fetch().pages)
"""


def test_python_has_targets_tags_and_notes(weft):
    (weft.folder / "book.py").write_text(BOOK)
    book = runpy.run_path(str(weft.folder / "book.py"))["book"]()
    result = book.run(targets=["fetch/pages"], tags={"stage": "test"}, note="from Python")
    assert list(result.steps) == ["fetch"]
    run = weft.json("show", "@last")["run"]
    assert (run["tags"], run["note"]) == ({"stage": "test"}, "from Python")
    with pytest.raises(UsageError, match="excludes"):
        book.run(only="fetch", targets=["fetch"])
    with pytest.raises(UsageError, match="not a tag"):
        book.run(tags={"a b": "1"})


class TestPlansOfWhatDoesNotFit:
    """A plan ends as the run would: with the code, the reason and the next step."""

    STEPS: ClassVar = {"a": {"command": "true", "x-weft": {"resources": {"cpu": 500}}}}

    def test_a_plan_refuses_what_no_worker_has(self, tmp_path):
        place = Project(tmp_path)
        place.write(self.STEPS)
        planned, ran = place.weft("plan", "run.yaml"), place.weft("run", "run.yaml")
        assert (planned[0], ran[0]) == (8, 8)
        told = "vertex 'a' asks for (cpu 500, parallelism 1), more than any worker has"
        assert told in planned[2]
        assert told in ran[2]
        assert "a     run" in planned[1]
        document = json.loads(place.weft("plan", "run.yaml", "--json")[1])
        assert (document["refusal"]["code"], told in document["refusal"]["message"]) == ("WEFT400", True)

    def test_with_enough_workers_it_fits(self, tmp_path):
        place = Project(tmp_path)
        place.write(self.STEPS)
        code, out, err = place.weft("plan", "run.yaml", "--workers", "500", "--json")
        assert (code, json.loads(out)["refusal"], err) == (0, None, "")
        assert place.weft("run", "run.yaml", "--workers", "500", "--dry-run")[0] == 0

    def test_a_cluster_has_other_workers(self, tmp_path):
        place = Project(tmp_path)
        place.write(self.STEPS)
        assert place.weft("plan", "run.yaml", "--backend", "ray")[0] == 0


def test_a_command_for_notices_lies_relative_to_the_file_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "weft.toml").write_text('notify = ["./hook.sh", "a b"]\n')
    hook = tmp_path / "hook.sh"
    hook.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/told\n')
    hook.chmod(0o755)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "run.yaml").write_text(json.dumps({"name": "p", "entry_points": {"a": {"command": ":"}}}))
    monkeypatch.chdir(inner)
    weft = Commands(inner)
    weft("run", "run.yaml")
    assert (tmp_path / "told").read_text() == "a b\n"
    hook.unlink()
    assert f"{hook} cannot be started" in weft("run", "run.yaml")[1]
    (inner / "own.sh").write_text(f"#!/bin/sh\necho own > {tmp_path}/told\n")
    (inner / "own.sh").chmod(0o755)
    weft("run", "run.yaml", "--notify", "./own.sh")
    assert (tmp_path / "told").read_text() == "own\n"
