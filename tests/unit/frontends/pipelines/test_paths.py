"""Golden vectors of the artifact layout, the environment of a step, and the shell prefix."""

import pytest

from weft.frontends.pipelines import paths


@pytest.mark.parametrize(
    ("pipeline", "step", "digest"),
    [
        ("artifact_example", "preprocess", "037175363b6ef656300d85b2821919a1"),
        ("artifact_example", "train", "2b2bc734db42989f06b47d4a59b3d6d4"),
    ],
)
def test_folder_of_a_step(pipeline, step, digest):
    assert paths.step_folder(pipeline, step) == f"{step}-0-{digest}"


def test_artifact_path():
    assert paths.artifact_path("/mnt", "run-000075", "artifact_example", "preprocess", "train_data") == (
        "/mnt/.pipeline/run-000075/artifact_example/preprocess-0-037175363b6ef656300d85b2821919a1/train_data"
    )


def test_root_folder_gives_no_double_slash():
    assert paths.artifact_path("/", "r", "p", "s", "a").startswith("/.pipeline/r/p/s-0-")


def test_later_items_of_a_loop_carry_their_number():
    assert paths.runtime_name("p", "s") == "p.entry_points.s"
    assert paths.runtime_name("p", "s", 2) == "p.entry_points.s-2"
    assert paths.step_folder("p", "s", 2).startswith("s-2-")
    assert paths.step_folder("p", "s", 2)[4:] != paths.step_folder("p", "s", 1)[4:]


def test_environment_lets_the_system_win():
    env = paths.environment(
        {"MINE": "1", "PF_RUN_ID": "faked"},
        run_id="run-000001",
        step="train",
        user="ada",
        inputs={"data": "/in"},
        outputs={"Model": "/out"},
        cwd="/work",
    )
    assert env == {
        "MINE": "1",
        "PF_RUN_ID": "run-000001",
        "PF_STEP_NAME": "train",
        "PF_USER_NAME": "ada",
        "PF_LOOP_ARGUMENT": "",
        "PF_INPUT_ARTIFACT_DATA": "/in",
        "PF_OUTPUT_ARTIFACT_MODEL": "/out",
        "PF_WORK_DIR": "/work",
    }


@pytest.mark.parametrize(
    ("command", "body"),
    [
        ("echo hi", "echo hi"),
        ("sh -c echo hi", "echo hi"),
        ("bash -c  ls; ls", "ls; ls"),
        ("  bash   -c\tls", "ls"),
        ("bash -c", ""),
        ("bash -cx ls", "bash -cx ls"),
        ("bash -x run.sh", "bash -x run.sh"),
        ("bash -c 'ls; ls'", "bash -c 'ls; ls'"),
        ('sh -c "ls"', 'sh -c "ls"'),
        ("zsh -c ls", "zsh -c ls"),
        ("", ""),
    ],
)
def test_shell_body(command, body):
    assert paths.shell_body(command) == body
