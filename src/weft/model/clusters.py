"""What a session wants from a Ray cluster."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (`help` evaluates the fields of records)

from msgspec import Struct


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """The cluster of a session with the backend "ray", and what its machines need for the program.

    `address` is `host:port` of the cluster, `ray://host:port` for its client's port from outside of its network, `auto`
    for the one on this machine, or None for that of RAY_ADDRESS, else the one on this machine. `requirements` is a
    requirements file of pip: its packages are installed on each machine, for this session alone, before those of the
    machine. `working_dir` is a folder that is copied to each machine: tasks begin there, and import its modules.
    """

    address: str | None = None
    requirements: Path | str | None = None
    working_dir: Path | str | None = None
