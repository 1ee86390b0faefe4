"""What tasks print and log, found by task: on threads and in worker processes, within its limits."""

import logging
import sys
import threading
from types import SimpleNamespace

import pytest

import weft
from tests.unit.runtime.tasks import DEADLINE_S
from weft.model.errors import NotFoundError, UsageError
from weft.worker import task_logs


def say(value):
    print("hello", value)
    logging.getLogger("weft.test").warning("warned %s", value)
    return value


def complain(value):
    sys.stderr.write(f"bad {value}\n")
    return value


def quiet(value):
    return value


def fails_once(path):
    print("here")
    if not path.exists():
        path.touch()
        raise ValueError("the first time")


@pytest.fixture(params=["threads", "processes"])
def logged(request):
    with weft.Session(request.param, workers=2, task_logs=True, backups=False) as session:
        yield session


def test_output_is_found_by_task(logged):
    graph = weft.Graph("outputs")
    said = graph.map(say, range(20))
    graph.add(quiet, graph.add(complain, said))
    run = logged.submit(graph)
    run.result(DEADLINE_S)
    for index in range(20):
        first, second = run.logs(said, index).splitlines()
        assert first == f"hello {index}"
        assert second.endswith(f"WARNING weft.test: warned {index}")
        assert run.logs("complain", index) == f"bad {index}\n"
        assert run.logs("quiet", index) == ""


def test_attempts_follow_each_other(logged, tmp_path):
    graph = weft.Graph("attempts")
    graph.map(fails_once, [tmp_path / "marker"], name="again", retry=weft.Retry(2))
    run = logged.submit(graph)
    run.result(DEADLINE_S)
    assert run.logs("again") == "here\n[attempt 1]\nhere\n"


def test_an_unknown_task_or_vertex_is_named(logged):
    graph = weft.Graph("unknown")
    graph.map(quiet, [1, 2])
    run = logged.submit(graph)
    run.result(DEADLINE_S)
    with pytest.raises(NotFoundError, match="quiet has 2 tasks, and no task 2"):
        run.logs("quiet", 2)
    with pytest.raises(NotFoundError, match="no vertex 'quite'"):
        run.logs("quite")
    with pytest.raises(UsageError, match="index"):
        run.logs("quiet", -1)


def test_a_session_without_logs_says_how_to_have_them(threads):
    run = threads.submit(weft.Graph("none"))
    with pytest.raises(UsageError, match="does not keep"):
        run.logs("x")


def test_output_still_appears_and_streams_are_given_back(capsys):
    before = sys.stdout, sys.stderr, logging.getLogRecordFactory()
    handlers = list(logging.getLogger().handlers)
    with weft.Session("threads", workers=1, task_logs=True) as session:
        assert logging.getLogger().handlers == handlers
        session.run(_one(say))
    assert (sys.stdout, sys.stderr, logging.getLogRecordFactory()) == before
    assert "hello 7\n" in capsys.readouterr().out


def _one(fn):
    graph = weft.Graph("one")
    graph.map(fn, [7])
    return graph


@pytest.fixture
def lease(tmp_path):
    logs = task_logs.folder_of(str(tmp_path), "v")
    task_logs.install()
    yield SimpleNamespace(logs=logs, at=0, attempt=0)
    task_logs.uninstall()


def test_other_threads_are_left_alone(lease, tmp_path):
    with task_logs.recorded(lease):
        other = threading.Thread(target=print, args=("other",))
        other.start()
        other.join(DEADLINE_S)
        print("own")
    assert task_logs.log_of(str(tmp_path), "v", 0) == "own\n"


def test_a_task_is_cut_at_its_limit(lease, tmp_path, monkeypatch):
    monkeypatch.setattr(task_logs, "MOST_BYTES", 10)
    with task_logs.recorded(lease):
        for _ in range(5):
            print("1234")
    assert task_logs.log_of(str(tmp_path), "v", 0) == "1234\n1234\n" + task_logs.CUT


def test_a_run_is_cut_at_its_limit(lease, tmp_path, monkeypatch):
    monkeypatch.setattr(task_logs, "MOST_OF_RUN", 8)
    with task_logs.recorded(lease):
        for lease.at in range(4):
            print("1234")
    texts = [task_logs.log_of(str(tmp_path), "v", index) for index in range(4)]
    assert texts == ["1234\n", "123" + task_logs.CUT, "", ""]
