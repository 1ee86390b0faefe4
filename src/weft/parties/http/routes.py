"""All routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.parties.http import (
    data_routes,
    job_routes,
    model_routes,
    other_routes,
    own_routes,
    table_routes,
    tracking_routes,
)

if TYPE_CHECKING:
    from weft.parties.http.groups import HttpRoute

ROUTES: Final[tuple[HttpRoute, ...]] = (
    *job_routes.ROUTES,
    *data_routes.ROUTES,
    *table_routes.ROUTES,
    *tracking_routes.ROUTES,
    *model_routes.ROUTES,
    *other_routes.ROUTES,
    *own_routes.ROUTES,
)
