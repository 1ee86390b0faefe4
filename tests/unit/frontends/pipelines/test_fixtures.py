"""Files and what comes of them: a bad one gives the first line of its error, a good one the steps of a run.

A new case is two files in `tests/fixtures/pipelines`: `bad/name.yaml` with `bad/name.error`, or `good/name.yaml` with
`good/name.json`, which lists for each step the fields to compare.
"""

import json
from pathlib import Path

import pytest

from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.resolve import resolve
from weft.model.errors import DefinitionError
from weft.model.records import as_dict

FIXTURES = Path(__file__).parents[3] / "fixtures" / "pipelines"
BAD = sorted((FIXTURES / "bad").glob("*.yaml"))
GOOD = sorted((FIXTURES / "good").glob("*.yaml"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_file_is_refused_with_its_place(path):
    with pytest.raises(DefinitionError) as caught:
        parse_pipeline(path.read_text(), path.name)
    first = f"{type(caught.value).__name__}: {caught.value.message.splitlines()[0]}"
    assert first == path.with_suffix(".error").read_text().strip()


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_file_resolves(path):
    pipeline = parse_pipeline(path.read_text(), path.name)
    steps = resolve(pipeline, run_id="run-000042", user="ada", root="/data")
    expected = json.loads(path.with_suffix(".json").read_text())
    assert [step.name for step in steps] == list(expected)
    for step in steps:
        found = json.loads(json.dumps(as_dict(step), default=sorted))
        assert {key: found[key] for key in expected[step.name]} == expected[step.name]


def test_every_fixture_has_its_pair():
    stems = {path.stem for path in (*BAD, *GOOD)}
    answers = [path for path in FIXTURES.rglob("*") if path.suffix in {".error", ".json"}]
    assert len(BAD) > 100
    assert len(GOOD) >= 5
    assert {path.stem for path in answers} == stems
