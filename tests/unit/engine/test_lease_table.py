"""The records of leases, own and shared ones."""

import pytest
from msgspec import Struct

from weft.engine.lease_table import LeaseTable


class Shared(Struct):
    leases: tuple[int, ...]

    def of(self, lease: int) -> list[int]:
        return [lease]


@pytest.fixture
def table() -> LeaseTable[list[int], Shared]:
    made: LeaseTable[list[int], Shared] = LeaseTable(Shared)
    made[1] = [1]
    made.share(Shared((2, 3, 4)))
    return made


def test_a_lease_gets_a_record_of_its_own_when_somebody_asks_for_it(table):
    assert len(set(map(id, table.records.values()))) == 2
    row = table[2]
    assert row == [2]
    assert table.get(2) is row
    assert table[2] is row
    assert table.records[3] is table.records[4]


def test_who_asks_for_all_leases_gets_records_that_stay(table):
    rows = list(table.values())
    assert rows == [[1], [2], [3], [4]]
    assert [table[lease] for lease in table] == rows
    assert all(table[lease] is row for lease, row in table.items())


def test_the_table_is_a_mapping(table):
    assert (len(table), 3 in table, 9 in table, table.get(9), table.get(9, "none")) == (4, True, False, None, "none")
    assert (table.pop(3), table.pop(1), table.pop(9, None)) == ([3], [1], None)
    with pytest.raises(KeyError):
        table.pop(3)
    with pytest.raises(KeyError):
        table[3]
    del table[2]
    assert table == {4: [4]}
    assert table
