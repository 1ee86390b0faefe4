"""Models in use: loaded at all parties, bound to a service, copied for other parties."""

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.unit.parties.pair import NOW, SetClock
from weft.frontends.federated.schema import Party
from weft.model.errors import (
    ConflictError,
    NotFoundError,
    PartyIdentityError,
    PartyMessageError,
    PartyUnreachableError,
    UsageError,
)
from weft.parties.http.ports import ModelFilter, ModelMigration
from weft.parties.ledger import PartyLedger
from weft.parties.model_store import ModelAbout, ModelStore
from weft.parties.models import SiteModels
from weft.parties.part_folders import PartFolders
from weft.parties.publishing import ModelMessage, SitePublishing
from weft.parties.tags import ModelTags

DSL = {"components": {"boost_0": {"module": "HeteroSecureBoost", "output": {"model": ["model"]}}}}
ROLES = {"guest": ["1"], "host": ["2", "3"], "arbiter": ["2"]}
CONF = {"dsl_version": 2, "initiator": {"role": "guest", "party_id": 1}, "role": ROLES}
TREE = {"kind": "HeteroSecureBoost", "models": [{"parties": ["guest", "2", "3"], "trees": [[{"party": 1}]]}]}
BINS = {"hosts": {"2": [{"iv": 0.5}]}, "labels": [0, 1]}


class Site:
    """The models of one of several parties, which reach each other without servers."""

    def __init__(self, root, me, others):
        folder = root / me
        self.me, self.store = me, ModelStore(folder / "models", PartFolders(folder / "jobs"))
        self.ledger, self.tags = PartyLedger(folder / "party.db"), ModelTags(folder, clock=SetClock())
        work: Any = SimpleNamespace(ledger=self.ledger, entry=self.entry)
        self.models = SiteModels(me, work, self.store, self.tags, SetClock(NOW))
        self.publishing = SitePublishing(me, self.models, self.store, self.reach, SetClock(NOW))
        self.others, self.away, self.paths = others, False, []
        others[me] = self

    def entry(self, id):
        raise NotFoundError(f"there is no job {id}")

    def reach(self, party, path, body):
        self.paths.append(path)
        if self.others[party].away:
            raise PartyUnreachableError(f"party {party} does not answer", party=party)
        return self.others[party].publishing.asked(SimpleNamespace(id=self.me), body)

    def has(self, role, model):
        about = ModelAbout(version="7", model_id="m", roles=ROLES, dsl=DSL, conf=CONF, created=NOW, imported=True)
        self.store.put(about, Party(role, self.me), {"boost_0": model})

    def rows(self, **which):
        return self.models.query(ModelFilter(**which))


@pytest.fixture
def sites(tmp_path):
    found: dict[str, Site] = {}
    for me in ("1", "2", "3"):
        (tmp_path / me).mkdir()
        Site(tmp_path, me, found)
    found["1"].has("guest", TREE | {"more": BINS})
    found["2"].has("host", {"kind": "HeteroSecureBoost"})
    found["3"].has("host", {"kind": "HeteroSecureBoost"})
    yield found
    for one in found.values():
        one.ledger.close()
        one.tags.close()


def migration(**fields):
    given = {
        "model_id": "m",
        "model_version": "7",
        "new_version": "8",
        "roles": ROLES,
        "new_roles": {"guest": ["91"], "host": ["92", "93"], "arbiter": ["92"]},
        "execute": {"guest": ["1"], "host": ["2", "3"]},
        "initiator": ("guest", "91"),
    }
    return ModelMigration(**given | fields)


def test_a_model_is_loaded_at_all_parties_but_the_arbiter(sites):
    guest = sites["1"]
    found = guest.publishing.load("m", "7")
    assert found.parties == {"guest": {"1": ""}, "host": {"2": "", "3": ""}}
    guest.publishing.load("", "7")
    assert [row.loaded for row in guest.rows()] == [2]
    assert [row.loaded for row in sites["3"].rows()] == [2]


def test_parties_that_lack_a_part_or_do_not_answer_are_told(sites):
    sites["2"].store.file("7", Party("host", "2"), "boost_0").unlink()
    sites["3"].away = True
    found = sites["1"].publishing.load("m", "7").parties
    assert found["guest"] == {"1": ""}
    assert found["host"] == {"2": "host 2 has no model of version 7", "3": "party 3 does not answer"}


def test_a_model_that_is_not_deployed_is_not_loaded(sites):
    guest = sites["1"]
    about = guest.store.about("7")
    reader = {"components": {"reader_0": {"module": "Reader"}, **DSL["components"]}}
    guest.store.keep(msgspec.structs.replace(about, dsl=reader))
    with pytest.raises(UsageError, match="not deployed"):
        guest.publishing.load("m", "7")
    made = guest.models.deploy("m", "7", components=["boost_0"], dsl=None)
    assert not any(guest.publishing.load("m", made.model_version).parties["host"].values())
    assert {row.model_version: row.loaded for row in guest.rows(role="guest")} == {"7.1": 1, "7": 0}


def test_a_loaded_model_answers_to_a_service_until_another_one_does(sites):
    guest = sites["1"]
    with pytest.raises(ConflictError, match="not loaded"):
        guest.publishing.bind("credit", "m", "7")
    guest.publishing.load("m", "7")
    guest.publishing.bind("credit", "m", "7")
    assert [row.services for row in guest.rows()] == [["credit"]]
    roles = {"guest": [1], "host": [2], "arbiter": [2]}

    def predicted(**common):
        asked = {"dsl_version": 2, "job_parameters": {"common": {"job_type": "predict"} | common}, "role": roles}
        dsl, conf = guest.models.complete({}, asked)
        return dsl, conf["job_parameters"]["common"]

    dsl, common = predicted(service_id="credit")
    assert (common["model_version"], common["model_id"]) == ("7", "m")
    assert "service_id" not in common
    assert list(dsl["components"]) == ["boost_0"]
    made = guest.models.deploy("m", "7", components=["boost_0"], dsl=None).model_version
    guest.publishing.load("m", made)
    guest.publishing.bind("credit", "m", made)
    assert predicted(service_id="credit")[1]["model_version"] == made
    with pytest.raises(UsageError, match="model_version and service_id"):
        predicted(service_id="credit", model_version="7")
    with pytest.raises(NotFoundError, match="service other"):
        predicted(service_id="other")
    with pytest.raises(UsageError, match="service_id"):
        guest.publishing.bind("x" * 200, "m", made)


def test_a_copy_has_the_new_parties_everywhere(sites):
    guest = sites["1"]
    found = guest.publishing.migrate(migration())
    assert found.model_id == "arbiter-92#guest-91#host-92_93#model"
    assert found.parties == {"guest": {"1": ""}, "host": {"2": "", "3": ""}}
    [row] = [one for one in guest.rows() if one.model_version == "8"]
    assert (row.role, row.party_id, row.model_id) == ("guest", "91", found.model_id)
    model = json.loads(guest.store.file("8", Party("guest", "91"), "boost_0").read_bytes())
    assert model["models"][0]["parties"] == ["guest", "92", "93"]
    assert model["more"] == {"hosts": {"92": [{"iv": 0.5}]}, "labels": [0, 1]}
    assert sites["3"].store.file("8", Party("host", "93"), "boost_0") is not None
    about = guest.store.about("8")
    assert about.conf["role"] == about.roles == {"guest": ["91"], "host": ["92", "93"], "arbiter": ["92"]}
    assert about.conf["initiator"] == {"role": "guest", "party_id": "91"}
    assert guest.publishing.migrate(migration()).parties["guest"]["1"] == "guest 91 has version 8 already"


def test_a_copy_goes_out_and_in_at_the_server_of_the_new_party(sites, tmp_path):
    sites["2"].publishing.migrate(migration(execute={"host": ["2"]}, alone=True))
    assert sites["2"].paths == []
    archive = sites["2"].models.pack(ModelFilter(model_version="8", role="host", party_id="92"), tmp_path)
    (tmp_path / "92").mkdir()
    new = Site(tmp_path, "92", {})
    new.models.unpack(ModelFilter(model_version="8", role="host", party_id="92"), archive, replace=False)
    assert [(row.model_version, row.party_id) for row in new.rows()] == [("8", "92")]
    new.ledger.close()
    new.tags.close()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"roles": {"guest": ["1"]}}, "role does not name the parties"),
        ({"new_roles": {"guest": ["91"], "host": ["92"], "arbiter": ["92"]}}, "2 different parties as host"),
        ({"new_roles": ROLES | {"local": ["0"]}}, "other roles"),
        ({"execute": {"host": ["9"]}}, "host 9, which is not in role"),
        ({"execute": {"host": ["2"]}, "alone": True}, "no party that may copy"),
        ({"initiator": ("guest", "1")}, "migrate_initiator guest 1"),
    ],
)
def test_migrations_that_do_not_fit_are_refused(sites, fields, message):
    with pytest.raises(UsageError, match=message):
        sites["1"].publishing.migrate(migration(**fields))


def test_strangers_and_noise_change_nothing(sites):
    host = sites["2"].publishing
    body = msgspec.json.encode(ModelMessage("m", "7", Party("host", "2")))
    with pytest.raises(PartyIdentityError, match="no part in the model"):
        host.asked(SimpleNamespace(id="9"), body)
    with pytest.raises(PartyIdentityError):
        host.asked(SimpleNamespace(id="1"), msgspec.json.encode(ModelMessage("m", "7", Party("host", "3"))))
    for noise in (b"", b"{}", b"[1]"):
        with pytest.raises(PartyMessageError):
            host.asked(SimpleNamespace(id="1"), noise)
    assert [row.loaded for row in sites["2"].rows()] == [0]
