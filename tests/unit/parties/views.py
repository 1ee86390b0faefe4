"""A job of two parties in any state, without servers: for tests of how people see it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.unit.parties.pair import NOW, SetClock
from weft.frontends.federated.planning import read_job
from weft.frontends.federated.schema import Party
from weft.parties.job_rules import coordination_of
from weft.parties.job_views import PartyViewSources, ViewedJob, job_view
from weft.parties.ledger import JobEntry
from weft.parties.part_folders import PartFolders
from weft.parties.tracking import SiteTracking
from weft.parties.values import ValueHub

if TYPE_CHECKING:
    from pathlib import Path

GUEST, HOST = Party("guest", "1"), Party("host", "2")
DSL: dict[str, Any] = {
    "components": {
        "reader_0": {"module": "Reader", "output": {"data": ["data"]}},
        "binning_0": {
            "module": "HeteroFeatureBinning",
            "input": {"data": {"data": ["reader_0.data"]}},
            "output": {"data": ["data"], "model": ["model"]},
        },
        "evaluation_0": {"module": "Evaluation", "input": {"data": {"data": ["binning_0.data"]}}},
    }
}
CONF: dict[str, Any] = {
    "dsl_version": 2,
    "initiator": {"role": "guest", "party_id": 1},
    "role": {"guest": [1], "host": [2]},
    "component_parameters": {
        "common": {"binning_0": {"method": "quantile", "encrypt_param": {"key_length": 2048}}},
        "role": {
            "guest": {"0": {"reader_0": {"table": {"name": "g", "namespace": "n"}}}},
            "host": {"0": {"reader_0": {"table": {"name": "h", "namespace": "n"}}}},
        },
    },
}


class Viewed:
    """A job at the party `me`, whose records a test sets: `silent` parties, `documents`, states."""

    def __init__(self, root: Path, me: str = "1", **entry: Any) -> None:
        self.job = read_job(json.dumps(DSL), json.dumps(CONF))
        self.folders = PartFolders(root)
        self.clock = SetClock()
        self.silent: dict[str, float] = {}
        self.hindered: dict[str, str] = {}
        self.problem = ""
        self.documents: list[Any] = []
        self.me = me
        fields: dict[str, Any] = {"status": "running", "created": NOW - 60, "started": NOW - 50} | entry
        self.entry = JobEntry(
            job="job",
            digest="d",
            initiator_role="guest",
            initiator="1",
            mine=int(me == "1"),
            dsl=json.dumps(DSL),
            conf=json.dumps(CONF),
            **fields,
        )
        self.coordination: Any = coordination_of("job", "d", self.job) if me == "1" else None
        self.own: dict[Party, Any] = {}
        self.tasks: list[Any] = []

    @property
    def sources(self) -> PartyViewSources:
        """What views read."""
        hub = ValueHub(self.me, lambda party, path, body: b"", lambda *what: None, lambda *what: None)
        ledger = SimpleNamespace(documents=lambda job: self.documents)
        mail = SimpleNamespace(unreachable=lambda: self.silent, hindered=lambda: self.hindered)
        work: Any = SimpleNamespace(hub=hub, ledger=ledger, mail=mail)
        work.problem = lambda: self.problem
        here = GUEST if self.me == "1" else HOST
        tracking = SiteTracking(self.folders, lambda id: self.job, lambda part: here)
        return PartyViewSources(self.me, "bank", work, self.folders, tracking)

    @property
    def state(self) -> ViewedJob:
        """The job with its states."""
        return ViewedJob(self.entry, self.job, self.coordination, self.own)

    def show(self) -> dict[str, Any]:
        """Return the job as the party sees it."""
        return job_view(self.sources, self.state, self.tasks)

    def attempt(self, component: str, here: Party, number: str = "1-0") -> Path:
        """Return the folder of an attempt."""
        folder = self.folders.component("job", here, component) / number
        folder.mkdir(parents=True)
        (folder.parent / "current").write_text(number)
        return folder
