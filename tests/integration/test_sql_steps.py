"""Steps of the kind `sql` under the commands of runs: those that tell of them, stop them and continue them."""

import json
from typing import Any

import pytest

from tests.integration.places import RUN, Project, until

ENDLESS = "select sum(a.range * b.range % 7) as n from range(10000000) a, range(10000000) b, people"
"""A query that would take days: it ends only if it is stopped."""


class Place(Project):
    """A folder with a pipeline that makes a table and sums it up."""

    def write_query(self, query: str, people: str = r"name,age\nAnn,30\nBob,41\n") -> None:
        sums = {
            "deps": "make",
            "artifacts": {"input": {"people": "{{make.people}}"}, "output": ["sums"]},
            "x-weft": {"kind": "sql", "with": {"query": query, "format": "csv"}},
        }
        make = {"command": f"printf '{people}' > {{{{people}}}}", "artifacts": {"output": ["people"]}}
        self.write({"make": make, "sums": sums}, cache={"enable": True})

    def result(self) -> str:
        """What is in the output of the last run."""
        found = [path for path in self.folder.glob(".pipeline/**/sums") if path.is_file()]
        return max(found, key=lambda path: path.stat().st_mtime_ns).read_text()

    def executing(self) -> bool:
        return self.folder_of().is_dir() and self.states().get("sums") == "running"


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "project")


def test_a_step_that_succeeds_is_told_of_and_cached(place):
    place.write_query("select sum(age) as age from people")
    code, out, err = place.weft("run", "run.yaml")
    assert code == 0, out + err
    assert place.result() == '"age"\n71\n'
    for words in (("show", RUN), ("why", f"{RUN}/sums"), ("explain", RUN), ("story", RUN)):
        code, out, err = place.weft(*words)
        assert (code, "sums" in out + err) == (0, True), (words, out, err)
    code, out, err = place.weft("logs", f"{RUN}/sums")
    assert code == 0, err
    code, out, _ = place.weft("run", "run.yaml")
    assert (code, out.count("taken from the cache")) == (0, 2)
    assert place.weft("why", "run-000002/sums")[0] == 0


def test_warnings_about_a_query_are_those_of_its_step(place):
    place.write_query("select a.age, b.age from people a join people b using (name) order by 1")
    code, out, err = place.weft("run", "run.yaml")
    assert code == 0, out + err
    assert place.result().splitlines()[0] == '"age","age_1"'
    told = "the query has columns of one name, and the file has age as age_1; to choose the names, rename the columns"
    assert err.count(told) == 1
    assert "UserWarning" not in err
    code, out, err = place.weft("show", f"{RUN}/sums")
    assert told in " ".join(out.split())


def test_a_wrong_query_is_told_with_its_mistake(place):
    place.write_query("select sum(agee) as age from people")
    code, out, err = place.weft("run", "run.yaml")
    assert (code != 0, place.states()["sums"]) == (True, "failed"), out + err
    for words in (("show", RUN), ("why", f"{RUN}/sums")):
        _, out, err = place.weft(*words)
        assert "agee" in out + err, (words, out, err)
    for words in (("explain", RUN), ("logs", f"{RUN}/sums")):
        code, out, err = place.weft(*words)
        assert code == 0, (words, out, err)
    place.write_query("select sum(age) as age from people")
    code, out, err = place.weft("resume", RUN, "--file", "run.yaml")
    assert code == 0, out + err
    assert place.result() == '"age"\n71\n'


@pytest.mark.parametrize(
    "query", ["select * from '../data/orders.csv'", "copy people to 'out.csv'", "from read_text('/etc/hostname')"]
)
def test_a_query_of_files_is_told_what_a_step_can_do(place, query):
    place.write_query(query)
    code, out, err = place.weft("run", "run.yaml")
    assert code != 0
    told = " ".join((out + err + "".join(place.weft("show", RUN)[1:])).split())
    assert "Let a step before it write the file as an output artifact" in told
    assert "allow" not in told
    assert "register" not in told


def test_a_table_that_cannot_be_read_is_told_with_what_a_step_can_do(place):
    place.write_query("from people", r"name,age\nAnn,30\nBob,41,7\n")
    code, out, err = place.weft("run", "run.yaml")
    assert code != 0
    told = " ".join((out + err + "".join(place.weft("show", RUN)[1:])).split())
    assert "A step has no granted folder: let a step before it write the file" in told


@pytest.mark.parametrize("by", ["kill", "cancel"])
def test_a_query_that_was_stopped_goes_on_with_an_edited_file(place, by):
    place.write_query(ENDLESS)
    process = place.start()
    try:
        until(lambda: place.executing() or process.poll() is not None, "the query")
        if by == "kill":
            process.kill()
        else:
            code, out, err = place.weft("cancel", RUN)
            assert code == 0, out + err
        process.communicate(timeout=180)
    finally:
        process.kill()
        process.communicate()
    if by == "cancel":
        assert place.states()["sums"] == "terminated"
        assert "cancel" in "".join(place.weft("why", f"{RUN}/sums")[1:])
    place.write_query("select sum(age) as age from people")
    code, out, err = place.weft("resume", RUN, "--file", "run.yaml")
    assert code == 0, out + err
    assert place.states() == {"make": "succeeded", "sums": "succeeded"}
    assert place.result() == '"age"\n71\n'
    shown = json.loads(place.weft("show", RUN, "--json")[1])
    assert "sums" in json.dumps(shown)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"query": "select * from peple"}, ("there is no table peple", "Did you mean people?")),
        ({"tables": {"t": "peopel"}}, ("the input 'peopel'", "people")),
        ({"output": "sum"}, ("the output 'sum'", "sums")),
        ({"query": "select $lest from people"}, ("the text asks for $lest", "Did you mean least?")),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_what_a_query_names_is_checked_before_anything_runs(place, command, changes, told):
    sums: dict[str, Any] = {
        "deps": "make",
        "parameters": {"least": 30},
        "artifacts": {"input": {"people": "{{make.people}}"}, "output": ["sums"]},
        "x-weft": {"kind": "sql", "with": {"query": "select sum(age) as age from people where age > $least"}},
    }
    make = {"command": r"printf 'name,age\nAnn,30\nBob,41\n' > {{people}}", "artifacts": {"output": ["people"]}}
    place.write({"make": make, "sums": sums})
    assert place.weft("plan", "run.yaml")[0] == 0
    sums["x-weft"]["with"] |= changes
    place.write({"make": make, "sums": sums})
    code, out, err = place.weft(command, "run.yaml")
    assert code != 0
    assert all(one in err for one in told), err
    assert not place.folder_of().exists(), out
