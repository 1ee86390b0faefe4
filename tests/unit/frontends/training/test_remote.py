"""A replica at a machine of a cluster: its ports, and what it needs of the machine."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins

from weft.frontends.training.addresses import ReplicaAddress
from weft.frontends.training.answers import RemoteDescription
from weft.frontends.training.remote import RemoteEndpoints, RemoteNetwork, reserve, run_remotely
from weft.frontends.training.schema import JobFile, PodTemplate, ReplicaSpec, TrainingJob
from weft.model.errors import NotFoundError
from weft.operators import ports
from weft.operators.ports import PortTable


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Return what makes the ports of a process of this machine."""
    monkeypatch.setattr(ports, "temporary_folder", lambda: tmp_path)

    opened = []

    def made():
        opened.append(PortTable())
        monkeypatch.setattr("weft.frontends.training.remote.PORTS", opened[-1])
        return opened[-1]

    yield made
    for table in opened:
        for port in list(table._held):
            table.release(port)
        os.close(table._file)


def test_a_replica_gets_the_ports_of_its_last_start_again(tables):
    first = tables()
    before = reserve([2222, 8080, 2222], {})
    assert len(set(before.values())) == 2
    for port in before.values():
        first.release(port)
    tables()
    assert reserve([2222, 8080], before) == before


def test_a_port_that_another_one_has_taken_meanwhile_is_replaced(tables):
    table = tables()
    taken = table.reserve()
    assert reserve([2222], {2222: taken})[2222] != taken


def test_replicas_that_have_not_begun_have_their_names():
    job = TrainingJob(kind="TFJob", name="j", replicas={"Worker": ReplicaSpec(template=PodTemplate(), replicas=2)})
    network = RemoteNetwork("j-worker-0", ReplicaAddress("10.0.0.7", {2222: 20_001}), {2222: 20_001})
    known = RemoteEndpoints(job, network)
    assert (known.host("Worker", 0), known.port("Worker", 0, 2222)) == ("10.0.0.7", 20_001)
    assert (known.host("Worker", 1), known.name("Worker", 1), known.ip("Worker", 1)) == (
        "j-worker-1.default.svc",
        "j-worker-1",
        "",
    )
    assert known.port("Worker", 1, 2222) == 2222


def test_a_machine_without_the_folder_of_the_run_is_told(tmp_path):
    gone = str(tmp_path / "gone")
    told = RemoteDescription(run="run-000001", folder=gone, base=gone, state=gone, files=JobFile(jobs=()))
    ctx: Any = SimpleNamespace(ask_run=lambda *question: to_builtins(told), params={}, vertex="worker", index=0)
    with pytest.raises(NotFoundError, match=f"does not have the folder of the run, {gone}"):
        run_remotely(ctx, {})
