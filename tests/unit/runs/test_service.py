"""The verbs of a service over recorded runs: no terminal, no signals, no process."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft import wiring
from weft.admin.control import ControlServer
from weft.admin.settings import Settings
from weft.engine.ports import ManualClock
from weft.model.errors import CapacityError, ConflictError, NotFoundError, UsageError
from weft.runs.service import RunService
from weft.store.run_log import LEASE_S, FilePiece, RunLog
from weft.store.schedules import PipelineSchedule
from weft.store.shared import SharedStorage
from weft.store.state import EVENTS, RunFolder, StateRoot, followed, followed_file, owned, read_description
from weft.wiring.concrete import source_again

NOW = 1_700_000_000.0


def make_run(root: StateRoot, number: int, *, ended: bool = True, name: str = "chain", digest: str = "") -> Path:
    """Make the folder of a run with a step that has two attempts with logs; with `digest` it is of a session."""
    with RunFolder.create(root, f"run-{number:06d}") as folder:
        folder.describe(number=number, name=name, created_at=NOW, steps=["a", "b"], frontend="pipelines", graph=digest)
        for attempt in range(2):
            folder.log_path("a", attempt=attempt).write_text(f"attempt {attempt}\n")
        records = [
            {"time": NOW, "state": "running"},
            {"time": NOW + 1, "step": "a", "state": "running", "attempt": 1},
            {"time": NOW + 2, "step": "a", "state": "succeeded", "attempt": 1, "ended": True},
        ]
        if ended:
            records.append({"time": NOW + 3, "state": "succeeded", "ended": True})
        folder.events.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return folder.path


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    root = StateRoot(tmp_path / ".weft")
    root.prepare()
    return root


@pytest.fixture
def service(root: StateRoot) -> Iterator[RunService]:
    with RunService(wiring, Settings(), root, ManualClock(NOW + 100)) as service:
        yield service


def test_runs_are_listed_newest_first(root, service):
    for number in (1, 2, 3):
        make_run(root, number, name="even" if number == 2 else "odd")
    rows, total = service.list_runs(number=2)
    assert ([row.number for row in rows], total) == ([3, 2], 3)
    assert [row.number for row in service.list_runs(name="odd", state="succeeded")[0]] == [3, 1]
    with pytest.raises(UsageError, match="'gone' is not a state of runs"):
        service.list_runs(state="gone")
    with pytest.raises(UsageError, match="it must be 0 or more"):
        service.list_runs(number=-1)


@pytest.mark.parametrize("run", ["run-000001", "1", "@last"])
def test_a_run_has_several_names(root, service, run):
    make_run(root, 1)
    assert service.show(run).id == "run-000001"
    assert service.find(run) == root.folder("run-000001")


def test_a_name_with_a_step_names_no_run(root, service):
    make_run(root, 1)
    for verb in (service.suspend, service.explain, service.show, service.resume):
        with pytest.raises(UsageError, match="names a step"):
            verb("1/a")
    with pytest.raises(NotFoundError):
        service.show("7")


def test_logs_are_those_of_the_last_or_the_named_attempt(root, service):
    make_run(root, 1)
    for target, attempts in {"1": [1], "1/a": [1], "1/a@0": [0], "1/a@7": [], "1/b": []}.items():
        found = service.logs(target)
        assert ([log.attempt for log in found.logs], found.active) == (attempts, False)
    with pytest.raises(NotFoundError):
        service.logs("1/c")
    assert service.origins("1/a") == []


def test_the_events_of_a_step_are_seconds_after_the_begin_of_the_run(root, service):
    make_run(root, 1)
    assert [(at, record.state) for at, record in service.events("1/a")] == [(1.0, "running"), (2.0, "succeeded")]
    assert [at for at, _ in service.events("@last")] == [0.0, 1.0, 2.0, 3.0]
    assert service.story("1/a") == ()  # nobody owns it, and it has no journal


def test_the_owner_of_a_run_tells_its_story_and_takes_orders(root, service):
    make_run(root, 1, ended=False, digest="00")
    orders = []

    def answer(order):
        orders.append(dict(order))
        return ["a line"]

    with (
        RunFolder.create(root, "run-000001") as folder,
        ControlServer(folder.path, dict.fromkeys(("story", "cancel", "suspend"), answer)),
    ):
        assert service.story("1/a@1") == ["a line"]
        assert service.cancel("1", force=True, reason="enough") == "run-000001"
        assert service.suspend("@last") == "run-000001"
    assert orders == [
        {"do": "story", "subject": "a@1"},
        {"do": "cancel", "force": True, "reason": "enough"},
        {"do": "suspend"},
    ]


def test_an_ended_run_takes_no_orders(root, service):
    make_run(root, 1)
    for verb in (service.cancel, service.suspend):
        with pytest.raises(ConflictError, match="has ended already: succeeded"):
            verb("1")
    with pytest.raises(ConflictError, match="has succeeded"):
        service.resume("1")


def test_a_run_is_watched_until_its_owner_has_gone(root, service):
    path = make_run(root, 1, ended=False)
    folder = RunFolder.create(root, "run-000001")
    folder.__enter__()
    lines = [
        '{"time": 1700000003.0, "step": "b", "state": "runn',
        'ing"}\n',
        '{"time": 1700000004.0, "state": "failed", "ended": true}\n',
    ]

    def pause():
        with (path / "events.jsonl").open("a") as file:
            file.write(lines.pop(0))
        if not lines:
            folder.__exit__(None, None, None)

    assert [(record.step, record.state) for record in service.watch("@last", pause)] == [
        ("", "running"),
        ("a", "running"),
        ("a", "succeeded"),
        ("b", "running"),
        ("", "failed"),
    ]
    assert lines == []


def test_runs_are_deleted_and_pruned(root, service):
    for number in range(1, 5):
        make_run(root, number)
    assert list(service.delete(["1", "run-000001"])) == ["run-000001"]
    assert [row.number for row in service.prune(keep=1, dry_run=True)] == [3, 2]
    assert [row.number for row in service.prune(keep=1)] == [3, 2]
    assert [row.number for row in service.list_runs()[0]] == [4]
    assert list(service.prune(older_than=98.0)) == []
    assert [row.number for row in service.prune(older_than=96.0)] == [4]
    with pytest.raises(UsageError):
        service.prune()


def test_none_is_deleted_if_one_still_goes_on(root, service):
    make_run(root, 1)
    make_run(root, 2, ended=False)
    with RunFolder.create(root, "run-000002"), pytest.raises(ConflictError, match="still running"):
        service.delete(["1", "2"])
    assert service.show("1").state == "succeeded"


@pytest.mark.parametrize(
    ("then", "told"),
    [("leaves", "has succeeded: there is nothing left to do"), ("goes on", "is still running"), ("stays", "is still")],
)
def test_a_resume_waits_for_an_owner_that_has_recorded_the_end(root, service, monkeypatch, then, told):
    events = make_run(root, 1) / EVENTS
    held, looks = RunFolder.create(root, "run-000001"), []

    def look(folder: Path) -> bool:
        looks.append(folder)
        if len(looks) == 2 and then == "leaves":
            held.release()
        elif len(looks) == 2 and then == "goes on":  # as a resume by another process does
            events.write_text(events.read_text() + json.dumps({"time": NOW + 4, "state": "running"}) + "\n")
        return owned(folder)

    monkeypatch.setattr("weft.runs.reopening.owned", look)
    if then == "stays":
        monkeypatch.setattr("weft.runs.reopening._LEAVING_S", 0.0)
    with held, pytest.raises(ConflictError, match=told):
        service.resume("1")
    assert len(looks) == (1 if then == "stays" else 2)


def test_a_run_of_records_alone_is_explained_by_them(root, service):
    make_run(root, 1)
    explained = service.explain("1")
    assert explained.state == "succeeded"
    assert [row[:2] for row in explained.rows] == [("a", "(not known)"), ("b", "(not known)")]


def test_why_needs_a_step(root, service):
    make_run(root, 1)
    with pytest.raises(UsageError, match="is a run that has ended"):
        service.why("1")
    assert service.why("1/a").lines() == ["a: it runs in every run, because its cache is not enabled"]


def test_the_life_of_a_schedule(service):
    with service.schedules() as schedules:
        made, first = schedules.create(PipelineSchedule(name="often", file="/x.yaml", cron="@every 60s"))
        assert (made.created_at, made.seen) == (NOW + 100, NOW + 100)
        assert 0 < first - (NOW + 100) <= 60
        assert [(one.name, last) for one, last in schedules.list_schedules()] == [("often", None)]
        with pytest.raises(ConflictError, match="is still running"):
            schedules.delete("often")
        schedules.stop("often")
        assert (schedules.show("often")[0].state, schedules.show("often")[1]) == ("terminated", [])
        schedules.delete("often")
        with pytest.raises(NotFoundError):
            schedules.show("often")
    assert not service.is_up()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "1x"}, "cannot name a schedule"),
        ({"policy": "hope"}, "--policy is 'hope'"),
        ({"concurrency": -1}, "--concurrency is -1"),
        ({"end_at": NOW + 101}, "it would never run"),
        ({"cron": "x"}, "has 1 fields, not 5"),
    ],
)
def test_an_impossible_schedule_is_refused(service, change, told):
    schedule = PipelineSchedule(**{"name": "often", "file": "/x.yaml", "cron": "@every 60s", **change})
    with service.schedules() as schedules, pytest.raises(UsageError, match=told):
        schedules.create(schedule)


PLANNED = """
name: planned
entry_points:
  first: {command: "echo 1 > {{out}}", artifacts: {output: [out]}, cache: {enable: true}}
  second: {command: "true"}
post_process:
  last: {command: "true"}
"""


def test_a_plan_tells_of_every_step_and_makes_nothing(service, root, tmp_path):
    file = tmp_path / "planned.yaml"
    file.write_text(PLANNED)
    planned = service.plan(wiring.load_pipeline(str(file), user="me"))
    assert [(one.step, one.outcome) for one in planned] == [("first", "run"), ("second", "run"), ("last", "run")]
    assert planned[-1].reason == "it runs at the end of every run"
    assert not root.runs.exists() or not list(root.runs.iterdir())
    only = wiring.load_pipeline(str(file), user="me", caching=wiring.Caching(only="first"))
    assert [one.step for one in service.plan(only)] == ["first"]


class TestRunAtACluster:
    """A run whose process is elsewhere, while neither the URL of its storage nor the cluster can be reached."""

    @pytest.fixture
    def run(self, root, tmp_path):
        folder = make_run(root, 1, ended=False)
        with RunFolder.create(root, folder.name) as held:
            held.describe_again(storage={"url": f"file://{tmp_path}/none", "key": "run-000001-ab", "keep": True})
        followed_file(folder).parent.mkdir()
        self.look(folder, alive=True, ended=False)
        return folder

    @staticmethod
    def look(folder, **told):
        """Note what the last look at the run has told."""
        followed_file(folder).write_text(json.dumps({"number": 1, **told}))

    @pytest.fixture
    def notes(self):
        return []

    @pytest.fixture
    def service(self, root, notes):
        def order_driver(folder, message):
            raise CapacityError("nobody answers")

        concrete = SimpleNamespace(MANAGERS={}, order_driver=order_driver, source_again=source_again)
        with RunService(concrete, Settings(), root, ManualClock(NOW + 100), note=notes.append) as service:
            yield service

    def test_it_is_shown_as_it_was_and_one_note_says_so(self, service, run, notes):
        assert service.show(run.name).state == "running"
        assert service.list_runs()[0][0].state == "running"
        assert service.show("@last").state == "running"
        (note,) = notes
        assert note.startswith("run-000001 is shown as it was ")
        assert note.endswith("the log of run-000001 is not at " + read_description(run)["storage"]["url"])

    def test_it_is_not_deleted_while_it_may_run(self, service, run):
        self.look(run, alive=False, ended=False)
        with pytest.raises(ConflictError, match="may still run at the cluster"):
            service.delete([run.name])
        assert run.exists()

    def test_it_is_deleted_when_it_is_known_to_have_ended(self, service, run, root):
        self.look(run, alive=False, ended=True)
        assert list(service.delete([run.name])) == [run.name]
        assert not run.exists()
        assert not followed(root)

    def test_before_its_begin_it_waits_for_workers(self, service, run):
        (run / "events.jsonl").write_text(json.dumps({"time": NOW, "state": "pending"}) + "\n")
        (line,) = service.why(run.name).lines()
        assert line == "run-000001: it has not begun: its process starts, or waits for workers"

    def test_its_records_answer_in_place_of_its_process(self, service, run, notes):
        explained = service.explain(run.name)
        assert [row.executed for row in explained.rows] == ["succeeded, 2 attempts", "pending"]
        assert service.why(run.name).lines()
        assert notes[1:] == ["the process of run-000001 at the cluster cannot be asked: nobody answers"] * 2


class TestRunThatIsFollowed:
    """A run whose process is elsewhere, and writes its log at a URL."""

    @pytest.fixture
    def run(self, root, tmp_path):
        folder = make_run(root, 1, ended=False)
        with RunFolder.create(root, folder.name) as held:
            held.describe_again(storage={"url": f"file://{tmp_path}/there", "key": "run-000001-ab", "keep": True})
        followed_file(folder).parent.mkdir()
        followed_file(folder).write_text(json.dumps({"number": 1}))
        return folder

    @pytest.fixture
    def ago(self):
        """The seconds by which the clock of the owner is late."""
        return [0.0]

    @pytest.fixture
    def log(self, run, ago):
        """The log as its owner has it, with the records so far."""
        url = read_description(run)["storage"]["url"]
        log = RunLog(SharedStorage(url), "run-000001-ab", lambda: time.time() - ago[0])
        log.take()
        for name in ("run.json", "events.jsonl"):
            log.append([FilePiece(name=name, data=(run / name).read_bytes(), whole=True)])
        return log

    @pytest.fixture
    def asked(self):
        """The folders whose drivers were asked for, with the answer to give in front."""
        return [True]

    @pytest.fixture
    def clock(self):
        return ManualClock(NOW + 100)

    @pytest.fixture
    def service(self, root, asked, clock):
        def driver_lives(folder):
            asked.append(folder.name)
            return asked[0]

        concrete = SimpleNamespace(MANAGERS={}, driver_lives=driver_lives, source_again=source_again)
        with RunService(concrete, Settings(), root, clock) as service:
            yield service

    @staticmethod
    def end(log, run):
        record = json.dumps({"time": NOW + 9, "state": "succeeded", "ended": True}) + "\n"
        log.append(
            [FilePiece(name="events.jsonl", data=(run / "events.jsonl").read_bytes() + record.encode(), whole=True)]
        )
        log.release()

    def test_watching_and_following_logs_look_at_the_url_once_a_second(self, service, log, run, clock):
        pauses = []

        def pause():
            pauses.append(clock.wall())
            clock.advance(0.4)
            if len(pauses) == 4:
                self.end(log, run)

        found = list(service.watch(run.name, pause))
        assert found[-1].state == "succeeded"
        assert 5 <= len(pauses) <= 8

    def test_a_driver_that_could_not_renew_its_lease_still_runs(self, service, log, run, asked, ago):
        ago[0] = 2 * LEASE_S
        log.renew()
        assert service.show(run.name).state == "running"
        assert asked[1:] == [run.name]

    def test_a_driver_that_its_cluster_has_lost_is_asked_for_once(self, service, log, run, asked, ago):
        asked[0] = False
        ago[0] = 2 * LEASE_S
        log.renew()
        for _ in range(2):
            assert service.show(run.name).state == "interrupted"
        assert asked[1:] == [run.name]
        ago[0] = 0.0
        log.renew()
        assert service.show(run.name).state == "running", "its lease says so"

    def test_a_driver_that_has_ended_is_not_asked_for(self, service, log, run, asked):
        self.end(log, run)
        assert service.show(run.name).state == "succeeded"
        assert asked[1:] == []
