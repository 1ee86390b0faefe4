"""The cheap look whether a file has training jobs."""

import pytest

from weft.frontends.training.sniffing import has_jobs

JOB = "apiVersion: kubeflow.org/v1"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.yaml", "apiVersion: kubeflow.org/v1\nkind: TFJob", True),
        ("a.yml", "# remark\n---\n'apiVersion': \"trainer.kubeflow.org/v1alpha1\"", True),
        ("a.json", '{"kind": "TFJob",\n "apiVersion": "kubeflow.org/v1"}', True),
        ("a.yaml", "kind: PersistentVolumeClaim\napiVersion: v1", True),
        ("a.yaml", "name: x\nentry_points:\n  a:\n    env: {apiVersion: v1}\n    command: 'apiVersion: v1'", False),
        (
            "a.yaml",
            f"name: x\nentry_points:\n  a:\n    command: |\n      kubectl apply -f - <<X\n      {JOB}\n      X",
            False,
        ),
        ("a.yaml", f"name: x\nentry_points:\n  a: {{command: 'x\n\n    {JOB}'}}\n", False),
        ("a.json", '{"name": "x", "entry_points": {"a": {"env": {\n"apiVersion": "kubeflow.org/v1"}}}}', False),
        ("a.yaml", f"kind: ConfigMap\n{JOB}\ndata:\n  run.yaml: |\n    name: x\n    entry_points: {{}}", True),
        ("a.yaml", f"kind: List\nitems:\n  - {JOB}", True),
        ("a.py", "apiVersion: kubeflow.org/v1", False),
        ("a.yaml", "", False),
    ],
)
def test_files(name, text, found, tmp_path):
    (tmp_path / name).write_text(text)
    assert has_jobs(str(tmp_path / name)) is found
    assert has_jobs(str(tmp_path)) is found


@pytest.mark.parametrize("path", ["-", "missing.yaml", "missing"])
def test_what_is_no_file(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not has_jobs(path)
