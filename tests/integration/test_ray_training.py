"""Training jobs on a Ray cluster of several nodes on this machine, by the command line and from Python."""

import shutil
import signal
import sys

import pytest

from tests.integration.places import RUN, until
from tests.integration.ray_clusters import LOADED, running_cluster
from tests.integration.test_cluster_training import MEETING, STAYING, all_workers, mpi_job
from tests.integration.test_replica_exec import SUM_OF_RANKS
from tests.integration.test_training import Place, replica, tfjob
from tests.integration.test_training_tuning import THREE, starts, tuned_event, write
from weft.runs.reading import read_run
from weft.store.state import read_description

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
WAITING = "while trial and not os.path.exists('go'): time.sleep(0.01)"
"""What a trial does at its end until it may go on."""
ON_RAY = ("run", "run.yaml", "--backend", "ray")


@pytest.fixture(scope="module")
def cluster():
    with running_cluster(2) as found:
        yield found


@pytest.fixture
def place(tmp_path, cluster):
    made = Place(tmp_path / "project")
    made.loaded = LOADED
    made.environ["RAY_ADDRESS"] = cluster.address
    return made


def begun(place, count=2):
    """Wait until so many replicas have left a file."""
    until(lambda: len(list(place.folder.glob("*-worker-*"))) >= count, "the replicas")


def test_replicas_meet_at_both_machines_with_logs_conditions_and_exit_codes(place):
    (place.folder / "program.py").write_text(MEETING)
    who = "ps -o ppid= -p $PPID >> parents; exec python3 program.py"
    place.job(all_workers(tfjob(Worker=replica(who, 2))))
    code, _, err = place.weft(*ON_RAY)
    assert code == 0, err
    assert len(set((place.folder / "parents").read_text().split())) == 2, "one pool of guardians for each worker"
    lines = [place.log("worker", index).split() for index in (0, 1)]
    assert lines[0] == lines[1][::-1]
    assert {"Running": "False"} | place.conditions() == {"Created": "True", "Running": "False", "Succeeded": "True"}
    code, out, err = place.weft("logs", f"{RUN}/worker-1")
    assert code == 0, err
    assert out.split() == lines[1]
    place.job(all_workers(tfjob(Worker=replica('test "${WEFT_REPLICA#*worker-}" = 1 && exit 3; sleep 600', 2))))
    code, out, err = place.weft(*ON_RAY)
    assert code == 1
    assert "exit code 3" in out + err


def test_a_gang_that_never_fits_is_refused_with_the_arithmetic(place):
    place.job(tfjob(Worker=replica("touch began", 3)))
    code, out, err = place.weft(*ON_RAY)
    assert code != 0
    assert "it needs 3 slots at once; the session has 2" in out + err
    assert not (place.folder / "began").exists()


@pytest.mark.skipif(shutil.which("orted") is None, reason="Open MPI 4 is not installed")
def test_mpirun_starts_processes_at_other_machines(place, cluster):
    extra = cluster.add_node(num_cpus=1)
    try:
        (place.folder / "program.py").write_text(SUM_OF_RANKS.replace("REPLICA", "WEFT_REPLICA"))
        place.job(mpi_job(f"exec mpirun {sys.executable} -I program.py"))
        code, out, err = place.weft(*ON_RAY)
        assert code == 0, (out, err)
        lines = [line for line in place.log("launcher", 0).splitlines() if "knows" in line]
        assert sorted(lines) == ["0 of m-worker-0 knows 1", "1 of m-worker-1 knows 1"]
    finally:
        cluster.remove_node(extra)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.soak)])
def test_an_interrupted_run_leaves_no_replica_and_is_resumed_on_ray(place, number):
    place.job(all_workers(tfjob(Worker=replica("touch $WEFT_REPLICA; test -e go || sleep 600 & wait", 2))))
    process = place.start(*ON_RAY)
    begun(place)
    process.send_signal(number)
    process.communicate(timeout=180)
    until(lambda: place.alive() == [], "the end of the replicas")
    (place.folder / "go").touch()
    code, _, err = place.weft("resume", RUN)
    assert code == 0, err
    assert read_description(place.folder_of())["backend"] == "ray"
    assert place.conditions()["Succeeded"] == "True"


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_job_is_tuned_by_trials_at_the_machines(place, cluster, killed):
    """With its process killed in a trial, the run is tuned anew when it is resumed."""
    extra = cluster.add_node(num_cpus=1)
    try:
        write(place, {**THREE, "candidates": [{"Worker": 1}, {"Worker": 2}, {"Worker": 7}]}, WAITING if killed else "")
        process = place.start(*ON_RAY)
        if killed:
            until(lambda: (place.folder / "starts").exists(), "the trial")
            process.kill()
            process.communicate(timeout=180)
            until(lambda: place.alive() == [], "the end of the replicas")
            (place.folder / "starts").unlink()
            (place.folder / "go").touch()
            process = place.start("resume", RUN)
        _, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
        told = "Worker 2 is the best (Worker 1: 10 score, Worker 2: 50 score, Worker 7: too large, it needs 8 slots at"
        assert told in tuned_event(place)
        assert starts(place) == ["job 2 0", "job 2 1", "trial 1 0", "trial 2 0", "trial 2 1"]
        assert place.alive() == []
    finally:
        cluster.remove_node(extra)


@pytest.mark.soak
def test_a_job_is_tuned_by_its_process_in_the_cluster(place, cluster):
    extra = cluster.add_node(num_cpus=1)
    try:
        write(place, {**THREE, "candidates": [{"Worker": 1}, {"Worker": 2}]})
        code, _, err = place.weft("run", "-d", *ON_RAY[1:])
        assert code == 0, err
        until(lambda: read_run(place.folder_of()).state == "succeeded", "the end")
        assert "Worker 2 is the best" in tuned_event(place)
        assert "job 2 1" in starts(place)
    finally:
        cluster.remove_node(extra)


def test_a_lost_machine_starts_all_replicas_again_once_there_is_another_one(place, cluster):
    extra = cluster.add_node(num_cpus=1)
    (place.folder / "program.py").write_text(MEETING + STAYING)
    server = replica("tail -f /dev/null")  # so that a replica is at each machine
    place.job(all_workers(tfjob(PS=server, Worker=replica("exec python3 program.py", 2))))
    process = place.start(*ON_RAY)
    until(lambda: len(list(place.folder.glob("met-*"))) == 2, "the replicas")
    cluster.remove_node(extra, allow_graceful=False)
    again = cluster.add_node(num_cpus=1)
    try:
        _, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
        assert len(list(place.folder.glob("met-*"))) == 4
        assert place.alive() == []
    finally:
        cluster.remove_node(again)


@pytest.mark.soak
def test_a_run_in_the_background_is_suspended_resumed_and_scaled(place, cluster):
    extra = cluster.add_node(num_cpus=1)
    try:
        place.job(all_workers(tfjob(Worker=replica("touch $WEFT_REPLICA; while ! test -e go; do sleep 0.05; done", 2))))
        code, _, err = place.weft("run", "-d", *ON_RAY[1:])
        assert code == 0, err
        begun(place)
        code, _, err = place.weft("suspend", RUN)
        assert code == 0, err
        until(lambda: read_run(place.folder_of()).state == "suspended", "the suspension")
        assert place.alive() == []
        code, _, err = place.weft("resume", "-d", RUN)
        assert code == 0, err
        until(lambda: len(place.alive()) >= 2, "the replicas")
        code, _, err = place.weft("scale", RUN, "worker=3")
        assert code == 0, err
        begun(place, 3)
        (place.folder / "go").touch()
        until(lambda: read_run(place.folder_of()).state == "succeeded", "the end")
    finally:
        cluster.remove_node(extra)
