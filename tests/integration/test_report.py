"""`weft report` of real runs: of a pipeline, a Python graph, training jobs, and one that has not ended."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.fixtures.pages import CheckedPage
from tests.integration.places import RUN, Project, until
from weft import gather

EXAMPLE = Path(__file__).parents[2] / "examples" / "breast_cancer"


@pytest.fixture
def place(tmp_path) -> Project:
    return Project(tmp_path / "project")


def page_of(place: Project, run: str = RUN) -> CheckedPage:
    code, told, err = place.weft("report", run, "-o", "page.html")
    assert (code, told) == (0, "page.html\n"), err
    return CheckedPage((place.folder / "page.html").read_text())


def test_the_example_and_its_run_from_the_cache(place):
    shutil.copytree(EXAMPLE, place.folder, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
    for _ in range(2):
        code, _, err = place.weft("run", "run.yaml", "-p", "train.epochs=20")
        assert code == 0, err
    first = page_of(place)
    for wanted in ("breast_cancer", "accuracy", "roc_auc", "train.epochs", "no result of it is kept", "Environment"):
        assert wanted in first.text, wanted
    assert weft.__version__ in first.text
    files = [place.folder / link for link in first.links if not link.startswith("#")]
    assert len(files) == 5
    assert all(file.is_file() for file in files), "outputs are linked from where the page lies"
    assert first.tags["svg"] >= 5
    second = page_of(place, "@last")
    assert second.text.count("taken from the cache: result of run-000001") == 3
    for name in ("graph.svg", "graph.mmd"):
        code, told, err = place.weft("report", "1", "--output", name, "--json")
        assert code == 0, err
        assert json.loads(told) == {"schema": "weft.report/1", "run": RUN, "path": str(place.folder / name)}
    assert 'v0["prepare<br/>succeeded"]:::succeeded' in (place.folder / "graph.mmd").read_text()
    assert (place.folder / "graph.svg").read_text().startswith("<svg")


def test_names_of_files_that_are_refused(place):
    place.write({"a": {"command": "true"}})
    assert place.weft("run", "run.yaml")[0] == 0
    code, told, err = place.weft("report", RUN, "-o", "page.pdf")
    assert (code, told) == (2, "")
    assert all(form in err for form in ("page.pdf", ".html", ".svg", ".mmd"))
    code, _, err = place.weft("report", RUN, "-o", "none/page.html")
    assert code == 4
    assert "there is no folder" in err
    code, _, err = place.weft("report", "run-000009")
    assert code == 4
    assert place.weft("report", RUN)[1] == f"{RUN}.html\n"


def test_a_failed_run_whose_texts_are_hostile(place):
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>"
    steps: dict[str, Any] = {
        "ok": {"command": f"echo '{evil}'", "parameters": {"p": evil}},
        "loop": {"command": f"echo '{evil}'; exit $PF_LOOP_ARGUMENT", "loop_argument": [0, 3, 0], "deps": "ok"},
    }
    place.write(steps)
    assert place.weft("run", "run.yaml")[0] != 0
    page = page_of(place)
    assert page.text.count(evil) >= 2
    assert "loop-1" in page.text
    assert "ended with exit code 3." in page.text


def test_a_run_that_has_not_ended(place):
    place.write(
        {"long": {"command": "until test -e go; do sleep 0.02; done"}, "next": {"command": "true", "deps": "long"}}
    )
    process = place.start()
    try:
        until(lambda: place.folder_of().exists() and place.states().get("long") == "running")
        page = page_of(place)
        assert "The run has not ended" in page.text
        assert "waits for the end of long" in page.text
        (place.folder / "go").touch()
        assert process.wait(180) == 0
        assert "The run has not ended" not in page_of(place).text
    finally:
        process.kill()
        process.communicate()


def double(value: int) -> int:
    return 2 * value


def total(values: list[int]) -> int:
    return sum(values)


def broken(value: int) -> int:
    raise ValueError(f"<b>no</b> {value}")


def test_a_python_graph(place):
    graph = weft.Graph("numbers")
    doubled = graph.map(double, range(50), name="doubled")
    graph.add(total, gather(doubled), name="total")
    with weft.Session(backend="threads", workers=2, durable=place.root.path) as session:
        session.run(graph, progress=False)
        bad = weft.Graph("bad")
        bad.add(broken, bad.add(double, params={"value": 2}, name="first"), name="broken")
        with pytest.raises(weft.WeftError):
            session.run(bad, progress=False)
    page = page_of(place)
    assert "busy in tasks" in page.text
    assert "50 tasks" in page.text
    failed = page_of(place, "@last")
    assert "<b>no</b> 4" in failed.text
    assert "broken" in failed.text


def test_training_jobs(place):
    template = {
        "spec": {"containers": [{"name": "tensorflow", "image": "x", "command": ["sh", "-c", "echo hello; exit 3"]}]}
    }
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "Never", "template": template}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "trial"}, "spec": spec}
    (place.folder / "job.yaml").write_text(json.dumps(job))
    assert place.weft("run", "job.yaml")[0] != 0
    page = page_of(place)
    for wanted in ("TFJob trial Failed", "Conditions of trial", "worker-0", "worker-1", "hello", "Replicas"):
        assert wanted in page.text, wanted


@pytest.mark.slow
def test_ten_thousand_steps_stay_small(place):
    graph = weft.Graph("many")
    for group in range(1000):
        parts = [graph.add(double, params={"value": part}, name=f"load-{group}-{part}") for part in range(9)]
        graph.add(len_of, *parts, name=f"sum-{group}")
    with weft.Session(backend="threads", workers=2, durable=place.root.path) as session:
        session.run(graph, progress=False)
    page = page_of(place)
    assert os.path.getsize(place.folder / "page.html") < 3 << 20
    assert "10,000 vertices, drawn as 2 groups" in page.text


def len_of(*values: int) -> int:
    return len(values)
