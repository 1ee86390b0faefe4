"""A PostgreSQL server of the tests' own: made with `initdb` in a folder for temporary files, ended with the session."""

import glob
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_USER = "postgres"


def _program(name: str) -> str:
    found = shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), "")
    if not found:
        pytest.skip(f"PostgreSQL is not installed: there is no {name}")
    return found


@contextmanager
def server() -> Iterator[str]:
    """Run a server that listens on a socket in its own folder only; yield that folder."""
    pytest.importorskip("pg8000", reason="the driver pg8000 is not installed")
    initdb, postgres = _program("initdb"), _program("postgres")
    as_user: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="weft-pg-"))
    try:
        if os.geteuid() == 0:  # the server refuses to run as root
            if shutil.which("runuser") is None or subprocess.run(["id", _USER], capture_output=True).returncode:
                pytest.skip(f"PostgreSQL does not run as root, and there is no user {_USER}")
            as_user = ["runuser", "-u", _USER, "--"]
            shutil.chown(folder, _USER)
        made = [*as_user, initdb, "-D", f"{folder}/data", "-U", _USER, "-A", "trust", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd="/")
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
        with open(folder / "log", "wb") as log:
            command = [*as_user, postgres, "-D", f"{folder}/data", *options]
            running = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        try:
            ready = [_program("pg_isready"), "-h", str(folder), "-U", _USER, "-t", "1"]
            while subprocess.run(ready, capture_output=True).returncode:
                if running.poll() is not None:
                    pytest.skip(f"PostgreSQL did not start: {(folder / 'log').read_text()[-300:]}")
            yield str(folder)
        finally:
            stop = [*as_user, _program("pg_ctl"), "stop", "-D", f"{folder}/data", "-m", "immediate"]
            subprocess.run(stop, capture_output=True, cwd="/")
            running.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fresh_database(folder: str) -> str:
    """Make a database on the server with this folder and return its URL."""
    import pg8000.dbapi

    name = f"weft_{uuid.uuid4().hex[:12]}"
    connection = pg8000.dbapi.connect(user=_USER, unix_sock=f"{folder}/.s.PGSQL.5432", database="postgres")
    try:
        connection.autocommit = True
        connection.cursor().execute(f"CREATE DATABASE {name}")
    finally:
        connection.close()
    return f"postgresql+pg8000://{_USER}@/{name}?unix_sock={folder}/.s.PGSQL.5432"
