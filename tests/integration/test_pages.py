"""The Python on each page runs, top to bottom, as one program."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.integration.ray_clusters import running_cluster

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300.0


def blocks(page: Path) -> list[str]:
    """The programs of a page; `test_demo` runs that of the first page that needs a cluster."""
    found = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [program for program in found if page.name != "README.md" or '"ray"' not in program]


PAGES = {page.name: page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if blocks(page)}


ON_A_CLUSTER = {"clusters.md"}
"""Pages with programs that need a Ray cluster."""


@pytest.fixture(scope="module")
def cluster():
    """The address of a Ray cluster on this machine."""
    pytest.importorskip("ray", reason="Ray has no wheel for this Python")
    with running_cluster(2) as found:
        yield found.address


def test_the_pages_have_programs():
    assert {"README.md", "engine.md", "graph.md", "managers.md", "remote.md", "tensors.md"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_all_blocks_of_a_page_run_in_one_go(tmp_path, name, request):
    if name == "tensors.md":
        pytest.importorskip("sparse", reason="the package sparse is not installed: pip install 'weft[sparse]'")
        pytest.importorskip("xarray")
        pytest.importorskip("zarr")
    if name == "ibis.md":
        pytest.importorskip("ibis")
        pytest.importorskip("pyarrow_hotfix")
        if not entry_points(group="ibis.backends", name="weft"):
            pytest.skip("this installation of Weft is older than its entry point for Ibis")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "book.py").write_text("\n".join(blocks(PAGES[name])))  # one page imports this module by name
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    if name in ON_A_CLUSTER:
        env["RAY_ADDRESS"] = request.getfixturevalue("cluster")
    answer = subprocess.run(
        [sys.executable, "book.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert answer.returncode == 0, answer.stderr
