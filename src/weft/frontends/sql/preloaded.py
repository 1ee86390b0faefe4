"""What the worker processes of queries share: the modules of stages, loaded before the workers are forked."""

from __future__ import annotations

import duckdb

import weft.frontends.sql.fragment
import weft.frontends.sql.ranges  # noqa: F401

duckdb.close()  # the connection of the module has threads, which a fork would lack; it opens again when it is used
