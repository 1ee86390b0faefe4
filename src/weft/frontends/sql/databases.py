"""Databases of DuckDB that reach only what was granted.

DuckDB itself enforces that: access to files is off but for listed files and folders, extensions cannot be loaded, and
the settings are locked.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from weft.frontends.sql.expressions import literal
from weft.store.filesystems import is_url
from weft.store.remote import opened


def open_database(
    *,
    files: Iterable[str] = (),
    folders: Iterable[str] = (),
    threads: int = 0,
    lossless: bool = True,
    disabled_optimizers: str = "",
    memory: int = 0,
    spill: str = "",
    footers: bool = False,
) -> duckdb.DuckDBPyConnection:
    """Return a database in memory whose queries reach only these files and folders, which may be URLs of fsspec.

    `threads` are those of one query (0: all cores). `memory` bounds what it computes with, in bytes (0: four fifths of
    the machine's); the rest goes to the folder `spill`, which no other database may have. With `lossless`, Arrow tables
    keep the types that Arrow has not. With `footers`, all connections share the footers of Parquet files that one of
    them has read: only for files that do not change, since DuckDB compares their times by the second.
    MissingExtraError: fsspec, or a library for such a URL, is not installed.
    """
    files, folders = list(files), list(folders)
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
        "arrow_lossless_conversion": lossless,
        "enable_external_file_cache": False,  # it holds bytes of a file that was rewritten within a second
    }
    if threads:
        config["threads"] = threads
    if memory:
        config["memory_limit"] = f"{memory}B"
    if spill:
        config["temp_directory"] = spill
    made = duckdb.connect(":memory:", config=config)
    schemes = {one.partition("://")[0]: one for one in (*files, *folders) if is_url(one)}
    for url in schemes.values():
        system, _ = opened(url)
        if not made.filesystem_is_registered(_name_of(system)):
            made.register_filesystem(system)
    settings = [
        f"SET disabled_optimizers = {literal(disabled_optimizers)}",
        f"SET GLOBAL parquet_metadata_cache = {footers}",  # a plain SET is of one connection
        f"SET allowed_paths = [{', '.join(map(literal, files))}]",
        f"SET allowed_directories = [{', '.join(map(literal, folders))}]",
        "SET enable_external_access = false",
        "SET lock_configuration = true",
    ]
    made.execute("; ".join(settings))
    return made


def _name_of(system: object) -> str:
    protocol = getattr(system, "protocol", "")
    return protocol if isinstance(protocol, str) else str(protocol[0])
