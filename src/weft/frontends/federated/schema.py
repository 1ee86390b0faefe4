"""The records of federated jobs: a DSL (the components), a conf (the parties and parameters), and both for each party.

Source: FATE 1.5 to 1.11, `doc/dsl_conf_v1_setting_guide`, `dsl_conf_v2_setting_guide` and the example files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from weft.documents.problems import FilePosition  # noqa: TC001 - fields of records are read at run time
from weft.graph.party_plan import PartyPlan  # noqa: TC001

ARGS: Final = "args"
"""The root of data of a DSL of version 1: the tables in `role_parameters`."""
PIPELINE: Final = "pipeline"
"""The root of models of a predict DSL: the model that a training job has made."""
ROOTS: Final = (ARGS, PIPELINE)
NEED_RUN: Final = "need_run"
READER: Final = "Reader"
MODEL_LOADER: Final = "ModelLoader"
TRAIN: Final = "train"
PREDICT: Final = "predict"


class Party(NamedTuple):
    """A party in one of its roles. One party may have several roles in a job, so states belong to this pair."""

    role: str
    id: str

    def __str__(self) -> str:
        return f"{self.role} {self.id}"


class Output(NamedTuple):
    """An output of a component (or of a root), as an input names it: `intersection_0.data`."""

    component: str
    name: str
    mark: FilePosition


class FederatedComponent(Struct, frozen=True, kw_only=True):
    """A component of a DSL.

    `data` has the sources of each data input by its key, `deploys` the field `need_deploy` of version 1.
    """

    name: str
    module: str
    mark: FilePosition
    data: Mapping[str, Sequence[Output]] = field(default_factory=dict)
    models: Sequence[Output] = ()
    isometric_models: Sequence[Output] = ()
    caches: Sequence[Output] = ()
    outputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    deploys: bool | None = None
    provider: str = ""

    def sources(self) -> list[Output]:
        """Return all inputs."""
        own = [source for sources in self.data.values() for source in sources]
        return [*own, *self.models, *self.isometric_models, *self.caches]


class Dsl(Struct, frozen=True):
    """A DSL: its components by name in file order, and in an order in which each comes after its sources."""

    components: Mapping[str, FederatedComponent]
    order: Sequence[str]
    upstream: Mapping[str, Sequence[str]]
    notes: Sequence[str] = ()


class Value(Struct, frozen=True):
    """A parameter in a file: a plain JSON value, or named parameters."""

    mark: FilePosition
    plain: Any
    fields: Mapping[str, Value] | None = None


class Conf(Struct, frozen=True, kw_only=True):
    """A conf of version 1 or 2.

    `common` and `own` are the parameters of components by name, common to all parties and of the indices of a role in
    file order. In version 1 each leaf of `own` is a list with a value for each party of the role, and `tables` has the
    tables under `args` by role and key.
    """

    version: int
    initiator: Party
    roles: Mapping[str, Sequence[str]]
    job_type: str = TRAIN
    parameters: Mapping[str, Any] = field(default_factory=dict)
    own_parameters: Sequence[tuple[str, Sequence[int], Mapping[str, Any]]] = ()
    common: Mapping[str, Value] = field(default_factory=dict)
    own: Sequence[OwnParameters] = ()
    tables: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    notes: Sequence[str] = ()


class OwnParameters(Struct, frozen=True):
    """Parameters of components by name, for the parties of a role with these indices; `key` is how the conf says so."""

    role: str
    indices: Sequence[int]
    components: Mapping[str, Value]
    key: str = ""


class ComponentLimits(Struct, frozen=True):
    """Of a component: further attempts, the pause before the first of them, and how long one may take (0: any time).

    Times are in seconds.
    """

    retries: int = 0
    delay_s: float = 0.0
    timeout_s: float = 0.0


class FederatedJob(Struct, frozen=True):
    """A job for each party that takes part. `notes` are for the user: what is taken otherwise than FATE takes it."""

    dsl: Dsl
    conf: Conf
    parts: Sequence[PartyPlan]
    notes: Sequence[str] = ()
