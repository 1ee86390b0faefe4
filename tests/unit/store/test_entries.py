"""The index of the cache: results, claims and epochs."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.integration.places import until
from tests.started import start
from weft.model.errors import NotFoundError, UsageError
from weft.store.entries import _STORES, CachedOutput, CacheIndex, Claim, Entry, index_of
from weft.store.locks import KeyLocks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
_WAITS = """SELECT count(*) FROM pg_locks WHERE NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


@pytest.fixture(params=["sqlite", "postgresql"])
def index(request, tmp_path):
    url = request.getfixturevalue("postgresql_url") if request.param == "postgresql" else None
    index = CacheIndex(url or tmp_path / "cache.db")
    yield index
    index.close()


def claim(key: str, run: str = "run-1", **more) -> Claim:
    given = {"epoch": 0, "step": "a", "task": 0, "host": "here", "pid": 1, "since": 1.0, "lease_until": 9.0}
    return Claim(key=key, run=run, **{**given, "leaves": {"command": "x"}, **more})


def entry(key: str, run: str = "run-1", **more) -> Entry:
    given = {"store": "/s", "pipeline": "p", "step": "a", "started": 1.0, "completed": 2.0, "expires": None}
    outputs = {"out": CachedOutput("f" + "0" * 64, 3, 1, 5)}
    return Entry(key=key, run=run, **{**given, "leaves": {"command": "x"}, "outputs": outputs, **more})


def test_the_environment_names_another_place(monkeypatch, tmp_path, postgresql_url):
    monkeypatch.delenv("WEFT_CACHE_INDEX", raising=False)
    with closing(index_of(tmp_path)) as index:
        assert index.place == tmp_path / "cache.db"
    monkeypatch.setenv("WEFT_CACHE_INDEX", postgresql_url)
    with closing(index_of(tmp_path)) as index:
        assert index.place == postgresql_url


def test_equally_named_runs_of_two_projects_own_nothing_of_each_other(index):
    one, two = (CacheIndex(index.place, owner) for owner in (partial(str, "one"), partial(str, "two")))
    with closing(one), closing(two):
        index.commit(entry("ab"), index.claim(claim("ab")))
        first, second = one.claim(claim("c1")), two.claim(claim("c2"))
        for each in (one, two):
            each.used("ab", "run-1", 7.0)
            each.flush()
        assert one.claim_of("run-1", "a", 0) == first
        assert two.claims_of("run-1") == [second]
        assert one.users("ab") == ["run-1", "run-1 of another project"]
        two.forget_run("run-1")
        assert one.claimed("c1") == first
        assert one.users("ab") == ["run-1"]
        assert one.claimed("c2") is None


def test_nothing_is_made_by_looking(index, tmp_path):
    assert index.entry("ab") is None
    assert index.known(1, 2) is None
    assert index.count() == (0, 0)
    assert index.claims_of("run-1") == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_committed_is_found(index):
    mine = index.claim(claim("ab"))
    assert index.claim_of("run-1", "a", 0) == index.claimed("ab") == mine
    kept = entry("ab", used=2.0)
    assert index.commit(kept, mine)
    assert index.entry("ab") == kept == index.find("a")
    assert index.claimed("ab") is None


def test_a_late_commit_is_refused(index):
    first = index.claim(claim("ab"))
    second = index.claim(claim("ab", run="run-2"))
    assert second.epoch > first.epoch
    assert not index.commit(entry("ab"), first)
    assert index.entry("ab") is None
    index.release([first])
    assert index.claimed("ab") == second
    assert index.commit(entry("ab", run="run-2"), second)
    assert not index.commit(entry("ab"), second), "a claim counts once"


def test_epochs_grow_for_ever(index):
    first = index.claim(claim("ab"))
    index.release([first])
    assert index.claim(claim("ab")).epoch > first.epoch


def test_notes_survive(index, tmp_path):
    index.note(2**63 + 1, 2**64 - 1, "seen", "digest")
    index.note_tree("d0", b"\0\xff")
    assert index.known(2**63 + 1, 2**64 - 1) == ("seen", "digest")
    index.flush()
    other = CacheIndex(index.place)
    assert other.known(2**63 + 1, 2**64 - 1) == ("seen", "digest")
    assert other.tree("d0") == b"\0\xff"
    with pytest.raises(NotFoundError):
        other.tree("d1")
    other.close()


def test_two_that_add_a_table_at_once_wait_for_each_other(postgresql_url):
    """Of two transactions that create a table, PostgreSQL lets one fail, also with IF NOT EXISTS."""
    with closing(CacheIndex(postgresql_url)) as one, closing(CacheIndex(postgresql_url)) as two:
        two.commit(entry("ab"), two.claim(claim("ab")))
        with ThreadPoolExecutor(1) as pool:
            with one.database.write() as db:
                db.add("stores", [_STORES])
                removal = pool.submit(two.remove, ["ab"])
                until(lambda: db.rows(_WAITS)[0][0] or removal.done(), "the wait of the other one")
            removal.result(timeout=60)
        assert two.left_stores() == {"/s"}


def test_uses_and_forgetting_a_run(index):
    index.commit(entry("ab"), index.claim(claim("ab")))
    index.used("ab", "run-2", 7.0)
    index.flush()
    assert index.users("ab") == ["run-2"]
    assert index.entry("ab").used == 7.0
    index.forget_run("run-2")
    index.forget_run("run-1")
    assert index.users("ab") == []
    assert index.entry("ab") is not None, "what a run has made stays when it is deleted"


def test_many_are_found_at_once(index):
    for key in ("a", "b", "c"):
        index.commit(entry(key), index.claim(claim(key)))
    found = index.entries_of(["c", "a", "x", "a"])
    assert found == {"a": index.entry("a"), "c": index.entry("c")}


@pytest.mark.parametrize("index", ["sqlite"], indirect=True)
def test_what_is_recalled_is_not_looked_for_again(index, tmp_path):
    high = (1 << 64) - 5
    for inode in (1, 2, high):
        index.note(7, inode, f"stamp {inode}", f"digest {inode}")
    index.close()
    again = CacheIndex(index.place)
    again.recall([(7, 1), (7, high), (8, 1)])
    again.database.close()
    index.place.rename(tmp_path / "elsewhere")
    assert again.known(7, 1) == ("stamp 1", "digest 1")
    assert again.known(7, high) == (f"stamp {high}", f"digest {high}")
    assert again.known(7, 2) is again.known(8, 1) is None


def test_what_was_noted_since_wins_over_what_is_recalled(index):
    index.note(7, 1, "old", "old")
    index.flush()
    index.recall([(7, 1)])
    index.note(7, 1, "new", "new")
    assert index.known(7, 1) == ("new", "new")
    index.flush()
    assert index.known(7, 1) == ("new", "new")


@pytest.mark.parametrize("index", ["sqlite"], indirect=True)
def test_a_digest_is_looked_for_once(index, tmp_path):
    index.note(7, 1, "stamp", "digest")
    index.close()
    again = CacheIndex(index.place)
    assert again.digest(7, 1, "stamp") == "digest"
    again.database.close()
    index.place.rename(tmp_path / "elsewhere")
    assert again.digest(7, 1, "stamp") == "digest"


def test_a_digest_that_another_process_recorded_since_is_found(index):
    other = CacheIndex(index.place)
    index.note(7, 1, "old", "a")
    index.flush()
    assert (other.digest(7, 1, "old"), other.digest(7, 1, "new")) == ("a", None)
    index.note(7, 1, "new", "b")
    assert (index.digest(7, 1, "old"), index.digest(7, 1, "new")) == ("a", "b")
    index.flush()
    assert other.digest(7, 1, "new") == "b"
    other.close()


def test_finding_by_a_beginning(index):
    for key in ("aa", "ab"):
        index.commit(entry(key), index.claim(claim(key)))
    with pytest.raises(UsageError, match="more than one"):
        index.find("a")
    with pytest.raises(NotFoundError):
        index.find("c")
    with pytest.raises(NotFoundError):
        index.find("%")
    index.remove(["aa"])
    assert index.find("a").key == "ab"


@pytest.mark.parametrize("index", ["sqlite"], indirect=True)
def test_looking_up_is_by_an_index(index):
    index.flush()
    index.claim(claim("ab"))
    with index.database.read() as db:
        for sql in (
            "SELECT key FROM entries WHERE key = 'a'",
            "SELECT key FROM entries WHERE pipeline = 'p' AND step = 's' ORDER BY completed DESC",
            "SELECT key FROM claims WHERE owner = 'o' AND run = 'r' AND step = 's' AND task = 0",
            "SELECT digest FROM digests WHERE device = 1 AND inode = 1",
        ):
            plan = " ".join(str(row[3]) for row in db.rows(f"EXPLAIN QUERY PLAN {sql}"))
            assert "SCAN" not in plan, sql


class TestLocks:
    KEY = "f" * 64

    def test_one_owner_for_each_key(self, tmp_path):
        one, two = KeyLocks(tmp_path / "keys"), KeyLocks(tmp_path / "keys")
        assert one.try_lock(self.KEY)
        assert not two.try_lock(self.KEY)
        assert two.try_lock("e" * 64)
        one.unlock(self.KEY)
        assert two.try_lock(self.KEY)
        two.close()
        assert one.try_lock(self.KEY)
        one.close()
        one.close()

    def test_a_killed_owner_lets_go(self, tmp_path):
        code = (
            "import sys, time; from pathlib import Path; from weft.store.locks import KeyLocks\n"
            "locks = KeyLocks(Path(sys.argv[1])); locks.try_lock('f' * 64); print('held', flush=True); time.sleep(600)"
        )
        env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-c", code, str(tmp_path / "keys")]
        owner = start(command, env=env, stdout=subprocess.PIPE, text=True)
        assert owner.stdout is not None
        while owner.stdout.readline().strip() != "held":
            pass
        mine = KeyLocks(tmp_path / "keys")
        assert not mine.try_lock(self.KEY)
        owner.kill()
        mine.wait(self.KEY)
        owner.communicate()
        mine.close()
