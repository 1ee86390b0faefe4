"""Locks by key: one owner at a time, and an end that nobody mistakes for a key."""

import subprocess
import sys

import pytest

from tests.integration.places import until
from weft.store.database import Database
from weft.store.locks import AdvisoryLocks, KeyLocks


def test_a_key_has_one_owner_at_a_time(tmp_path):
    one, other = KeyLocks(tmp_path / "locks"), KeyLocks(tmp_path / "locks")
    assert one.try_lock("0a" * 16)
    assert not other.try_lock("0a" * 16)
    assert other.try_lock("0b" * 16)
    one.close()
    assert other.try_lock("0a" * 16)
    other.close()


@pytest.mark.parametrize("ask", [KeyLocks.try_lock, KeyLocks.wait, KeyLocks.unlock])
def test_who_asks_after_the_end_gets_an_error_of_the_system(tmp_path, ask):
    locks = KeyLocks(tmp_path / "locks")
    locks.close()
    with pytest.raises(OSError, match="released"):
        ask(locks, "0a" * 16)


# -------------------------------------------------------------------------------------------- locks of a server

HOLDER = """
import sys, time
from tests.integration.places import until
from weft.store.database import Database
from weft.store.locks import AdvisoryLocks
locks = AdvisoryLocks(Database(sys.argv[1], what="it", schema=(), version=1, again="again"))
print(locks.try_lock(sys.argv[2]), flush=True)
time.sleep(600)
"""


def at_server(url):
    return AdvisoryLocks(Database(url, what="it", schema=(), version=1, again="again"))


def test_owners_at_one_server_exclude_each_other(postgresql_url):
    one, two = at_server(postgresql_url), at_server(postgresql_url)
    assert one.try_lock("ff" * 32)
    assert one.try_lock("ff" * 32)
    assert not two.try_lock("ff" * 32)
    assert two.try_lock("0f" * 32)
    one.unlock("ff" * 32)
    assert two.try_lock("ff" * 32)
    two.close()  # the server frees its locks once it has read that the connection is closed
    until(lambda: one.try_lock("ff" * 32))
    one.close()
    one.close()
    with pytest.raises(OSError, match="released"):
        one.try_lock("ff" * 32)


def test_a_server_frees_the_keys_of_a_process_that_is_killed(postgresql_url):
    mine = at_server(postgresql_url)
    with subprocess.Popen([sys.executable, "-c", HOLDER, postgresql_url, "ab" * 32], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"True\n"
            assert not mine.try_lock("ab" * 32)
        finally:
            holder.kill()
    mine.wait("ab" * 32)
    mine.close()
