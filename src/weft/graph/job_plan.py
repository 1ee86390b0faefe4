"""Plans of training jobs: what a run of their file would start on this machine, as data for users."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class ReplicaPlan(Struct, frozen=True, kw_only=True):
    """The replicas of one type of a job; `most` is the number to which they can be scaled.

    `command` are the words of the main container; `$(NAME)` is replaced where the value is known and the same for all
    replicas. `problem` says why a container cannot start, with what helps. `stands_for` tells what stands for `image`,
    `beside` are the names of other containers. `requests` has cores, bytes and GPUs of one replica, `names` the first
    and the last name. `unlimited`: nothing limits how often it starts again.
    """

    type: str
    step: str
    replicas: int
    most: int
    restart_policy: str
    unlimited: bool = False
    command: tuple[str, ...] = ()
    problem: str = ""
    image: str = ""
    stands_for: str = ""
    beside: tuple[str, ...] = ()
    requests: Mapping[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


class VariablePlan(Struct, frozen=True):
    """A variable that is added to the main containers of a replica, or of all (`replica` is empty)."""

    name: str
    replica: str
    value: str


class GangPlan(Struct, frozen=True, kw_only=True):
    """The places that `replicas` of a job need at once, and what this machine and its queue have: cores, bytes, GPUs.

    `refusal` says why they can never have them; "" if they can.
    """

    replicas: int
    needs: tuple[float, float, float]
    parts: str
    has: tuple[float, float, float]
    queue: str
    limit: tuple[float, float, float] | None = None
    priority: int = 0
    refusal: str = ""


class JobPlan(Struct, frozen=True, kw_only=True):
    """One training job. `held` says why its replicas would not start: it is suspended, or of another controller.

    `policy` has the fields of its run policy that are given. Without requests there is no gang: all replicas start.
    """

    kind: str
    name: str
    namespace: str
    held: str = ""
    isolation: str
    isolation_why: str
    policy: Mapping[str, str | int] = field(default_factory=dict)
    replicas: tuple[ReplicaPlan, ...] = ()
    environment: tuple[VariablePlan, ...] = ()
    gang: GangPlan | None = None
    warnings: tuple[str, ...] = ()
    """What may not work in this isolation."""
