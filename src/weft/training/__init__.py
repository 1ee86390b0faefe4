"""Training jobs in Python: `job` and `load` make and run them; `report` and the like are for the programs in replicas.

Replicas import this package in environments of their own, so it loads only the standard library before `job` or `load`
is used.
"""

from __future__ import annotations

from importlib import import_module

from weft.frontends.training.reporting import checkpoint_dir as checkpoint_dir
from weft.frontends.training.reporting import report as report
from weft.frontends.training.reporting import resumed as resumed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weft.training.jobs import JobTemplate as JobTemplate
    from weft.training.jobs import job as job
    from weft.training.jobs import load as load
    from weft.training.runs import ReplicaResult as ReplicaResult
    from weft.training.runs import TrainingResult as TrainingResult
    from weft.training.runs import TrainingRun as TrainingRun

_HOMES = {
    "weft.training.jobs": ("JobTemplate", "job", "load"),
    "weft.training.runs": ("ReplicaResult", "TrainingResult", "TrainingRun"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["checkpoint_dir", "report", "resumed", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    try:
        module = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'weft.training' has no attribute {name!r}") from None
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
