"""Parties whose releases have different messages of a component."""

from __future__ import annotations

import pytest

from tests.integration.places import until
from tests.unit.parties.works import Works, toy_conf
from weft.frontends.federated.components import registry
from weft.frontends.federated.components.registry import COMPONENTS, FIRST_PROTOCOL, protocol_of
from weft.parties import job_rules, work
from weft.parties.http.ports import JobFilter

MODULE = "SecureAddExample"


@pytest.fixture
def older_host(monkeypatch):
    """Let party 2 have the first version of messages, and all others the second one."""
    newer = job_rules.protocols_of
    monkeypatch.setattr(registry, "_PROTOCOLS", {MODULE: 2})
    monkeypatch.setattr(work, "protocols_of", lambda job, part: {} if part.id == "2" else newer(job, part))


def ended_part(works, job, id):
    """Return the state of the part of a party when it has heard of the end, which is after the job has ended."""

    def part():
        (found,) = [one for key, one in works.parts(job).items() if key.id == id]
        return found

    until(lambda: part()["wish"]["cause"], f"the end of the part of party {id}")
    return part()


@pytest.mark.usefixtures("older_host")
@pytest.mark.parametrize(("initiator", "partner"), [("1", "2"), ("1", "3")], ids=["older_partner", "equal_partner"])
def test_a_job_runs_between_parties_of_one_version_alone(tmp_path, initiator, partner):
    with Works(tmp_path, "1", "2", "3") as works:
        job = works.of[initiator].submit(toy_conf(initiator=initiator, host=partner))
        if partner == "3":
            assert works.of[initiator].ended(job) == "success"
            return
        for id in (initiator, partner):
            assert works.of[id].ended(job) == "failed"
            (row,) = works.of[id].jobs.query(JobFilter(job_id=job))
            assert row.error == (
                "party 2: host 2 has version 1 of the messages of SecureAddExample, and guest 1 has version 2"
            )
            part = ended_part(works, job, id)
            assert (part["wish"]["cause"]["code"], part["wish"]["cause"]["party"]) == ("WEFT605", "2")
            assert part["wish"]["cause"]["hint"].startswith("Install the release of Weft of party 1 at party 2, too")
            assert part["components"] == {}
            assert not list((tmp_path / id).glob("jobs/*/*/*/secure_add_0"))


@pytest.mark.usefixtures("older_host")
def test_a_party_that_has_updated_takes_part_in_the_next_run(tmp_path, monkeypatch):
    with Works(tmp_path, "1", "2") as works:
        job = works.of["1"].submit(toy_conf())
        assert works.of["1"].ended(job) == works.of["2"].ended(job) == "failed"
        works.end("2")
        monkeypatch.setattr(work, "protocols_of", job_rules.protocols_of)
        works.start("2")
        works.of["1"].jobs.rerun(job, [], force=False)
        assert works.of["1"].ended(job) == "success"


def test_versions_are_those_of_modules_that_there_are():
    assert set(registry._PROTOCOLS) <= set(COMPONENTS)
    assert all(version > FIRST_PROTOCOL for version in registry._PROTOCOLS.values())
    assert protocol_of("Evaluation") == FIRST_PROTOCOL
