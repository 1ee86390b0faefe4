"""Connects a process with a Ray cluster: inside of its network, or outside of it by Ray's client."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray
from ray._private import services

from weft.backends.ray_environments import folder
from weft.backends.ray_prints import print_client_to_stderr, print_to_stderr
from weft.model.errors import CapacityError, ForbiddenError, MissingExtraError, UsageError
from weft.store.handshake import receive_exactly
from weft.store.tls import TlsFiles, check_files, check_grpc

if TYPE_CHECKING:
    from weft.model.clusters import ClusterOptions

AUTH_MODE: Final = "RAY_AUTH_MODE"
"""The variable by which processes of Ray show a token, and ask for it: `token`."""
SCHEME: Final = "ray://"
"""The beginning of the addresses of Ray's client."""
START_S: Final = 300.0
"""Seconds within which an actor must answer: a busy machine needs a minute for a process of Ray."""
QUIET_S: Final = 30.0
"""Seconds until it is told that an actor is waited for."""
CONNECT_S: Final = 5.0
"""Seconds within which the head of a cluster must accept a connection."""
_SETTINGS: Final = 4
"""The type of the frame with which each end of a connection of HTTP/2 begins."""
_EMPTY_SETTINGS: Final = bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])
_MOMENT_S: Final = 1.0
_PROCESSES = Path("/proc")
_TRIES: Final = 4
"""How often the head of a cluster is asked for a process that serves this client."""
_UNSERVED: Final = re.compile(
    r"(?P<slow>Proxy failed to Connect to backend)|Starting Ray client server failed|psutil\.(Zombie|NoSuch)Process"
)
"""What the head says when that process does not answer in its time, or has died at once: in its fork handlers, gRPC
crashes some of the processes that a busy head starts. Ray looks at it with psutil."""
_SLOW_HEAD: Final = "A busy head needs more time: set RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S for `ray start` there."
_CRASHES: Final = (
    "Set GRPC_ENABLE_FORK_SUPPORT=0 for `ray start` there, without which gRPC crashes some processes at their start; "
    "the log has other reasons."
)
LACKS: Final = re.compile(r"No module named '([\w.]+)'")
_VERSIONS: Final = re.compile(r"started with:\s+Ray: (\S+)\s+Python: (\S+)")
_connecting = threading.Lock()
_connections = 0
"""How many calls of `connect` have connected this process, or found it connected by one."""


def tls_files(environ: Mapping[str, str]) -> TlsFiles | None:
    """Return the files by which Ray encrypts its connections in a process with this environment, None if it does not.

    UsageError: one is missing or cannot be used.
    """
    if environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
    if missing := [name for name in names if not environ.get(name)]:
        raise UsageError(
            f"RAY_USE_TLS is set, and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not",
            hint="Set it to the path of a file of this machine in the format PEM, or unset RAY_USE_TLS.",
        )
    files = TlsFiles(*[environ[name] for name in names])
    check_files(files)
    return files


def connect(options: ClusterOptions, tls: TlsFiles | None = None) -> bool:
    """Connect this process to a Ray cluster; return whether `disconnect` is to be called at the end.

    `tls` has the files of Ray in this process. UsageError: there is no cluster, its Ray or Python is of another
    version, or the options are wrong. ForbiddenError: one has TLS and the other does not, or one refuses the
    certificate of the other; this user has no token, or may not use the processes of the cluster on this machine.
    CapacityError: its head cannot start a process for Ray's client.
    """
    global _connections
    copied = folder(options)
    where = address_of(options)
    with _connecting:
        if not ray.is_initialized():
            _connect(where, tls, copied, options)
        elif not _connections:
            return False
        _connections += 1
    return True


def disconnect() -> None:
    """Leave the cluster, if nobody else of this process is connected by `connect`."""
    global _connections
    with _connecting:
        _connections -= 1
        if not _connections:
            ray.shutdown()


def _connect(where: str, tls: TlsFiles | None, copied: dict[str, Any], options: ClusterOptions) -> None:
    answers = False
    others: list[str] = []
    at = where
    try:
        if where == "auto":
            at, *others = _clusters_here()
            asks_for_token()  # as Ray itself at a cluster that it has found
        if others:
            sys.stderr.write(
                f"weft: {len(others) + 1} Ray clusters run on this machine; connecting to the one at {at}. To choose "
                f"another: RAY_ADDRESS={others[0]}, or --cluster, or ClusterOptions(address=...)\n"
            )
        if _shows_token():
            asks_for_token()
        _knock(at, tls)
        _check_user(at)
        answers = where != "auto"
        print_to_stderr()
        if where.startswith(SCHEME):
            print_client_to_stderr()
        place = "the Ray cluster of this machine" if where == "auto" else f"the Ray cluster at {where}"
        with told(f"connecting to {place}", _MOMENT_S), _same_signals():
            _join(at, copied)
    except ForbiddenError as error:
        if others:
            error.hint = f"To choose another cluster of this machine: RAY_ADDRESS={others[0]}. Or: {error.hint}"
        raise
    except ValueError as error:
        raise UsageError(
            f"the working folder {options.working_dir} cannot be copied to the cluster: {error}",
            hint="Name a smaller folder, or leave files out of it by .gitignore.",
        ) from error
    except OSError as error:
        if unserved := _UNSERVED.search(str(error)):
            raise CapacityError(
                f"the head of the Ray cluster at {where} was asked {_TRIES} times for a process that serves this "
                f"client, and has none: {str(error).strip().splitlines()[-1]}",
                hint=_SLOW_HEAD if unserved["slow"] else _CRASHES,
            ) from error
        if answers:
            raise UsageError(
                f"the Ray cluster at {where} does not let this process in, or does not answer it: {error}",
                hint="If it asks for tokens, the one of this user must be that of its head: copy ~/.ray/auth_token."
                if _shows_token()
                else "If it asks for tokens (`ray start` on a machine with ~/.ray/auth_token does), set "
                f"{AUTH_MODE}=token here.",
            ) from error
        raise UsageError(
            "there is no Ray cluster on this machine" if where == "auto" else f"no Ray cluster answers at {where}",
            hint="The head serves Ray's client at port 10001, if ray[client] is installed there."
            if where.startswith(SCHEME)
            else "Start one (ray start --head), or name one: RAY_ADDRESS=host:6379",
        ) from error
    except ImportError as error:
        raise MissingExtraError(
            f"{where} needs Ray's client, which is not installed", hint="Install it: pip install 'ray[client]'"
        ) from error
    except RuntimeError as error:
        raise other_versions(str(error)) from error


def _join(where: str, copied: dict[str, Any]) -> None:
    """Have Ray connect this process; ask again if the head had no process for a client, for a reason that may pass."""
    for last in (False,) * (_TRIES - 1) + (True,):
        try:
            ray.init(address=where, logging_level=logging.ERROR, runtime_env=copied)
        except ConnectionAbortedError as error:
            if last or not _UNSERVED.search(str(error)):
                raise
            sys.stderr.write(f"weft: the Ray cluster at {where} has no process for this client yet; asking again\n")
        else:
            return


def other_versions(said: str) -> UsageError:
    """Return the error for a cluster that this process cannot join, from what Ray says about it."""
    found = _VERSIONS.findall(said)
    if len(found) != 2:
        return UsageError(
            f"this process cannot join the Ray cluster: {said}",
            hint="The versions of Python and Ray must be those of the cluster; a busy head may answer later.",
        )
    (theirs, their_python), (ours, our_python) = found
    steps = [f"install its Ray here: pip install 'ray[client]=={theirs}'"] if theirs != ours else []
    if their_python.split(".")[:2] != our_python.split(".")[:2]:
        steps.append(f"run the program with Python {'.'.join(their_python.split('.')[:2])}")
    hint = ", and ".join(steps) or f"run the program with Python {their_python}"
    return UsageError(
        f"the Ray cluster has Ray {theirs} and Python {their_python}, and this process has Ray {ours} and Python "
        f"{our_python}",
        hint=f"{hint[0].upper()}{hint[1:]}.",
    )


def check_weft(theirs: str, ours: str) -> None:
    """Check the version of Weft in the cluster. UsageError: a program of version `ours` cannot run there."""
    if theirs != ours:
        raise UsageError(
            f"the Ray cluster has Weft {theirs}, and this process has Weft {ours}",
            hint=f"Install the same version on all machines; here: pip install 'weft[ray]=={theirs}'",
        )


def check_modules(error: Exception) -> None:
    """Raise UsageError if an actor could not start since the cluster lacks a module."""
    if lacks := LACKS.search(str(error)):
        raise UsageError(
            f"the Ray cluster has no module {lacks[1]}",
            hint="Install what is installed here into the environment of Ray on all machines: pip install 'weft[ray]'",
        ) from None


@contextmanager
def told(text: str, after_s: float) -> Iterator[None]:
    """Say on the standard error what is waited for, if that takes longer."""
    timer = threading.Timer(after_s, sys.stderr.write, (f"weft: {text}\n",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def address_of(options: ClusterOptions) -> str:
    """Return the address of the cluster: `auto`, `host:port` or `ray://host:port`. UsageError: it is something else."""
    given = options.address is not None
    where = (options.address if given else os.environ.get("RAY_ADDRESS")) or "auto"
    name = "address" if given else "RAY_ADDRESS"
    host, colon, port = where.removeprefix(SCHEME).rpartition(":")
    if where != "auto" and not (host and colon and port.isdigit() and "/" not in host):
        raise UsageError(
            f"{name} is {where!r}, which is neither host:port nor auto nor ray://host:port",
            hint="Such as 10.0.0.7:6379, or ray://10.0.0.7:10001 from outside of the network of the cluster.",
        )
    return where


@contextmanager
def connected(options: ClusterOptions) -> Iterator[None]:
    """Connect this process to a Ray cluster while the block runs, unless it is connected already; see `connect`."""
    fresh = connect(options, tls_files(os.environ))
    try:
        yield
    finally:
        if fresh:
            disconnect()


def asks_for_token() -> bool:
    """Have Ray in this process use the token of this user, if there is one; return whether it does.

    ForbiddenError: the environment asks for a token that cannot be found.
    """
    try:
        from ray._private.authentication import authentication_token_setup as setup
    except ImportError:  # older versions of Ray have no tokens
        return False
    try:
        asks = bool(setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False))
        found = not asks or setup.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)  # type: ignore[attr-defined]
    except ray.exceptions.AuthenticationError:  # the path that the environment names has none
        found = False
    if not found:
        path = os.environ.get("RAY_AUTH_TOKEN_PATH")
        raise ForbiddenError(
            f"{'RAY_AUTH_TOKEN_PATH' if path else f'{AUTH_MODE}=token'} is set, and this user has no token at "
            f"{path or '~/.ray/auth_token'}",
            hint="Copy the file from a machine of the cluster, or make one for a cluster to be started: "
            "ray get-auth-token --generate",
        )
    return asks


def _shows_token() -> bool:
    return os.environ.get(AUTH_MODE, "").lower() == "token"


def _clusters_here() -> list[str]:
    """Return the addresses of the clusters of this machine, first the one that was started last, as Ray takes it.

    Those of other users come in only if this user has none. OSError: there is none.
    """
    getattr(services.find_gcs_addresses, "cache_clear", lambda: None)()
    there = sorted(services.find_gcs_addresses())  # type: ignore[no-untyped-call]
    there = [address for address in there if _may_use(address)] or there
    last = services.find_bootstrap_address(None)
    found = [last] if last and (last in there or not there) else []
    found += [address for address in there if address != last]
    if not found:
        raise ConnectionError("no process of a Ray cluster runs here")
    return found


@contextmanager
def _same_signals() -> Iterator[None]:
    """Set the handlers of signals again that Ray replaces: its own leave at once, and print a stack of C++."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set them
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: a handler of another language
                signal.signal(number, handler)


def _sockets_here(address: str) -> list[str]:
    """Return the sockets of the nodes at this machine of the cluster at `host:port`, whoever started them."""
    wanted = services.canonicalize_bootstrap_address_or_die(address)
    found = []
    for file in _PROCESSES.glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            words = file.read_bytes().decode(errors="replace").split("\0")
            options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
            if Path(words[0]).name == "raylet" and options.get("--gcs-address") == wanted:
                found.append(options.get("--raylet_socket_name", ""))
    return found


def _may_use(address: str) -> bool:
    """Return whether a program of this user can be one of a cluster: Ray aborts one that may not call its node."""
    sockets = _sockets_here(address)
    return not sockets or any(os.access(path, os.W_OK) for path in sockets)


def _check_user(address: str) -> None:
    """Check that this user may use the nodes of a cluster at this machine. ForbiddenError: they are another user's."""
    if not address.startswith(SCHEME) and not _may_use(address):
        raise ForbiddenError(
            f"the Ray cluster at {address} runs on this machine as another user, whose processes this one may not call",
            hint=f"Use Ray's client: RAY_ADDRESS={SCHEME}{address.rpartition(':')[0]}:10001, if its head serves that. "
            "Or start a cluster of your own: weft cluster start",
        )


def _knock(address: str, tls: TlsFiles | None) -> None:
    """Look whether anything listens at `host:port`.

    Ray itself waits minutes for one that is dead or refuses it. OSError: nothing does. ForbiddenError: it refuses us.
    """
    host, _, port = address.removeprefix(SCHEME).rpartition(":")
    if host and "/" not in host and port.isdigit():
        host = host.strip("[]")
        with socket.create_connection((host, int(port)), timeout=CONNECT_S) as sock:
            check_grpc(sock, tls, host, f"the Ray cluster at {address}")
        if tls is None:
            with socket.create_connection((host, int(port)), timeout=CONNECT_S) as sock:
                _expect_grpc(sock)


def _expect_grpc(sock: socket.socket) -> None:
    """Begin a connection of HTTP/2 (RFC 9113, 3.4). OSError: the other end does not, or not in time."""
    sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _EMPTY_SETTINGS)
    head = bytes(receive_exactly(sock, len(_EMPTY_SETTINGS)))
    if head[3] != _SETTINGS:
        raise ConnectionError("another program listens there")
