import sqlite3

import pytest

from weft.model.errors import ConflictError, DiskFullError, ForbiddenError, NotFoundError
from weft.parties.ledger import REPORT, WISH, DocumentEntry, JobEntry, PartyLedger
from weft.parties.tables import PartyTables
from weft.parties.tags import ModelTags
from weft.store import database as databases

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(tmp_path, request):
    place = tmp_path / "party.db" if request.param == "sqlite" else request.getfixturevalue("postgresql_url")
    found = PartyLedger(place)
    yield found
    found.close()


def entry(job="job", **fields):
    return JobEntry(
        **{
            "job": job,
            "digest": "d",
            "initiator_role": "guest",
            "initiator": "1",
            "mine": 1,
            "status": "waiting",
            "created": 1.0,
            "dsl": "{}",
            "conf": "{}",
        }
        | fields
    )


def document(version, *, kind=WISH, acknowledged=0):
    return DocumentEntry("job", "host", "2", kind, "2", 1, version, acknowledged, f"body {version}")


def test_a_database_has_the_records_of_one_party(ledger):
    ledger.claim("1")
    ledger.claim("1")
    with pytest.raises(ConflictError, match="has the records of party 1, not of party 2") as caught:
        ledger.claim("2")
    assert "a database of its own" in caught.value.hint


@pytest.mark.parametrize(
    "made",
    [
        lambda site: PartyLedger(site / "party.db").database,
        lambda site: PartyTables.open(site).index.database,
        lambda site: ModelTags(site).database,
    ],
    ids=["ledger", "tables", "tags"],
)
def test_the_advice_for_a_full_disk_has_commands_of_parties(made, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    database = made(tmp_path)
    monkeypatch.setattr(databases._Sqlite, "run", full)
    with pytest.raises(DiskFullError) as told, database.write() as write:
        write.run("SELECT 1")
    assert "weft party clean JOB" in told.value.hint
    assert "weft party drop" in told.value.hint
    assert "weft delete" not in told.value.hint
    database.close()


def test_a_new_ledger_is_empty(ledger):
    assert ledger.job("job") is None
    assert ledger.jobs() == []
    assert list(ledger.coordinations()) == []
    assert ledger.documents() == []


def test_jobs_are_listed_newest_first_and_change(ledger):
    with ledger.write() as write:
        write.add_job(entry("a", created=1.0))
        write.add_job(entry("b", created=2.0))
        write.set_job("a", status="running", started=3.0)
    assert [one.job for one in ledger.jobs()] == ["b", "a"]
    assert [one.job for one in ledger.jobs(limit=1)] == ["b"]
    assert ledger.jobs(status="running") == [entry("a", status="running", started=3.0)]


def test_a_document_waits_until_its_version_is_acknowledged(ledger):
    with ledger.write() as write:
        write.set_document(document(1))
        write.set_document(document(5, kind=REPORT))
    assert {one.version for one in ledger.documents()} == {1, 5}
    with ledger.write() as write:
        write.acknowledge("job", "host", "2", WISH, 1)
    assert [one.version for one in ledger.documents()] == [5]
    with ledger.write() as write:
        write.set_document(document(2))
        write.acknowledge("job", "host", "2", WISH, 1)
    assert [(one.version, one.acknowledged) for one in ledger.documents("job") if one.kind == WISH] == [(2, 1)]


def test_a_failed_step_writes_nothing(ledger):
    def step():
        with ledger.write() as write:
            write.add_job(entry())
            write.set_document(document(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        step()
    assert ledger.job("job") is None
    assert ledger.documents() == []


def test_only_live_states_are_loaded(ledger):
    with ledger.write() as write:
        write.set_coordination("a", "1", live=True)
        write.set_coordination("b", "2", live=True)
        write.set_coordination("b", "3", live=False)
        write.set_participation("a", "host", "2", "4", live=True)
        write.set_participation("b", "host", "2", "5", live=False)
    assert list(ledger.coordinations()) == [("a", "1")]
    assert list(ledger.coordinations("b")) == [("b", "3")]
    assert list(ledger.participations()) == [("a", "host", "2", "4")]
    assert list(ledger.participations("b")) == [("b", "host", "2", "5")]


def test_a_forgotten_job_leaves_nothing(ledger):
    with ledger.write() as write:
        write.add_job(entry())
        write.set_coordination("job", "1", live=True)
        write.set_document(document(1))
        write.forget("job")
    assert ledger.jobs() == []
    assert ledger.documents("job") == []


@pytest.mark.parametrize(
    ("part", "other", "kind", "told"),
    [
        ("@/weft_", "@/none_", NotFoundError, 'database "none_'),
        ("postgres@", "nobody@", ForbiddenError, 'role "nobody" does not exist'),
    ],
)
def test_what_is_missing_at_a_server_is_told(postgresql_url, part, other, kind, told):
    ledger = PartyLedger(postgresql_url.replace(part, other))
    with pytest.raises(kind, match=told) as caught:
        ledger.claim("1")
    assert caught.value.hint
    assert "{" not in caught.value.message
    ledger.close()
