"""Pipelines written in Python: `weft.pipeline` and its pipelines.

The public interface of `frontends/pipelines/declaring.py` and `building.py`, which cannot run pipelines. Modules that
run steps are loaded when a pipeline is built or run, not when it is declared, because each process of a step declares
it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from msgspec import Struct, field

from weft.frontends.pipelines.declaring import CURRENT, PipelineBuilder
from weft.frontends.pipelines.invoke import IMPORTING
from weft.model.errors import UsageError, WeftError
from weft.runs.reading import StepRecord  # noqa: TC001 (`help` evaluates the fields of records)

if TYPE_CHECKING:
    from weft.frontends.pipelines.building import BuiltPipeline


class PipelineResult(Struct, frozen=True):
    """The end of a run of a pipeline.

    `state` is `succeeded`, `failed` or `terminated`. `steps` maps the name of a step (`dag.step` inside a dag) to its
    state, message, times and logs. `outputs` maps `step.artifact` to the path of each artifact that exists. `folder` is
    the folder of the run, with its logs. `error` is None if the run succeeded.
    """

    run_id: str
    state: str
    folder: Path
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    outputs: Mapping[str, Path] = field(default_factory=dict)
    error: WeftError | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the run succeeded."""
        return self.error is None and self.state == "succeeded"


class BoundPipeline:
    """A built pipeline: run it, or write it as a file."""

    def __init__(self, built: BuiltPipeline, arguments: Iterable[str] = ()) -> None:
        self._built = built
        self._arguments = frozenset(arguments)
        self.name = built.name

    def __repr__(self) -> str:
        return f"<pipeline {self.name}>"

    def to_yaml(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the pipeline as YAML, and write it to a file if one is named; functions are found from the file's
        folder.

        Without a file, paths are those of a file beside the Python file. ForbiddenError: the file cannot be written.
        """
        if path is None:
            return self._built.text()
        text = self._built.text(os.path.dirname(os.path.abspath(path)))
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            from weft.model.errors import ForbiddenError

            raise ForbiddenError(f"{path} cannot be written: {error.strerror}") from None
        return text

    def run(
        self,
        parameters: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        workers: int | None = None,
        backend: str | None = None,
        storage: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        user: str | None = None,
        cache: bool = True,
        refresh: Iterable[str] = (),
        start: str = "",
        only: str = "",
        targets: Iterable[str] = (),
        tags: Mapping[str, str] | None = None,
        note: str = "",
        check: bool = True,
        profile: str = "",
    ) -> PipelineResult:
        """Run the pipeline to its end as `weft run` does, and return its result.

        `parameters` are those of steps: `{"epochs": 3}` for all steps that have one, `{"train.epochs": 3}` for one
        step. The other arguments are those of the command line: `cache=False` is --no-cache, `start` is --from. Of a
        `profile`, parameters of the function have no effect here: the pipeline is built already. With `check`, an error
        of the run is raised; without it, the result has it. Errors before the first step starts are always raised.
        """
        if IMPORTING in os.environ:
            raise UsageError(
                f"the pipeline is run while its module is imported ({os.environ[IMPORTING]})",
                hint='Put the call of run() under: if __name__ == "__main__":',
            )
        from weft import wiring
        from weft.admin.settings import load_settings
        from weft.frontends.pipelines.building import folder_of
        from weft.frontends.pipelines.check import parse_pipeline
        from weft.frontends.pipelines.overrides import outdone
        from weft.frontends.pipelines.reading import profile_of_text
        from weft.runs.reading import read_run
        from weft.store.labels import RunLabels, parse_tags, valid_note
        from weft.store.places import STAGE

        if only and targets:
            raise UsageError("only= excludes targets=", hint=f"Name it as a target too: {only}")
        folder = folder_of(self._built.file)
        labels = RunLabels(parse_tags(f"{name}={value}" for name, value in (tags or {}).items()), valid_note(note))
        flags = {
            "workers": workers,
            "backend": backend,
            "storage": storage,
            "user": user,
            "state_dir": state_dir and os.fspath(state_dir),
        }
        text, file = self._built.text(), self._built.file
        file = file if os.path.exists(file) else os.path.join(folder, "pipeline.py")
        chosen = profile_of_text(text, file, profile) if profile else None
        given = dict(parameters or {})
        if chosen is not None:
            below = {key: one for key, one in chosen.parameters.items() if key not in self._arguments}
            gone = outdone(parse_pipeline(text, file), below, given)
            given = {**{key: one for key, one in below.items() if key not in gone}, **given}
        settings = load_settings(
            flags, start=Path(folder), profile=None if chosen is None else (chosen.name, chosen.settings)
        )
        state = settings.state_root(Path(folder))
        state.warn_diverted()
        loaded = wiring.load_text(
            text,
            file,
            overrides=given,
            profile=chosen,
            user=settings.user_name,
            name=name,
            caching=wiring.Caching(
                off=not cache, refresh=frozenset(refresh), start=start, only=only, targets=tuple(targets)
            ),
            around=wiring.Surroundings(
                mounts=settings.mounts != "off",
                docker_env=settings.docker_env,
                trace=settings.trace,
                stage=state.path / STAGE,
                workers=settings.workers,
                storage=settings.storage,
            ),
        )
        ended = wiring.run_pipeline(loaded, settings, quiet=True, labels=labels)
        if check and ended.error is not None:
            raise ended.error
        steps = {step.name: step for step in read_run(ended.folder).steps}
        outputs = {name: Path(path) for name, path in ended.outputs.items()}
        return PipelineResult(ended.run_id, ended.state, ended.folder, steps, outputs, ended.error)


class PipelineFunction(PipelineBuilder):
    """A function that builds a pipeline; made by `weft.pipeline`."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Build and return the pipeline; inside another pipeline that is being built, add it there and return its
        handle.

        DefinitionError: a call cannot be part of a pipeline. PipelineError lists all errors.
        """
        builder = CURRENT.get()
        if builder is not None:
            return builder.call(self, args, named)
        from weft.frontends.pipelines.building import build

        return BoundPipeline(build(self, args, named), self.signature.order)

    def run(
        self, parameters: Mapping[str, object] | None = None, *, profile: str = "", **options: Any
    ) -> PipelineResult:
        """Build and run the pipeline as `weft run FILE -p NAME=VALUE` does: parameters of the function, and of steps.

        The options are those of `BoundPipeline.run`.
        """
        from weft.frontends.pipelines.building import build_with, profiles_of
        from weft.frontends.pipelines.profiles import profile_of_values

        given: Mapping[str, object] = parameters or {}
        if profile:
            chosen = profile_of_values(profiles_of(self), self.where.file, profile).parameters
            given = {**{name: one for name, one in chosen.items() if name in self.signature.order}, **given}
        built, rest = build_with(self, given)
        return BoundPipeline(built, self.signature.order).run(rest, profile=profile, **options)

    def to_yaml(self, path: str | os.PathLike[str] | None = None) -> str:
        """Build the pipeline with the defaults of its function, and call `BoundPipeline.to_yaml`."""
        flow: BoundPipeline = self()
        return flow.to_yaml(path)


@overload
def pipeline(function: Callable[..., Any], /) -> PipelineFunction: ...
@overload
def pipeline(**options: Any) -> Callable[[Callable[..., Any]], PipelineFunction]: ...
def pipeline(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a pipeline of a function that calls steps.

    Options, in the words of a file: `name`, `parallelism`, `on_failure` ("fail_fast" or "continue"), `cache` (True, or
    `weft.CacheOptions`), `docker_env`, `main_fs`, `extra_fs`, `disabled` (names of steps), `as_paddleflow`, `defaults`
    (options of all steps: `timeout_s`, `retry`, `resources`, `environment`, `env`), `profiles` (words of a run, by
    name). A pipeline inside another has only `name`, and `when`, its condition. DefinitionError: an unknown option.
    """
    noted = PipelineFunction.noted(options)
    return (
        PipelineFunction(function, noted)
        if function is not None
        else lambda function: PipelineFunction(function, noted)
    )
