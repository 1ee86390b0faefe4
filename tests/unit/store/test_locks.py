"""Locks by key: one owner at a time, and an end that nobody mistakes for a key."""

import pytest

from weft.store.locks import KeyLocks


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
    with pytest.raises(OSError, match="given up"):
        ask(locks, "0a" * 16)
