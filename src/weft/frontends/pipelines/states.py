"""The words that users of pipelines see, and the user events by which steps tell of themselves."""

from __future__ import annotations

from typing import Final

from weft.frontends.pipelines.paths import POST_PROCESS
from weft.graph.projection import Projection

FRONTEND: Final = "pipelines"
WARNING: Final = "warning"
"""The event of a step that succeeded, and of which a person should know something."""
NOT_RUN: Final = "skipped"
"""The event of a task that has found that it is not to run."""

PROJECTION: Final = Projection(FRONTEND, warning=WARNING, not_run=NOT_RUN, final=POST_PROCESS)
