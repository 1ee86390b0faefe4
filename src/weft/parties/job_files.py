"""The files of a job as its user gives them to the command line: checked before they are sent, with places in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.documents.problems import FileKind, FilePosition, Problems
from weft.frontends.federated.components.registry import COMPONENTS, no_module
from weft.frontends.federated.conf import job_type_of, read_conf, version_of
from weft.frontends.federated.documents import CHANGES_FILE, CONF_FILE, DSL_FILE, ObjectReader, is_null, load, plain
from weft.frontends.federated.dsl import read_dsl
from weft.frontends.federated.planning import read_job, read_text
from weft.frontends.federated.schema import PREDICT
from weft.model.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_CHANGES: Final = ("job_parameters", "component_parameters")


class JobFiles(NamedTuple):
    """The DSL and the conf of a job as JSON; the DSL is empty if the job has that of a model."""

    dsl: dict[str, Any]
    conf: dict[str, Any]


def read_files(folder: Path, conf: str, dsl: str | None) -> JobFiles:
    """Return the files of a job below a folder, checked as far as they tell; messages have their names.

    A prediction takes parameters, and without `dsl` its components, from a model, which its server knows.

    NotFoundError, ForbiddenError: there is no such file. UsageError: a training job has no DSL. FederatedFileError,
    InputLimitError: a file is wrong; all its mistakes are told.
    """
    text = read_text(folder / conf, conf)
    wishes = _object(text, conf, CONF_FILE)
    predicts = job_type_of(wishes) == PREDICT
    if dsl is None:
        if not predicts:
            read_conf(text, conf)
            raise UsageError(f"{conf} is the conf of a job that trains, which needs a DSL", hint="Name it with --dsl.")
        return JobFiles({}, wishes)
    graph = read_text(folder / dsl, dsl)
    found = _object(graph, dsl, DSL_FILE)
    if predicts:
        read_dsl(graph, dsl, version=version_of(wishes), mode=PREDICT)
        return JobFiles(found, wishes)
    job = read_job(graph, text, dsl_name=dsl, conf_name=conf)
    problems = Problems(dsl, DSL_FILE)
    for name, one in job.dsl.components.items():
        if one.module not in COMPONENTS and any(part.components[name].runs for part in job.parts):
            problems.add(one.mark, f"components.{name}", no_module(one.module))
    problems.raise_if_any()
    return JobFiles(found, wishes)


def read_documents(folder: Path, conf: str, dsl: str | None) -> JobFiles:
    """Return the files of a job below a folder, of which only the form is checked: it takes more from another job.

    Errors: see `read_files`.
    """
    wishes = _object(read_text(folder / conf, conf), conf, CONF_FILE)
    return JobFiles({} if dsl is None else _object(read_text(folder / dsl, dsl), dsl, DSL_FILE), wishes)


def read_changes(folder: Path, file: str) -> dict[str, Any]:
    """Return the changes of a job in a file below a folder: parameters of the job and of components, as in a conf.

    Errors: see `read_files`.
    """
    return _object(read_text(folder / file, file), file, CHANGES_FILE, _CHANGES)


def _object(text: str, name: str, kind: FileKind, known: tuple[str, ...] = ()) -> dict[str, Any]:
    problems = Problems(name, kind)
    root = load(text, problems)
    reader = ObjectReader(root, "", problems, FilePosition(1, 1))
    if is_null(root):
        problems.add(root.mark, "", "must be an object, is null", "Write the members of the file in braces.")
    if known:
        reader.only(*known)
    problems.raise_if_any()
    found: dict[str, Any] = plain(root)
    return found
