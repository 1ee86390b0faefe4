"""`weft export`: a run as an RO-Crate has what the specification and the profiles require, and no secret."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.integration.places import Commands

RUNS = """
name: words
entry_points:
  fetch:
    command: test -n "$TOKEN" && mkdir {{pages}} && echo {{word}} > "{{pages}}/a b.txt" && ln -s / {{pages}}/root
    parameters: {word: a, limit: 3, empty: ""}
    env: {TOKEN: {secret: CRATE_TOKEN}}
    artifacts: {output: [pages]}
  each:
    command: echo {{PF_LOOP_ARGUMENT}} > {{piece}}
    loop_argument: [1, 2]
    artifacts: {output: [piece]}
  count:
    command: cat {{text}}/*.txt | wc -l > {{counts}}
    deps: fetch
    artifacts: {input: {text: "{{fetch.pages}}"}, output: [counts]}
  never:
    command: "false"
    condition: 1 > 2
"""
SECRET = "the value of the secret"
SCHEMA = "http://schema.org/"


@pytest.fixture
def weft(tmp_path, monkeypatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRATE_TOKEN", SECRET)
    (tmp_path / "run.yaml").write_text(RUNS)
    weft = Commands(tmp_path)
    weft("run", "run.yaml", "--note", "for the paper", "--tag", "stage=test")
    return weft


class Crate:
    """The entities of a crate, with checks of what every crate must have."""

    def __init__(self, text: str) -> None:
        document = json.loads(text)
        assert document["@context"] == [
            "https://w3id.org/ro/crate/1.1/context",
            "https://w3id.org/ro/terms/workflow-run/context",
        ]
        self.text = text
        self.by_id = {entity["@id"]: entity for entity in document["@graph"]}
        assert len(self.by_id) == len(document["@graph"]), "each entity is described once"
        descriptor = self.by_id["ro-crate-metadata.json"]
        assert (descriptor["@type"], descriptor["about"]) == ("CreativeWork", {"@id": "./"})
        assert {"@id": "https://w3id.org/ro/crate/1.1"} in descriptor["conformsTo"]
        self.root = self.by_id["./"]
        for required in ("name", "description", "datePublished", "license", "mainEntity", "mentions"):
            assert self.root[required], required
        for profile in ("process", "workflow", "provenance"):
            assert {"@id": f"https://w3id.org/ro/wfrun/{profile}/0.5"} in self.root["conformsTo"]
        for entity in self.by_id.values():
            assert entity["@type"]
            for value in entity.values():
                for one in value if isinstance(value, list) else [value]:
                    if isinstance(one, dict) and not one["@id"].startswith((SCHEMA, "https://w3id.org/ro/crate/")):
                        assert one["@id"] in self.by_id, f"{entity['@id']} refers to {one['@id']}"

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.by_id.values() if kind in (one["@type"], *one["@type"])]

    def ids(self, entity: dict[str, Any], name: str) -> list[str]:
        value = entity.get(name, [])
        return [one["@id"] for one in (value if isinstance(value, list) else [value])]


def check_provenance(crate: Crate) -> None:
    """Check what the profile of provenance requires of the workflow, its steps, tools and actions."""
    workflow = crate.by_id[crate.root["mainEntity"]["@id"]]
    assert {"File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"} == set(workflow["@type"])
    assert workflow["programmingLanguage"]
    tools, steps = set(crate.ids(workflow, "hasPart")), set(crate.ids(workflow, "step"))
    (run,) = (one for one in crate.ids(crate.root, "mentions") if one == "#run")
    assert crate.ids(crate.by_id[run], "instrument") == [workflow["@id"]]
    assert set(crate.ids(crate.root, "mentions")) == {one["@id"] for one in crate.of_type("CreateAction")}
    actions = {one["@id"]: one for one in crate.of_type("CreateAction") if one["@id"] != run}
    for action in actions.values():
        assert set(crate.ids(action, "instrument")) <= tools
        assert action["agent"]
        assert action["actionStatus"]["@id"].startswith(SCHEMA)
    controls = crate.of_type("ControlAction")
    assert sorted(one for control in controls for one in crate.ids(control, "object")) == sorted(actions)
    for control in controls:
        assert set(crate.ids(control, "instrument")) <= steps
    for step in steps:
        assert crate.by_id[step]["@type"] == "HowToStep"
        assert set(crate.ids(crate.by_id[step], "workExample")) <= tools
    (engine,) = crate.of_type("OrganizeAction")
    assert crate.ids(engine, "result") == [run]
    assert set(crate.ids(engine, "object")) == {control["@id"] for control in controls}
    assert crate.by_id[engine["instrument"]["@id"]]["softwareVersion"]
    for formal in crate.of_type("FormalParameter"):
        assert formal["name"]
        assert formal["additionalType"]
    for value in crate.of_type("PropertyValue"):
        assert crate.by_id[value["exampleOfWork"]["@id"]]["name"] == value["name"]
        assert value["value"] != ""


def test_a_folder_has_files_digests_and_actions(weft):
    out, err = weft("export", "1", "-o", "crate", "--license", "https://spdx.org/licenses/CC0-1.0", "--logs")
    assert out == "crate\n"
    assert "root is left out: it is a link" in err
    folder = weft.folder / "crate"
    crate = Crate((folder / "ro-crate-metadata.json").read_text())
    check_provenance(crate)
    assert crate.root["license"] == {"@id": "https://spdx.org/licenses/CC0-1.0"}
    assert (folder / "run.yaml").read_text() == RUNS
    described = {}
    for entity in crate.of_type("File"):
        data = (folder / unquote(entity["@id"])).read_bytes()
        assert (entity["contentSize"], entity["sha256"]) == (str(len(data)), hashlib.sha256(data).hexdigest())
        described[unquote(entity["@id"])] = data
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == described.keys() | {"ro-crate-metadata.json"}
    assert described["outputs/count/counts"].strip() == b"1"
    assert described["outputs/each-1/piece"] == b"2\n"
    parts = set(crate.ids(crate.root, "hasPart"))
    assert {"run.yaml", "outputs/fetch/pages/", "outputs/count/counts", "logs/fetch.0.log"} <= parts
    count = crate.by_id["#action/count"]
    assert crate.ids(count, "object") == ["outputs/fetch/pages/"]
    assert crate.ids(count, "result") == ["outputs/count/counts"]
    assert count["actionStatus"] == {"@id": f"{SCHEMA}CompletedActionStatus"}
    assert crate.by_id["#value/fetch.limit"]["value"] == 3
    assert crate.by_id["#parameter/fetch.limit"]["additionalType"] == "Integer"
    assert {"#action/each-0", "#action/each-1"} <= crate.by_id.keys()
    assert "#action/never" not in crate.by_id, "a skipped step has run nothing"
    assert crate.by_id["#run"]["description"] == "for the paper"
    assert crate.root["keywords"] == "stage=test"
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert SECRET.encode() not in everything


def test_a_zip_file_has_the_same_metadata(weft):
    assert weft.json("export", "@last") == {
        "schema": "weft.export/1",
        "run": "run-000001",
        "path": str(weft.folder / "run-000001.crate.zip"),
    }
    weft("export", "1", "-o", "crate")
    with zipfile.ZipFile("run-000001.crate.zip") as file:
        assert file.testzip() is None
        crate = Crate(file.read("ro-crate-metadata.json").decode())
        names = sorted(name for name in file.namelist() if not name.endswith("/"))
        assert names == sorted(str(path.relative_to("crate")) for path in Path("crate").rglob("*") if path.is_file())
    check_provenance(crate)
    other = Crate(Path("crate/ro-crate-metadata.json").read_text())
    assert crate.by_id.keys() == other.by_id.keys()
    weft("export", "1", "-o", "small", "--without-outputs")
    small = Crate(Path("small/ro-crate-metadata.json").read_text())
    check_provenance(small)
    assert [path.name for path in sorted(Path("small").iterdir())] == ["ro-crate-metadata.json", "run.yaml"]
    assert small.by_id["#outputs/count/counts"]["sha256"] == crate.by_id["outputs/count/counts"]["sha256"]


def test_failed_and_reused_steps_are_told_as_such(weft):
    cached = RUNS.replace("condition: 1 > 2", "deps: count").replace(
        "  fetch:\n", "  fetch:\n    cache: {enable: true}\n"
    )
    (weft.folder / "run.yaml").write_text(cached.replace(" && ln -s / {{pages}}/root", ""))
    for _ in range(2):
        weft("run", "run.yaml", code=1)
    weft("export", "@last", "-o", "crate")
    crate = Crate((weft.folder / "crate" / "ro-crate-metadata.json").read_text())
    check_provenance(crate)
    failed = crate.by_id["#action/never"]
    assert failed["actionStatus"] == {"@id": f"{SCHEMA}FailedActionStatus"}
    assert "exit code 1" in failed["error"]
    assert crate.by_id["#run"]["actionStatus"] == {"@id": f"{SCHEMA}FailedActionStatus"}
    assert crate.by_id["#action/fetch"]["description"] == "not run: the result of run-000002 was used"


def test_what_cannot_be_written_is_refused(weft):
    (weft.folder / "full").mkdir()
    (weft.folder / "full" / "x").touch()
    assert "exists already" in weft("export", "1", "-o", "full", code=7)[1]
    weft("export", "1", "-o", "x.zip")
    before = (weft.folder / "x.zip").read_bytes()
    assert "exists already" in weft("export", "1", "-o", "x.zip", code=7)[1]
    assert (weft.folder / "x.zip").read_bytes() == before
    weft("export", "1", "-o", "none/crate", code=4)
    weft("export", "7", code=4)
    (weft.folder / "empty").mkdir()
    weft("export", "1", "-o", "empty")
    assert sorted(path.name for path in weft.folder.iterdir() if path.name.startswith(".")) == [".pipeline", ".weft"]


LATER = """
name: later
entry_points:
  l:
    command: echo '[1, 2]' > {{o}}
    artifacts: {output: [o]}
  e:
    deps: l
    command: echo {{PF_LOOP_ARGUMENT}} > {{o}}
    loop_argument: "{{i}}"
    artifacts: {input: {i: "{{l.o}}"}, output: [o]}
  r:
    deps: e
    command: echo "{{i}}" > {{o}}
    artifacts: {input: {i: "{{e.o}}"}, output: [o]}
  d:
    deps: l
    loop_argument: "{{i}}"
    artifacts: {input: {i: "{{l.o}}"}, output: {o: "{{y.o}}"}}
    entry_points:
      y:
        command: echo {{PF_LOOP_ARGUMENT}} > {{o}}
        artifacts: {output: [o]}
  s:
    deps: d
    command: echo "{{i}}" > {{o}}
    artifacts: {input: {i: "{{d.o}}"}, output: [o]}
"""


def test_readers_of_loops_over_artifacts_have_their_inputs(weft):
    (weft.folder / "run.yaml").write_text(LATER)
    weft("run", "run.yaml")
    weft("export", "@last", "-o", "crate")
    crate = Crate((weft.folder / "crate" / "ro-crate-metadata.json").read_text())
    check_provenance(crate)
    assert crate.ids(crate.by_id["#action/r"], "object") == ["outputs/e/o", "outputs/e-1/o"]
    assert crate.ids(crate.by_id["#action/s"], "object") == ["outputs/d.y/o", "outputs/d-1.y/o"]
    assert crate.ids(crate.by_id["#action/e-1"], "result") == ["outputs/e-1/o"]


@pytest.mark.parametrize("place", ["crate", "crate.zip"])
def test_names_that_are_no_text_have_escapes(weft, place):
    command = 'mkdir {{o}} && python3 -c \'import os, sys; open(os.fsencode(sys.argv[1]) + b"/x\\xff", "w")\' {{o}}'
    step = {"command": command, "artifacts": {"output": ["o"]}}
    (weft.folder / "run.yaml").write_text(json.dumps({"name": "odd", "entry_points": {"a": step}}))
    weft("run", "run.yaml")
    assert "x\\udcff has a name that is not UTF-8" in weft("export", "@last", "-o", place)[1]
    if place.endswith(".zip"):
        with zipfile.ZipFile(weft.folder / place) as archive:
            assert "outputs/a/o/x\\udcff" in archive.namelist()
    else:
        assert (weft.folder / "crate" / "outputs" / "a" / "o" / "x\\udcff").exists()


PRIVATE = """
name: private
entry_points:
  a:
    command: >-
      mkdir {{folder}} {{folder}}/in && echo k > {{folder}}/in/key && chmod 700 {{folder}}/in && chmod 755 {{folder}} &&
      echo s > {{secret}} && chmod 600 {{secret}} && echo '#!/bin/sh' > {{tool}} && chmod 755 {{tool}}
    artifacts: {output: [folder, secret, tool]}
"""
MODES = {"folder": 0o755, "folder/in": 0o700, "secret": 0o600, "tool": 0o755}


def modes_in(crate: Path) -> dict[str, int]:
    """Return the modes of the outputs in the crate of a folder, by their paths below that of the step."""
    [top] = [path.parent for path in crate.rglob("tool")]
    return {name: (top / name).stat().st_mode & 0o777 for name in MODES}


def test_private_outputs_stay_private(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(PRIVATE)
    weft = Commands(tmp_path)
    weft("run", "run.yaml")
    weft("export", "@last", "-o", "crate")
    assert modes_in(tmp_path / "crate") == MODES
    assert (tmp_path / "crate").stat().st_mode & 0o777 == 0o755
    weft("export", "@last", "-o", "crate.zip")
    assert (tmp_path / "crate.zip").stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile("crate.zip") as file:
        found = {one.filename.rstrip("/"): (one.external_attr >> 16) & 0o777 for one in file.infolist()}
    assert {name: mode for path, mode in found.items() for name in MODES if path.endswith(f"/{name}")} == MODES
