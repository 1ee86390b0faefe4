"""`PipelineWork`: a pipeline that was read and checked, with all that one run of it is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from weft.frontends.pipelines.compiler import ContainerImages, PipelineSource
    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.options import Caching, Surroundings


class PipelineWork(Struct, frozen=True):
    """A pipeline that was read and checked, with all that one run of it is given.

    `urls` maps names of file systems that lie elsewhere to where; what `file_systems` has of them are copies, fetched
    when it runs. `containers` is known once the run is prepared.
    """

    pipeline: Pipeline
    origin: PipelineSource
    root: Path
    user: str
    file_systems: Mapping[str, str]
    urls: Mapping[str, str]
    caching: Caching
    around: Surroundings
    containers: ContainerImages | None = None

    @property
    def pipeline_name(self) -> str:
        """The name of the pipeline, or the one that was given in its place."""
        return self.pipeline.name

    @property
    def file(self) -> Path:
        """The file of the pipeline."""
        return Path(self.origin.file)

    @property
    def base(self) -> Path:
        """The absolute path of the folder of that file."""
        return self.file.absolute().parent
