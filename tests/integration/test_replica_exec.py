"""Commands in other replicas: real processes, a launcher that calls the agent of each line of its hostfile, mpirun."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.started import start
from weft.frontends.training.mpi import launcher_files, local_variables, replica_words
from weft.frontends.training.schema import Container, PodTemplate, ReplicaSpec, TrainingJob
from weft.operators.call import CommandSpec, run_guarded
from weft.worker.replica_exec import words

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
needs_open_mpi = pytest.mark.skipif(shutil.which("orted") is None, reason="Open MPI 4 is not installed")

PATIENCE_S = 180.0


def wait_until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at, "the condition did not come true"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Cluster:
    """Replicas of one job as processes; each has a working folder and the variable REPLICA.

    Each has a temporary folder of its own too: Open MPI makes one session folder for each host in it.
    """

    def __init__(self, folder: Path, job: TrainingJob) -> None:
        self.folder, self.job = folder, job
        self.sockets, self.config = folder / "sockets", folder / "config"
        self.sockets.mkdir()
        self.config.mkdir()
        for name, (text, mode) in launcher_files(job, str(self.sockets)).items():
            (self.config / name).write_text(text)
            (self.config / name).chmod(mode)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], **variables: str) -> subprocess.Popen[bytes]:
        place = self.folder / name
        place.mkdir(exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "REPLICA": name, "TMPDIR": str(place), **variables}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = start(
                command, cwd=place, env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        self.processes[name] = process
        return process

    def start_worker(self, index: int, *command: str) -> subprocess.Popen[bytes]:
        name = f"{self.job.name}-worker-{index}"
        return self.start(name, replica_words(self.job, "Worker", index, command, str(self.sockets)))

    def call(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        agent = str(self.config / "kubexec.sh")
        return subprocess.run([agent, *arguments], capture_output=True, timeout=PATIENCE_S, check=False, **options)  # type: ignore[call-overload,no-any-return]

    def hosts(self) -> list[str]:
        found = subprocess.run([str(self.config / "discover_hosts.sh")], capture_output=True, check=True, text=True)
        return found.stdout.splitlines()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, make_job(workers=2))
    yield found
    for process in found.processes.values():
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def make_job(workers: int, slots: int = 2) -> TrainingJob:
    spec = PodTemplate(containers=(Container(name="mpi"),))
    return TrainingJob(
        kind="MPIJob",
        name="m",
        slots_per_worker=slots,
        replicas={
            "Launcher": ReplicaSpec(template=spec, replicas=1),
            "Worker": ReplicaSpec(template=spec, replicas=workers),
        },
    )


def test_a_command_runs_in_the_replica_with_its_folder_and_environment(cluster: Cluster) -> None:
    cluster.start_worker(0)
    found = cluster.call(
        "m-worker-0", "echo $REPLICA; pwd; env | sort | cut -d= -f1 | tr '\\n' ' '; cat; exit 7", input=b"in"
    )
    name, place, variables = found.stdout.decode().split("\n")
    assert (name, place) == ("m-worker-0", str(cluster.folder / "m-worker-0"))
    assert set(variables.removesuffix("in").split()) <= {"PATH", "PWD", "OLDPWD", "REPLICA", "SHLVL", "TMPDIR", "_"}
    assert variables.endswith("in"), "the standard input is that of the caller"
    assert (found.returncode, found.stderr) == (7, b"")


def test_words_of_a_command_are_joined_as_by_a_remote_shell(cluster: Cluster) -> None:
    cluster.start_worker(0)
    found = cluster.call(
        "-x", "-o", "ConnectionAttempts=10", "user@m-worker-0.m", "echo", "a  b", "&&", "echo", "'c  d'"
    )
    assert found.stdout == b"a b\nc  d\n"


@pytest.mark.parametrize(
    ("ending", "status"), [("kill -9 $$", 137), ("kill -15 $$", 143), ("nothing-of-that-name", 127)]
)
def test_the_end_of_a_command_is_told_as_by_a_shell(cluster: Cluster, ending: str, status: int) -> None:
    cluster.start_worker(0)
    assert cluster.call("m-worker-0", ending).returncode == status


def test_a_replica_that_starts_later_is_waited_for(cluster: Cluster) -> None:
    agent = [str(cluster.config / "kubexec.sh"), "m-worker-1", "echo here"]
    caller = start(agent, stdout=subprocess.PIPE)
    cluster.start_worker(1)
    assert caller.communicate(timeout=PATIENCE_S)[0] == b"here\n"


def test_the_hosts_are_those_that_run(cluster: Cluster) -> None:
    assert cluster.hosts() == []
    first = cluster.start_worker(0)
    cluster.start_worker(1)
    wait_until(lambda: cluster.hosts() == ["m-worker-0:2", "m-worker-1:2"])
    first.kill()
    first.wait()
    wait_until(lambda: cluster.hosts() == ["m-worker-1:2"])
    cluster.start_worker(0)
    wait_until(lambda: cluster.hosts() == ["m-worker-0:2", "m-worker-1:2"])


def test_a_command_ends_with_its_caller(cluster: Cluster) -> None:
    cluster.start_worker(0)
    told = cluster.folder / "pid"
    agent = [str(cluster.config / "kubexec.sh"), "m-worker-0", f"trap '' TERM; echo $$ > {told}; sleep 600"]
    caller = start(agent)
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"))
    caller.kill()
    caller.wait()
    wait_until(lambda: not is_alive(int(told.read_text())))


def test_a_worker_ends_its_commands_before_itself(cluster: Cluster) -> None:
    worker = cluster.start_worker(0)
    told = cluster.folder / "pid"
    agent = [
        str(cluster.config / "kubexec.sh"),
        "m-worker-0",
        f"trap 'exit 5' TERM; echo $$ > {told}; sleep 600 & wait",
    ]
    caller = start(agent)
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"))
    worker.terminate()
    assert caller.wait(PATIENCE_S) == 5
    assert worker.wait(PATIENCE_S) == 143
    assert not is_alive(int(told.read_text()))


def test_a_caller_of_a_killed_worker_is_told(cluster: Cluster) -> None:
    worker = cluster.start_worker(0)
    agent = [str(cluster.config / "kubexec.sh"), "m-worker-0", "echo up; exec sleep 600"]  # no child to miss
    caller = start(agent, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"up\n"
    for pid in tree(worker.pid):
        os.kill(pid, signal.SIGKILL)
    out, errors = caller.communicate(timeout=PATIENCE_S)
    assert caller.returncode == 255
    assert (out, errors) == (b"", b"[weft] the replica m-worker-0 has ended\n")


def tree(root: int) -> list[int]:
    """A process and its descendants, parents first."""
    found = [root]
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found.extend(map(int, children))
    return found


def test_a_worker_with_a_command_ends_with_it(cluster: Cluster) -> None:
    worker = cluster.start_worker(0, "sh", "-c", "echo begun; read -r line < go; exit 3")
    os.mkfifo(cluster.folder / "m-worker-0" / "go")
    ended = cluster.call("m-worker-0", "echo over > go").returncode  # perhaps together with the worker
    assert ended in (0, 128 + signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 3
    assert cluster.log("m-worker-0") == "begun\n"
    missing = cluster.start_worker(1, "nothing-of-that-name")
    assert missing.wait(PATIENCE_S) == 127


def test_a_guardian_ends_what_others_started_in_its_replica(cluster: Cluster) -> None:
    told = cluster.folder / "pids"
    cancels: list[Callable[[], None]] = []
    spec = CommandSpec(
        argv=replica_words(cluster.job, "Worker", 0, (), str(cluster.sockets)), env={}, cwd=cluster.folder,
        log=cluster.folder / "log", grace_s=0.1,
    )  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_guarded, spec, on_cancel=cancels.append)
        daemon = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {told}; sleep 600' & exit 0"
        agent = [str(cluster.config / "kubexec.sh"), "m-worker-0", daemon]
        assert subprocess.run(agent, check=False, timeout=PATIENCE_S).returncode == 0
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"))
        assert is_alive(int(told.read_text())), "it has left its group and its parent"
        cancels[0]()
        assert run.result(PATIENCE_S).cause == "cancelled"
    assert not is_alive(int(told.read_text()))


def test_a_caller_of_an_unknown_replica_is_told_which_run(cluster: Cluster) -> None:
    cluster.start_worker(1)
    wait_until(lambda: cluster.hosts() == ["m-worker-1:2"])
    script = (
        "import sys; from weft.worker import replica_exec as it; import os; it.APPEARING_S = 0.01;"
        "os.chdir(sys.argv[1]); sys.exit(it.enter(sys.argv[2:]))"
    )
    for arguments, message in [
        (["m-worker-7", "true"], "no replica m-worker-7 runs; those that can be entered: m-worker-1"),
        (["../m-worker-1", "true"], "no replica"),
        (["-n"], "a host and a command are missing"),
    ]:
        command = [sys.executable, "-c", script, str(cluster.sockets), *arguments]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == 255
        assert message in found.stderr


def test_a_caller_that_says_nothing_sensible_harms_nobody(cluster: Cluster) -> None:
    cluster.start_worker(0)
    wait_until(lambda: cluster.hosts() == ["m-worker-0:2"])
    script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'\\xff' * 100)"
    subprocess.run([sys.executable, "-c", script, "m-worker-0.sock"], cwd=cluster.sockets, check=True)
    assert cluster.call("m-worker-0", "echo fine").stdout == b"fine\n"


def test_a_folder_with_a_long_path_holds_sockets(tmp_path: Path) -> None:
    place = tmp_path / ("long" * 40)
    place.mkdir()
    found = Cluster(place, make_job(workers=1))
    worker = found.start_worker(0)
    assert found.call("m-worker-0", "echo fine").stdout == b"fine\n"
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 143


FAKE_MPIRUN = """
rank=0
while read -r host slots; do
  for slot in $(seq "${slots#slots=}"); do
    "$OMPI_MCA_plm_rsh_agent" "$host" "  RANK=$rank; export RANK; sh -c 'echo rank \\$RANK in \\$REPLICA'" &
    rank=$((rank + 1))
  done
done < "$OMPI_MCA_orte_default_hostfile"
wait
"""


def launch(cluster: Cluster, *command: str) -> subprocess.Popen[bytes]:
    added = local_variables(cluster.job, "Launcher", str(cluster.config), loopback=True)
    variables = {variable.name: variable.value for variable in added}
    return cluster.start("m-launcher", list(command), **variables)


def test_a_launcher_starts_processes_in_every_slot(cluster: Cluster) -> None:
    cluster.start_worker(0)
    cluster.start_worker(1)
    assert launch(cluster, "sh", "-c", FAKE_MPIRUN).wait(PATIENCE_S) == 0
    assert sorted(cluster.log("m-launcher").splitlines()) == [
        "rank 0 in m-worker-0", "rank 1 in m-worker-0", "rank 2 in m-worker-1", "rank 3 in m-worker-1",
    ]  # fmt: skip


@needs_open_mpi
def test_mpirun_starts_processes_in_every_slot(cluster: Cluster) -> None:
    cluster.start_worker(0)
    cluster.start_worker(1)
    script = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in $REPLICA"
    launcher = launch(cluster, "mpirun", "-np", "4", "sh", "-c", script)
    assert launcher.wait(PATIENCE_S) == 0, cluster.log("m-launcher")
    assert sorted(cluster.log("m-launcher").splitlines()) == [
        "rank 0 of 4 in m-worker-0", "rank 1 of 4 in m-worker-0",
        "rank 2 of 4 in m-worker-1", "rank 3 of 4 in m-worker-1",
    ]  # fmt: skip


SUM_OF_RANKS = """
import ctypes, os
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
handle = lambda name: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
mpi.MPI_Init(None, None)
world, rank, total = handle("ompi_mpi_comm_world"), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
kind, add = handle("ompi_mpi_int"), handle("ompi_mpi_op_sum")
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, kind, add, world)
print(rank.value, "of", os.environ["REPLICA"], "knows", total.value, flush=True)
mpi.MPI_Finalize()
"""


@needs_open_mpi
def test_processes_of_mpi_speak_to_each_other(cluster: Cluster) -> None:
    cluster.start_worker(0)
    cluster.start_worker(1)
    launcher = launch(cluster, "mpirun", sys.executable, "-I", "-c", SUM_OF_RANKS)
    assert launcher.wait(PATIENCE_S) == 0, cluster.log("m-launcher")
    assert sorted(cluster.log("m-launcher").splitlines()) == [
        "0 of m-worker-0 knows 6", "1 of m-worker-0 knows 6", "2 of m-worker-1 knows 6", "3 of m-worker-1 knows 6",
    ]  # fmt: skip


@needs_open_mpi
def test_mpirun_fails_when_one_process_does(cluster: Cluster) -> None:
    cluster.start_worker(0)
    cluster.start_worker(1)
    launcher = launch(cluster, "mpirun", "-np", "4", "sh", "-c", "test $OMPI_COMM_WORLD_RANK != 2 || exit 9; sleep 600")
    assert launcher.wait(PATIENCE_S) == 9, cluster.log("m-launcher")


def test_a_program_names_itself_by_this_interpreter() -> None:
    assert words("hosts", "/sockets", "2")[0] == sys.executable
