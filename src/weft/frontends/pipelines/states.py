"""The users' words for states of pipelines, and the user events of steps."""

from __future__ import annotations

from typing import Final

from weft.frontends.pipelines.paths import POST_PROCESS
from weft.graph.projection import Projection

FRONTEND: Final = "pipelines"
WARNING: Final = "warning"
"""The event of a step that succeeded with a warning for the user."""
NEWS: Final = "news"
"""The event of a step that runs, for the user: what it does before its command, or what happens to its jobs."""
NOT_RUN: Final = "skipped"
"""The event of a task that skips itself or the members of its choice; its payload is the reason."""
IS_DISABLED: Final = "it is disabled"
IS_EMPTY: Final = "it loops over nothing"

PROJECTION: Final = Projection(
    FRONTEND, warning=WARNING, news=NEWS, not_run=NOT_RUN, final=POST_PROCESS, empty=IS_EMPTY
)
