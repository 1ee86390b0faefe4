"""`PipelineWork`: a checked pipeline with the settings of one run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from weft.frontends.pipelines.compiler import ContainerImages, PipelineSource
    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.options import Caching, Surroundings


class PipelineWork(Struct, frozen=True):
    """A checked pipeline with the settings of one run.

    `urls` maps names of remote file systems to their URLs; `file_systems` has the folders of their copies, fetched when
    the run starts. `containers` is set by the preparation of the run. `spread`: steps run at many machines.
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
    spread: bool = False

    @property
    def pipeline_name(self) -> str:
        """The name of the pipeline, or the name given to the run."""
        return self.pipeline.name

    @property
    def file(self) -> Path:
        """The file of the pipeline."""
        return Path(self.origin.file)

    @property
    def base(self) -> Path:
        """The absolute path of the folder of that file."""
        return Path(os.path.abspath(self.file)).parent
