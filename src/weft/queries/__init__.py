"""Queries in SQL: `SqlContext` has tables and runs queries, `sql` uses the context of the process."""

from weft.model.errors import MissingExtraError

try:
    import duckdb as _duckdb  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as error:
    raise MissingExtraError(f"queries need {error.name}", hint="Install it: pip install 'weft[sql]'") from None

from weft.queries.context import SqlContext, sql
from weft.queries.query import Query

__all__ = ["Query", "SqlContext", "sql"]
