"""The examples of the page on pipelines that use Weft's own words, each run as it stands there."""

import json
import re
import zipfile
from pathlib import Path

import pytest

from tests.integration.places import until
from tests.integration.test_pipeline import Place
from weft.admin.control import send
from weft.admin.settings import Settings, load_settings
from weft.frontends.pipelines.body import FAILED_STEPS, RUN_ERROR, RUN_STATE
from weft.runs.reading import read_run
from weft.runs.records import read_records

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def example(name: str) -> str:
    """The pipeline of a name on the page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(f"name: {name}\n")]
    return str(found)


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def attempts(place: Place, step: str) -> int:
    return read_run(place.folder_of()).step(step).attempts


class TestRetries:
    def test_an_exit_code_that_is_named_is_tried_again(self, place):
        place.file.write_text(example("patient"))
        assert place.run().state == "failed"
        assert attempts(place, "fetch") == 2

    def test_others_fail_at_once_and_say_so(self, place):
        place.file.write_text(example("patient").replace("exit 75", "exit 3"))
        result = place.run()
        assert attempts(place, "fetch") == 1
        assert "It is not retried: exit code 3 is not one of 75, 100-110." in str(result.error)

    def test_a_timeout_is_exit_code_124(self, place):
        text = example("patient").replace("exit 75", "sleep 60").replace("retry:", "timeout_s: 0.2\n      retry:")
        place.file.write_text(text.replace("on: [75", "on: [124"))
        assert place.run().state == "failed"
        assert attempts(place, "fetch") == 2


def test_words_for_all_steps(place):
    place.file.write_text(example("defaults-of-all"))
    assert place.run().state == "succeeded"
    assert place.log("one") == "C.UTF-8\n"


def wheel(folder: Path, word: str) -> None:
    """Write the wheel of a package `greeting` with one word, which needs no index, and a file that requires it."""
    with zipfile.ZipFile(folder / "greeting-1.0-py3-none-any.whl", "w") as file:
        file.writestr("greeting.py", f"WORD = {word!r}\n")
        file.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        file.writestr("greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("greeting-1.0.dist-info/RECORD", "")
    (folder / "requirements.txt").write_text("--no-index\n./greeting-1.0-py3-none-any.whl\n")


STEPS = """
import weft

@weft.step(environment={"venv": "requirements.txt"}, cache=True)
def greet(out: weft.Output):
    import greeting
    out.write_text(greeting.WORD)

@weft.pipeline
def flow():
    greet()
"""


@pytest.mark.slow
class TestPackages:
    def test_a_command_and_a_function_share_an_environment_that_is_part_of_the_key(self, place):
        wheel(place.folder, "hello")
        place.file.write_text(example("packaged"))
        assert place.run().state == "succeeded"
        assert place.log("report") == "hello\n"
        (made,) = (place.folder / ".weft" / "environments").glob("venv-*/complete")
        file = place.folder / "packaged_flow.py"
        file.write_text(STEPS)
        for run in ("run-000002", "run-000003"):
            code, _, err = place.weft("run", file.name)
            assert code == 0, err
            assert place.states(run) == {"greet": "succeeded"}
        assert "cache" in read_run(place.folder_of("run-000003")).step("greet").message
        assert [made] == list((place.folder / ".weft" / "environments").glob("venv-*/complete"))
        wheel(place.folder, "goodbye")
        why = place.weft("plan", file.name)[1]
        assert "what its packages are made of (venv) changed" in why
        assert "venv requirements.txt" in why

    def test_what_pip_says_when_it_fails(self, place):
        (place.folder / "requirements.txt").write_text("--no-index\nno-such-package\n")
        place.file.write_text(example("packaged"))
        result = place.run()
        assert result.state == "failed"
        assert "step report cannot start: its environment of" in str(result.error)
        assert "No matching distribution found for no-such-package" in str(result.error)
        assert "No matching distribution found for no-such-package" in place.log("report")
        told = [record.message for record in read_records(place.folder_of()) if record.step == "report"]
        assert "waits for its environment (venv requirements.txt) to be made" in told
        code, out, _ = place.weft("doctor")
        assert (code, "0 environments of steps" in out) == (0, True)


def test_a_run_does_not_begin_without_the_file_of_an_environment(place):
    place.file.write_text(example("packaged"))
    for word in ("plan", "run"):
        code, _, err = place.weft(word, "run.yaml")
        assert code != 0
        assert "step report: " in err
        assert "requirements.txt, the file of an environment, cannot be read" in err


class TestProfiles:
    def test_plan_run_show_and_resume(self, place):
        place.file.write_text(example("profiled").replace('echo "', 'test -e fixed && echo "'))
        plan = json.loads(place.weft("plan", "run.yaml", "--profile", "cluster", "--json")[1])["steps"]
        assert plan[1]["how"] == "3 retries, first after 10 s; cpu 8, memory 17,179,869,184 bytes"
        assert place.weft("run", "run.yaml", "--profile", "laptop", "-p", "fit.epochs=5")[0] == 1
        place.file.write_text("not a pipeline any more")
        (place.folder / "fixed").touch()
        assert place.weft("resume", "run-000001")[0] == 0
        assert place.log("fit", 1) == "100 rows, 5 epochs\n"
        shown = json.loads(place.weft("show", "run-000001", "--json")[1])["run"]
        assert (shown["profile"], shown["state"]) == ("laptop", "succeeded")
        assert re.search(r"^profile +laptop$", place.weft("show", "run-000001")[1], re.MULTILINE)

    def test_a_resume_with_an_edited_file_uses_the_profile_as_that_has_it(self, place):
        place.file.write_text(example("profiled").replace('echo "', 'exit 1; echo "'))
        assert place.weft("run", "run.yaml", "--profile", "laptop")[0] == 1
        place.file.write_text(example("profiled").replace("laptop:", "desktop:"))
        code, _, err = place.weft("resume", "run-000001", "--file", "run.yaml")
        assert (code != 0, "has no profile 'laptop'" in err) == (True, True)
        place.file.write_text(example("profiled").replace("laptop:", "laptop:\n      steps: {fit: {timeout_s: 7}}"))
        assert place.weft("resume", "run-000001", "--file", "run.yaml")[0] == 0
        kept = json.loads((place.folder_of() / "run.json").read_text())["profile"]
        assert kept["values"]["steps"] == {"fit": {"timeout_s": 7}}

    def test_the_graph_is_drawn_with_it(self, place):
        place.file.write_text(example("profiled"))
        assert "cpu 8" in place.weft("graph", "run.yaml", "--profile", "cluster")[1]
        assert "cpu 8" not in place.weft("graph", "run.yaml", "--profile", "laptop")[1]
        code, _, err = place.weft("graph", "run.yaml", "--profile", "lapto")
        assert (code, "Did you mean laptop?" in err) == (2, True)

    def test_an_unknown_name(self, place):
        place.file.write_text(example("profiled"))
        code, _, err = place.weft("run", "run.yaml", "--profile", "lapto")
        assert (code, "Did you mean laptop?" in err) == (2, True)


class TestTheEndOfARun:
    def test_a_failure_with_its_message_and_step(self, place):
        place.file.write_text(example("letter"))
        letter = Path(place.run().outputs["tell.letter"]).read_text()
        assert letter.startswith("run-000001 failed: work\nstep work ended with exit code 3.\n")
        assert "too late" in letter

    def test_a_success_has_no_error(self, place):
        place.file.write_text(example("letter").replace("exit 3", "exit 0"))
        assert Path(place.run().outputs["tell.letter"]).read_text() == "run-000001 succeeded: \n\n"

    def test_items_and_steps_that_others_waited_for(self, place):
        loop = "command: 'test {{PF_LOOP_ARGUMENT}} = 2', loop_argument: [1, 2, 3]}"
        steps = f"{loop}\n  more: {{command: 'true', deps: work}}\nfailure_options: {{strategy: continue}}"
        text = example("letter").replace("command: echo too late; exit 3}", steps)
        place.file.write_text(text)
        letter = Path(place.run(Settings(workers=1, backend="processes")).outputs["tell.letter"]).read_text()
        assert letter.splitlines()[0] == "run-000001 failed: work-0,work-2"

    def test_a_cancel(self, place):
        place.file.write_text(example("letter").replace("echo too late; exit 3", "touch began; sleep 60"))
        process = place.start()
        until((place.folder / "began").exists, "the step")
        send(place.folder_of(), {"do": "cancel", "reason": "enough of it"})
        process.communicate(timeout=180)
        (letter,) = place.folder.glob(".pipeline/run-000001/letter/tell-*/letter")
        assert letter.read_text() == "run-000001 terminated: \nenough of it\n"

    def test_a_command_of_weft_in_that_step_takes_them_for_no_settings(self, monkeypatch):
        for name in (RUN_STATE, RUN_ERROR, FAILED_STEPS):
            monkeypatch.setenv(name, "x")
        assert load_settings().backend == "threads"
