"""`Loaded`: a checked pipeline from which runs are prepared, compiled, resumed and revised."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.frontends.pipelines import layout
from weft.frontends.pipelines.templates import RUN_ID
from weft.frontends.pipelines.work import PipelineWork
from weft.graph.spec import StepInputs

if TYPE_CHECKING:
    from contextlib import ExitStack

    from weft.frontends.pipelines.revising import Revision
    from weft.graph.job_plan import JobPlan
    from weft.graph.logical import LogicalGraph
    from weft.graph.spec import RunSpec
    from weft.store.filesystems import Copy
    from weft.store.planning import PlannedTask
    from weft.store.state import RunFolder

FIRST_RUN: Final = "run-000000"
"""Replaces the run id in a pipeline that is only shown."""


class Loaded(PipelineWork, frozen=True, dict=True):
    """A checked pipeline from which runs are made."""

    @cached_property
    def preview(self) -> layout.CompiledPipeline:
        """The compiled pipeline of a run that never starts, with the id `FIRST_RUN`."""
        return layout.compile_loaded(self, FIRST_RUN, layout.NOWHERE)

    @property
    def graph(self) -> LogicalGraph:
        """The graph of the preview."""
        return self.preview.graph

    @property
    def steps(self) -> list[str]:
        """The names of the steps of the preview, in order."""
        return self.preview.steps

    @property
    def warnings(self) -> list[str]:
        """Warnings for users before the run."""
        return self.preview.warnings

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the steps of a run, each as `STEP.NAME`."""
        text = json.dumps(layout.parameters_of(self.pipeline, self.preview.nodes))
        found: dict[str, Any] = json.loads(text.replace(FIRST_RUN, f"{{{{{RUN_ID}}}}}"))
        return found

    # ------------------------------------------------------------------------------------- the source of a run

    def at(self, *, many_machines: bool) -> Loaded:
        """Return the source for workers at one machine, or at many: these have the folder of the run, or get its files
        by the URL of the storage.
        """
        return replace(self, spread=many_machines) if self.around.storage else self

    def prepare(self, note: Callable[[str], None]) -> Loaded:
        """Return the pipeline with the container images of its steps; errors as `layout.in_containers`.

        A new run at one machine needs no storage.
        """
        if self.around.storage and not self.spread:
            self = replace(self, around=replace(self.around, storage=""))
        return layout.in_containers(self, note)

    def copies(self, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True) -> list[Copy]:
        """Lock the copies of remote file systems until `undo` releases them; see `layout.hold_copies`."""
        return layout.hold_copies(self, undo, note, fetch=fetch)

    def claim(self, run_id: str, folder: Path, copies: Sequence[Copy]) -> RunSpec | None:
        """Return the run of an id, with a place for its outputs; see `layout.claim`."""
        return layout.claim(self, run_id, folder, copies)

    def jobs_planned(self) -> Sequence[JobPlan]:
        """Return (): steps are no training jobs."""
        return ()

    def warnings_here(self) -> list[str]:
        """Return warnings about the files of steps, and about this machine; see `layout.warnings_here`."""
        return layout.warnings_here(self, self.preview)

    def check_begin(self, runs: Path) -> None:
        """Check what a run needs at its begin; see `layout.check_run`."""
        folder = runs / FIRST_RUN
        layout.check_run(self, layout.compile_loaded(self, folder.name, layout.place_of(self, folder)))

    def planned(self, runs: Path, run: str = "") -> list[PlannedTask]:
        """Return the tasks of the steps, for a plan; see `planning.planned_tasks`."""
        from weft.frontends.pipelines.planning import planned_tasks  # few runs are planned

        return planned_tasks(self, runs / (run or FIRST_RUN), None if run else lambda: self.preview)

    def compiled(self, folder: Path) -> LogicalGraph:
        """Return the graph of the run in a folder, as it was submitted."""
        return layout.compile_loaded(self, folder.name, layout.place_of(self, folder)).graph

    def given(self, folder: Path) -> dict[str, StepInputs]:
        """Return what the steps of the run in a folder were given: commands, parameters, mounts, input files."""
        from weft.frontends.pipelines.caching import static_leaves  # few runs are compared
        from weft.frontends.pipelines.later_outputs import LaterOutputs
        from weft.frontends.pipelines.resolved import ResolvedStep

        images = {} if self.containers is None else self.containers.images
        found = {}
        nodes = layout.compile_loaded(self, folder.name, layout.place_of(self, folder)).nodes
        makers = LaterOutputs(self.pipeline, nodes)
        for step in nodes:
            if isinstance(step, ResolvedStep):
                leaves = static_leaves(self.pipeline, step, images.get(step.docker_env, step.docker_env), "")
                places = {name: [p for p in of if isinstance(p, str)] for name, of in step.places.items()}
                found[step.name] = StepInputs(leaves, places, makers.of(step))
        return found

    def is_edited(self, described: Mapping[str, Any]) -> bool:
        """Return whether the file of a run has another text now.

        The text of a Python file is what it built, so that the file itself is never equal to it.
        """
        file, text = described.get("file"), described.get("text")
        if not isinstance(file, str) or not isinstance(text, str) or file.endswith(".py"):
            return False
        try:
            return Path(file).read_bytes() != text.encode()
        except OSError:
            return False

    def resume(self, folder: RunFolder, described: Mapping[str, Any], done: frozenset[str]) -> RunSpec:
        """Return the specification of a resumed run; see `layout.resumed_spec`."""
        return layout.resumed_spec(self, folder, described, done)

    def revise(
        self,
        folder: RunFolder,
        described: Mapping[str, Any],
        file: str | None,
        overrides: Mapping[str, str],
        note: Callable[[str], None],
    ) -> Revision:
        """Return the run with another file or other parameters; see `revising.revise`."""
        from weft.frontends.pipelines.revising import revise  # few runs are edited

        return revise(self, folder, described, file, overrides, note)
