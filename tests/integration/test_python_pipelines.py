"""Pipelines written in Python, run as users do: from the command line, from a script, and as the YAML they become."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.prepared import weft_command
from weft.model.errors import UsageError

SOURCE = Path(weft.__file__).parents[1]
ROOT = Path(__file__).parents[2]
MAIN = "import sys; from weft.cli.main import main; sys.exit(main())"

FLOW = '''
"""A pipeline."""
import json
from pathlib import Path

import weft
import helpers

print("loading", __name__)
LIMIT = 100


@weft.step(cache=True)
def numbers(out: weft.Output, count: int = 5, scale: float = 2, where: Path = Path("a/b"), more: list = [1]):
    """Write numbers."""
    with open("trace.log", "a") as trace:
        trace.write("numbers\\n")
    assert type(count) is int and type(scale) is float and isinstance(where, Path) and type(more) is list
    out.write_text(json.dumps([helpers.times(n, scale) for n in range(count) if n < LIMIT]))


@weft.command(cache=True)
def lines(data: weft.Input, text: weft.Output):
    return f"echo lines >> trace.log; tr -d '[] ' < {data} | tr , '\\\\n' > {text}"


@weft.step
def square(data: weft.Input, piece: weft.Output, power: int):
    assert type(power) is int
    piece.write_text(str(sum(float(n) ** power for n in data.read_text().split())))


@weft.step
def total(pieces: list[weft.Input], result: weft.Output, title: str = "sum"):
    assert type(pieces) is list
    result.write_text(title + ":" + ",".join(piece.read_text() for piece in pieces))


@weft.pipeline
def powers(data, most: int):
    """Raise to each power, and put the results together."""
    return total(square(data, weft.each(list(range(1, most + 1)))).piece).result


@weft.pipeline
def flow(count: int = 5, most: int = 2):
    made = numbers(count)
    text = lines(made.out).text
    powers(text, most)


if __name__ == "__main__":
    result = flow.run({"count": 3, "powers.total.title": "all"})
    print(result.state, sorted(result.steps), result.outputs["powers.total.result"].read_text())
'''
HELPERS = "def times(a, b):\n    return a * b\n"


class Project:
    """A folder with a pipeline in Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("flow.py", FLOW)
        self.write("helpers.py", HELPERS)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, *words], cwd=self.folder, env=env, capture_output=True, text=True)

    def weft(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.CompletedProcess(words, *weft_command(*words, cwd=self.folder, env=env))

    def run(self, *words: str) -> dict[str, Any]:
        answer = self.weft("run", *words, "--json")
        assert answer.stdout, answer.stderr
        document: dict[str, Any] = json.loads(answer.stdout)
        return document

    def output(self, document: dict[str, Any], name: str) -> str:
        return Path(document["run"]["outputs"][name]).read_text()

    def ran(self) -> list[str]:
        trace = self.folder / "trace.log"
        found = trace.read_text().split() if trace.exists() else []
        trace.unlink(missing_ok=True)
        return sorted(found)


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_it_runs_from_the_command_line(project):
    document = project.run("flow.py:flow", "-p", "count=4", "-p", "most=3", "-p", "title=x", "-p", "numbers.scale=3")
    assert document["run"]["state"] == "succeeded", document
    assert project.output(document, "powers.total.result") == "x:18.0,126.0,972.0"
    assert project.output(document, "numbers.out") == "[0.0, 3.0, 6.0, 9.0]"


def test_it_runs_as_a_script(project):
    answer = project.python("flow.py")
    assert answer.returncode == 0, answer.stderr
    told = answer.stdout.splitlines()[-1]
    steps = ["lines", "numbers", "powers.square", "powers.total"]
    assert told == f"succeeded {steps} all:6.0,20.0"
    assert project.ran() == ["lines", "numbers"]
    project.weft("run", "flow.py:flow", "-p", "count=3")
    assert project.ran() == [], "a script and the command line share results"


UNGUARDED = """
import weft

@weft.step
def one(out: weft.Output):
    out.write_text("x")

@weft.pipeline
def flow():
    one()

flow.run()
"""


@pytest.mark.parametrize("words", [["alone.py"], ["-c", MAIN, "run", "alone.py"]])
def test_a_module_that_runs_its_pipeline_when_it_is_imported_starts_no_run_in_a_run(project, words):
    project.write("alone.py", UNGUARDED)
    answer = project.python(*words)
    assert answer.returncode != 0
    assert 'if __name__ == "__main__":' in answer.stderr
    runs = project.folder / ".weft" / "runs"
    assert len(list(runs.glob("run-*")) if runs.exists() else []) <= 1


def test_it_runs_as_the_yaml_that_it_becomes(project):
    code = "import flow; flow.flow(3).to_yaml('files/flow.yaml'); print(flow.flow(3).to_yaml(), end='')"
    (project.folder / "files").mkdir()
    answer = project.python("-c", f"import sys; sys.path.insert(0, '.'); {code}")
    text = (project.folder / "files" / "flow.yaml").read_text()
    assert 'path: ".."' in text
    assert answer.stdout.replace("loading flow\n", "") == text.replace(', path: ".."', "")
    project.write("flow.yaml", text.replace(', path: ".."', ""))
    one, two = project.run("flow.yaml"), project.run("files/flow.yaml")
    assert project.output(one, "powers.total.result") == project.output(two, "powers.total.result") == "sum:6.0,20.0"


class TestCode:
    def test_what_does_not_count_runs_nothing_again(self, project):
        project.run("flow.py:flow")
        assert project.ran() == ["lines", "numbers"]
        project.change("flow.py", "    out.write_text(json", "    # a comment\n\n    out.write_text(json")
        project.change("flow.py", '"""Write numbers."""', '"""Write some numbers."""')
        project.run("flow.py:flow")
        assert project.ran() == []

    @pytest.mark.parametrize(
        ("name", "old", "new", "said"),
        [
            ("flow.py", "LIMIT = 100", "LIMIT = 3", "code flow.LIMIT: 100 → 3"),
            ("flow.py", "n < LIMIT", "n <= LIMIT", "code flow.numbers changed"),
            ("helpers.py", "return a * b", "return b * a", "code helpers.times changed"),
        ],
    )
    def test_what_counts_is_told(self, project, name, old, new, said):
        project.run("flow.py:flow")
        project.ran()
        project.change(name, old, new)
        assert said in project.weft("plan", "flow.py:flow").stdout
        project.run("flow.py:flow")
        assert "numbers" in project.ran()
        assert said in project.weft("why", "@last/numbers").stdout

    def test_equal_outputs_end_what_a_change_begins(self, project):
        project.run("flow.py:flow")
        project.ran()
        project.change("helpers.py", "return a * b", "return b * a")
        project.run("flow.py:flow")
        assert project.ran() == ["numbers"]

    def test_results_of_cached_steps_load_nothing(self, project):
        text = FLOW.replace("@weft.step\n", "@weft.step(cache=True)\n")
        project.write("flow.py", text)
        answer = project.python(
            "-c", "import sys; sys.path.insert(0, '.'); import flow; flow.flow.to_yaml('flow.yaml')"
        )
        assert answer.returncode == 0, answer.stderr
        project.run("flow.yaml")
        project.write("flow.py", text.replace('print("loading"', 'open("loaded", "w"); print("loading"'))
        document = project.run("flow.yaml")
        assert {step["message"] for step in document["run"]["steps"] if step["name"] == "numbers"} == {
            "taken from the cache"
        }
        assert not (project.folder / "loaded").exists()


class TestFailing:
    def test_a_function_that_raises_shows_its_own_lines_only(self, project):
        project.change("helpers.py", "return a * b", "raise ValueError('no product')")
        answer = project.weft("run", "flow.py:flow")
        assert answer.returncode == 1
        assert "step numbers ended with exit code 1" in answer.stderr
        log = project.weft("logs", "@last/numbers").stdout
        assert log.endswith("ValueError: no product\n")
        assert "helpers.py" in log
        assert "invoke.py" not in log

    def test_a_function_that_ends_its_process_by_a_signal_shows_its_line(self, project):
        project.change("helpers.py", "return a * b", "import ctypes; ctypes.string_at(0)")
        answer = project.weft("run", "flow.py:flow")
        assert answer.returncode == 1
        assert "step numbers was ended by signal 11 (SIGSEGV)" in answer.stderr
        assert re.search(r'helpers.py", line 2 in times', answer.stderr)

    def test_it_goes_on_with_code_that_was_mended(self, project):
        project.change("flow.py", "    piece.write_text(", "    raise RuntimeError\n    piece.write_text(")
        assert project.run("flow.py:flow")["run"]["state"] == "failed"
        project.ran()
        project.change("flow.py", "    raise RuntimeError\n", "")
        answer = project.weft("resume", "@last", "--json")
        assert json.loads(answer.stdout)["run"]["state"] == "succeeded", answer.stderr
        assert project.ran() == []

    def test_it_goes_on_with_an_edited_pipeline_and_what_it_was_given(self, project):
        project.change("flow.py", "    piece.write_text(", "    raise RuntimeError\n    piece.write_text(")
        project.run("flow.py:flow", "-p", "count=3")
        project.ran()
        project.change("flow.py", "    raise RuntimeError\n", "")
        project.change("flow.py", 'title: str = "sum"', 'title: str = "all"')
        answer = project.weft("resume", "@last", "--file", "flow.py:flow", "-p", "most=1", "--json")
        document = json.loads(answer.stdout)
        assert document["run"]["state"] == "succeeded", answer.stderr
        assert project.output(document, "powers.total.result") == "all:6.0"
        assert project.ran() == []

    def test_a_script_is_raised_what_went_wrong_unless_it_asks_for_the_result(self, project):
        project.change("helpers.py", "return a * b", "raise ValueError('no product')")
        answer = project.python("flow.py")
        assert answer.returncode == 1
        assert "TaskError: step numbers ended with exit code 1" in answer.stderr
        project.change(
            "flow.py",
            '{"count": 3, "powers.total.title": "all"})\n',
            "check=False)\n    print(result.error.code, end=' ')\n",
        )
        project.change("flow.py", 'result.outputs["powers.total.result"].read_text()', "result.succeeded")
        answer = project.python("flow.py")
        assert answer.stdout.splitlines()[-1].startswith("WEFT501 failed"), (answer.stdout, answer.stderr)
        assert answer.stdout.endswith("False\n")

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["flow.py"], 2, "flow.py has several pipelines: powers, flow\nName one: flow.py:flow"),
            (["flow.py:flwo"], 4, "flow.py has no pipeline 'flwo'\n  Did you mean flow.py:flow?"),
            (["none.py"], 4, "there is no file none.py"),
            (["helpers.py"], 4, "helpers.py has no pipeline"),
            (["flow.py:powers"], 2, "pipeline powers needs data, most"),
            (["flow.py:flow", "-p", "count=x"], 2, "parameter count: must be an integer, is 'x'"),
            (["flow.py:flow", "-p", "nothing=x"], 2, "no parameter `nothing`"),
            (["broken.py"], 3, "broken.py:2: NameError: name 'no_such_name' is not defined"),
            (["syntax.py"], 3, "syntax.py:1: SyntaxError"),
            (["wrong.py"], 3, "wrong.py:9: say() has no argument 'txt'\n  Did you mean text?"),
        ],
    )
    def test_a_wrong_file_is_told_with_its_place(self, project, words, code, said):
        project.write("broken.py", "import weft\nno_such_name\n")
        project.write("syntax.py", "def f(:\n")
        project.write(
            "wrong.py",
            "import weft\n\n@weft.command\ndef say(text: str = 'a'):\n    return text\n\n"
            "@weft.pipeline\ndef flow():\n    say(txt=1)\n",
        )
        answer = project.weft("run", *words)
        assert answer.returncode == code, answer.stderr
        assert "Traceback" not in answer.stderr
        assert said.split("\n")[0] in answer.stderr
        assert said.split("\n")[-1].strip() in answer.stderr


def test_a_function_takes_more_paths_and_text_than_one_variable_holds(project):
    project.write(
        "many.py",
        "import weft\n\n"
        "def join(pieces: list[weft.Input], out: weft.Output, text):\n"
        "    out.write_text(f'{len(pieces)} {len(text)}')\n",
    )
    steps = {
        "a": {"command": "true > {{o}}", "loop_argument": list(range(40)), "artifacts": {"output": ["o"]}},
        "b": {
            "deps": "a",
            "parameters": {"text": "y" * 60_000, "more__": "z" * 60_000, "most__": "z" * 60_000},
            "artifacts": {"input": {"pieces": "{{a.o}}"}, "output": ["out"]},
            "x-weft": {"kind": "python", "with": {"function": "many:join"}},
        },
    }
    project.write("run.yaml", json.dumps({"name": "p", "entry_points": steps}))
    assert project.output(project.run("run.yaml"), "b.out") == "40 60000"


def test_packages_with_relative_imports_work(project):
    project.write("lib/__init__.py", "")
    project.write("lib/helpers.py", HELPERS)
    project.write("lib/flow.py", FLOW.replace("import helpers", "from . import helpers"))
    document = project.run("lib/flow.py:flow")
    assert document["run"]["state"] == "succeeded", document
    assert project.python("-m", "lib.flow").returncode == 0


def test_steps_may_come_from_other_modules_and_from_functions_that_make_them(project):
    project.write(
        "making.py",
        "import weft\n\ndef writer(word):\n    @weft.step\n    def write(out: weft.Output):\n"
        "        out.write_text(word)\n    return write\n\nthere = writer('there')\n",
    )
    project.write(
        "main.py",
        "import weft\nimport making\n\nhello = making.writer('hello')\n\n@weft.pipeline\ndef flow():\n"
        "    hello()\n    making.there()\n",
    )
    document = project.run("main.py")
    assert document["run"]["state"] == "succeeded", document
    assert [project.output(document, f"write{n}.out") for n in ("", "2")] == ["hello", "there"]


def test_a_step_may_be_written_for_files_only(project):
    project.write("plain.py", "def copy(data, out, times):\n    out.write_text(data.read_text() * times)\n")
    steps = {
        "a": {"command": "printf x > {{out}}", "artifacts": {"output": ["out"]}},
        "b": {
            "deps": "a",
            "parameters": {"times": 3},
            "artifacts": {"input": {"data": "{{a.out}}"}, "output": ["out"]},
            "x-weft": {"kind": "python", "with": {"function": "plain:copy"}},
        },
    }
    project.write("run.yaml", json.dumps({"name": "p", "entry_points": steps}))
    assert project.output(project.run("run.yaml"), "b.out") == "xxx"


def test_the_programs_of_the_page_run(project):
    program, use = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "pipelines-python.md").read_text(), re.DOTALL | re.MULTILINE
    )
    project.write("book.py", program)
    project.write("use.py", use)
    answer = project.python("book.py")
    assert answer.stdout.startswith("succeeded "), answer.stderr
    told = project.python("use.py").stdout
    assert told.startswith("name: book\nparallelism: 4\n")
    assert "join succeeded" in told
    assert "\nA\nword 0\nword 0\nword 1\nword 0\nword 1\nword 2" in told


def test_the_example_runs_and_is_used_again(project):
    example = ROOT / "examples" / "breast_cancer"
    for name in ("search.py", "breast_cancer.csv"):
        project.write(name, (example / name).read_text())
    first, second = (project.run("search.py", "-p", "rates=[0.03, 0.3]", "-p", "epochs=20") for _ in range(2))
    assert first["run"]["state"] == second["run"]["state"] == "succeeded"
    assert json.loads(project.output(second, "choose.best"))["accuracy"] > 0.9
    assert {step["message"] for step in second["run"]["steps"] if step["name"] != "fit"} == {"taken from the cache"}


@weft.command
def hello():
    return "echo hello"


@weft.pipeline
def greeting():
    hello()


def test_a_wrong_storage_is_refused_before_the_run(tmp_path):
    with pytest.raises(UsageError, match="'nonsense', which is no URL"):
        greeting.run(storage="nonsense", state_dir=tmp_path / ".weft")
    assert not (tmp_path / ".weft").exists()
