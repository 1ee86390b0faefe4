"""A run as a research object crate (RO-Crate 1.1) with the terms of the profile Provenance Run Crate 0.5.

Sources: https://w3id.org/ro/crate/1.1, https://w3id.org/ro/wfrun/provenance/0.5, https://w3id.org/ro/wfrun/workflow/0.5.
The values of secrets are not in the folder of a run, so they are in no crate.
"""

from __future__ import annotations

import json
import mimetypes
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from weft.model.errors import UsageError, WeftError
from weft.model.ids import item_name, loop_item
from weft.runs.crate_files import add_file, add_text, crate_target, digest_file
from weft.runs.explaining import journal_facts
from weft.runtime.cache import read_decisions
from weft.store.state import read_description

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.graph.spec import StepInputs
    from weft.runs.crate_files import CrateFile, CrateTarget
    from weft.runs.reading import ItemRecord, RunRecord, StepRecord
    from weft.runs.sources import SourceHost

METADATA: Final = "ro-crate-metadata.json"
CONTEXT: Final = ("https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context")
CRATE: Final = "https://w3id.org/ro/crate/1.1"
PROFILES: Final = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
_NO_LICENSE: Final = "#no-license"
_LANGUAGE: Final = "#weft-pipeline"
_ENGINE: Final = "#weft"
_RUN: Final = "#run"
_STATUS: Final = {
    "succeeded": "http://schema.org/CompletedActionStatus",
    "failed": "http://schema.org/FailedActionStatus",
    "terminated": "http://schema.org/FailedActionStatus",
    "cancelled": "http://schema.org/FailedActionStatus",
    "interrupted": "http://schema.org/FailedActionStatus",
}
_ACTIVE: Final = "http://schema.org/ActiveActionStatus"
_TYPES: Final[Mapping[type, str]] = {bool: "Boolean", int: "Integer", float: "Float", str: "Text"}
_ITEM: Final = re.compile(r"-[0-9]+$")
_UNRUN: Final = ("pending", "skipped")


def write_crate(
    run: RunRecord, host: SourceHost, now: float, place: Path, *, license: str, outputs: bool, logs: bool
) -> list[str]:
    """Write a run of a pipeline as a crate to a new folder or a ZIP file; return remarks for the user.

    With `outputs` the crate has copies of them, with `logs` of the logs too. UsageError: the run is not one of a
    pipeline. Other errors are those of `crate_target`.
    """
    if run.of_session or run.of_jobs:
        what = "a Python graph" if run.of_session else "training jobs"
        raise UsageError(f"{run.id} is a run of {what}: only runs of pipelines can be written as a crate")
    with crate_target(place) as target:
        crate = _Crate(run, host, now, target, license=license, outputs=outputs, logs=logs)
        crate.write()
    return crate.remarks


class _Crate:
    """The entities of one crate, by id."""

    def __init__(
        self,
        run: RunRecord,
        host: SourceHost,
        now: float,
        target: CrateTarget,
        *,
        license: str,
        outputs: bool,
        logs: bool,
    ) -> None:
        self.run, self._now, self._target = run, now, target
        self._license, self._with_outputs, self._with_logs = license, outputs, logs
        self.remarks: list[str] = []
        self._described = read_description(run.folder)
        self._given: Mapping[str, StepInputs] = {}
        try:
            self._given = host.source_again(run.frontend, run.folder, run.file).given(run.folder)
        except WeftError as error:
            self.remarks.append(f"the commands and inputs of steps are not known: {error.message}")
        self._entities: dict[str, dict[str, Any]] = {}
        self._parts: list[str] = []
        self._places: dict[str, str] = {}  # the entities of outputs, by path
        self._reused = {
            (answer["step"], answer.get("task", 0)): f"not run: the result of {answer.get('run')} was used"
            for answer in read_decisions(run.folder)
            if answer.get("outcome") == "hit"
        }

    def write(self) -> None:
        """Write all files, the metadata last."""
        run, workflow = self.run, self._workflow_file()
        self._outputs()
        parameters = [self._parameter(name, value) for name, value in run.parameters.items()]
        controls = [control for step in run.steps for control in self._step(step)]
        results = [self._places[path] for path in run.outputs.values() if path in self._places]
        main = self._add(
            quote(workflow.name),
            ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            **_of_file(workflow),
            name=run.name or run.id,
            programmingLanguage=_ref(_LANGUAGE),
            input=[_ref(f"#parameter/{quote(name)}") for name in run.parameters],
            output=[_ref(f"#output/{quote(name)}") for name, path in run.outputs.items() if path in self._places],
            step=[_ref(f"#step/{quote(step.name)}") for step in run.steps],
            hasPart=[_ref(f"#tool/{quote(step.name)}") for step in run.steps],
        )
        self._action(
            _RUN,
            f"Run {run.id} of {run.name}",
            run.state,
            (run.started, run.ended),
            instrument=main,
            objects=parameters,
            results=results,
            error=run.message,
            description=run.note or f"Run {run.id} of the pipeline {run.name}",
        )
        self._engine(controls)
        self._root(main)
        graph = list(self._entities.values())
        document = json.dumps({"@context": list(CONTEXT), "@graph": graph}, ensure_ascii=False, indent=1)
        add_text(self._target, METADATA, document + "\n")

    # ------------------------------------------------------------------------------------------------ single entities

    def _add(self, id: str, kind: str | Sequence[str], **properties: Any) -> str:
        """Add an entity without its empty properties; return its id."""
        own = {name: value for name, value in properties.items() if value not in (None, "", [], ())}
        self._entities[id] = {"@id": id, "@type": kind if isinstance(kind, str) else list(kind), **own}
        return id

    def _action(
        self,
        id: str,
        name: str,
        state: str,
        times: tuple[float | None, float | None],
        *,
        instrument: str,
        objects: Sequence[str],
        results: Sequence[str],
        error: str = "",
        description: str = "",
    ) -> str:
        status = _STATUS.get(state, _ACTIVE)
        failed = status == _STATUS["failed"]
        return self._add(
            id,
            "CreateAction",
            name=name,
            description=description,
            instrument=_ref(instrument),
            agent=_ref(self._person()),
            object=[_ref(one) for one in objects],
            result=[_ref(one) for one in results],
            startTime=_iso(times[0]),
            endTime=_iso(times[1]),
            actionStatus=_ref(status),
            error=(error.partition("\n")[0] or state) if failed else "",
        )

    def _person(self) -> str:
        user = self.run.user or "unknown"
        return self._add(f"#user/{quote(user)}", "Person", name=user)

    def _parameter(self, name: str, value: Any) -> str:
        formal = f"#parameter/{quote(name)}"
        self._add(formal, "FormalParameter", name=name, additionalType=_TYPES.get(type(value), "PropertyValue"))
        text = value if isinstance(value, (str, bool, int, float)) else json.dumps(value, ensure_ascii=False)
        return self._add(
            f"#value/{quote(name)}",
            "PropertyValue",
            name=name,
            value=text if text != "" else "(empty)",
            exampleOfWork=_ref(formal),
        )

    def _workflow_file(self) -> CrateFile:
        """Write the text that the run was made of."""
        name = os.path.basename(self.run.file) or "pipeline.yaml"
        if not name.lower().endswith((".yaml", ".yml", ".json")):  # of a function that has built the text
            name = f"{name.partition('.py')[0] or 'pipeline'}.yaml"
        found = add_text(self._target, name, str(self._described.get("text") or ""))
        self._parts.append(quote(found.name))
        self._add(_LANGUAGE, "ComputerLanguage", name="Weft pipeline", alternateName="PaddleFlow pipeline")
        return found

    # -------------------------------------------------------------------------------------------------------- outputs

    def _outputs(self) -> None:
        """Write the outputs, or take their digests alone; describe each as a file or a folder."""
        for title, path in self.run.outputs.items():
            step, _, artifact = title.rpartition(".")
            name = f"outputs/{step}/{artifact}"
            source = Path(path)
            formal = self._add(
                f"#output/{quote(title)}",
                "FormalParameter",
                name=title,
                additionalType="Dataset" if source.is_dir() else "File",
            )
            id = self._folder(name, source, formal) if source.is_dir() and not source.is_symlink() else ""
            id = id or self._file(name, source, formal)
            if id:
                self._places[path] = id
            else:
                self.remarks.append(f"output {title} is left out: it is missing, or a link")
                del self._entities[formal]

    def _file(self, name: str, source: Path, formal: str = "", *, part: bool = True) -> str:
        """Add a file; return its id, "" if it cannot be read."""
        name = _as_text(name)
        found = add_file(self._target, name, source) if self._with_outputs else digest_file(name, source)
        if found is None:
            return ""
        example = _ref(formal) if formal else None
        id = quote(name)
        if not self._with_outputs:
            return self._add(
                f"#{id}", "CreativeWork", name=_as_text(source.name), exampleOfWork=example, **_of_file(found)
            )
        if part:
            self._parts.append(id)
        return self._add(id, "File", name=_as_text(source.name), exampleOfWork=example, **_of_file(found))

    def _folder(self, name: str, source: Path, formal: str) -> str:
        """Add a folder with all of its plain files."""
        inside = []
        for above, folders, files in os.walk(source):
            if self._with_outputs:
                mode = stat.S_IMODE(os.stat(above).st_mode)
                self._target.make_folder(
                    _as_text(os.path.normpath(os.path.join(name, os.path.relpath(above, source)))), mode
                )
            folders.sort()
            links = [name for name in folders if os.path.islink(os.path.join(above, name))]
            for file in sorted([*files, *links]):
                path = Path(above, file)
                below = str(path.relative_to(source))
                if id := self._file(f"{name}/{below}", path, part=False):
                    inside.append(_ref(id))
                    if _as_text(below) != below:
                        self.remarks.append(
                            f"{_as_text(str(path))} has a name that is not UTF-8; the crate has this one"
                        )
                else:
                    self.remarks.append(f"{_as_text(str(path))} is left out: it is a link, or no plain file")
        id = f"{quote(name)}/"
        if not self._with_outputs:
            return self._add(f"#{id}", "CreativeWork", name=source.name, exampleOfWork=_ref(formal), hasPart=inside)
        self._parts.append(id)
        return self._add(id, "Dataset", name=source.name, exampleOfWork=_ref(formal), hasPart=inside)

    # ---------------------------------------------------------------------------------------------------------- steps

    def _step(self, step: StepRecord) -> Iterator[str]:
        """Describe a step, its tool and what was run of it; yield the ids of what has controlled that."""
        run, given = self.run, self._given.get(step.name)
        tool, plan = f"#tool/{quote(step.name)}", f"#step/{quote(step.name)}"
        leaves = {} if given is None else given.leaves
        what = leaves.get("command") or leaves.get("kind", "")
        self._add(
            tool, "SoftwareApplication", name=step.name, description=what, softwareRequirements=leaves.get("image")
        )
        position = str(next(at for at, one in enumerate(run.steps) if one is step))
        self._add(plan, "HowToStep", name=step.name, position=position, workExample=_ref(tool))
        parts: list[tuple[int, str, StepRecord | ItemRecord]] = [(0, step.name, step)]
        if step.items:
            parts = [(n, loop_item(step.name, n), item) for n, item in sorted(step.items.items())]
        inputs = [] if given is None else [path for paths in given.files.values() for path in paths]
        objects = [self._places[path] for path in dict.fromkeys(inputs) if path in self._places]
        if given is not None:
            objects += self._later(given)
        objects += [f"#value/{quote(name)}" for name in run.parameters if name.rpartition(".")[0] == step.name]
        for number, name, part in parts:
            if part.state in _UNRUN or (part.state == "cancelled" and part.started is None):
                continue
            own = item_name(step.name, number)
            action = self._action(
                f"#action/{quote(name)}",
                f"{name} of {run.id}",
                part.state,
                (part.started, part.ended),
                instrument=tool,
                objects=objects,
                results=[self._places[path] for title, path in run.outputs.items() if self._made_by(own, title, path)],
                error=part.message,
                description=self._reused.get((step.name, number), f"Task {name} of the run {run.id}"),
            )
            self._log(step, number, action)
            id = f"#control/{quote(name)}"
            yield self._add(id, "ControlAction", name=f"Start of {name}", instrument=_ref(plan), object=_ref(action))

    def _later(self, given: StepInputs) -> list[str]:
        """Return the ids of the outputs that loops over artifacts have made for a step."""
        found: dict[str, None] = {}
        for title, path in self.run.outputs.items():
            step, _, artifact = title.rpartition(".")
            plain = ".".join(_ITEM.sub("", part) for part in step.split("."))
            if (plain, artifact) in given.later and path in self._places:
                found[self._places[path]] = None
        return list(found)

    def _made_by(self, own: str, title: str, path: str) -> bool:
        return path in self._places and title.rpartition(".")[0] == own

    def _log(self, step: StepRecord, number: int, action: str) -> None:
        """Add the log of the last attempt of a task."""
        logs = [log for log in step.logs if (log.index or 0) == number]
        if not self._with_logs or not logs:
            return
        name = f"logs/{logs[-1].path.name}"
        found = add_file(self._target, name, logs[-1].path)
        if found is not None:
            self._parts.append(quote(name))
            about = {**_of_file(found), "encodingFormat": "text/plain"}
            self._add(quote(name), "File", name=f"Log of {step.name}", about=_ref(action), **about)

    # ----------------------------------------------------------------------------------------------------------- frame

    def _engine(self, controls: Sequence[str]) -> None:
        version = journal_facts(self.run).weft
        name = f"Weft {version}".strip()
        self._add(_ENGINE, "SoftwareApplication", name=name, softwareVersion=version)
        self._add(
            "#engine-run",
            "OrganizeAction",
            name=f"Execution of {self.run.id} by {name}",
            instrument=_ref(_ENGINE),
            agent=_ref(self._person()),
            object=[_ref(one) for one in controls],
            result=_ref(_RUN),
            startTime=_iso(self.run.started),
            endTime=_iso(self.run.ended),
        )

    def _root(self, workflow: str) -> None:
        run = self.run
        license = self._license or _NO_LICENSE
        if not self._license:
            why = "No license was named: the rights stay with the authors."
            self._add(_NO_LICENSE, "CreativeWork", name="No license", description=why)
        elif license.startswith(("http://", "https://")):
            self._add(license, "CreativeWork", name=license)
        for id, (name, version) in PROFILES.items():
            self._add(id, "CreativeWork", name=name, version=version)
        self._add(
            "./",
            "Dataset",
            name=f"{run.name or run.id} {run.id}",
            description=f"Run {run.id} of the pipeline {run.name}: {run.state}.",
            datePublished=_iso(self._now),
            license=_ref(license) if license in self._entities else license,
            keywords=", ".join(f"{name}={value}" if value else name for name, value in run.tags.items()),
            conformsTo=[_ref(id) for id in PROFILES],
            hasPart=[_ref(id) for id in self._parts],
            mainEntity=_ref(workflow),
            author=_ref(self._person()),
            mentions=[_ref(id) for id, one in self._entities.items() if one["@type"] == "CreateAction"],
        )
        conforms = [_ref(CRATE), _ref("https://w3id.org/workflowhub/workflow-ro-crate/1.0")]
        self._add(METADATA, "CreativeWork", about=_ref("./"), conformsTo=conforms)


def _ref(id: str) -> dict[str, str]:
    return {"@id": id}


def _as_text(name: str) -> str:
    """Return the name of a file with escapes for the bytes that are no text: a crate has only names in UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def _iso(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")


def _of_file(file: CrateFile) -> dict[str, Any]:
    kind, _ = mimetypes.guess_type(file.name)
    return {"contentSize": str(file.size), "sha256": file.sha256, "encodingFormat": kind or "application/octet-stream"}
