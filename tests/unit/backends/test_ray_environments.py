"""The options of a Ray cluster: files, addresses, and what is said about a failed installation."""

import pytest

import weft
from weft import ClusterOptions
from weft.admin.opened import options_of
from weft.admin.settings import Settings, load_settings
from weft.backends.ray_environments import failure, folder, packages
from weft.model.errors import CapacityError, UsageError

FAILED = """Failed to set up runtime environment.
Failed to create runtime env for request {"pip": ["nothing==9"]}. err: Traceback (most recent call last):
  File "pip.py", line 290, in _run
ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd[3] failed with the following details.
Command '['python', '-m', 'pip', 'install']' returned non-zero exit status 1.
Last 50 lines of stdout:
    Collecting nothing
    ERROR: Could not find a version that satisfies the requirement nothing==9 (from versions: none)
    ERROR: No matching distribution found for nothing==9
"""


def test_the_lines_of_a_requirements_file(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("# a comment\n\n--prefer-binary\ntiny==1.0  # pinned\nother>=2\n")
    wanted = ["--prefer-binary", "tiny==1.0  # pinned", "other>=2"]
    assert packages(ClusterOptions(requirements=file)) == {"pip": {"packages": wanted}}
    assert packages(ClusterOptions()) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tiny\n-r other.txt\n", r"requirements.txt:2: -r other.txt refers to a file of this machine"),
        ("--constraint=pins.txt\n", r"requirements.txt:1: --constraint=pins.txt refers to a file"),
        ("-e .\n", r"requirements.txt:1: -e . refers to a file"),
        ("# nothing\n\n", "has no requirement"),
    ],
)
def test_a_wrong_requirements_file(tmp_path, text, said):
    file = tmp_path / "requirements.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        packages(ClusterOptions(requirements=file))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"the requirements file .*gone.txt cannot be read: No such file"):
        packages(ClusterOptions(requirements=tmp_path / "gone.txt"))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(UsageError, match="UTF-8"):
        packages(ClusterOptions(requirements=tmp_path / "latin.txt"))
    with pytest.raises(UsageError, match=r"the working folder .*gone is no folder"):
        folder(ClusterOptions(working_dir=tmp_path / "gone"))
    assert folder(ClusterOptions(working_dir=tmp_path)) == {"working_dir": str(tmp_path)}


def test_a_failed_installation_shows_the_lines_of_pip_that_matter():
    error = failure(ClusterOptions(requirements="requirements.txt"), "node-7", FAILED)
    assert str(error).startswith("the packages of requirements.txt cannot be installed on machine node-7:\n")
    assert "No matching distribution found for nothing==9" in str(error)
    assert "Traceback" not in str(error)
    assert "Collecting" not in str(error)


def test_the_file_is_not_at_fault_where_ray_could_not_copy_the_environment_before():
    said = "Command '['python', '_clonevirtualenv.py', '/venv', '/there']' returned non-zero exit status 2.\n"
    said += "Last 50 lines of stdout:\n    _clonevirtualenv.py: error: dest dir '/there' exists\n"
    error = failure(ClusterOptions(requirements="r.txt"), "node-7", said)
    assert isinstance(error, CapacityError)
    assert "dest dir '/there' exists" in str(error)
    assert "Correct" not in error.hint
    assert "runtime_env_setup" in error.hint


def test_an_output_without_errors_is_shown_at_its_end():
    error = failure(
        ClusterOptions(requirements="r.txt"), "node-7", "Last 50 lines of stdout:\n    killed by signal 9\n"
    )
    assert "killed by signal 9" in str(error)


def test_a_machine_without_virtualenv_is_named():
    error = failure(ClusterOptions(requirements="r.txt"), "node-7", "RuntimeError: Please install virtualenv `...`")
    assert "machine node-7 lacks the package virtualenv" in str(error)
    assert "pip install virtualenv" in error.hint


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://10.0.0.7", "neither host:port nor auto nor ray://host:port"),
        ("10.0.0.7", "neither host:port nor auto"),
        ("http://10.0.0.7:8265", "neither host:port nor auto"),
        ("local", "neither host:port nor auto"),
    ],
)
def test_addresses_that_give_no_cluster(address, said):
    pytest.importorskip("ray", reason="Ray has no wheel for this Python")
    with pytest.raises(UsageError, match=said):
        weft.Session("ray", cluster=ClusterOptions(address=address))


def test_the_address_of_the_environment_is_named_as_such(monkeypatch):
    pytest.importorskip("ray", reason="Ray has no wheel for this Python")
    monkeypatch.setenv("RAY_ADDRESS", "ray://10.0.0.7")
    with pytest.raises(UsageError, match="RAY_ADDRESS is 'ray://"):
        weft.Session("ray")


@pytest.mark.parametrize(
    ("theirs", "said", "step"),
    [
        ("    Ray: 2.1.0\n    Python: 3.11.9\n", "the Ray cluster has Ray 2.1.0", "pip install 'ray[client]==2.1.0'."),
        (
            "    Ray: 2.60.0\n    Python: 3.12.1\n",
            "and Python 3.12.1, and this process",
            "Run the program with Python 3.12.",
        ),
        (
            "    Ray: 2.60.0\n    Python: 3.11.1\n",
            "and Python 3.11.1, and this process",
            "Run the program with Python 3.11.1.",
        ),
        (
            "    Ray: 2.1.0\n    Python: 3.12.1\n",
            "this process has Ray 2.60.0 and Python 3.11.9",
            "Install its Ray here: pip install 'ray[client]==2.1.0', and run the program with Python 3.12.",
        ),
    ],
)
def test_other_versions_at_the_cluster_are_named_with_the_next_step(theirs, said, step):
    pytest.importorskip("ray", reason="Ray has no wheel for this Python")
    from weft.backends.ray_connecting import other_versions

    ours = "This process on Ray Client was started with:\n    Ray: 2.60.0\n    Python: 3.11.9\n"
    error = other_versions(f"Version mismatch: The cluster was started with:\n{theirs}{ours}")
    assert said in str(error)
    assert error.hint.endswith(step)
    assert "\n" not in error.hint
    assert "another reason" in str(other_versions("another reason"))


def test_only_ray_takes_the_options():
    with pytest.raises(UsageError, match="cluster is for the backend 'ray', not 'threads'"):
        weft.Session(cluster=ClusterOptions(address="auto"))
    with pytest.raises(UsageError, match="ClusterOptions"):
        weft.Session("ray", cluster="auto")  # type: ignore[arg-type]


def test_settings_give_the_options(tmp_path):
    flags = {"cluster": "10.0.0.7:6379", "env": tmp_path / "r.txt", "working_dir": tmp_path}
    found = load_settings(flags, start=tmp_path, environ={}, user_file=tmp_path / "none").cluster_options()
    assert found == ClusterOptions(address="10.0.0.7:6379", requirements=tmp_path / "r.txt", working_dir=tmp_path)
    assert Settings().cluster_options() == ClusterOptions()


def test_a_resumed_run_keeps_its_options_unless_a_flag_overrides_one(tmp_path):
    kept = {"session": {"cluster": {"address": "auto", "requirements": "/r.txt", "working_dir": None}}}
    environ = {"WEFT_CLUSTER": "10.0.0.7:6379"}
    settings = load_settings({}, start=tmp_path, environ=environ, user_file=tmp_path / "none")
    assert options_of(kept, settings)["cluster"] == ClusterOptions(address="auto", requirements="/r.txt")
    flagged = load_settings({"cluster": "other:1"}, start=tmp_path, environ={}, user_file=tmp_path / "none")
    assert options_of(kept, flagged)["cluster"] == ClusterOptions(address="other:1", requirements="/r.txt")
