"""What a new user types in the first minutes: install, run, list, and the usual slips."""

import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.integration.places import DEADLINE_S, RUN, Project
from tests.integration.test_demo import ROOT, blocks

FLOW = {"say": {"command": "echo hello"}}


@pytest.fixture
def place(tmp_path):
    place = Project(tmp_path / "project")
    below = place.folder / "deep" / "flows"
    below.mkdir(parents=True)
    place.write(FLOW)
    place.file = place.file.rename(below / "flow.yaml")
    return place


def test_runs_of_files_in_folders_below_are_found(place):
    assert place.weft("run", "deep/flows/flow.yaml")[0] == 0
    _, _, err = place.weft("ls")
    assert "for the runs of another folder: weft ls -C deep/flows" in err
    assert RUN in place.weft("ls", "-C", "deep/flows")[1]
    for name in (RUN, "@last"):
        assert "Those of another folder: -C deep/flows" in place.weft("show", name)[2]
    assert place.weft("ls", "-q")[2] == ""


def test_a_project_file_gathers_the_runs_of_all_its_folders(place):
    (place.folder / "weft.toml").touch()
    place.weft("run", "deep/flows/flow.yaml")
    _, out, err = place.weft("ls")
    assert (RUN in out, err) == (True, "")


def test_the_module_is_the_command(place):
    answer = subprocess.run(
        [sys.executable, "-m", "weft", "run", "-q", "deep/flows/flow.yaml"],
        cwd=place.folder,
        env=place.env(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (answer.returncode, answer.stdout) == (0, f"{RUN}\n"), answer.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("run", "flow.yaml", "-C", "deep/flows"), "so write weft run deep/flows/flow.yaml"),
        (("deep/flows/flow.yaml",), "Did you mean weft run deep/flows/flow.yaml?"),
        (("run", "deep/flows/folw.yml"), "Did you mean deep/flows/flow.yaml?"),
        (("run", "deep/flows"), "In that folder: flow.yaml"),
        (("run", "--no-cahce", "deep/flows/flow.yaml"), "Did you mean --no-cache?"),
        (("run", "--verbose", "deep/flows/flow.yaml"), "There are: --backend"),
    ],
)
def test_a_slip_gets_the_line_to_type(place, words, hint):
    code, _, err = place.weft(*words)
    assert code != 0
    assert hint in err


@pytest.mark.slow
def test_it_installs_as_the_first_page_says(tmp_path):
    """A wheel of this checkout, in a fresh environment that finds the libraries of this one."""
    made = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path / "dist"), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    if made.returncode:
        pytest.skip(f"no wheel can be built here: {made.stderr[-200:]}")
    (wheel,) = (tmp_path / "dist").glob("weft-*.whl")
    venv.create(tmp_path / ".venv")
    own = tmp_path / ".venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(own / "python")]
    install = [*pip, "install", "-q", "--no-compile", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=DEADLINE_S)
    (packages,) = (tmp_path / ".venv").glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    (tmp_path / "hello.yaml").write_text(blocks("README.md", "yaml")[0])
    env = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "PYTHON"))}
    for words in (["weft", "run", "hello.yaml"], ["python", "-m", "weft", "logs", "@last"], ["weft", "errors"]):
        answer = subprocess.run(
            [str(own / words[0]), *words[1:]], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert answer.returncode == 0, answer.stderr
    assert shutil.which("weft", path=str(own))
    where = subprocess.run(
        [str(own / "python"), "-c", "import weft; print(weft.__file__)"], env=env, capture_output=True, text=True
    )
    assert Path(where.stdout.strip()).is_relative_to(packages), "it is the wheel that ran"


NESTED = """
name: nest
entry_points:
  gen: {command: "echo '[1, 2]' > {{o}}", artifacts: {output: [o]}}
  outer:
    loop_argument: "{{l}}"
    deps: gen
    artifacts: {input: {l: "{{gen.o}}"}}
    entry_points:
      x: {command: "echo x"}
  top:
    entry_points:
      mid:
        entry_points:
          y: {command: "echo y"}
  each: {command: "echo {{PF_LOOP_ARGUMENT}}", loop_argument: [1, 2]}
"""


@pytest.mark.parametrize(
    ("step", "hint"),
    [
        ("outer.x", "outer loops over an artifact: its items are known only in the run. Name it as a whole: outer"),
        ("outer-0", "Name it as a whole: outer"),
        ("each-1", "The items of each cannot be chosen one by one. Name it as a whole: each"),
        ("y", "Did you mean top.mid.y?"),
        ("mid", "Did you mean top.mid?"),
        ("top.mid.z", "Did you mean top.mid.y?"),
    ],
)
def test_a_name_of_no_step_gets_the_one_that_works(place, step, hint):
    (place.folder / "nest.yaml").write_text(NESTED)
    code, _, err = place.weft("plan", "nest.yaml", "--only", step)
    assert (code, hint in err) == (2, True), err


UNMADE = """name: unmade
entry_points:
  each:
    command: if [ {{PF_LOOP_ARGUMENT}} != 2 ]; then echo {{PF_LOOP_ARGUMENT}} > {{o}}; fi
    loop_argument: [1, 2, 3]
    artifacts: {output: [o]}
"""


def test_an_item_without_its_output_has_a_warning_in_its_row_and_in_that_of_the_loop(place):
    (place.folder / "unmade.yaml").write_text(UNMADE)
    _, out, err = place.weft("run", "unmade.yaml")
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip().startswith("each")}
    assert rows["each"].rstrip().endswith("3 succeeded; warning: each-1: its output o was not made"), out + err
    assert rows["each-1"].rstrip().endswith(" warning: its output o was not made"), out
    assert "warning" not in rows["each-0"] + rows["each-2"]
    assert rows["each-1"] in place.weft("show", "@last")[1]


def test_nothing_to_prune_is_told_with_its_reason(place):
    assert "nothing to delete: --keep 5 keeps them all\n" in place.weft("prune", "--keep", "5")[2]
    assert "nothing to delete: there are no ended runs" in place.weft("prune", "--keep", "0")[2]
    assert "nothing to delete: none ended more than 3d ago\n" in place.weft("prune", "--older-than", "3d")[2]
