"""The report of a job at one party: what its page tells, read from the records of this party alone."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft._version import __version__
from weft.frontends.federated.components.tables import frame_shape
from weft.frontends.federated.schema import Party
from weft.model.errors import NotFoundError, UnreadableError
from weft.parties.job_views import metrics_view, own_parts

if TYPE_CHECKING:
    from weft.parties.http.ports import ModelRow
    from weft.parties.job_views import PartyViewSources, ViewedJob

MASK: Final = "(not shown)"
_SECRET: Final = (
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "private_key",
    "access_key",
    "app_key",
    "api_key",
)


def job_report(
    sources: PartyViewSources,
    state: ViewedJob,
    shown: Mapping[str, Any],
    models: Sequence[ModelRow],
    now: float,
) -> dict[str, Any]:
    """Return what the page of a job tells, as JSON.

    `shown` is the job as `weft show` has it, `models` the versions of its model.
    """
    about = json.loads(state.entry.about)
    return {
        **shown,
        "made": now,
        "site": sources.name,
        "user": str(about.get("user", "")),
        "remarks": str(about.get("notes", "")),
        "job_type": state.job.conf.job_type,
        "metrics": list(metrics_view(sources, state.entry.job, state.job, "")),
        "tables": list(_tables(sources, state)),
        "models": [
            {
                "version": one.model_version,
                "model": one.model_id,
                "role": one.role,
                "created": one.created_at,
                "bytes": one.nbytes,
                "deployed": not one.parent,
                "components": list(one.detail.get("components", ())),
                "tags": list(one.tags),
            }
            for one in models
        ],
        "approvals": _approvals(sources.me, state, about),
        "parameters": [
            {
                "part": plan.name,
                "job": masked(dict(plan.job_parameters)),
                "components": {
                    name: {"runs": one.runs, "why_not": one.why_not, "parameters": masked(dict(one.parameters))}
                    for name, one in plan.components.items()
                },
            }
            for plan in own_parts(sources.me, state.job)
        ],
        "versions": {
            "Weft": __version__,
            "Python": platform.python_version(),
            "files of the job": state.entry.digest,
            "epoch": str(_epoch(state)),
        },
    }


def masked(value: Any) -> Any:
    """Return parameters without what their names call a secret."""
    if isinstance(value, Mapping):
        return {
            str(key): MASK if any(word in str(key).lower() for word in _SECRET) else masked(one)
            for key, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(one) for one in value]
    return value


def _tables(sources: PartyViewSources, state: ViewedJob) -> list[dict[str, Any]]:
    """Return the rows and columns of the tables that components have made at this party."""
    found = []
    for name in state.job.dsl.order:
        outputs = state.job.dsl.components[name].outputs.get("data", ())
        for plan in own_parts(sources.me, state.job):
            for at, output in enumerate(outputs):
                with suppress(NotFoundError, UnreadableError):
                    folder = sources.folders.current(state.entry.job, Party(plan.role, plan.id), name)
                    if (folder / f"data_{at}.arrow").is_file():
                        rows, columns = frame_shape(folder / f"data_{at}.arrow")
                        one = {"component": name, "part": plan.name, "table": output}
                        found.append(one | {"rows": rows, "columns": len(columns), "names": columns[:12]})
    return found


def _approvals(me: str, state: ViewedJob, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return for each part of this party whether the job may run here, and what people have decided."""
    found: list[dict[str, Any]] = []
    for part, one in state.own.items():
        if one.refused:
            told = f"was declined: {one.refused}"
        elif state.entry.initiator == me:
            told = "was submitted here"
        elif one.approved:
            told = "may run here"
        else:
            told = "waits for approval"
        found.append({"part": str(part), "what": told, "at": None})
    for one in about.get("decisions", ()):
        what = f"declined by this party: {one['declined']}" if one.get("declined") else "approved by this party"
        found.append({"part": "", "what": what, "at": one.get("at")})
    return found


def _epoch(state: ViewedJob) -> int:
    if state.coordination is not None:
        return state.coordination.epoch
    return max((one.wish.epoch for one in state.own.values() if one.wish is not None), default=1)
