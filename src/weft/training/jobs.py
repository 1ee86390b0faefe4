"""`JobTemplate`: training jobs that Python declares or loads from a file, to be run with a command or a function."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.frontends.training.census import RETRYING
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.reading import read_files, read_text
from weft.frontends.training.runtimes import BACKOFF_LIMIT
from weft.model.errors import JobFileError, UsageError
from weft.training import invoke
from weft.training.manifests import SOURCE, Pods, add_files, as_text, manifest, of_arguments, words_of

if TYPE_CHECKING:
    from weft.frontends.training.schema import JobFile, ReplicaSpec, TrainingJob
    from weft.training.runs import TrainingResult, TrainingRun
    from weft.wiring import Session


class JobTemplate:
    """Checked training jobs; see `weft.training.job` and `weft.training.load`."""

    def __init__(self, files: JobFile, file: Path, text: str | None = None) -> None:
        self._files, self._file, self._text = files, file, text

    def __repr__(self) -> str:
        return f"<{', '.join(f'{job.kind} {job.name}' for job in self._files.jobs)}>"

    @property
    def files(self) -> JobFile:
        """The checked jobs."""
        return self._files

    def to_yaml(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the job as a file for `weft run` and kubectl, and write it if a path is given.

        UsageError: the jobs are from a file.
        """
        if self._text is None:
            raise UsageError(f"the jobs are from a file already: {self._file}")
        if path is not None:
            Path(path).write_text(self._text, encoding="utf-8")
        return self._text

    def run(
        self,
        work: Callable[..., Any] | str | Sequence[str] | None = None,
        *args: Any,
        check: bool = True,
        state_dir: str | os.PathLike[str] | None = None,
        isolation: str | None = None,
        workers: int | None = None,
        user: str | None = None,
        backend: str | None = None,
        session: Session | None = None,
        **named: Any,
    ) -> TrainingResult:
        """Run the jobs to their end and return the result. Ctrl-C cancels them, a second Ctrl-C leaves at once.

        `work` runs in each replica: a command (a text for sh, or words), or a function, which is called with `args` and
        `named` by this Python, in a process with the replica's environment; the result has its values. Without `work`
        the replicas run their own commands. `isolation` and `backend` are settings of `weft run`; with "ray" the
        replicas run at the machines of a cluster. An open `session` lends its workers, on whatever backend it has.

        With `check` an error of the run is raised, and a replica that failed though its job succeeded is a
        RuntimeWarning; without it, the result has them. TaskError: a replica failed.
        RunFailedError, RunCancelledError: the jobs failed, or were cancelled. ProgramError: the function cannot be
        pickled. NotFoundError: nothing says how an image starts.
        """
        from weft.training.runs import backend_of, run_jobs

        files, function = self._with(work, args, named)
        flags = {"state_dir": state_dir and os.fspath(state_dir), "isolation": isolation, "workers": workers}
        flags |= {"user": user, "backend": backend_of(backend, session)}
        return run_jobs(files, self._file, function, flags, check=check, session=session)

    def submit(
        self,
        work: Callable[..., Any] | str | Sequence[str] | None = None,
        *args: Any,
        state_dir: str | os.PathLike[str] | None = None,
        isolation: str | None = None,
        workers: int | None = None,
        user: str | None = None,
        backend: str | None = None,
        session: Session | None = None,
        **named: Any,
    ) -> TrainingRun:
        """Begin a run of the jobs and return it; arguments and errors are those of `run`.

        The jobs end with this process: `weft resume` continues them.
        """
        from weft.training.runs import backend_of, begin_jobs

        files, function = self._with(work, args, named)
        flags = {"state_dir": state_dir and os.fspath(state_dir), "isolation": isolation, "workers": workers}
        flags |= {"user": user, "backend": backend_of(backend, session)}
        return begin_jobs(files, self._file, function, flags, session=session)

    def _with(self, work: Any, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[JobFile, bytes]:
        """Return the jobs with the work as commands of their replicas, and the pickled call of a function."""
        if invoke.INVOKED in os.environ:
            raise UsageError(
                f"{self!r} is run while a replica loads its function",
                hint='Put the call of run() under: if __name__ == "__main__":',
            )
        if callable(work):
            return self._commanded([sys.executable, "-P", invoke.__file__]), _pickled(work, args, named)
        if args or named:
            raise UsageError(f"a command takes no arguments: {[*args, *named]!r}", hint="Add them to its words.")
        return (self._files if work is None else self._commanded(words_of(work))), b""

    def _commanded(self, words: Sequence[str]) -> JobFile:
        jobs = [
            replace(job, replicas={type: _commanded(job, spec, words) for type, spec in job.replicas.items()})
            for job in self._files.jobs
        ]
        return replace(self._files, jobs=tuple(jobs))


def _commanded(job: TrainingJob, spec: ReplicaSpec, words: Sequence[str]) -> ReplicaSpec:
    name = job.main_container or KINDS[job.kind].container
    containers = tuple(
        replace(one, command=tuple(words), args=()) if one.name == name else one for one in spec.template.containers
    )
    return replace(spec, template=replace(spec.template, containers=containers))


def _pickled(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> bytes:
    import pickle

    from weft.model.errors import ProgramError
    from weft.store.codec import dumps_by_value

    try:
        call = dumps_by_value((function, tuple(args), dict(named)), protocol=5)
    except Exception as error:  # pickling runs methods of users
        message = f"{getattr(function, '__qualname__', function)!r} cannot be pickled: {type(error).__name__}: {error}"
        raise ProgramError(message, hint="Make what it uses inside it, or pass plain data.") from error
    folders = [os.path.abspath(folder) for folder in sys.path]
    return pickle.dumps((folders, call), protocol=5)


ROLES: Final = ("worker", "ps", "chief", "master", "evaluator", "launcher", "node")
"""The arguments of `job` that are replicas."""


def job(
    kind: str = "TFJob",
    name: str = "job",
    *,
    worker: int | Mapping[str, Any] | None = None,
    ps: int | Mapping[str, Any] | None = None,
    chief: int | Mapping[str, Any] | None = None,
    master: int | Mapping[str, Any] | None = None,
    evaluator: int | Mapping[str, Any] | None = None,
    launcher: int | Mapping[str, Any] | None = None,
    node: int | Mapping[str, Any] | None = None,
    command: str | Sequence[str] | None = None,
    image: str | None = None,
    env: Mapping[str, object] | None = None,
    resources: Mapping[str, object] | None = None,
    restart: str | None = None,
    grace_s: float | None = None,
    backoff_limit: int | None = None,
    deadline_s: int | None = None,
    clean: str | None = None,
    elastic: tuple[int, int] | None = None,
    runtime: str | None = None,
    success: str | None = None,
    files: Mapping[str, str] | None = None,
    namespace: str = "default",
    tune: Mapping[str, object] | None = None,
) -> JobTemplate:
    """Declare a training job: the numbers of its replicas by role, and what they have in common.

    A role is a number of replicas, or a mapping with `replicas` and own values of `command`, `image`, `env`,
    `resources` and `restart`. `resources` has cores, bytes and GPUs of each replica, as quantities of Kubernetes:
    `{"cpu": 1, "memory": "2Gi", "gpu": 1}`. `restart` is "Never", "OnFailure", "Always", "ExitCode", or "job", which
    starts all replicas again. Without it and `backoff_limit`, replicas of a kind that starts failed ones again do so 6
    times in all, as in a Job of Kubernetes; a job that names `restart` has no limit of its own.
    `clean` is "All", "Running" or "None". `elastic` bounds the workers of a PyTorchJob.
    `runtime` is that of a TrainJob, whose replicas are `node`. With `success="AllWorkers"` a TFJob without a chief
    succeeds when all workers have. `files` maps absolute paths in each replica to texts. A value in `env` may be a
    field of the pod: `{"field": "metadata.name"}`.
    `tune` leaves numbers of replicas and resources to trials and earlier runs:
    `{"history": True, "candidates": [{"worker": 1}, {"worker": 2}], "seconds": 20}`.

    JobFileError lists the mistakes by argument. UsageError: an argument of a wrong form.
    """
    roles = dict(zip(ROLES, (worker, ps, chief, master, evaluator, launcher, node), strict=True))
    if backoff_limit is None and restart is None and _restarts_unasked(kind, roles):
        backoff_limit = BACKOFF_LIMIT
    policy = {"backoffLimit": backoff_limit, "activeDeadlineSeconds": deadline_s, "cleanPodPolicy": clean}
    document = manifest(
        kind,
        name,
        namespace,
        roles,
        Pods(command=command, image=image, env=env, resources=resources),
        restart=restart,
        grace_s=grace_s,
        policy={key: value for key, value in policy.items() if value is not None},
        elastic=elastic,
        runtime=runtime,
        success=success,
        tune=tune,
    )
    documents = [document, *([add_files(document, files)] if files else [])]
    text = "---\n".join(map(as_text, documents))
    try:
        jobs = read_text(text, SOURCE)
    except JobFileError as error:
        raise of_arguments(error) from None
    return JobTemplate(jobs, Path.cwd() / f"{name}.yaml", text)


def _restarts_unasked(kind: str, roles: Mapping[str, object]) -> bool:
    """Whether replicas of a kind start again after failures though no role says so."""
    named = any(isinstance(own, Mapping) and own.get("restart") for own in roles.values())
    return kind in KINDS and KINDS[kind].restart_policy in RETRYING and not named


def load(path: str | os.PathLike[str]) -> JobTemplate:
    """Read and check the jobs of a file or folder. Errors are those of `weft run FILE` before the run."""
    return JobTemplate(read_files(os.fspath(path)), Path(path).absolute())
