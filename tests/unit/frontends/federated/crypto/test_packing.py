import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.frontends.federated.crypto.packing import Slots, compress, pack, slots_of, unpack
from weft.frontends.federated.crypto.paillier import generate
from weft.frontends.federated.crypto.plain import PlainKey
from weft.model.errors import PartyMessageError, UsageError

BITS = 512
KEYS = [generate(BITS), PlainKey()]


@given(st.lists(st.tuples(st.integers(0, 2**20 - 1), st.integers(0, 2**33 - 1)), min_size=1))
def test_packed_columns_and_their_sums_come_back(rows):
    first, second = ([row[at] for row in rows] for at in (0, 1))
    columns = [np.array(one, dtype=object) for one in (first, second)]
    packed = pack(columns, [20, 33])
    assert unpack(packed.tolist(), [20, 33]) == [first, second]
    wide = pack(columns, [40, 50])
    assert unpack([wide.sum()], [40, 50]) == [[sum(first)], [sum(second)]]


@pytest.mark.parametrize("values", [[-1], [2**20]])
def test_what_does_not_fit_is_not_packed(values):
    with pytest.raises(UsageError, match="20 bits"):
        pack([np.array(values)], [20])


@pytest.mark.parametrize("value", [-1, 2**40])
def test_sums_with_other_bits_are_refused(value):
    with pytest.raises(PartyMessageError):
        unpack([value], [20, 20])


@pytest.mark.parametrize("keys", KEYS, ids=["paillier", "plain"])
@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 23])
def test_sums_of_groups_are_decrypted_together(keys, count):
    rng = np.random.default_rng(count)
    g, h, groups = rng.integers(0, 2**40, 60), rng.integers(0, 2**40, 60), rng.integers(0, max(1, count), 60)
    encrypted = keys.public.encrypt(pack([g, h], [46, 46])).group_sums(groups, max(1, count))[:count]
    few, slots = compress(encrypted, 92, BITS)
    assert few.shape == (slots.groups,) == (-(-count // 5),)
    sums = slots.unpack(keys.decrypt_integers(few.masked()))
    expected = [[int(one[groups == at].sum()) for at in range(count)] for one in (g, h)]
    assert unpack(sums, [46, 46]) == expected


def test_slots_need_room_and_their_number_is_checked():
    with pytest.raises(UsageError, match="do not fit"):
        slots_of(3, 511, BITS)
    with pytest.raises(UsageError, match="do not fit"):
        slots_of(3, 0, BITS)
    with pytest.raises(PartyMessageError, match="1 packed"):
        Slots(10, 8, 2).unpack([3])
