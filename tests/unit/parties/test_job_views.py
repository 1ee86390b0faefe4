"""What the people of a party see of a job: parts, waits, components, and what has left the site."""

import json

import pytest
from msgspec.structs import replace

from tests.unit.parties.pair import NOW
from tests.unit.parties.views import GUEST, HOST, Viewed
from weft.frontends.federated.coordination.coordinator import Attempt
from weft.frontends.federated.coordination.participant import Participation
from weft.frontends.federated.coordination.records import (
    JobPhase,
    ObservedAttempt,
    PartFailure,
    PartPhase,
    PartStatus,
    Report,
    Want,
    Wish,
)
from weft.parties.http.ports import TaskRow
from weft.parties.ledger import DocumentEntry


def report(part, phase, **fields):
    return Report(job="job", part=part, epoch=1, version=1, wish_version=1, phase=phase, **fields)


def wish(part, phase, **fields):
    options = {"digest": "d", "cores": 1, "epoch": 1, "version": 1, "phase": phase, "initiator": GUEST}
    return Wish(job="job", part=part, **(options | fields))


def states(viewed):
    return {one["part"]: one["state"] for one in viewed.show()["parts"]}


def waits(viewed):
    return [one["what"] for one in viewed.show()["waits"]]


def test_what_components_warn_of_is_among_the_notes(tmp_path):
    viewed = Viewed(tmp_path)
    before = viewed.show()["notes"]
    folder = viewed.attempt("binning_0", GUEST)
    (folder / "summary.json").write_text(json.dumps({"warnings": ["the loss grew"]}))
    assert viewed.show()["notes"] == [*before, "binning_0 of guest 1: the loss grew"]


@pytest.mark.parametrize(
    ("phase", "reason", "state", "wait"),
    [
        (PartPhase.AWAITING, "", "waits for approval", ["host 2 waits for the approval of party 2"]),
        (PartPhase.QUEUED, "needs 2 cores", "waits for cores", ["host 2 needs 2 cores"]),
        (PartPhase.ACCEPTED, "", "has accepted", []),
        (PartPhase.RESERVED, "", "holds its cores", []),
        (PartPhase.REFUSED, "not on Fridays", "has refused: not on Fridays", []),
    ],
)
def test_the_initiator_sees_how_far_each_part_is(tmp_path, phase, reason, state, wait):
    viewed = Viewed(tmp_path, status="waiting")
    assert states(viewed) == dict.fromkeys(("guest 1", "host 2"), "has not answered yet")
    viewed.coordination = replace(viewed.coordination, reports={"host 2": report(HOST, phase, reason=reason)})
    assert states(viewed)["host 2"] == state
    assert waits(viewed) == wait


def test_parts_run_and_end(tmp_path):
    viewed = Viewed(tmp_path)
    reports = {str(part): report(part, PartPhase.RESERVED) for part in (GUEST, HOST)}
    viewed.coordination = replace(viewed.coordination, phase=JobPhase.RUN, reports=reports)
    assert set(states(viewed).values()) == {"runs"}
    viewed.entry = replace(viewed.entry, status="failed", ended=NOW)
    viewed.coordination = replace(
        viewed.coordination, phase=JobPhase.END, reports=reports | {"guest 1": report(GUEST, PartPhase.ENDED)}
    )
    assert states(viewed) == {"guest 1": "has ended", "host 2": "has not heard of the end"}


def test_a_report_of_an_earlier_epoch_tells_nothing(tmp_path):
    viewed = Viewed(tmp_path)
    old = report(HOST, PartPhase.ENDED)
    viewed.coordination = replace(viewed.coordination, epoch=2, reports={"host 2": old})
    assert states(viewed)["host 2"] == "has not answered yet"


def test_a_party_that_does_not_answer_is_named_with_the_time(tmp_path):
    viewed = Viewed(tmp_path)
    viewed.silent = {"2": NOW - 10, "77": NOW}
    assert viewed.show()["waits"] == [{"what": "party 2 does not answer", "party": "2", "since": NOW - 10}]
    viewed.documents = [DocumentEntry("job", "host", "2", "wish", "2", 1, 3, 2, "{}")]
    told = "party 2 does not answer; it has not acknowledged the latest message"
    assert waits(viewed) == [told]
    viewed.silent = {}
    assert waits(viewed) == ["party 2 has not acknowledged the latest message yet"]
    viewed.documents = [replace(viewed.documents[0], acknowledged=3)]
    assert waits(viewed) == []


def test_pauses_earlier_jobs_and_cut_links_are_waits(tmp_path):
    viewed = Viewed(tmp_path)
    viewed.coordination = replace(viewed.coordination, held=["binning_0"], silent={"host 2": {"3": NOW - 5}})
    assert viewed.show()["waits"] == [
        {"what": "the job pauses before binning_0: weft party step job", "party": "", "since": None},
        {"what": "party 3 does not answer host 2", "party": "3", "since": NOW - 5},
    ]
    waiting = Viewed(tmp_path, status="waiting")
    waiting.coordination = replace(waiting.coordination, waits_for=["earlier"])
    assert waits(waiting) == ["job earlier has not ended, and this one comes after it"]
    partner = Viewed(tmp_path, me="2")
    partner.own = {HOST: Participation(job="job", part=HOST, initiator=GUEST, silent={"binning_0": ["1"]})}
    assert waits(partner) == ["party 1 does not answer host 2"]


def test_a_partner_sees_its_own_part_and_what_it_waits_for(tmp_path):
    viewed = Viewed(tmp_path, me="2", status="waiting")
    own = Participation(job="job", part=HOST, initiator=GUEST, wish=wish(HOST, JobPhase.CREATE))
    viewed.own = {HOST: own}
    assert waits(viewed) == ["host 2 waits for approval: weft party approve job"]
    assert states(viewed)["guest 1"] == "known to its party and to the initiator"
    viewed.own = {HOST: replace(own, approved=True, waits_for="needs 2 cores, 1 of 2 are free")}
    assert waits(viewed) == ["host 2 needs 2 cores, 1 of 2 are free"]
    cause = PartFailure("out of memory", "1", "WEFT501", "Add memory.")
    viewed.own = {HOST: replace(own, approved=True, wish=wish(HOST, JobPhase.END, cause=cause))}
    viewed.entry = replace(viewed.entry, status="failed")
    shown = viewed.show()
    assert shown["cause"] == {"message": "out of memory", "party": "1", "code": "WEFT501", "hint": "Add memory."}
    assert shown["waits"] == []


@pytest.mark.parametrize(("me", "table"), [("1", "g"), ("2", "h")])
def test_a_party_sees_which_of_its_tables_a_job_reads(tmp_path, me, table):
    part = "guest 1" if me == "1" else "host 2"
    shown = Viewed(tmp_path, me=me).show()
    assert shown["tables"] == [{"namespace": "n", "name": table, "part": part, "component": "reader_0"}]


def test_a_component_that_is_prepared_waits_for_its_other_parts(tmp_path):
    viewed = Viewed(tmp_path)
    seen = {"binning_0": ObservedAttempt(0, PartStatus.PREPARED)}
    viewed.coordination = replace(
        viewed.coordination,
        phase=JobPhase.RUN,
        attempts={"binning_0": Attempt(0, Want.PREPARE, NOW)},
        reports={
            "guest 1": report(GUEST, PartPhase.RESERVED, components=seen),
            "host 2": report(HOST, PartPhase.RESERVED),
        },
    )
    assert waits(viewed) == ["binning_0 waits until it is prepared by host 2"]


def task(component, part, status, **fields):
    return TaskRow(
        job_id="job",
        component=component,
        module="M",
        task_id=component,
        version=fields.pop("version", 0),
        role=part.role,
        party_id=part.id,
        status=status,
        party_status=status,
        run_here=part == GUEST,
        **fields,
    )


def test_components_have_times_sources_and_what_they_wait_for(tmp_path):
    viewed = Viewed(tmp_path)
    viewed.tasks = [
        task("reader_0", GUEST, "success", started_at=NOW - 40, ended_at=NOW - 39, version=1),
        task("reader_0", HOST, "success", started_at=1.0, ended_at=900.0),
        task("binning_0", GUEST, "running", started_at=NOW - 30),
        task("evaluation_0", GUEST, "waiting"),
    ]
    reader, binning, evaluation = viewed.show()["components"]
    assert (reader["seconds"], reader["attempt"], reader["upstream"]) == (1.0, 1, [])
    assert (binning["started"], binning["ended"], binning["seconds"]) == (NOW - 30, None, None)
    assert (binning["waits_for"], evaluation["waits_for"]) == ([], ["binning_0"])


def test_components_of_an_earlier_run_are_told_from_those_that_do_not_run_here(tmp_path):
    viewed = Viewed(tmp_path, started=NOW - 5)
    viewed.tasks = [
        task("reader_0", GUEST, "success"),
        task("binning_0", GUEST, "success", started_at=NOW - 3, ended_at=NOW - 2),
        task("evaluation_0", HOST, "success"),
    ]
    assert [one["kept"] for one in viewed.show()["components"]] == [True, False, False]


def test_what_has_left_is_told_by_kind_and_the_largest_first(tmp_path):
    viewed = Viewed(tmp_path)
    counts = {"values_out": 1, "bytes_out": 700, "values_in": 0, "bytes_in": 0}
    found = {"host 2": {"labels": counts, "key": counts | {"bytes_out": 900}, "sums": counts | {"values_out": 0}}}
    found["host 2"]["sums"] |= {"bytes_out": 0, "values_in": 2, "bytes_in": 50}
    (viewed.attempt("binning_0", GUEST) / "traffic.json").write_text(json.dumps(found))
    shown = viewed.show()
    assert [(one["what"], one["messages"], one["bytes"]) for one in shown["left"]] == [
        ("a public key", 1, 900),
        ("encrypted labels", 1, 700),
    ]
    assert {(one["component"], one["from"], one["to"]) for one in shown["left"]} == {("binning_0", "guest 1", "host 2")}
    binning = shown["components"][1]
    assert binning["partners"] == [{"part": "host 2", "sent": 1600, "received": 50}]
    assert (binning["sent"], binning["received"]) == (1600, 50)
    host = next(one for one in shown["parts"] if one["part"] == "host 2")
    assert (host["sent"], host["received"], host["here"]) == (1600, 50, False)
