"""The constants of a job that its backend sets."""

from __future__ import annotations

from msgspec import Struct


class Tuning(Struct, frozen=True):
    """The sizes of leases, and the abilities of the backend. Set by the backend, constant for a job.

    `target_s` is the intended duration of a lease in seconds; `growth` bounds the ratio of the widths of successive
    leases of a vertex; `cone_steps` bounds the length of a linear cone, and `cone_tasks` the tasks in a unit of a tree
    cone; `realign` is the width of a lease where no cone fits; with `shared_memory` all workers read the same memory,
    so that placement by input bytes gains nothing; `cones` is off where every task must be committed alone;
    with `copied_out` an output is copied from the process that makes it, so that one task holds its output twice;
    `stream_bytes` is the capacity of a streamed edge, a part of the memory request of the bubble; with `backups` late
    leases get a second attempt by the policy of the job, which is called at intervals between the two `looks_s`
    seconds. With `many_machines`, tasks that start processes take a core of a node.
    """

    target_s: float = 0.002
    growth: int = 8
    cone_steps: int = 256
    cone_tasks: int = 1024
    realign: int = 4
    lease_bytes: int = 256 * 2**20
    shared_memory: bool = True
    copied_out: bool = False
    cones: bool = True
    stream_bytes: int = 0
    backups: bool = False
    looks_s: tuple[float, float] = (0.1, 10.0)
    many_machines: bool = False
