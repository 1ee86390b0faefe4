"""Times and streams in logs: of commands and functions, with secrets, while a run goes on, of older runs."""

import json
import re
import sys
from datetime import datetime
from typing import Any

import pytest

from tests.integration.places import DEADLINE_S, RUN, Project, until
from tests.integration.test_step_options import example

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at logs that a guardian of Linux writes")

TURNS = 200
IN_TURN = f"i=0; while test $i -lt {TURNS}; do echo out $i; echo err $i >&2; i=$((i+1)); done"
APART = {"stderr": "apart"}
MODULE = """
import sys

def talk():
    print("a result")
    print("a complaint", file=sys.stderr)
    raise SystemExit(0)
"""
STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Project:
    """A project with a run of steps that write to both streams."""
    place = Project(tmp_path_factory.mktemp("project"))
    (place.folder / "talking.py").write_text(MODULE)
    python = {"kind": "python", "with": {"function": "talking:talk"}}
    place.environ = {"TOKEN": "hush-hush"}
    place.write(
        {
            "together": {"command": IN_TURN},
            "apart": {"command": IN_TURN, "x-weft": APART},
            "function": {"x-weft": {**python, **APART}},
            "hidden": {
                "command": 'printf hush-; printf "it is %s\n" "$KEY" >&2; echo hush',
                "env": {"KEY": {"secret": "TOKEN"}},
                "x-weft": APART,
            },
            "silent": {"command": "true", "x-weft": APART},
        }
    )
    code, out, err = place.weft("run", "run.yaml")
    assert code == 0, (out, err)
    return place


def documents(place: Project, step: str) -> list[dict[str, Any]]:
    code, out, _ = place.weft("logs", f"{RUN}/{step}", "--json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_one_pipe_keeps_the_order_of_both_streams(place):
    wanted = "".join(f"out {n}\nerr {n}\n" for n in range(TURNS))
    assert (place.folder_of() / "logs" / "together.0.log").read_text() == wanted
    told = documents(place, "together")
    assert [one["line"] for one in told] == wanted.splitlines()
    assert {one["stream"] for one in told} == {None}
    times = [datetime.fromisoformat(one["time"]) for one in told]
    assert times == sorted(times)
    assert times[0].utcoffset() is not None


def test_the_example_of_the_page(tmp_path):
    place = Project(tmp_path)
    place.file.write_text(example("careful"))
    assert place.weft("run", "run.yaml")[0] == 0
    assert place.weft("logs", f"{RUN}/fit", "--stderr")[1] == "the rate is high\n"
    assert place.weft("logs", f"{RUN}/fit", "--stdout")[1] == "epoch 1\nepoch 2\n"


def test_two_pipes_keep_the_order_of_each(place):
    for stream, word in (("stdout", "out"), ("stderr", "err")):
        code, out, err = place.weft("logs", f"{RUN}/apart", f"--{stream}")
        assert (code, out, err) == (0, "".join(f"{word} {n}\n" for n in range(TURNS)), "")
    assert len(documents(place, "apart")) == 2 * TURNS


def test_times_and_marks_stand_before_lines(place):
    code, out, err = place.weft("logs", f"{RUN}/function", "-t")
    assert (code, err) == (0, "")
    assert sorted(STAMP.sub("", line, count=1) for line in out.splitlines()) == ["! a complaint", "a result"]
    assert len(STAMP.findall(out)) == 2


def test_secrets_stay_hidden_in_each_stream(place):
    told = documents(place, "hidden")
    assert sorted((one["stream"], one["line"]) for one in told) == [("stderr", "it is ***"), ("stdout", "***")]
    assert "hush-hush" not in (place.folder_of() / "logs" / "hidden.0.log").read_text()


def test_a_step_without_errors_and_one_that_cannot_tell(place):
    assert place.weft("logs", f"{RUN}/silent", "--stderr") == (0, "", f"{RUN}/silent has printed nothing to stderr\n")
    code, out, err = place.weft("logs", f"{RUN}/together", "--stderr")
    assert (code, out) == (0, "")
    assert "the log of together does not tell output from errors" in err
    code, _, err = place.weft("logs", RUN, "--stderr", "--stdout")
    assert (code, "exclude each other" in err) == (2, True)


def test_a_run_is_followed_with_times(tmp_path):
    place = Project(tmp_path)
    wait = "until test -e go; do sleep 0.02; done"
    place.write({"a": {"command": f"echo one; {wait}; echo two >&2", "x-weft": APART}})
    with place.start() as run:
        until((place.folder_of() / "logs" / "a.0.log").exists, "the log")
        with place.start("logs", "-f", "-t", RUN) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline().endswith(" one\n")
            (tmp_path / "go").touch()
            assert reader.stdout.readline().endswith(" ! two\n")
            assert reader.wait(DEADLINE_S) == 0
        run.communicate(timeout=DEADLINE_S)


def test_a_run_of_an_older_version_is_shown_without_times(place):
    (place.folder_of() / "logs" / "silent.0.log").write_text("one\ntwo\n")
    code, out, err = place.weft("logs", f"{RUN}/silent", "--timestamps")
    assert (code, out) == (0, f"{'-':23} one\n{'-':23} two\n")
    assert err == "the log of silent has no times, and maybe others: older runs kept none\n"
    assert place.weft("logs", f"{RUN}/silent") == (0, "one\ntwo\n", "")
    assert [one["time"] for one in documents(place, "silent")] == [None, None]
