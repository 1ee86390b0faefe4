"""Who is reached by which name in a file with several namespaces."""

from __future__ import annotations

from weft.frontends.training.job_addresses import JobAddresses
from weft.frontends.training.reading import read_text

JOB = """\
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  jaxReplicaSpecs:
    Worker:
      template:
        metadata: {{labels: {{app: shared}}}}
        spec: {{containers: [{{name: jax, image: i, command: ["true"]}}]}}
---
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: all, namespace: two}
spec: {selector: {app: shared}, ports: [{port: 80}]}
"""


def test_each_has_its_namespace_and_a_service_selects_in_its_own():
    files = read_text(JOB.format(name="a", namespace="one") + JOB.format(name="b", namespace="two") + SERVICE, "f.yaml")
    addresses = JobAddresses(files.jobs, files)
    assert addresses.namespaces() == {"all": "two", "a-worker-0": "one", "b-worker-0": "two"}
    assert addresses.services() == {"all": ("b-worker-0",)}
