"""A disk and a shared memory that are really full: small file systems, mounted where nobody else sees them.

Each case runs in a child that has mounted them, since a mount needs a namespace and that a process of its own. The
child checks everything itself and says "ok".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.integration.places import RUN, Project
from weft.graph.builder import Graph, VertexHandle, gather, one_to_one
from weft.graph.logical import OnFailure, Storage
from weft.model.errors import DiskFullError
from weft.runtime.session import EngineSession
from weft.store.api import ABSENT
from weft.store.blocks import BlockManager
from weft.store.folders import RunFolders

TIMEOUT_S = 180.0
SIZE = 4 << 20
CHUNK = 200_000
CASES: dict[str, Callable[[Path, Path], None]] = {}
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount", "--")


def _mounts(*folders: Path) -> list[str]:
    """Return a command that mounts a file system of `SIZE` bytes on each folder and then runs its arguments."""
    each = "".join(f'mount -t tmpfs -o size={SIZE} weft-test "${at}" && ' for at in range(1, len(folders) + 1))
    return [*UNSHARE, "sh", "-c", f'{each} shift {len(folders)} && exec "$@"', "sh", *map(str, folders)]


def _why_not(folder: Path) -> str:
    """Return why this machine cannot mount a file system for a test, "" if it can."""
    if sys.platform != "linux":
        return "needs Linux"
    try:
        argv = [*_mounts(folder), "true"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except OSError as error:
        return f"no namespaces: {error}"
    return f"no mount in a namespace: {done.stderr.strip()}" if done.returncode else ""


def case(run: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    """Make a function of (small disk, small shared memory) a case."""
    CASES[run.__name__] = run
    return run


def fill(folder: Path, leave: int = 0) -> None:
    """Fill a file system up but for `leave` bytes."""
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    if leave:
        os.truncate(folder / "filler", max(0, (folder / "filler").stat().st_size - leave))


def left(folder: Path) -> list[str]:
    """Return the files of chunks, whole or not, that lie below a folder."""
    return [path.name for path in folder.rglob("*") if path.suffix in (".chunks", ".part")]


@contextmanager
def opened(backend: str, disk: Path, shm: Path, budget: int) -> Iterator[EngineSession]:
    from weft.backends.processes import Processes
    from weft.backends.threads import Threads

    with RunFolders("full", shm, disk) as run:
        store = BlockManager(budget, shm=run.shm, spill=run.spill)
        made = (
            Threads(2, store) if backend == "threads" else Processes(2, store, run.shm, spill=run.spill, window=1 << 20)
        )
        with EngineSession(made, store) as session:
            yield session
    assert not left(disk)
    assert not left(shm)


def chunk(at: int) -> bytes:
    return bytes([at % 256]) * CHUNK


def chunks(n: int, **options: Any) -> tuple[Graph, VertexHandle]:
    graph = Graph("chunks", **options)
    return graph, graph.map(chunk, range(n), name="chunk").keep()


def works(session: EngineSession) -> None:
    """What fits still runs, and is right."""
    graph = Graph("small")
    total = graph.add(lambda parts: sum(map(len, parts)), gather(graph.map(chunk, range(3), name="chunk")), n=1).keep()
    assert session.run(graph, timeout_s=TIMEOUT_S).value(total) == 3 * CHUNK


def fails(session: EngineSession, graph: Graph, disk: Path) -> Any:
    """The run ends with one clear error that says what is full, and what to do."""
    run = session.submit(graph)
    assert run.wait(TIMEOUT_S)
    error = run.error()
    assert isinstance(error, DiskFullError), error
    assert "no room for" in error.message
    assert str(disk) in error.message, error.message
    assert "No space left on device" in error.message
    assert str(error).count("no room for") == 1
    assert str(error).count("Free some space there") == 1
    return run


def keeps_too_much(backend: str, disk: Path, shm: Path) -> None:
    with opened(backend, disk, shm, budget=1 << 20) as session:
        graph, node = chunks(80, on_failure=OnFailure.CONTINUE)
        run = fails(session, graph, disk)
        column = run.job.backend.columns[node.id]
        finished = [at for at in range(80) if column.values[at] is not ABSENT]
        assert len(finished) >= SIZE // CHUNK
        for at in finished:
            assert session.load(run.job, node.id, column, at) == chunk(at), "what was finished before is lost"
        assert not [name for name in left(disk) + left(shm) if name.endswith(".part")]
        run.forget()
        assert not left(disk)
        works(session)


@case
def spilling_threads(disk: Path, shm: Path) -> None:
    """More is kept than memory and the disk for spilled chunks can take."""
    keeps_too_much("threads", disk, shm)


@case
def spilling_processes(disk: Path, shm: Path) -> None:
    """The same across processes, with shared memory that is small too."""
    keeps_too_much("processes", disk, shm)


@case
def full_shared_memory(disk: Path, shm: Path) -> None:
    """Shared memory is full, the disk is not: results go there, and nobody dies of a bus error."""
    with opened("processes", disk, shm, budget=64 << 20) as session:
        fill(shm)
        graph, node = chunks(12)
        results = session.run(graph, timeout_s=TIMEOUT_S)
        assert results[node] == [chunk(at) for at in range(12)]
        assert session.store.stats().disk >= 12 * CHUNK
        (shm / "filler").unlink()


@case
def both_full(disk: Path, shm: Path) -> None:
    """Neither takes anything: one error; once there is room again the session goes on."""
    with opened("processes", disk, shm, budget=64 << 20) as session:
        fill(shm)
        fill(disk)
        graph, _ = chunks(4)
        fails(session, graph, disk)
        assert not left(disk)
        assert not left(shm)
        (shm / "filler").unlink()
        (disk / "filler").unlink()
        works(session)


def streams(ctx: Any, inputs: Any) -> None:
    for at in range(30):
        for edge in ("near", "far"):
            ctx.out(edge).write(0, chunk(at))


def reads(ctx: Any, inputs: Any) -> int:
    return len(inputs["far"].all()) + len(inputs["near"].all())


@case
def streaming(disk: Path, shm: Path) -> None:
    """A stream on a cycle spills onto a disk that becomes full: one error, nothing is left of either edge."""
    graph = Graph("streams")
    source = graph.task(streams, name="source")
    edges = [one_to_one(source, name=name, concurrent=True, storage=Storage.EPHEMERAL) for name in ("near", "far")]
    sink = graph.task(reads, *edges, name="sink")
    graph.bubble(source, sink)
    with opened("processes", disk, shm, budget=4 << 20) as session:
        fill(shm)
        fill(disk, leave=1 << 20)
        fails(session, graph, disk)
        assert not left(disk)
        assert not left(shm)
        assert session.store.stats().used == session.store.stats().reserved == 0
        (shm / "filler").unlink()
        (disk / "filler").unlink()
        works(session)


@case
def durable_outputs(disk: Path, shm: Path) -> None:
    """The outputs of a durable run find its folder full: the run fails, and goes on when there is room."""
    with weft.Session(workers=2, durable=disk / "state") as session:
        graph, node = chunks(15)
        fill(disk, leave=1 << 20)
        fails(session, graph, disk)
        assert not [name for name in os.listdir(disk) if name.endswith(".part")]
        (disk / "filler").unlink()
        again = session.resume("@last")
        assert again.result(TIMEOUT_S)[node.id] == [chunk(at) for at in range(15)]


@case
def refused_resumes(disk: Path, shm: Path) -> None:
    """A full disk refuses the resume of a failed run, which stays failed and goes on when there is room."""
    project = Project(disk)
    project.write({"a": {"command": "test -e go"}})
    assert project.weft("run", "-q", "run.yaml")[0] == 1
    for room in (0, 300):
        fill(disk, leave=room)
        code, _, err = project.weft("resume", "1")
        assert code == 8, err
        assert "weft delete" in err
        assert "--state-dir" not in err
        assert json.loads(project.weft("show", "1", "--json")[1])["run"]["state"] == "failed"
        (disk / "filler").unlink()
    (disk / "go").touch()
    assert project.weft("resume", "1")[0] == 0


@case
def pipelines(disk: Path, shm: Path) -> None:
    """A run has filled the disk: commands still tell of it, and those that make room make some."""
    project = Project(disk)
    project.write(
        {"a": {"command": f"head -c {SIZE // 4} /dev/urandom > {{{{o}}}}", "artifacts": {"output": ["o"]}}},
        cache={"enable": True},
    )
    assert project.weft("run", "-q", "run.yaml") == (0, f"{RUN}\n", "")
    fill(disk)
    for words in (["show", "1"], ["ls"], ["cache", "ls"], ["why", "1/a"]):
        code, out, err = project.weft(*words)
        assert code == 0, err
        assert RUN in out or out.startswith("a ")
    code, _, err = project.weft("run", "-q", "run.yaml")
    assert code == 8, err
    assert "weft delete" in err
    code, out, _ = project.weft("doctor")
    assert code
    assert "it is full" in out
    code, out, err = project.weft("cache", "gc", "--max-size", "0")
    assert (code, "forgot 1 result" in err) == (0, True), (out, err)
    code, _, err = project.weft("delete", RUN)
    assert (code, err) == (0, f"deleted {RUN}\n")
    assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize > SIZE // 4
    assert project.weft("ls", "-q") == (0, "", "")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Run a case in a child of its own."""
    why = _why_not(tmp_path_factory.mktemp("probe"))
    if why:
        pytest.skip(why)

    def run(name: str) -> None:
        folder = tmp_path_factory.mktemp(name)
        disk, shm = folder / "disk", folder / "shm"
        disk.mkdir()
        shm.mkdir()
        argv = [*_mounts(disk, shm), sys.executable, "-m", __spec__.name, name, str(disk), str(shm)]
        root = Path(__file__).parents[2]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=3 * TIMEOUT_S, check=False, cwd=root)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1:] == ["ok"]

    return run


@pytest.mark.parametrize("name", CASES)
def test_a_full_disk_is_one_clear_error(name: str, python: Callable[[str], None]) -> None:
    python(name)


if __name__ == "__main__":
    CASES[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    print("ok")
