"""Private memory for what is read."""

import pytest

from weft.store.pages import private_pages


@pytest.mark.parametrize("nbytes", [0, 1, 64 * 1024, (4 << 20) + 5])
def test_memory_is_writable_and_belongs_to_one_reader(nbytes):
    one, other = private_pages(nbytes), private_pages(nbytes)
    assert one.nbytes == other.nbytes == nbytes
    one[:] = b"\1" * nbytes
    other[:] = b"\2" * nbytes
    assert bytes(one) == b"\1" * nbytes
