"""`StepSurroundings`: what a step of a pipeline gives to the replicas of the jobs that it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from weft.frontends.training.schema import EnvVar
from weft.operators.mounts import BindMount  # noqa: TC001 - msgspec reads it


class StepSurroundings(Struct, frozen=True, kw_only=True):
    """The surroundings of jobs in a step. `name` has the run and the step (`run-000001/train`).

    `inherited` is the environment that replicas inherit; `variables` are the step's own and replace those of the same
    name in job files. No log shows `masked`. `folders` stay visible to each replica, and `mounts` are made for each.
    `digest` identifies the work: a run continues only with an equal one. `traced`: what replicas open is told.
    """

    name: str
    inherited: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    masked: Sequence[str] = ()
    folders: Sequence[str] = ()
    mounts: Sequence[BindMount] = ()
    digest: str = ""
    traced: bool = False

    def __repr__(self) -> str:  # a secret must not reach a message
        return f"StepSurroundings({self.name!r})"

    def over(self, own: Sequence[EnvVar]) -> list[EnvVar]:
        """Return the variables of the step, then those of a container that have other names and may refer to them."""
        given = [EnvVar(name, value.replace("$", "$$")) for name, value in self.variables.items()]
        return [*given, *(one for one in own if one.name not in self.variables)]


def inherited_of(step: StepSurroundings | None) -> Mapping[str, str]:
    """Return the environment that replicas inherit: that of the step, or of this process."""
    return os.environ if step is None else step.inherited
