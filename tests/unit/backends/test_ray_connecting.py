"""Connections by Ray's client to a head that cannot serve it at once: a fake `ray.init`, behind a port that answers."""

import socket
import threading
from contextlib import suppress
from functools import cache

import pytest

from tests.integration.places import until
from weft.model.clusters import ClusterOptions
from weft.model.errors import CapacityError, ForbiddenError, UsageError, WeftError

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
pytest.importorskip("grpc", reason="Ray's client is not installed")
connecting = pytest.importorskip("weft.backends.ray_connecting")

FAILED = "Initialization failure from server:\nTraceback (most recent call last):\n  File proxier.py, in Datapath\n"
DIED = f"{FAILED}RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err for detailed logs.\n"
GONE = f"{FAILED}psutil.ZombieProcess: PID still exists but it's a zombie (pid=17)\n"
SLOW = f"{FAILED}RuntimeError: Proxy failed to Connect to backend! Check `ray_client_server.err`\n"
ENVIRONMENT = f"{FAILED}RuntimeError: Failed to create runtime_env for Ray client server\n"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.fixture
def address():
    """The address of a port that begins connections of HTTP/2, as the head of a cluster does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with suppress(OSError):  # closed
                while True:
                    with listener.accept()[0] as sock:
                        sock.sendall(SETTINGS)
                        while sock.recv(64):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"ray://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


class Head:
    """Stands for `ray.init`: fails with each of these errors in turn, then connects."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asked = 0

    def init(self, **_):
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)


def connect(monkeypatch, address, head):
    monkeypatch.setattr(ray, "init", head.init)
    connecting.connect(ClusterOptions(address=address))
    connecting.disconnect()


def test_a_head_without_a_process_for_the_client_is_asked_again(monkeypatch, capsys, address):
    head = Head(*map(ConnectionAbortedError, (DIED, GONE, SLOW)))
    connect(monkeypatch, address, head)
    assert head.asked == 4
    told = [line for line in capsys.readouterr().err.splitlines() if "asking again" in line]
    assert told == [f"weft: the Ray cluster at {address} has no process for this client yet; asking again"] * 3


@pytest.mark.parametrize("last", [0, 1, None])
def test_of_several_clusters_on_this_machine_the_one_that_is_taken_is_named(monkeypatch, capsys, address, last):
    there = address.removeprefix("ray://")
    both = [there, f"localhost:{there.rpartition(':')[2]}"]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connecting.services, "find_gcs_addresses", cache(lambda: frozenset(both)))
    noted = "127.0.0.1:1" if last is None else both[last]  # one that has ended is not taken
    monkeypatch.setattr(connecting.services, "find_bootstrap_address", lambda _: noted)
    asked = []
    monkeypatch.setattr(ray, "init", lambda **options: asked.append(options["address"]))
    connecting.connect(ClusterOptions())
    connecting.disconnect()
    taken, other = both if not last else both[::-1]
    assert asked == [taken]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "2 Ray clusters" in line]
    assert f"the one at {taken}." in line
    assert f"RAY_ADDRESS={other}" in line


def test_one_cluster_on_this_machine_is_taken_without_a_word(monkeypatch, capsys, address):
    there = address.removeprefix("ray://")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connecting.services, "find_gcs_addresses", cache(lambda: frozenset([there])))
    monkeypatch.setattr(connecting.services, "find_bootstrap_address", lambda _: there)
    monkeypatch.setattr(ray, "init", lambda **_: None)
    connecting.connect(ClusterOptions())
    connecting.disconnect()
    assert "clusters" not in capsys.readouterr().err


def test_a_machine_without_a_cluster_is_told_at_once(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connecting.services, "find_gcs_addresses", cache(frozenset))
    monkeypatch.setattr(connecting.services, "find_bootstrap_address", lambda _: None)
    with pytest.raises(UsageError, match="there is no Ray cluster on this machine"):
        connecting.connect(ClusterOptions())


@pytest.mark.parametrize(
    ("reason", "said", "step"),
    [
        (DIED, "See ray_client_server_23000.err", "GRPC_ENABLE_FORK_SUPPORT=0"),
        (SLOW, "Proxy failed to Connect", "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S"),
    ],
)
def test_a_head_that_never_has_one_is_given_up_with_the_next_step(monkeypatch, address, reason, said, step):
    head = Head(*[ConnectionAbortedError(reason)] * 9)
    with pytest.raises(CapacityError, match=said) as caught:
        connect(monkeypatch, address, head)
    assert f"asked {head.asked} times" in str(caught.value)
    assert step in caught.value.hint
    assert "RAY_AUTH_MODE" not in caught.value.hint
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("ray client connection timeout"),
        ConnectionAbortedError(ENVIRONMENT),
        RuntimeError("Unauthenticated: InvalidAuthToken"),
    ],
)
def test_other_failures_are_told_at_once(monkeypatch, capsys, address, error):
    head = Head(error)
    with pytest.raises(WeftError):
        connect(monkeypatch, address, head)
    assert head.asked == 1
    assert "asking again" not in capsys.readouterr().err


def test_a_head_that_does_not_let_the_process_in_may_ask_for_a_token(monkeypatch, address):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(UsageError) as caught:
        connect(monkeypatch, address, Head(ConnectionError("ray client connection timeout")))
    assert "RAY_AUTH_MODE=token" in caught.value.hint


@pytest.fixture
def token(monkeypatch, tmp_path):
    """The path of a file for the token of Ray, which is not there yet; this process is to show it."""
    setup = pytest.importorskip("ray._private.authentication.authentication_token_setup", reason="Ray without tokens")
    loader = setup.AuthenticationTokenLoader.instance()
    path = tmp_path / "token"
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    loader.reset_cache()
    yield path
    loader.reset_cache()


def test_a_token_that_is_not_there_is_told_with_its_path(monkeypatch, address, token):
    head = Head()
    with pytest.raises(ForbiddenError, match=f"has no token at {token}"):
        connect(monkeypatch, address, head)
    assert not head.asked


def test_a_token_that_the_head_refuses_may_be_of_another_cluster(monkeypatch, address, token):
    token.write_text("ab" * 32)
    with pytest.raises(UsageError) as caught:
        connect(monkeypatch, address, Head(ConnectionError("Failed to connect to Ray cluster")))
    assert "that of its head" in caught.value.hint
    assert "RAY_AUTH_MODE" not in caught.value.hint


class Machine:
    """Stands for the processes of this machine."""

    def __init__(self, monkeypatch, folder):
        self.folder = folder / "proc"
        monkeypatch.setattr(connecting, "_PROCESSES", self.folder)

    def runs_node(self, number, address, session):
        """Add a node of the cluster at an address, with its files in a folder."""
        words = ["/ray/raylet", f"--raylet_socket_name={session}/sockets/raylet", "-v", f"--gcs-address={address}", ""]
        process = self.folder / str(number)
        process.mkdir(parents=True)
        (process / "cmdline").write_text("\0".join(words))


def test_a_cluster_of_another_user_of_this_machine_is_refused(monkeypatch, tmp_path, address):
    """Ray itself aborts a process that may not call its node."""
    there = address.removeprefix("ray://").replace("127.0.0.1", "localhost")
    machine = Machine(monkeypatch, tmp_path)
    machine.runs_node(17, connecting.services.canonicalize_bootstrap_address_or_die(there), tmp_path / "hidden")
    head = Head()
    with pytest.raises(ForbiddenError, match="as another user") as caught:
        connect(monkeypatch, there, head)
    assert not head.asked
    assert "ray://localhost:10001" in caught.value.hint


def test_of_the_clusters_here_that_of_this_user_is_taken(monkeypatch, capsys, tmp_path, address):
    there = connecting.services.canonicalize_bootstrap_address_or_die(address.removeprefix("ray://"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(connecting.services, "find_gcs_addresses", cache(lambda: frozenset([there, "10.0.0.7:1"])))
    monkeypatch.setattr(connecting.services, "find_bootstrap_address", lambda _: "10.0.0.7:1")
    monkeypatch.setattr(connecting, "_knock", lambda *_: None)
    machine = Machine(monkeypatch, tmp_path)
    (tmp_path / "sockets").mkdir()
    (tmp_path / "sockets" / "raylet").touch()
    machine.runs_node(16, there, tmp_path)
    machine.runs_node(17, "10.0.0.7:1", tmp_path / "hidden")
    asked = []
    monkeypatch.setattr(ray, "init", lambda **options: asked.append(options["address"]))
    connecting.connect(ClusterOptions())
    connecting.disconnect()
    assert asked == [there]
    assert "clusters" not in capsys.readouterr().err


def test_a_cluster_has_its_own_folder_where_that_of_ray_is_another_users(monkeypatch, tmp_path):
    ours = pytest.importorskip("weft.backends.ray")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert ours._own_folder() is None
    monkeypatch.setattr(ours.os, "access", lambda *_: False)
    own = ours._own_folder()
    assert connecting.services.find_bootstrap_address(None) is None
    assert own.is_dir()
    ours._remove(own)
    assert not own.exists()


def test_what_takes_long_is_told(capsys):
    heard = []

    def err():
        heard.append(capsys.readouterr().err)
        return "".join(heard)

    with connecting.told("the Ray cluster starts the relay", 3600.0):
        pass
    with connecting.told("the Ray cluster starts a node", 0.0):
        until(lambda: "weft: the Ray cluster starts a node\n" in err(), "the line")
    assert "relay" not in err()
