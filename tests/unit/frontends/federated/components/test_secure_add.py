"""A sum of shares of guest and host."""

import pytest

from tests.unit.frontends.federated.components.parts_of import GUEST, HOST, HOST_2
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts


def add(*parties, **parameters):
    return run_parts("SecureAddExample", dict.fromkeys(parties, PartInputs(parameters)))


def test_several_hosts_and_wrong_numbers_are_refused():
    with pytest.raises(UsageError, match="one guest and one host"):
        add(GUEST, HOST, HOST_2)
    with pytest.raises(UsageError, match="data_num is 'many'"):
        add(GUEST, HOST, data_num="many")
    assert set(add(GUEST, HOST, data_num=5).outputs) == {GUEST, HOST}
