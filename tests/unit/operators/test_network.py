"""The network of a job: ports that nobody else takes, the names in hosts files, and the choice of an isolation."""

import os
import select
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from weft.model.errors import NotFoundError, UsageError
from weft.operators import network, ports
from weft.operators.guardians import close_guardian_pool, expect_commands, open_guardian_pool
from weft.operators.network import (
    Isolation,
    NetworkMember,
    NetworkSpec,
    PortNetwork,
    best_isolation,
    hosts_lines,
    open_network,
    why_no_namespaces,
)
from weft.operators.ports import PORTS, PortTable, bound


def spec(tmp_path, count: int = 2, **more: Any) -> NetworkSpec:
    members = tuple(NetworkMember(name=f"job-worker-{index}", ports=(2222, 3333)) for index in range(count))
    return NetworkSpec(members=members, folder=tmp_path / "network", **more)


@pytest.fixture
def job(tmp_path):
    opened = PortNetwork(spec(tmp_path, 20))
    yield opened
    opened.close()


class TestPorts:
    def test_those_of_twenty_replicas_are_distinct_and_free(self, job):
        found = [job.port(f"job-worker-{index}", port) for index in range(20) for port in (2222, 3333)]
        assert len(set(found)) == 40
        for index in range(20):
            job.place(f"job-worker-{index}")
        for port in found:
            with socket.create_server(("127.0.0.1", port)):
                pass

    def test_a_port_is_kept_until_its_replica_starts(self, job):
        port = job.port("job-worker-3", 2222)
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
        job.place("job-worker-3")
        socket.create_server(("127.0.0.1", port)).close()

    def test_an_unknown_port_stays_as_it_is(self, job):
        assert job.port("job-worker-0", 80) == 80

    def test_all_replicas_are_at_the_loopback_address(self, job):
        assert {job.host("job-worker-0"), job.ip("job-worker-1")} == {"127.0.0.1"}
        with pytest.raises(KeyError):
            job.host("job-worker-20")

    def test_another_process_takes_none_of_them_even_after_the_start(self, job, monkeypatch):
        """The lock on a port holds as long as the job, its socket only until the start."""
        port = job.port("job-worker-0", 2222)
        job.place("job-worker-0")
        program = (
            "import sys; from weft.operators import ports\n"
            "ports.FIRST_PORT = ports.LAST_PORT = int(sys.argv[1])\n"
            "print(ports.PORTS.reserve())"
        )
        taken = subprocess.run([sys.executable, "-c", program, str(port)], capture_output=True, text=True, check=False)
        assert "is free" in taken.stderr
        job.close()
        given = subprocess.run([sys.executable, "-c", program, str(port)], capture_output=True, text=True, check=False)
        assert given.stdout == f"{port}\n"

    def test_a_taken_port_explains_the_failure_of_its_replica(self, job):
        port = job.port("job-worker-0", 2222)  # this process still holds it
        assert job.why_failed("job-worker-0") == (
            f"port {port} of job-worker-0, in place of 2222, is used by another program"
        )
        job.place("job-worker-0")
        assert job.why_failed("job-worker-0") == ""
        with socket.create_server(("127.0.0.1", job.port("job-worker-0", 3333))):
            assert "in place of 3333" in job.why_failed("job-worker-0")

    def test_none_left_is_an_error_and_leaves_nothing_reserved(self, tmp_path, monkeypatch):
        free = next(port for port in range(30_000, 32_000) if all_free(port, port + 1))
        monkeypatch.setattr(ports, "FIRST_PORT", free)
        monkeypatch.setattr(ports, "LAST_PORT", free + 1)
        with pytest.raises(NotFoundError, match="no port between"):
            PortNetwork(spec(tmp_path, 2))
        PortNetwork(spec(tmp_path, 1)).close()

    def test_a_fork_has_no_reservations(self, job):
        pid = os.fork()
        if pid == 0:
            os._exit(len(PORTS._held))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def test_an_unknown_port_is_released_without_an_error(self):
        PortTable().release(1)


def all_free(*candidates: int) -> bool:
    held = [bound(port) for port in candidates]
    for one in held:
        if one is not None:
            one.close()
    return None not in held


def test_a_hosts_file_has_members_and_services(tmp_path):
    more: dict[str, Any] = {"services": {"all": ("job-worker-0", "job-worker-1"), "job-worker-0": ("job-worker-0",)}}
    addresses = {"job-worker-0": "10.83.1.1", "job-worker-1": "10.83.1.2"}
    lines = list(hosts_lines(spec(tmp_path, namespace="kubeflow", domain="local", **more), addresses))
    assert lines[2:] == [
        "10.83.1.1 job-worker-0 job-worker-0.kubeflow job-worker-0.kubeflow.svc job-worker-0.kubeflow.svc.local",
        "10.83.1.2 job-worker-1 job-worker-1.kubeflow job-worker-1.kubeflow.svc job-worker-1.kubeflow.svc.local",
        "10.83.1.1 all all.kubeflow all.kubeflow.svc all.kubeflow.svc.local",
        "10.83.1.2 all all.kubeflow all.kubeflow.svc all.kubeflow.svc.local",
    ]


def test_a_member_of_a_subdomain_has_the_names_in_it_too(tmp_path):
    members = (NetworkMember(name="job-node-0-0", subdomain="job"),)
    spec = NetworkSpec(members=members, folder=tmp_path, namespace="ns", domain="local")
    assert list(hosts_lines(spec, {"job-node-0-0": "10.83.1.1"}))[2:] == [
        "10.83.1.1 job-node-0-0 job-node-0-0.ns job-node-0-0.ns.svc job-node-0-0.ns.svc.local"
        " job-node-0-0.job job-node-0-0.job.ns job-node-0-0.job.ns.svc job-node-0-0.job.ns.svc.local"
    ]


def test_a_member_and_a_service_of_another_namespace_have_its_name(tmp_path):
    more: dict[str, Any] = {"services": {"all": ("b-worker-0",)}, "namespaces": {"b-worker-0": "two", "all": "two"}}
    lines = list(hosts_lines(spec(tmp_path, **more), {"a-worker-0": "10.83.1.1", "b-worker-0": "10.83.1.2"}))
    assert [line.split()[:3] for line in lines[2:]] == [
        ["10.83.1.1", "a-worker-0", "a-worker-0.default"],
        ["10.83.1.2", "b-worker-0", "b-worker-0.two"],
        ["10.83.1.2", "all", "all.two"],
    ]


@pytest.fixture
def untried():
    """The state of a process that has not tried namespaces, before and after a test."""

    def forget() -> None:
        network.why_no_namespaces.cache_clear()
        if (kept := network._take_kept()) is not None:
            kept.end()

    forget()
    yield
    forget()


class TestChoice:
    @pytest.fixture(autouse=True)
    def again(self):
        best_isolation.cache_clear()
        yield
        best_isolation.cache_clear()

    def test_without_namespaces_it_is_ports_and_the_reason(self, tmp_path, monkeypatch):
        why = "this system forbids namespaces (Operation not permitted)"
        monkeypatch.setattr(network, "why_no_namespaces", lambda: why)
        assert best_isolation() == (Isolation.PORTS, f"isolation namespace cannot be used: {why}")
        opened = open_network(spec(tmp_path))
        assert opened.isolation is Isolation.PORTS
        opened.close()
        with pytest.raises(NotFoundError, match="forbids namespaces"):
            open_network(spec(tmp_path), Isolation.NAMESPACE)

    def test_with_namespaces_it_is_they(self, monkeypatch):
        monkeypatch.setattr(network, "why_no_namespaces", lambda: "")
        assert best_isolation()[0] is Isolation.NAMESPACE

    def test_other_systems_have_none(self, monkeypatch):
        monkeypatch.setattr(sys, "platform", "darwin")
        network.why_no_namespaces.cache_clear()
        try:
            assert network.why_no_namespaces() == "only Linux has namespaces"
        finally:
            network.why_no_namespaces.cache_clear()

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems have no namespaces")
    def test_a_trial_that_was_begun_gives_the_answer(self, untried, monkeypatch):
        started: list[tuple[str, ...]] = []
        start = network.SandboxProcess

        def noted(*words: str) -> Any:
            started.append(words)
            return start(*words)

        monkeypatch.setattr(network, "SandboxProcess", noted)
        network.begin_probe()
        network.begin_probe()
        told = network.why_no_namespaces()
        network.begin_probe()
        assert started == [("probe",)]
        assert told == network.why_no_namespaces()

    @pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces() or "namespaces work")
    def test_the_network_of_a_trial_that_was_begun_is_the_first_that_is_opened(self, untried, tmp_path, monkeypatch):
        started: list[tuple[str, network.SandboxProcess]] = []
        start = network.SandboxProcess

        def noted(*words: str) -> Any:
            started.append((words[0], start(*words)))
            return started[-1][1]

        monkeypatch.setattr(network, "SandboxProcess", noted)
        network.begin_probe()
        first, second = (open_network(spec(tmp_path / name), Isolation.NAMESPACE) for name in ("a", "b"))
        try:
            assert [action for action, _ in started] == ["probe", "hold"]
            sandboxes = [one.place("job-worker-0").sandbox for one in (first, second)]
            assert len({os.stat(one.network).st_ino for one in sandboxes if one is not None}) == 2
        finally:
            first.close()
            second.close()
        assert [process.has_ended() for _, process in started] == [True, True]

    @pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces() or "namespaces work")
    @pytest.mark.parametrize("killed", [False, True])
    def test_the_process_of_a_trial_ends_when_no_job_uses_its_network(self, untried, killed, tmp_path, monkeypatch):
        network.begin_probe()
        assert network.why_no_namespaces() == ""
        (kept,) = network._kept
        if killed:
            os.kill(kept.pid, signal.SIGKILL)
            assert select.select([kept._control], [], [], 60)[0]
            open_network(spec(tmp_path), Isolation.NAMESPACE).close()
        else:
            open_network(spec(tmp_path), Isolation.PORTS).close()
            assert kept.has_ended()
        assert not network._kept

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems have no namespaces")
    def test_a_trial_starts_no_interpreter_beside_the_guardian_pool(self, untried, monkeypatch):
        begun: list[list[str]] = []
        popen = subprocess.Popen

        def noted(argv: list[str], **more: Any) -> subprocess.Popen[bytes]:
            begun.append(argv)
            return popen(argv, **more)

        close_guardian_pool()
        monkeypatch.setattr(subprocess, "Popen", noted)
        network.begin_probe()
        expect_commands(2)
        open_guardian_pool()
        network.why_no_namespaces()
        assert len(begun) == 1

    def test_too_many_members_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(network, "FIRST_ADDRESS", network.SUBNET_ADDRESSES - 2)
        with pytest.raises(UsageError, match="at most 1 members"):
            open_network(spec(tmp_path), Isolation.NAMESPACE)
