"""The commands, over a wiring that plays to a script."""

import io
import json
import re
import shlex
import sys
from typing import Any

import pytest

from tests.unit.cli.fakes import START, Terminal
from tests.unit.runs.shell import STEPS
from weft.admin.control import ControlServer
from weft.engine.explain import Change, Explained, ExplainedItem
from weft.model.errors import InvalidTransition, UsageError, WeftError
from weft.runs import explaining
from weft.runs.reading import read_run
from weft.store.state import RunFolder, StateRoot

EXPLAINED = Explained("chain", "succeeded", (ExplainedItem("train", "1 task", "1 \x1b[31mtask"),))

# ------------------------------------------------------------------------------------------------------------- run


def test_run_tells_what_happened_and_what_to_type_next(weft):
    assert weft("run", "run.yaml") == 0
    assert [line.split()[1:3] for line in weft.err.splitlines()] == [
        ["run", "started"],
        ["prepare", "started"],
        ["prepare", "succeeded"],
        ["train", "started"],
        ["train", "succeeded"],
        ["report", "started"],
        ["report", "succeeded"],
        ["run", "succeeded"],
    ]
    assert re.search(r"train +✔ succeeded +1\.0 s", weft.out)
    assert "run-000001 succeeded in 3.0 s" in weft.out
    assert "report.page: /out/page.html" in weft.out
    assert ".weft/runs/run-000001/logs" in weft.out
    for command in re.findall(r"weft (show .*|logs .*)", weft.out):
        assert weft(*shlex.split(command)) == 0, "what it says to type works as it stands"


def test_what_it_says_to_type_works_from_another_folder(weft, tmp_path):
    other = tmp_path / "my project"
    other.mkdir()
    (other / "run.yaml").touch()
    assert weft("run", "my project/run.yaml") == 0
    commands = re.findall(r"weft (show .*|logs .*)", weft.out)
    assert len(commands) == 2
    for command in commands:
        assert command.endswith(" -C 'my project'")
        assert weft(*shlex.split(command)) == 0
    assert weft("run", "run.yaml", "--state-dir", "elsewhere") == 0
    for command in re.findall(r"weft (show .*|logs .*)", weft.out):
        assert command.endswith(" --state-dir elsewhere")
        assert weft(*shlex.split(command)) == 0


def test_run_that_fails(weft):
    weft.wiring.fail = "train"
    assert weft("run", "run.yaml") == 1
    assert re.search(r"train +✘ failed +1\.0 s +ended with exit code 3", weft.out)
    assert "error WEFT501: step train ended with exit code 3" in weft.err
    assert "weft logs run-000001/train" in weft.out


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_run_that_is_stopped_by_a_signal(weft, signal, code):
    weft.wiring.cancel_by = signal
    assert weft("run", "run.yaml") == code
    assert "run-000001 terminated" in weft.out


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_cancel_is_heard_on_a_terminal_and_the_table_is_printed(weft, stream):
    weft.wiring.cancel_by = "SIGINT"
    assert weft("run", "run.yaml", err=stream()) == 130
    assert ("cancelling; press Ctrl-C again to leave at once" in weft.err) == (stream is Terminal)
    assert re.search(r"^train +■ terminated", weft.out, re.MULTILINE)
    assert "weft resume run-000001\n" in weft.out


def test_a_run_that_is_left(weft):
    def again(_):
        raise KeyboardInterrupt

    weft.wiring.during = again
    assert weft("run", "run.yaml") == 130
    assert "error WEFT502: interrupted\n  See its steps: weft show run-000001\n" in weft.err


def test_a_run_that_is_left_before_it_begins_names_no_other(weft):
    def again():
        raise KeyboardInterrupt

    weft("run", "run.yaml")
    weft.wiring.before = again
    assert weft("run", "run.yaml") == 130
    assert weft.err == "error WEFT502: interrupted\n  No run was started.\n"


def test_run_as_json_is_one_document(weft):
    assert weft("run", "run.yaml", "--json") == 0
    document = json.loads(weft.out)
    assert (document["schema"], document["run"]["id"], document["run"]["state"]) == (
        "weft.run/1",
        "run-000001",
        "succeeded",
    )
    assert [step["name"] for step in document["run"]["steps"]] == ["prepare", "train", "report"]
    assert document["run"]["started_at"] == "2023-11-14T22:13:21.000+00:00"
    assert weft.err == ""


def test_a_failed_run_as_json_is_one_document(weft):
    weft.wiring.fail = "prepare"
    assert weft("run", "run.yaml", "--json") == 1
    document = json.loads(weft.out)
    assert document["error"] == {"code": "WEFT501", "message": weft.wiring.message, "hint": "read the log"}
    assert document["run"]["steps"][1]["state"] == "cancelled"


def test_run_quietly_prints_the_id_alone(weft):
    assert weft("run", "-q", "run.yaml") == 0
    assert (weft.out, weft.err) == ("run-000001\n", "")


def test_warnings_go_to_stderr_without_control_characters(weft):
    weft.wiring.warnings = ["docker_env is \x1b[31mignored\x1b[0m"]
    weft("run", "run.yaml")
    assert "warning: docker_env is ignored\n" in weft.err


def test_parameters_and_settings_reach_the_run(weft, tmp_path):
    (tmp_path / "p.toml").write_text(
        'epochs = 3\nrate = 0.5\nflag = true\nitems = [1, "a"]\n[train]\nl2 = 0.1\nseed = 7'
    )
    options = ["-p", "epochs=5", "-p", "title=a = b", "--param-file", "p.toml", "--user", "ada", "-n", "mine"]
    assert weft("run", "run.yaml", *options, "--workers", "3", "--backend", "processes", "--memory", "1GiB") == 0
    loaded, settings = weft.wiring.loaded[0], weft.wiring.settings[0]
    assert loaded.overrides == {
        "epochs": "5",
        "title": "a = b",
        "rate": "0.5",
        "flag": "true",
        "items": '[1, "a"]',
        "train.l2": "0.1",
        "train.seed": "7",
    }
    assert (loaded.user, loaded.name) == ("ada", "mine")
    assert (settings.workers, settings.backend, settings.memory) == (3, "processes", 1 << 30)


def test_dates_of_a_parameter_file_are_plain_text(weft, tmp_path):
    (tmp_path / "p.toml").write_text(
        "day = 2024-01-02\nat = 10:30:00\nboth = 2024-01-02T10:30:00Z\ndays = [2024-01-02]\n[dag.step]\nn = 1"
    )
    assert weft("run", "run.yaml", "--param-file", "p.toml") == 0
    assert weft.wiring.loaded[0].overrides == {
        "day": "2024-01-02",
        "at": "10:30:00",
        "both": "2024-01-02T10:30:00+00:00",
        "days": '["2024-01-02"]',
        "dag.step.n": "1",
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.json", "[1]", "names and values"),
        ("p.json", "{", "is not JSON"),
        ("p.toml", "x =", "is not TOML"),
        ("p.toml", "\udcff", "p.toml is not UTF-8 text (byte 0)"),
        ("p.json", "{\udcff", "p.json is not UTF-8 text (byte 1)"),
        ("p.json", "[" * 100_000, "is not JSON"),
        ("p.json", " " * (1 << 20) + "{}", "larger than 1 MiB"),
        ("none.json", None, "cannot be read"),
        ("p.json", '{"a": 1, "a": 2}', "the name 'a' occurs twice"),
        ("p.json", '{"b.a": 1, "b": {"a": 2}}', "has parameter 'b.a' twice"),
        ("p.json", '{"a": NaN}', "a number must be finite"),
        ("p.json", '{"a": [1, -Infinity]}', "a number must be finite"),
        ("p.toml", "a = inf", "a number must be finite"),
        ("p.json", '{"b": {"a": null}}', "parameter 'b.a' is null"),
        ("p.json", '{"a": [{"b": 1}]}', "a table inside a list"),
    ],
)
def test_parameter_files_that_are_wrong(weft, tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert weft("run", "run.yaml", "--param-file", name) == 2
    assert said in weft.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["rnu"], 2, "Did you mean run"),
        (["run"], 2, "FILE"),
        (["run", "run.yaml", "--wrokers", "3"], 2, "Did you mean --workers"),
        (["run", "run.yaml", "--workers", "x"], 2, "--workers is 'x'"),
        (["run", "run.yaml", "--backend", "rey"], 2, "threads, processes, ray"),
        (["run", "run.yaml", "more"], 2, "more"),
        (["run", "run.yaml", "-p", "x"], 2, "NAME=VALUE"),
        (["run", "run.yaml", "-p", "=x"], 2, "NAME=VALUE"),
        (["run", "run.yaml", "-p", "c.p=1", "-p", "c.p=2"], 2, "-p gives c.p twice: 1 and 2"),
        (["plan", "run.yaml", "-p", "p=1", "-p", " p=2"], 2, "-p gives p twice: 1 and 2"),
        (["sweep", "run.yaml", "-p", "p=1,2", "-p", "p=3"], 2, "-p gives p twice: 1,2 and 3"),
        (["sql", "select 1", "-p", "p=1", "-p", "p=2"], 2, "--param gives p twice: 1 and 2"),
        (["sql", "select 1", "-t", "a=1.csv", "-t", "a=2.csv"], 2, "--table gives a twice: 1.csv and 2.csv"),
        (["sql", "select 1", "a.csv", "-t", "a=2.csv"], 2, "a.csv gives no table a name of its own as 2.csv"),
        (["run", "none"], 4, "no file none"),
        (["ls", "--state", "done"], 2, "succeeded"),
        (["ls", "-n", "-1"], 2, "0 or more"),
        (["ls", "-C", "nowhere"], 4, "no folder"),
        (["show", "run-000009"], 4, "List the runs"),
        (["show", "@best"], 2, "@last"),
        (["show", "../../etc"], 4, "no run"),
        (["logs", "run-000009"], 4, "no run"),
        (["cancel", "@last"], 4, "no run"),
        (["errors", "WEFT999"], 4, "WEFT"),
        (["config"], 0, ""),
        ([], 0, ""),
    ],
)
def test_mistakes_get_a_sentence_and_an_exit_code(weft, words, code, said):
    assert weft(*words) == code
    assert said in weft.err
    assert "Traceback" not in weft.err
    if code:
        assert re.match(r"error WEFT\d{3}: ", weft.err)
        assert weft.out == ""
    if code:
        assert weft(*words, "--json") == code
        error = json.loads(weft.out)["error"]
        assert error.keys() == {"code", "message", "hint"}


# ------------------------------------------------------------------------------------------------------------ ls, show


def test_ls(weft):
    assert weft("ls") == 0
    assert (weft.out, "no runs in" in weft.err) == ("", True)
    weft("run", "run.yaml", "-n", "first")
    weft.wiring.fail = "train"
    weft("run", "run.yaml", "-n", "second")
    assert weft("ls") == 0
    assert [line.split()[:4] for line in weft.out.splitlines()] == [
        ["RUN", "STATE", "NAME", "STARTED"],
        ["run-000002", "✘", "failed", "second"],
        ["run-000001", "✔", "succeeded", "first"],
    ]
    assert weft("ls", "-q", "--state", "failed") == 0
    assert weft.out == "run-000002\n"
    assert weft("ls", "-n", "1") == 0
    assert "showing 1 of 2" in weft.err
    assert weft("ls", "-n", "1", "--json") == 0
    document = json.loads(weft.out)
    assert (document["schema"], document["total"], len(document["runs"])) == ("weft.runs/1", 2, 1)
    assert document["runs"][0]["error"]["code"] == "WEFT501"


def test_show(weft):
    weft.wiring.fail = "train"
    weft("run", "run.yaml", "-p", "epochs=3", "--user", "ada")
    for name in ("run-000001", "run-0", "1", "@last", "@failed"):
        assert weft("show", name) == 0
        assert re.search(r"error +WEFT501 train\[0\]: step train", weft.out)
        assert re.search(r"parameters +epochs=3\n", weft.out)
    assert weft("show", "1", "--json") == 0
    run = json.loads(weft.out)["run"]
    assert (run["state"], run["user"], run["error"]["code"]) == ("failed", "ada", "WEFT501")
    assert [step["state"] for step in run["steps"]] == ["succeeded", "failed", "cancelled"]
    assert run["steps"][0]["logs"][0]["path"].endswith("logs/prepare.0.log")


def test_text_of_users_is_harmless(weft):
    evil = "[bold red]x[/] \x1b]0;title\x07\x1b[2J\u202ereversed\r\nsecond"
    weft.wiring.fail, weft.wiring.message = "train", evil
    terminal = Terminal()
    weft("run", "run.yaml", "-n", evil, "-p", f"a={evil}", out=terminal)
    said = [weft.out + weft.err]
    for words in (["show", "1"], ["ls"], ["story", "1"]):
        weft(*words, out=Terminal())
        said.append(weft.out + weft.err)
    for text in said:
        plain = re.sub(r"\x1b\[[\d;]*m", "", text)  # colours are ours
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", plain)
    assert "[bold red]x[/]" in said[0]


def test_an_interrupted_run_shows_as_such(weft, tmp_path):
    def die(_):
        raise KeyboardInterrupt

    weft.wiring.during = die
    weft("run", "run.yaml")
    weft("ls", "--state", "interrupted", "-q")
    assert weft.out == "run-000001\n"
    weft("show", "1")
    assert re.search(r"train +! interrupted +at least \d", weft.out)
    assert re.search(r"^next +weft resume run-000001", weft.out, re.MULTILINE)
    assert weft("cancel", "1") == 7
    assert "was interrupted: nothing of it runs" in weft.err


def test_a_lost_index_is_made_again(weft, tmp_path):
    weft("run", "run.yaml")
    (tmp_path / ".weft" / "weft.db").unlink()
    assert weft("ls", "-q") == 0
    assert weft.out == "run-000001\n"


# ------------------------------------------------------------------------------------------------------- logs, story


def test_logs(weft):
    weft("run", "run.yaml")
    assert weft("logs", "1/train") == 0
    assert weft.out == "hello from train\n"
    assert weft("logs", "1") == 0
    assert weft.out == (
        "==> prepare <==\nhello from prepare\n==> train <==\nhello from train\n==> report <==\nhello from report\n"
    )
    assert weft("logs", "@last/train", "--tail", "0") == 0
    assert (weft.out, weft.err) == ("", ""), "it was asked for none"


def test_an_empty_log_is_one(weft):
    weft.wiring.log = ""
    weft("run", "run.yaml")
    for name in ("1/train", "1/train@0"):
        assert weft("logs", name) == 0
        assert (weft.out, weft.err) == ("", f"{name} has printed nothing\n")


def test_logs_of_steps_and_attempts_that_are_not_there(weft):
    weft("run", "run.yaml")
    assert weft("logs", "1/trian") == 4
    assert "prepare, train, report" in weft.err
    assert weft("logs", "1/train@3") == 4
    assert "no log of attempt 3" in weft.err
    assert weft("logs", "1/train", "--tail", "-1") == 2


@pytest.mark.parametrize("verb", ["story", "why"])
def test_an_attempt_that_is_not_there_has_no_history(weft, verb):
    weft("run", "run.yaml")
    assert weft(verb, "1/train@0") == 0
    assert weft(verb, "1/train@9") == 4
    assert (weft.out, "run-000001/train has no attempt 9" in weft.err) == ("", True)


def test_show_has_a_step_with_all_its_attempts(weft):
    weft("run", "run.yaml")
    assert weft("show", "1/train@0") == 2
    assert "1/train@0 is one attempt" in weft.err
    assert "weft show 1/train. " in weft.err


def test_the_latest_attempt_is_printed_unless_one_is_named(weft, tmp_path):
    weft("run", "run.yaml")
    (tmp_path / ".weft/runs/run-000001/logs/train.1.log").write_text("second\n")
    weft("logs", "1/train")
    assert weft.out == "second\n"
    weft("logs", "1/train@0")
    assert weft.out == "hello from train\n"


def test_logs_can_be_followed_to_the_end_of_the_run(weft, tmp_path):
    root = StateRoot(tmp_path / ".weft")
    folder = RunFolder.create(root, "run-000001")
    folder.describe(steps=["a", "b"])
    folder.log_path("a").write_text("one\ntw")

    def more():
        with folder.log_path("a").open("a") as file:
            file.write("o\n")
        folder.log_path("b").write_text("three\nend")

    weft.pauses = [more, folder.release]
    assert weft("logs", "@last", "-f") == 0
    assert weft.err == "following run-000001\n"
    assert weft.out == "one\n==> a <==\ntwo\n==> b <==\nthree\nend\n"
    assert weft.pauses == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["logs", "1", "-f"], ""),
        (["watch", "1"], "The run goes on. Its state: weft show run-000001\n"),
    ],
)
def test_an_interrupt_is_the_usual_end_of_what_only_follows_a_run(weft, tmp_path, words, said):
    folder = RunFolder.create(StateRoot(tmp_path / ".weft"), "run-000001")
    folder.describe(steps=["a"])

    def interrupt():
        raise KeyboardInterrupt

    weft.pauses = [interrupt]
    assert weft(*words) == 130
    assert "interrupted" not in weft.err
    assert weft.err.endswith(said)
    folder.release()


def test_story_of_an_ended_run(weft):
    weft("run", "run.yaml")
    assert weft("story", "1/train") == 0
    assert weft.out.splitlines() == ["     1.000s  train: running", "     2.000s  train: succeeded"]
    assert weft("story", "1/tarin") == 4
    assert weft("story", "1/train", "--json") == 0
    told = json.loads(weft.out)
    assert (told["schema"], told["run"]) == ("weft.story/1", "run-000001")
    assert [(event["step"], event["state"]) for event in told["events"]] == [
        ("train", "running"),
        ("train", "succeeded"),
    ]


def test_a_story_begins_at_its_beginning(weft):
    folder = weft.folder / ".weft/runs/run-000001"
    weft("run", "run.yaml")
    told = folder.joinpath("events.jsonl").read_text()
    begin = json.dumps({"time": json.loads(told.splitlines()[0])["time"] - 0.25, "state": "pending"})
    folder.joinpath("events.jsonl").write_text(f"{begin}\n{told}")
    assert weft("story", "1") == 0
    assert weft.out.splitlines()[:2] == ["     0.000s  run-000001: pending", "     0.250s  run-000001: running"]


def test_story_says_once_why_a_step_runs_again(weft):
    weft("run", "run.yaml")
    again = {"step": "train", "message": "run again: it is new"}
    added = [{**again, "state": "pending"}, {"step": "train", "state": "running"}, {**again, "state": "succeeded"}]
    with (weft.folder / ".weft/runs/run-000001/events.jsonl").open("a") as file:
        file.writelines(json.dumps({"time": START + 9, **record}) + "\n" for record in added)
    assert weft("story", "1/train") == 0
    told = [line.partition("s  ")[2] for line in weft.out.splitlines()[2:]]
    assert told == ["train: pending: run again: it is new", "train: running", "train: succeeded"]


def test_an_ended_run_is_explained_by_its_folder(weft, monkeypatch):
    monkeypatch.setattr(explaining, "explain_folder", lambda run, host: EXPLAINED)
    weft("run", "run.yaml")
    assert weft("explain", "1") == 0
    assert weft.out.splitlines() == ["chain: succeeded", "         planned  executed", "  train  1 task   1 task"]
    assert weft("explain", "1", "--json") == 0
    told = json.loads(weft.out)
    assert (told["schema"], told["run"], told["state"]) == ("weft.explain/1", "run-000001", "succeeded")
    assert weft("explain", "7") == 4


def test_a_live_run_is_explained_by_its_owner(weft, monkeypatch):
    monkeypatch.setattr(explaining, "explain_folder", lambda run, host: EXPLAINED)
    live = Explained(
        "chain",
        "running",
        (ExplainedItem("train", "1 task", "1 task so far"),),
        (Change(1.5, "train", "configured", "why", "8"),),
    )

    def look(folder):
        with ControlServer(folder.path, {"explain": lambda _: live.to_json()}):
            codes.append(weft("explain", "1"))
            said.append(weft.out)
        codes.append(weft("explain", "1"))
        said.append(weft.out)

    codes: list[int] = []
    said: list[str] = []
    weft.wiring.during = look
    weft("run", "run.yaml")
    assert codes == [0, 0]
    assert said[0].splitlines() == live.lines()
    assert live.lines()[-1] == "     1.500s  train: why (seen: 8)"
    assert said[1].startswith("chain: succeeded")


def test_story_and_cancel_of_a_live_run(weft):
    asked: list[Any] = []

    def look(folder):
        with ControlServer(folder.path, {"cancel": asked.append}):
            words = (["story", "1/prepare"], ["cancel", "1"], ["cancel", "1", "--json"])
            for line in words:
                codes.append(weft(*line))
                said.append(weft.out)

    codes: list[int] = []
    said: list[str] = []
    weft.wiring.during = look
    weft("run", "run.yaml")
    assert codes == [0, 0, 0]
    assert [line.split("s  ")[1] for line in said[0].splitlines()] == ["prepare: running", "prepare: succeeded"]
    assert json.loads(said[2]) == {"schema": "weft.cancel/1", "run": "run-000001"}
    assert [order["do"] for order in asked] == ["cancel", "cancel"]


# ------------------------------------------------------------------------------------------------------------- others


def test_graph(weft):
    assert weft("graph", "run.yaml") == 0
    assert "train" in weft.out
    assert weft("graph", "run.yaml", "--json") == 0
    told = json.loads(weft.out)["graph"]
    assert [(vertex["id"], vertex["tasks"]) for vertex in told["vertices"]] == [(step, 1) for step in STEPS]
    assert ("prepare", "train") in {(edge["from"], edge["to"]) for edge in told["edges"]}
    assert weft("graph", "run.yaml", "--json", "--dot") == 2
    assert weft("graph", "run.yaml", "--dot") == 0
    assert weft.out.startswith("digraph")
    assert not (weft.folder / ".weft").exists(), "looking makes nothing"


def test_config_show(weft, tmp_path):
    (tmp_path / "weft.toml").write_text("workers = 3")
    weft.environ["WEFT_QUIET"] = "yes"
    assert weft("config", "show", "--origin") == 0
    assert re.search(r"workers +3 +project \(.*weft\.toml\)", weft.out)
    assert re.search(r"quiet +true +environment \(WEFT_QUIET\)", weft.out)
    assert re.search(r"^gpus +those that are found, for training jobs +default$", weft.out, re.MULTILINE)
    assert re.search(r"^memory +half of the memory +default$", weft.out, re.MULTILINE)
    assert not re.search(r"^\w+ +(0|default)\b", weft.out, re.MULTILINE), "a value without a meaning"
    assert weft("config", "show", "--json", "--origin") == 0
    settings = json.loads(weft.out)["settings"]
    assert settings["workers"] == {"value": 3, "origin": {"kind": "project", "place": str(tmp_path / "weft.toml")}}
    assert weft("config", "show", "--json") == 0
    assert json.loads(weft.out)["settings"]["backend"] == {"value": "threads"}


def test_errors(weft):
    assert weft("errors") == 0
    assert len(weft.out.splitlines()) >= 15
    for code in ("WEFT202", "weft202", "202", "PipelineError"):
        assert weft("errors", code) == 0
        assert weft.out.startswith("WEFT202 PipelineError\n\nExit code 3.")
        assert "WEFT203" not in weft.out
    assert weft("errors", "202", "--json") == 0
    (told,) = json.loads(weft.out)["errors"]
    assert (told["code"], told["name"], told["exit_code"]) == ("WEFT202", "PipelineError", 3)
    assert told["text"].startswith("WEFT202 PipelineError")
    assert weft("errors", "--json") == 0
    assert {"WEFT202", "WEFT900"} < {one["code"] for one in json.loads(weft.out)["errors"]}


def test_help_names_every_command(weft):
    assert weft("--help") == 0
    names = "cache cancel config delete doctor errors explain graph logs ls plan resume run schedule show story up why"
    for name in names.split():
        assert re.search(rf"^  {name} +[A-Z]", weft.out, re.MULTILINE), f"{name} is not described"
    assert weft("run", "--help") == 0
    assert "--param-file" in weft.out
    assert max(map(len, weft.out.splitlines())) <= 100


def test_version(weft):
    assert weft("--version") == 0
    assert re.fullmatch(r"weft \d+\.\d+\.\d+\n", weft.out)


# -------------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("as_json", [False, True])
def test_a_fault_is_one_sentence_and_a_file(weft, tmp_path, as_json):
    def crash(_):
        raise ZeroDivisionError("division \x1b[2Jby zero")

    weft.wiring.during = crash
    assert weft("run", "run.yaml", *(["--json"] if as_json else [])) == 70
    said = json.loads(weft.out)["error"]["hint"] if as_json else weft.err
    assert "Traceback" not in weft.err
    assert as_json or "error WEFT900: a fault of Weft, not of your input: ZeroDivisionError: division by zero" in said
    files = list((tmp_path / ".weft" / "crashes").iterdir())
    assert len(files) == 1
    assert str(files[0]) in said
    assert "Traceback" in files[0].read_text()
    assert files[0].stat().st_mode & 0o777 == 0o600


def test_a_fault_outside_of_a_project_is_kept_with_the_user(weft, tmp_path):
    def crash(*_, **__):
        raise RuntimeError("no")

    weft.wiring.load_pipeline = crash
    assert weft("run", "run.yaml") == 70
    assert list((tmp_path / "xdg-state" / "weft" / "crashes").iterdir())


def test_a_fault_whose_file_cannot_be_written_is_told_all_the_same(weft, tmp_path):
    def crash(*_, **__):
        raise RuntimeError("no")

    (tmp_path / "xdg-state").touch()
    weft.wiring.load_pipeline = crash
    assert weft("run", "run.yaml") == 70
    assert "could not be saved" in weft.err


def test_every_error_gives_its_own_exit_code(weft):
    for kind in _kinds(WeftError):
        error = kind.__new__(kind)
        WeftError.__init__(error, "m", hint="h")
        if isinstance(error, InvalidTransition):
            error.story = ()

        def fail(*_, error=error, **__):
            raise error

        weft.wiring.load_pipeline = fail
        assert weft("run", "run.yaml") == kind.exit_code
        assert weft.err.startswith(f"error {kind.code}: m\n  h\n")


def _kinds(kind: type[WeftError]) -> list[type[WeftError]]:
    """Return the classes of a module of errors; those that are made for raised exceptions are in none."""
    own = [below for below in kind.__subclasses__() if vars(sys.modules[kind.__module__]).get(below.__name__) is below]
    return [kind, *(below for child in own for below in _kinds(child))]


# -------------------------------------------------------------------------------------------------------------- colour


def test_colour_is_for_terminals(weft):
    weft("run", "run.yaml")
    weft.environ["TERM"] = "xterm-256color"
    weft("ls", out=Terminal())
    assert "\x1b[32m" in weft.out
    weft.environ["NO_COLOR"] = "1"
    weft("ls", out=Terminal())
    assert "\x1b[" not in weft.out
    assert "✔ succeeded" in weft.out
    del weft.environ["NO_COLOR"]
    weft("ls")
    assert "\x1b[" not in weft.out
    weft.environ["FORCE_COLOR"] = "1"
    weft("ls")
    assert "\x1b[32m" in weft.out


def test_read_run_agrees_with_what_was_shown(weft, tmp_path):
    weft("run", "run.yaml")
    assert read_run(tmp_path / ".weft/runs/run-000001").state == "succeeded"
    with pytest.raises(UsageError):
        StateRoot(tmp_path / ".weft").catalog().find("@x")


def test_of_very_many_outputs_some_are_told(weft):
    outputs = {f"report.out{n}": f"/out/{n}" for n in range(1, 2001)}
    weft.wiring.outputs = outputs
    assert weft("run", "run.yaml") == 0
    assert weft.out.count("/out/") == 10
    assert "         and 1,990 more: weft show run-000001 --json\n" in weft.out
    assert weft("show", "run-000001") == 0
    assert weft.out.count("/out/") == 10
    assert "and 1,990 more: weft show run-000001 --json" in weft.out
    weft("show", "run-000001", "--json")
    assert weft.out.count("/out/") == 2000
    weft.wiring.outputs = dict(list(outputs.items())[:10])
    weft("run", "run.yaml")
    assert weft.out.count("/out/") == 10
    assert "more:" not in weft.out


@pytest.mark.parametrize("words", [("run", "-d", "-"), ("schedule", "create", "-", "--cron", "@daily")])
def test_what_runs_elsewhere_has_no_standard_input(weft, words):
    assert weft(*words) == 2
    assert "cannot read a pipeline from standard input" in weft.err


def test_a_run_is_watched_until_it_ends(weft):
    weft.wiring.fail = "train"
    weft("run", "run.yaml")
    told = [line for line in weft.err.splitlines() if not line.startswith("error ")]
    assert weft("watch", "@last") == 0
    assert weft.err.splitlines() == told
    assert re.search(r"train +✘ failed", weft.out)
    assert weft.out.splitlines()[-4:] == [
        "run-000001 failed",
        "next     weft show run-000001",
        "         weft resume run-000001",
        "         weft logs run-000001/train",
    ]
    assert weft("watch", "1", "--json") == 0
    assert (json.loads(weft.out)["run"]["state"], weft.err) == ("failed", "")
    assert weft("watch", "7") == 4


def test_a_run_of_another_process_is_watched_while_it_goes_on(weft):
    root = StateRoot(weft.folder / ".weft")
    root.prepare()
    folder = RunFolder.create(root, "run-000001").__enter__()
    folder.describe(steps=["a"], name="x", number=1, created_at=START)

    def work(state):
        with folder.events.open("a") as file:
            file.write(json.dumps({"time": START, "step": "a", "state": state, "ended": state != "running"}) + "\n")

    def end():
        with folder.events.open("a") as file:
            file.write(json.dumps({"time": START, "state": "succeeded", "ended": True}) + "\n")
        folder.__exit__(None, None, None)

    weft.pauses = [lambda: work("running"), lambda: None, lambda: work("succeeded"), end]
    assert weft("watch", "1") == 0
    assert [line.split()[1:3] for line in weft.err.splitlines()] == [
        ["a", "started"],
        ["a", "succeeded"],
        ["run", "succeeded"],
    ]
    assert weft.pauses == []
