"""Sessions on Ray with packages and files of their own.

Ray copies the virtual environment that it runs in, and installs the packages there. To have little to copy, it runs
in a small one that finds the packages of the tests by a file of paths.
"""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
pytest.importorskip("virtualenv", reason="Ray needs it to install requirements")
DEADLINE_S = 180
PROGRAM = """
import os, sys, weft
from tests.integration.ray_clusters import running_cluster
from weft.backends.ray import run_cluster


def used(x):
    import tiny_of_tests
    return tiny_of_tests.VALUE + x, tiny_of_tests.__file__, weft.__version__

def placed(x):
    import helper_of_tests
    return helper_of_tests.VALUE + x, open("data.txt").read()

if __name__ == "__main__":
    with {cluster} as cluster:
        address = cluster.variables["RAY_ADDRESS"] if hasattr(cluster, "variables") else cluster.address
        for options in {options}:
            try:
                options.setdefault("address", address)
                with weft.Session("ray", cluster=weft.ClusterOptions(**options)) as session:
                    graph = weft.Graph("own")
                    done = graph.map({function}, [1]).keep()
                    print("VALUE", session.run(graph)[done][0])
            except weft.UsageError as error:
                print("ERROR", error)
"""


def wheel(folder):
    """Make a package without code but a value."""
    path = folder / "tiny_of_tests-1.0-py3-none-any.whl"
    about = "tiny_of_tests-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("tiny_of_tests.py", "VALUE = 41\n")
        made.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-of-tests\nVersion: 1.0\n")
        made.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{about}/RECORD", "")
    return path


def run(function, options, cwd, cluster="running_cluster(1, environments=True, forks=False)", *, pip=False):
    code = PROGRAM.format(options=options, function=function, cluster=cluster)
    (cwd / "program.py").write_text(code)
    argv = [small(cwd / "small", pip=pip), "program.py"]
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=environ, cwd=cwd)


def small(folder, *, pip):
    """Make a virtual environment that finds what is found here, and return its interpreter."""
    venv.create(folder, with_pip=pip, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    paths = [str(Path(__file__).parents[2]), *[path for path in sys.path if path and os.path.isdir(path)]]
    (packages / "tests.pth").write_text("\n".join(paths) + "\n")
    return str(folder / "bin" / "python")


@pytest.mark.soak
def test_packages_are_installed_for_the_session(tmp_path):
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text(f"# what the tasks need\n{wheel(tmp_path)}\n")
    bad.write_text("--no-index\nthere-is-no-such-package==9\n")
    said = run("used", [{"requirements": str(file)} for file in (good, bad)], tmp_path, pip=True)
    assert "VALUE (42, " in said.stdout, said.stdout + said.stderr
    assert "runtime_resources" in said.stdout  # it is that of the environment
    assert f"ERROR the packages of {bad} cannot be installed on machine" in said.stdout, said.stdout + said.stderr
    assert "No matching distribution found for there-is-no-such-package==9" in said.stdout
    assert f"pip install --dry-run -r {bad}" in said.stdout
    assert "Traceback" not in said.stdout


@pytest.mark.soak
def test_packages_are_installed_at_each_node_of_a_cluster_to_try_with(tmp_path):
    """Nodes that share a folder would remove each other's half of the environment."""
    needs = tmp_path / "needs.txt"
    needs.write_text(f"{wheel(tmp_path)}\n")
    said = run("used", [{"requirements": str(needs)}], tmp_path, "run_cluster(2, 1)", pip=True)
    assert "VALUE (42, " in said.stdout, said.stdout + said.stderr


def test_a_folder_is_copied_to_the_machines(tmp_path):
    place = tmp_path / "program"
    place.mkdir()
    (place / "helper_of_tests.py").write_text("VALUE = 41\n")
    (place / "data.txt").write_text("copied")
    said = run("placed", [{"working_dir": str(place)}, {"working_dir": str(tmp_path / "gone")}], tmp_path)
    assert "VALUE (42, 'copied')" in said.stdout, said.stdout + said.stderr
    assert f"the working folder {tmp_path / 'gone'} is no folder" in said.stdout
