"""The value of a secret is in no file of a run, however the run ends, and no process list shows it."""

import os
import secrets
from pathlib import Path

import pytest

from tests.integration.places import RUN, Project, until

TOKEN = {"TOKEN": {"secret": "DEPLOY_KEY"}}
VALUE = f"{secrets.token_hex(12)}+/= {secrets.token_hex(8)}"
SHOWN = 'printf "%s" "$TOKEN" | wc -c > "{{out}}"; echo "it is $TOKEN"; set -x; : "$TOKEN"'
"""A command that uses the secret, and prints it by mistake."""


@pytest.fixture(params=["threads", "processes"])
def place(tmp_path, request):
    place = Project(tmp_path / "project")
    place.environ = {"DEPLOY_KEY": VALUE, "WEFT_BACKEND": request.param}
    return place


def found_in(folder: Path, value: str = VALUE) -> list[str]:
    """The files below a folder that hold a value, in any of the usual forms; a file may go meanwhile."""
    forms = {value.encode(), repr(value).encode(), *(part.encode() for part in value.split())}
    files = [Path(above) / name for above, _, names in os.walk(folder) for name in names]
    return [str(file) for file in files if any(form in _content(file) for form in forms)]


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() else b""
    except FileNotFoundError:
        return b""


def steps(command: str = SHOWN, **more: object) -> dict[str, object]:
    return {"use": {"command": command, "env": TOKEN, "artifacts": {"output": ["out"]}, **more}}


def test_a_run_and_everything_that_tells_of_it(place):
    others = {"other": {"command": "env", "deps": "use"}}
    place.write(steps() | others, cache={"enable": True})
    said = [place.weft(*words) for words in (("plan", "run.yaml"), ("run", "run.yaml"))]
    (made,) = (place.folder / ".pipeline" / RUN).glob("*/use-*/out")
    assert int(made.read_text()) == len(VALUE)
    asked = ("show", RUN, "--json"), ("story", RUN), ("logs", RUN), ("why", f"{RUN}/use"), ("report", RUN), ("doctor",)
    said += [place.weft(*words) for words in asked]
    assert not any(part in text for code, out, err in said for text in (out, err) for part in VALUE.split()), said
    assert "it is ***" in place.weft("logs", f"{RUN}/use")[1]
    assert "DEPLOY_KEY" not in place.weft("logs", f"{RUN}/other")[1], "a step that does not ask for it has it not"
    assert found_in(place.folder) == []
    place.environ["DEPLOY_KEY"] = secrets.token_hex(12)
    assert "taken from the cache" in "".join(place.weft("run", "run.yaml")[1:])


def test_a_failure_and_its_resume(place):
    place.write(steps(f"{SHOWN}; exit 3"))
    code, out, err = place.weft("run", "run.yaml")
    assert code == 1
    assert "it is ***" in err
    del place.environ["DEPLOY_KEY"]
    code, out, err = place.weft("resume", RUN)
    assert "step use needs the secret DEPLOY_KEY" in err
    assert place.states()["use"] == "failed", "it did not begin"
    place.environ["DEPLOY_KEY"] = VALUE
    _, out, err = place.weft("resume", RUN)
    assert VALUE not in out + err
    assert found_in(place.folder) == []


def test_a_run_without_it_does_not_begin(place):
    del place.environ["DEPLOY_KEY"]
    place.write({"first": {"command": "touch began"}} | steps(deps="first"))
    code, _, err = place.weft("run", "run.yaml")
    assert code == 2
    assert "step use needs the secret DEPLOY_KEY" in err
    assert not (place.folder / "began").exists()
    assert place.weft("ls")[1].count("run-") == 0


def test_a_kill_and_a_resume(place):
    place.write(steps(f"{SHOWN}; if [ ! -e go ]; then touch began; sleep 600; fi"))
    process = place.start()
    until(lambda: (place.folder / "began").exists())
    own = Path("/proc")
    shown = [one for one in own.glob("[0-9]*/cmdline") if _holds(one)]
    process.kill()
    process.communicate()
    assert shown == [], "no process list shows it"
    assert found_in(place.folder) == []
    (place.folder / "go").touch()
    code, out, err = place.weft("resume", RUN)
    assert code == 0, err
    assert VALUE not in out + err
    assert found_in(place.folder) == []


def _holds(file: Path) -> bool:
    try:
        return VALUE.encode() in file.read_bytes()
    except OSError:
        return False


def test_a_python_step(place):
    (place.folder / "flow.py").write_text(
        "import os, weft\n"
        "@weft.step(env={'TOKEN': {'secret': 'DEPLOY_KEY'}})\n"
        "def use(out: weft.Output):\n"
        "    out.write_text(str(len(os.environ['TOKEN'])))\n"
        "    raise RuntimeError('it is ' + os.environ['TOKEN'])\n"
        "@weft.pipeline\n"
        "def flow():\n"
        "    use()\n"
    )
    _, out, err = place.weft("run", "flow.py")
    assert "it is ***" in err
    assert VALUE not in out + err
    assert found_in(place.folder) == []


def test_a_dag_that_is_made_while_it_runs(place):
    inner = {"use": {"command": SHOWN, "env": TOKEN, "artifacts": {"output": ["out"]}}}
    place.write(
        {
            "list": {"command": "echo [1,2] > {{items}}", "artifacts": {"output": ["items"]}},
            "each": {
                "deps": "list",
                "artifacts": {"input": {"items": "{{list.items}}"}},
                "loop_argument": "{{items}}",
                "entry_points": inner,
            },
        }
    )
    code, _, err = place.weft("run", "run.yaml")
    assert code == 0, err
    assert found_in(place.folder) == []
    del place.environ["DEPLOY_KEY"]
    assert "needs the secret DEPLOY_KEY" in place.weft("run", "run.yaml")[2]


def test_a_detached_run(place):
    place.write(steps())
    code, _, err = place.weft("run", "-d", "run.yaml")
    assert code == 0, err
    until(lambda: place.states().get("use") == "succeeded")
    assert found_in(place.folder) == []
