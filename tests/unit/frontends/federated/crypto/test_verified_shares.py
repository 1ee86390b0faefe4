import pytest

from weft.frontends.federated.crypto.verified_shares import (
    Share,
    check,
    commitments_of,
    divided,
    joined,
    product,
    share_of,
    to_wire,
)
from weft.frontends.federated.wire import decode, encode, integers
from weft.model.errors import PartyMessageError

VALUES, MORE = [0, -5, 2**90], [7, -1, 1]


@pytest.mark.parametrize("holders", [2, 3, 5])
def test_sums_of_shares_are_shares_of_sums_and_fit_the_commitments(holders):
    one, committed = divided(VALUES, holders)
    two, more = divided(MORE, holders)
    sums = {at + 1: a.plus(b) for at, (a, b) in enumerate(zip(one, two, strict=True))}
    known = product(commitments_of(decode(encode(to_wire(committed))), 3, holders, "1"), more)
    for at, share in sums.items():
        check(share, known, at, "1")
    assert joined(sums) == [7, -6, 2**90 + 1]


def test_a_share_has_the_same_remainder_whatever_the_number_is():
    for value in (0, 1, 2, 3):
        shares, _ = divided([value], 3)
        assert [share.numbers[0] % at for at, share in enumerate(shares, 1)] == [0, 0, 0]
        assert min(share.numbers[0] for share in shares) > 2**200


@pytest.mark.parametrize("change", [(1, 0), (0, 1)])
def test_a_wrong_share_names_its_sender(change):
    shares, committed = divided([5], 2)
    wrong = Share([shares[0].numbers[0] + change[0]], [shares[0].blinds[0] + change[1]])
    with pytest.raises(PartyMessageError, match="party 9 has sent a share that does not fit"):
        check(wrong, committed, 1, "9")


@pytest.mark.parametrize("wire", [5, [[1], [1, 2]], [[1], ["1"]], [[1]], [[True], [1]]])
def test_messages_that_are_none(wire):
    with pytest.raises(PartyMessageError, match="shares of another form"):
        share_of(wire, 1, "9")
    for other in (wire, decode(encode(integers([1, 0]))), decode(encode(integers([1])))):
        with pytest.raises(PartyMessageError, match="commitments of another form"):
            commitments_of(other, 1, 2, "9")
