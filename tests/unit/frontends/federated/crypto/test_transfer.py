import pytest

from weft.frontends.federated.crypto.psi import PRIME
from weft.frontends.federated.crypto.transfer import KeyReceiver, KeySender, opened, sealed
from weft.model.errors import PartyMessageError


@pytest.mark.parametrize("at", [0, 1, 6])
def test_the_receiver_has_the_key_that_it_chose_and_no_other(at):
    sender = KeySender()
    receiver = KeyReceiver(sender.offer, at, "1")
    keys = sender.keys(receiver.choice, 7, "2")
    assert len(set(keys)) == 7
    assert receiver.key() == keys[at]
    assert opened(receiver.key(), sealed(keys[at], b"text"), "1") == b"text"
    with pytest.raises(PartyMessageError, match="does not open"):
        opened(receiver.key(), sealed(keys[(at + 1) % 7], b"text"), "1")


def test_choices_are_new_each_time():
    sender = KeySender()
    assert KeyReceiver(sender.offer, 0, "1").choice != KeyReceiver(sender.offer, 0, "1").choice


@pytest.mark.parametrize("value", [0, 1, -4, int(PRIME) - 1, int(PRIME) + 4, int(PRIME) - 4, "4", None, 4.0])
def test_numbers_that_are_none(value):
    with pytest.raises(PartyMessageError, match="no choice of a key"):
        KeySender().keys(value, 2, "1")
    with pytest.raises(PartyMessageError, match="no choice of a key"):
        KeyReceiver(value, 0, "1")
    with pytest.raises(PartyMessageError, match="does not open"):
        opened(bytes(32), value, "1")
