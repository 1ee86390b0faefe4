"""The registry of models: versions of jobs, deployed and imported ones, and how much of it a query reads."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.parties.pair import NOW, SetClock
from weft.frontends.federated.schema import Party
from weft.model.errors import NotFoundError
from weft.parties.http.ports import ModelFilter
from weft.parties.ledger import JobEntry, PartyLedger
from weft.parties.model_store import ModelAbout, ModelStore
from weft.parties.models import SiteModels, about_of
from weft.parties.part_folders import PartFolders
from weft.parties.tags import ModelTags

GUEST = Party("guest", "1")
DSL = {"components": {"reader_0": {"module": "Reader"}, "lr_0": {"module": "HeteroLR"}}}
CONF = {"dsl_version": 2, "initiator": {"role": "guest", "party_id": 1}, "role": {"guest": [1], "host": [2]}}


class CountedLedger(PartyLedger):
    """A ledger that counts the jobs that it has returned."""

    read = 0

    def jobs(self, **options):
        found = super().jobs(**options)
        self.read += len(found)
        return found


class Registry:
    """The models of a party whose jobs a test adds; job `at` is younger than job `at - 1`."""

    def __init__(self, root):
        self.folders = PartFolders(root / "jobs")
        self.store = ModelStore(root / "models", self.folders)
        self.ledger = CountedLedger(root / "party.db")
        self.tags = ModelTags(root, clock=SetClock())
        work: Any = SimpleNamespace(ledger=self.ledger, entry=self.entry)
        self.models = SiteModels("1", work, self.store, self.tags, SetClock(NOW + 1e6))

    def entry(self, id):
        found = self.ledger.job(id)
        if found is None:
            raise NotFoundError(f"there is no job {id}")
        return found

    def add(self, *numbers, status="success", models=("lr_0",), **parameters):
        conf = CONF | ({"job_parameters": {"common": parameters}} if parameters else {})
        with self.ledger.write() as write:
            for at in numbers:
                write.add_job(
                    JobEntry(
                        job=f"job{at}",
                        digest="d",
                        dsl=json.dumps(DSL),
                        conf=json.dumps(conf),
                        initiator_role="guest",
                        initiator="1",
                        mine=1,
                        status=status,
                        created=NOW + at,
                        ended=NOW + at + 0.5,
                    )
                )
        for at in numbers:
            for name in models:
                folder = self.folders.component(f"job{at}", GUEST, name) / "1-0"
                folder.mkdir(parents=True)
                (folder / "model.json").write_text("{}")
                (folder.parent / "current").write_text("1-0")

    def versions(self, **which):
        return [row.model_version for row in self.models.query(ModelFilter(**which))]

    def close(self):
        self.ledger.close()
        self.tags.close()


@pytest.fixture
def registry(tmp_path):
    found = Registry(tmp_path)
    yield found
    found.close()


def test_models_come_newest_first_with_their_deployed_versions(registry):
    registry.add(1, 2, 3)
    registry.add(4, status="failed")
    registry.add(5, models=())
    registry.add(6, job_type="predict", model_version="job1")
    made = registry.models.deploy("", "job1", components=["lr_0"], dsl=None)
    assert registry.versions() == [made.model_version, "job3", "job2", "job1"]
    deployed, *_, trained = registry.models.query(ModelFilter())
    assert (deployed.parent, deployed.parent_version, deployed.detail["components"]) == (False, "job1", ["lr_0"])
    assert (trained.parent, trained.model_id, trained.roles["host"]) == (True, "guest-1#host-2#model", ["2"])


def test_filters_find_one_version(registry):
    registry.add(1, 2)
    registry.models.deploy("", "job1", components=["lr_0"], dsl=None)
    assert registry.versions(model_version="job1") == ["job1"]
    assert registry.versions(model_version="job1.1") == ["job1.1"]
    assert registry.versions(model_version="job9") == registry.versions(role="host") == []
    assert registry.ledger.read == 2  # for the last query alone, which names no version


def test_a_listing_of_a_few_reads_a_few_of_many_jobs(registry):
    registry.add(*range(250), models=())
    registry.add(*range(250, 1000, 250))
    registry.add(*(at for at in range(1000, 1300)))
    assert registry.versions(limit=5) == ["job1299", "job1298", "job1297", "job1296", "job1295"]
    assert registry.ledger.read == 200
    registry.models.deploy("", "job250", components=["lr_0"], dsl=None)
    assert registry.versions(limit=3) == ["job250.1", "job1299", "job1298"]
    registry.ledger.read = 0
    assert len(registry.versions()) == 304
    assert registry.ledger.read == 553


def test_imported_models_are_listed_without_a_job(registry):
    registry.add(1)
    about = ModelAbout(
        version="far", model_id="m", roles={"guest": ["1"]}, dsl=DSL, conf=CONF, created=NOW + 9, imported=True
    )
    registry.store.keep(about)
    folder = registry.store._root / "far/guest/1"
    folder.mkdir(parents=True)
    (folder / "lr_0.json").write_text("{}")
    assert registry.versions() == registry.versions(limit=2) == ["far", "job1"]
    assert registry.versions(limit=1) == ["far"]


def test_what_is_known_of_a_model_comes_from_the_files_of_its_job(registry):
    registry.add(1)
    about = about_of(registry.ledger.job("job1"))
    assert (about.version, about.model_id, about.created) == ("job1", "guest-1#host-2#model", NOW + 1.5)
    registry.add(2, job_type="predict", model_id="given")
    assert about_of(registry.ledger.job("job2")).model_id == "given"
