"""When components and jobs run, through the server of a party that has no partner."""

import pytest

import weft
from tests.integration.places import until
from tests.integration.test_parties import Served


def transform(source, **more):
    return {"module": "DataTransform", "input": {"data": {"data": [source]}}, "output": {"data": ["data"]}, **more}


def union(*sources):
    return {"module": "Union", "input": {"data": {"data": list(sources)}}, "output": {"data": ["data"]}}


READER = {"module": "Reader", "output": {"data": ["data"]}}


def conf(components, **parameters):
    """Return a conf of one guest. Components named `bad` find a word where they need numbers."""
    table = {"table": {"name": "rows", "namespace": "n"}}
    common = {name: table for name, one in components.items() if one["module"] == "Reader"}
    own = {name: {"missing_impute": ["word"]} for name in components if name in ("good_0", "if_good_failed")}
    return {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1]},
        "job_parameters": {"common": parameters},
        "component_parameters": {"common": common | own},
    }


@pytest.fixture(scope="module")
def guest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scheduling")
    found = Served(folder, "1")
    try:
        found.start()
        rows = folder / "rows.csv"
        rows.write_text("id,x\n1,2\n2,word\n")
        found.client.upload(rows, {"namespace": "n", "table_name": "rows", "head": 1, "partition": 1})
        yield found
    finally:
        found.end()


def submit(guest, components, **parameters):
    return guest.submit({"components": components}, conf(components, **parameters))


def statuses(shown):
    return {one["name"]: one["status"] for one in shown["components"]}


def test_rules_decide_what_runs_after_a_failure(guest):
    components = {
        "reader_0": READER,
        "good_0": transform("reader_0.data"),
        "bad_0": transform("reader_0.data"),
        "needs_all": union("good_0.data", "bad_0.data"),
        "needs_one": union("good_0.data", "bad_0.data"),
        "needs_ends": union("good_0.data", "bad_0.data"),
        "if_good_failed": transform("good_0.data"),
        "if_none_failed": union("good_0.data", "bad_0.data"),
    }
    rules = {
        "needs_one": "one_success",
        "needs_ends": "all_done",
        "if_good_failed": "all_failed",
        "if_none_failed": "none_failed",
    }
    shown = guest.ended(submit(guest, components, trigger_rules=rules))
    assert shown["status"] == "failed"
    assert "row 2 of column" in shown["reason"]
    assert statuses(shown) == {
        "reader_0": "success",
        "good_0": "success",
        "bad_0": "failed",
        "needs_all": "canceled",
        "needs_one": "success",
        "needs_ends": "success",
        "if_good_failed": "pass",
        "if_none_failed": "pass",
    }


def test_a_job_in_single_step_goes_on_by_steps_also_after_a_kill_of_its_server(guest):
    chain = {"reader_0": READER, "good_0": transform("reader_0.data"), "good_1": union("good_0.data")}
    job = submit(guest, chain, single_step=True)
    until(lambda: "pauses before good_0" in guest.show(job)["reason"], "the first pause")
    assert statuses(guest.show(job))["reader_0"] == "success"
    guest.kill()
    guest.start()
    until(lambda: "pauses before good_0" in guest.show(job)["reason"], "the pause after the kill")
    guest.client.post("weft/step", {"job_id": job})
    until(lambda: "pauses before good_1" in guest.show(job)["reason"], "the second pause")
    guest.client.post("weft/step", {"job_id": job, "all": 1})
    assert guest.ended(job)["status"] == "success"
    with pytest.raises(weft.ConflictError, match="has ended as success"):
        guest.client.post("weft/step", {"job_id": job})


def test_a_job_in_single_step_can_be_stopped_while_it_pauses(guest):
    job = submit(guest, {"reader_0": READER, "good_0": transform("reader_0.data")}, single_step=True)
    until(lambda: "pauses before good_0" in guest.show(job)["reason"], "the pause")
    guest.client.post("job/stop", {"job_id": job})
    shown = guest.ended(job)
    assert (shown["status"], statuses(shown)) == ("canceled", {"reader_0": "success", "good_0": "canceled"})


def test_a_job_runs_after_another_and_takes_its_outputs(guest):
    first = {"reader_0": READER, "good_0": transform("reader_0.data")}
    before = submit(guest, first, single_step=True)
    second = first | {"good_1": union("good_0.data")}
    takes = {"job_id": before, "component_list": ["reader_0", "good_0"]}
    job = submit(guest, second, run_after=[before], inheritance_info=takes)
    other = submit(guest, {"reader_0": READER}, run_after=[job])
    until(lambda: f"waits for the end of job {before}" in guest.show(job)["reason"], "the reason")
    guest.kill()
    guest.start()
    assert guest.show(job)["status"] == "waiting"
    until(lambda: "pauses before good_0" in guest.show(before)["reason"], "the pause")
    guest.client.post("weft/step", {"job_id": before})
    shown = guest.ended(job)
    assert (shown["status"], statuses(shown)) == (
        "success",
        {"reader_0": "pass", "good_0": "pass", "good_1": "success"},
    )
    assert guest.ended(other)["status"] == "success"
    bad = submit(guest, {"reader_0": READER, "bad_0": transform("reader_0.data")})
    late = guest.ended(submit(guest, {"reader_0": READER}, run_after=bad))
    assert late["status"] == "failed"
    assert f"job {bad}, after which it runs, ended as failed" in late["reason"]
    with pytest.raises(weft.NotFoundError, match="no job 7"):
        submit(guest, {"reader_0": READER}, run_after=["7"])


def test_a_component_that_has_failed_does_not_run_again_after_a_kill(guest):
    components = {"reader_0": READER, "bad_0": transform("reader_0.data"), "good_0": transform("reader_0.data")}
    job = submit(
        guest,
        components | {"last_0": union("bad_0.data", "good_0.data")},
        single_step=True,
        trigger_rules={"last_0": "all_done"},
    )
    until(lambda: "pauses before" in guest.show(job)["reason"], "the first pause")
    guest.client.post("weft/step", {"job_id": job, "count": 2})
    until(lambda: "pauses before last_0" in guest.show(job)["reason"], "the last pause")
    guest.kill()
    guest.start()
    until(lambda: "pauses before last_0" in guest.show(job)["reason"], "the last pause after the kill")
    guest.client.post("weft/step", {"job_id": job})
    shown = guest.ended(job)
    assert shown["status"] == "failed"
    found = {"reader_0": "success", "bad_0": "failed", "good_0": "success", "last_0": "success"}
    assert statuses(shown) == found
    assert len(list((guest.site.folder / "jobs" / job / "guest" / "1" / "bad_0").iterdir())) == 1


def test_a_server_that_ends_while_a_job_pauses_leaves_it_as_it_is(guest):
    job = submit(guest, {"reader_0": READER, "good_0": transform("reader_0.data")}, single_step=True)
    until(lambda: "pauses before good_0" in guest.show(job)["reason"], "the pause")
    guest.end()
    guest.start()
    until(lambda: "pauses before good_0" in guest.show(job)["reason"], "the pause after the start")
    guest.client.post("weft/step", {"job_id": job})
    assert guest.ended(job)["status"] == "success"


def test_a_component_is_tried_again_as_its_own_limits_say(guest):
    components = {"reader_0": READER, "bad_0": transform("reader_0.data"), "bad_1": transform("reader_0.data")}
    limits = {"bad_0": {"auto_retries": 1, "auto_retry_delay": 0}}
    job = submit(guest, components, component_limits=limits)
    guest.ended(job)
    attempts = {
        name: sorted(one.name for one in (guest.site.folder / "jobs" / job / "guest" / "1" / name).iterdir())
        for name in ("bad_0", "bad_1")
    }
    assert len(attempts["bad_0"]) == 2
    assert len(attempts["bad_1"]) == 1


def test_a_job_that_can_never_run_is_refused_at_its_submit(guest):
    components = {"reader_0": READER, "good_0": transform("reader_0.data")}
    with pytest.raises(weft.UsageError, match="the job needs 1000 cores at party 1, which has"):
        submit(guest, components, task_cores=1000)
    with pytest.raises(weft.UsageError, match="run_only names good_0, and not reader_0, whose output it needs"):
        submit(guest, components, run_only="good_0")
    with pytest.raises(weft.FederatedFileError, match="priority: must be a whole number from -100 to 100"):
        submit(guest, components, priority=1000)
