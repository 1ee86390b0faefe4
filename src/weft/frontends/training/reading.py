"""Files of training jobs, read into records: one file with several documents, or a folder of files.

The path of a document: `documents.yaml.load_all` (a tree with positions) → `validation` (what the operator's webhooks
refuse) → `jobs`, `pods`, `objects` (records) → `defaulting`. All mistakes of all files are reported together.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.documents import yaml
from weft.documents.problems import FileKind, Problems, choices, show
from weft.frontends.training import objects, shapes
from weft.frontends.training.defaulting import defaulted
from weft.frontends.training.fields import Fields, ReadingContext
from weft.frontends.training.jobs import read_job, read_metadata
from weft.frontends.training.kinds import KINDS, RUNTIME_KINDS
from weft.frontends.training.schema import JobFile
from weft.frontends.training.tuning import TUNE, read_tuning
from weft.frontends.training.validation import check_further, check_job
from weft.model.errors import DefinitionError, ForbiddenError, InputLimitError, JobFileError, NotFoundError
from weft.model.suggestions import nearest
from weft.store.folders import safe_open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from weft.documents.problems import FilePosition
    from weft.frontends.training.jobs import ObjectMeta
    from weft.frontends.training.runtimes import Runtime
    from weft.frontends.training.schema import KeyValues, PlainPod, ServiceSpec, TrainingJob
    from weft.frontends.training.shapes import Shape
    from weft.frontends.training.trainjob import TrainJobSpec

JOB_FILE: Final = FileKind(
    JobFileError,
    "job file",
    "it needs a job, such as kind: TFJob of apiVersion: kubeflow.org/v1",
    yaml_1_1=True,
)
MAX_FILES: Final = 100
"""The most files of one folder that are read."""
KUBEFLOW: Final = "kubeflow.org/v1"
TRAINER: Final = "trainer.kubeflow.org/v1alpha1"
_CORE: Final = "v1"
_SCHEDULING: Final = "scheduling.k8s.io/v1"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_CLAIM: Final = "PersistentVolumeClaim"
_JOB_KINDS: Final = tuple(kind for kind in KINDS if kind != "TrainJob")
_SHOWN: Final = 20


def read_files(path: str) -> JobFile:
    """Read a file or a folder of `*.yaml`, `*.yml` and `*.json`; return its jobs with defaults, all checked.

    JobFileError: lists all mistakes with file, line, column and field. InputLimitError: a limit is passed.
    NotFoundError, ForbiddenError: a file cannot be read.
    """
    place = Path(path)
    if place.is_dir():
        names = sorted(one.name for one in place.iterdir() if one.suffix in _SUFFIXES)
        if len(names) > MAX_FILES:
            hint = "Name one of its files, or move those of the job to a folder of their own."
            raise InputLimitError(f"{path} has {len(names)} files, at most {MAX_FILES} are read", hint=hint)
        return _read(((_text(place, name), str(place / name)) for name in names), path, folder=True)
    whole = place.resolve()  # the file that the user names may be a link
    return _read([(_text(whole.parent, whole.name), path)], path, folder=False)


def read_text(text: str, file: str) -> JobFile:
    """Read the text of a file; `file` is its name for messages. Errors as of `read_files`."""
    return _read([(text, file)], file, folder=False)


def _text(folder: Path, name: str) -> str:
    try:
        with safe_open(folder, name, mode="rb") as file:
            data: bytes = file.read(yaml.MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no folder {folder}") from None
    except OSError as error:
        raise ForbiddenError(f"{folder / name} cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8") if len(data) <= yaml.MAX_BYTES else " " * len(data)
    except UnicodeDecodeError as error:
        message = f"{folder / name} is not UTF-8 text (byte {error.start})"
        raise DefinitionError(message, hint="Save it as UTF-8.") from None


def _read(texts: Iterable[tuple[str, str]], path: str, *, folder: bool) -> JobFile:
    reader = _Reader(Problems(path, JOB_FILE), folder=folder)
    for text, file in texts:
        for document in yaml.load_all(text, reader.problems, file):
            reader.take(document)
    return reader.done(path)


class _Pending(Struct, frozen=True):
    """A TrainJob whose runtime is not known yet."""

    train: TrainJobSpec
    fields: Fields


class _Reader:
    """Takes one document after the other, and returns what all of them hold."""

    def __init__(self, problems: Problems, *, folder: bool) -> None:
        self.problems = problems
        self._folder = folder
        self._jobs: list[TrainingJob | _Pending] = []
        self._runtimes: dict[tuple[str, str], Runtime] = {}
        self._pods: list[PlainPod] = []
        self._services: list[ServiceSpec] = []
        self._config_maps: dict[str, KeyValues] = {}
        self._secrets: dict[str, KeyValues] = {}
        self._claims: list[str] = []
        self._priorities: dict[str, int] = {}
        self._warnings: list[str] = []
        self._seen: dict[tuple[str, str], tuple[str, str, FilePosition]] = {}
        self._others: list[str] = []

    def take(self, document: yaml.Node) -> None:
        """Read one document."""
        if not isinstance(document, yaml.Mapping):
            self._no_object(document.mark, f"must be a Kubernetes object, is {yaml.describe(document)}")
            return
        version, kind = (_word(document, key) for key in ("apiVersion", "kind"))
        if not version or not kind:
            missing = "apiVersion" if not version else "kind"
            self._no_object(document.mark, "Required value", missing)
        elif kind.endswith("List") and isinstance(document.entries.get("items"), yaml.Sequence):
            self._take_list(document)
        elif reader := self._reader(version, kind):
            shape, read = reader
            self._read(document, kind, shape, read)
        elif kind in KINDS or version.partition("/")[0].endswith("kubeflow.org"):
            self._unknown_job(document, version, kind)
        else:
            self._others.append(f"{kind} {_name(document)}".strip())
            self._warn(document.mark, f"{kind} {_name(document)} ({version}) is left out: it has no meaning here")

    def _take_list(self, document: yaml.Mapping) -> None:
        items = document.entries["items"]
        for item in items.items if isinstance(items, yaml.Sequence) else ():
            self.take(item)

    def _no_object(self, mark: FilePosition, message: str, path: str = "") -> None:
        if self._folder:
            self._warn(mark, "left out: it is no Kubernetes object")
        else:
            self.problems.add(mark, path, message, JOB_FILE.least)

    def _unknown_job(self, document: yaml.Mapping, version: str, kind: str) -> None:
        wanted = TRAINER if kind == "TrainJob" or version.startswith("trainer.") else KUBEFLOW
        if kind in KINDS:
            hint = f"write apiVersion: {wanted}"
            if surplus := _further_fields(document, kind):
                hint += f", and leave out {', '.join(surplus)}, which it does not have"
            self.problems.add(document.entries["apiVersion"].mark, "apiVersion", f"{show(version)} is not read", hint)
            return
        kinds = (*KINDS, *RUNTIME_KINDS)
        near = nearest(kind, kinds)
        hint = f"Did you mean {near}?" if near else f"kinds of jobs: {choices(KINDS)}"
        self.problems.add(document.entries["kind"].mark, "kind", f"{show(kind)} is no kind of jobs", hint)

    def _reader(self, version: str, kind: str) -> tuple[Shape, Callable[[yaml.Mapping, Fields], None]] | None:
        """Return the shape of a kind of documents and what reads them, None if it is not read."""
        readers: dict[tuple[str, str], tuple[Shape, Callable[[yaml.Mapping, Fields], None]]] = {
            **{(KUBEFLOW, name): (shapes.OBJECT, self._job) for name in _JOB_KINDS},
            (TRAINER, "TrainJob"): (shapes.OBJECT, self._train_job),
            **{(TRAINER, name): (shapes.OBJECT, self._runtime) for name in RUNTIME_KINDS},
            (_CORE, "Pod"): (shapes.POD, self._pod),
            (_CORE, "Service"): (shapes.SERVICE, lambda _, f: self._services.append(objects.read_service(f))),
            (_CORE, "ConfigMap"): (
                shapes.CONFIG_MAP,
                lambda _, f: _keep(self._config_maps, objects.read_config_map(f)),
            ),
            (_CORE, "Secret"): (shapes.SECRET, lambda _, f: _keep(self._secrets, objects.read_secret(f))),
            (_CORE, _CLAIM): (shapes.CLAIM, lambda _, f: self._claims.append(objects.read_claim(f))),
            (_SCHEDULING, "PriorityClass"): (
                shapes.PRIORITY_CLASS,
                lambda _, f: self._priorities.update([objects.read_priority_class(f)]),
            ),
        }
        return readers.get((version, kind))

    def _read(
        self, document: yaml.Mapping, kind: str, shape: Shape, read: Callable[[yaml.Mapping, Fields], None]
    ) -> None:
        fields = Fields(document, "", shape, ReadingContext(self.problems))
        metadata = read_metadata(fields)
        # A run has one set of names: those of its replicas, folders and vertices have neither namespace nor kind. Those
        # of claims have one.
        own = f"{metadata.namespace}/" if kind == _CLAIM else ""
        key = "job" if kind in KINDS else kind, own + metadata.name
        place = fields.place("metadata")
        if not metadata.name and kind not in KINDS:
            self.problems.add(place, "metadata.name", "Required value: name or generateName is required")
        elif (first := self._seen.setdefault(key, (kind, metadata.namespace, place)))[2] != place:
            self._same_name(kind, metadata, first, place)
        read(document, fields)
        if ignored := list(dict.fromkeys(fields.context.ignored)):
            listed = choices(ignored, _SHOWN)
            self._warn(document.mark, f"{kind} {metadata.name} has fields without effect here: {listed}")

    def _same_name(
        self, kind: str, metadata: ObjectMeta, first: tuple[str, str, FilePosition], place: FilePosition
    ) -> None:
        before, namespace, mark = first
        at = f"{mark.file or self.problems.file}:{mark.line}"
        hint = ""
        if (before, namespace) != (kind, metadata.namespace):
            hint = "the names of one run count for all namespaces and kinds of jobs: rename one, or run the files apart"
        self.problems.add(place, "metadata.name", f"there is a {before} {show(metadata.name)} already, at {at}", hint)

    def _job(self, document: yaml.Mapping, fields: Fields) -> None:
        kind = KINDS[fields.text("kind")]
        notes = check_job(document, kind, self.problems)
        job = read_job(fields, kind.name)
        for mark, note in (*notes, *check_further(document, job, self.problems)):
            self._warn(mark, note)
        self._jobs.append(self._tuned(job, fields))

    def _train_job(self, document: yaml.Mapping, fields: Fields) -> None:
        from weft.frontends.training.trainjob import read_train_job  # other kinds need none of it

        del document
        # Its runtime may stand below it.
        self._jobs.append(_Pending(read_train_job(fields), fields))

    def _runtime(self, document: yaml.Mapping, fields: Fields) -> None:
        from weft.frontends.training.runtimes import read_runtime

        del document
        runtime = read_runtime(fields)
        self._runtimes[runtime.kind, runtime.name] = runtime

    def _joined(self, pending: _Pending) -> Iterator[TrainingJob]:
        """Yield the job of a TrainJob and its runtime, nothing if there is a mistake."""
        from weft.frontends.training.trainjob import check_train_job, job_of, runtime_of

        runtime = runtime_of(pending.train, self._runtimes, pending.fields)
        if runtime is not None:
            check_train_job(pending.train, runtime, pending.fields)
            yield self._tuned(job_of(pending.train, runtime), pending.fields)

    def _tuned(self, job: TrainingJob, fields: Fields) -> TrainingJob:
        """Return a job with what it leaves to its control vertex."""
        metadata = fields.node("metadata")
        annotations = metadata.entries.get("annotations") if isinstance(metadata, yaml.Mapping) else None
        node = annotations.entries.get(TUNE) if isinstance(annotations, yaml.Mapping) else None
        if node is None:
            return job
        return replace(job, tuning=read_tuning(job, node.mark, self.problems))

    def _pod(self, document: yaml.Mapping, fields: Fields) -> None:
        pod = objects.read_pod(fields)
        if not pod.template.containers:
            spec = document.entries.get("spec", document)
            self.problems.add(spec.mark, "spec.containers", "Required value")
        self._pods.append(pod)

    def _warn(self, mark: FilePosition, message: str) -> None:
        self._warnings.append(f"{mark.file or self.problems.file}:{mark.line}:{mark.column}: {message}")

    def _warn_of_missing(self, jobs: Iterable[TrainingJob], path: str) -> None:
        templates = {f"{job.kind} {job.name}": [spec.template for spec in job.replicas.values()] for job in jobs}
        templates |= {f"Pod {pod.name}": [pod.template] for pod in self._pods}
        there = {"ConfigMap": self._config_maps, "Secret": self._secrets}
        for owner, ones in templates.items():
            for kind, name in dict.fromkeys(need for one in ones for need in objects.needed_by(one)):
                if name not in there[kind]:
                    message = f"{owner} needs the {kind} {show(name)[1:-1]}, which no file gives: add it to them"
                    self._warnings.append(f"{path}: {message}")

    def done(self, path: str) -> JobFile:
        """Return all that was read. JobFileError: there are mistakes, or no job."""
        jobs = [job for one in self._jobs for job in (self._joined(one) if isinstance(one, _Pending) else (one,))]
        self.problems.raise_if_any()
        self._warn_of_missing(jobs, path)
        if not self._jobs:
            there = f"; it has {choices(self._others, 5)}" if self._others else ""
            raise JobFileError(f"there is no training job{there}", file=path, hint=JOB_FILE.least)
        return JobFile(
            jobs=tuple(defaulted(job) for job in jobs),
            pods=tuple(self._pods),
            services=tuple(self._services),
            config_maps=self._config_maps,
            secrets=self._secrets,
            claims=tuple(self._claims),
            priority_classes=self._priorities,
            warnings=tuple(self._warnings),
        )


def _keep(kept: dict[str, KeyValues], one: KeyValues) -> None:
    kept[one.name] = one


def _word(document: yaml.Mapping, key: str) -> str:
    node = document.entries.get(key)
    return node.text if isinstance(node, yaml.Scalar) and isinstance(node.value, str) else ""


def _further_fields(document: yaml.Mapping, kind: str) -> list[str]:
    """Return the fields of the spec that only another version of a kind has."""
    spec, form = document.entries.get("spec"), shapes.SPECS.get(kind)
    if not isinstance(spec, yaml.Mapping) or form is None:
        return []
    known = form.understood | form.unsupported.keys() | form.elsewhere.keys()
    return [f"spec.{key}" for key in spec.entries if key not in known]


def _name(document: yaml.Mapping) -> str:
    metadata = document.entries.get("metadata")
    name = _word(metadata, "name") if isinstance(metadata, yaml.Mapping) else ""
    return show(name)[1:-1] if name else ""
