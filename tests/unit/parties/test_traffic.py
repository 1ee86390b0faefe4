"""What parts have exchanged, by kind, over attempts and restarts."""

import json

from tests.unit.parties.pair import NOW, SetClock
from weft.frontends.federated.schema import Party
from weft.parties.part_folders import PartFolders
from weft.parties.traffic import TRAFFIC, TrafficWriter, exchanges
from weft.parties.values import AttemptKey, ValueHub

GUEST, HOST, ARBITER = Party("guest", "1"), Party("host", "2"), Party("arbiter", "1")


class Gate:
    def deliver(self, name, source, data):
        pass


class Site:
    """A party with one component, which sends values to a host that takes them all."""

    def __init__(self, root):
        self.folders = PartFolders(root)
        self.clock = SetClock()
        self.hub = ValueHub("1", lambda party, path, body: b"", lambda *what: None, lambda *what: None)

    def attempt(self, number, epoch=1):
        key = AttemptKey("job", epoch, "lr_0", number)
        folder = self.folders.make(key, GUEST)
        self.hub.open(key, GUEST, Gate())
        return key, TrafficWriter(self.hub, key, GUEST, folder, self.clock)

    def send(self, attempt, name, data=b"1234", to=HOST):
        key, writer = attempt
        self.hub.send(key, GUEST, name, to, data)
        writer.noted(name, to)

    def found(self, hub=None):
        found = exchanges(self.folders, hub or self.hub, "job", GUEST, "lr_0")
        return {(str(one.other), one.kind): (one.traffic.values_out, one.traffic.bytes_out) for one in found}


def test_attempts_add_up_and_other_roles_of_the_party_do_not_count(tmp_path):
    site = Site(tmp_path)
    first = site.attempt(0)
    for at in range(3):
        site.send(first, f"residual/{at}")
    site.send(first, "key", to=ARBITER)
    first[1].write()
    site.hub.end(first[0])
    second = site.attempt(1)
    site.send(second, "residual/0")
    site.send(second, "end", b"")
    assert site.found() == {("host 2", "residual"): (4, 16), ("host 2", "end"): (1, 0)}


def test_a_crash_of_the_server_loses_no_kind_and_at_most_a_second(tmp_path):
    site = Site(tmp_path)
    attempt = site.attempt(0)
    site.send(attempt, "residual")
    for _ in range(5):
        site.send(attempt, "residual")  # within a second: not written again
    site.send(attempt, "loss")
    again = ValueHub("1", lambda party, path, body: b"", lambda *what: None, lambda *what: None)
    assert site.found(again) == {("host 2", "residual"): (6, 24), ("host 2", "loss"): (1, 4)}
    site.send(attempt, "residual")
    assert site.found(again)["host 2", "residual"] == (6, 24)
    site.clock.at = NOW + 2
    site.send(attempt, "residual")
    assert site.found(again)["host 2", "residual"] == (8, 32)


def test_what_was_inherited_or_is_damaged_is_not_counted(tmp_path):
    site = Site(tmp_path)
    inherited = tmp_path / "job/guest/1/lr_0/0-0"
    inherited.mkdir(parents=True)
    counts = {"values_out": 1, "bytes_out": 5, "values_in": 0, "bytes_in": 0}
    (inherited / TRAFFIC).write_text(json.dumps({"host 2": {"residual": counts}}))
    damaged = tmp_path / "job/guest/1/lr_0/1-0"
    damaged.mkdir()
    (damaged / TRAFFIC).write_text("{")
    assert site.found() == {}
    own = tmp_path / "job/guest/1/lr_0/1-1"
    own.mkdir()
    (own / TRAFFIC).write_text(json.dumps({"host 2": {"residual": counts}}))
    assert site.found() == {("host 2", "residual"): (1, 5)}
