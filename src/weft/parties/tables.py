"""The tables of a party: by namespace and name, each one file, with an index in a database.

A file is written completely before the index names it, and the file that it replaces is removed afterwards: a crash
leaves the old table or the new one. Uploads and downloads are jobs in FATE, so each leaves a record.
"""

from __future__ import annotations

import csv
import gzip
import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from shlex import quote
from typing import IO, Any, Final, cast

from msgspec import Struct, field

from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.raw_tables import read_raw_frame, read_rows, write_rows
from weft.model.errors import (
    ForbiddenError,
    NotFoundError,
    PartyRefusedError,
    UnreadableError,
    UsageError,
)
from weft.parties.csv_rows import CsvRows, CsvShape, check_kind
from weft.parties.ledger import WHAT_PARTIES_DROP
from weft.parties.table_index import (
    DOWNLOAD,
    EVERY,
    TABLES_SCHEMA,
    TABLES_VERSION,
    UPLOAD,
    StoredTable,
    TableIndex,
    TableJob,
    already_there,
)
from weft.runtime.clock import RealClock, WallClock
from weft.store.database import Database
from weft.store.disk import sync_folder
from weft.store.folders import safe_open

TABLES_NAME: Final = "tables.db"
_MOST_NAME: Final = 255
_PART: Final = ".part"
_GZIP: Final = b"\x1f\x8b"
_BEGIN: Final = 32


_NO_FOLDER: Final = {
    "sources": "Send the file with the request: use_local_data 1.",
    "targets": "The server writes no files for its clients; they take a table by POST /v1/table/download.",
}


class NewTable(Struct, frozen=True, kw_only=True):
    """What a client asks of an upload or a binding; `drop` replaces a table of the same name."""

    namespace: str
    name: str
    head: bool = True
    delimiter: str = ","
    partitions: int = 1
    extend_sid: bool = False
    auto_increasing_sid: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)
    drop: bool = False

    def __post_init__(self) -> None:
        for what, word in (("namespace", self.namespace), ("table_name", self.name)):
            if not 0 < len(word) <= _MOST_NAME or not word.isprintable():
                raise UsageError(f"{what} is {word!r}", hint=f"Give 1 to {_MOST_NAME} printable characters.")
            if word == EVERY:
                raise UsageError(f"{what} is {word!r}", hint="In grants it stands for all tables: give another name.")
        if not 0 < self.partitions <= 1 << 16:
            raise UsageError(f"partition is {self.partitions}", hint="Give a number from 1 to 65536.")


class JobNames:
    """Makes ids of jobs in the form of FATE: the time in UTC to microseconds, and one digit. For several threads."""

    def __init__(self, clock: WallClock) -> None:
        self._clock, self._last, self._digits = clock, "", count()

    def __call__(self) -> str:
        """Return an id that this object has not returned before."""
        moment = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y%m%d%H%M%S%f")
        self._last = max(moment, self._last)
        return f"{self._last}{next(self._digits)}"


class _Unpacked(gzip.GzipFile):
    """The text of a file that is compressed with gzip. UsageError: it is damaged."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._name = name

    def readline(self, size: int | None = -1) -> bytes:
        """Return the next line."""
        try:
            return super().readline(size)
        except (EOFError, OSError, zlib.error) as error:
            raise UsageError(f"{self._name} is damaged: {error}", hint="Compress it again.") from None

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes."""
        try:
            return super().read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise UsageError(f"{self._name} is damaged: {error}", hint="Compress it again.") from None


class PartyTables:
    """The tables of one party, in a folder. Safe to use from several threads.

    `sources` are the folders of the site whose files clients may name (to upload on the server, to bind), `targets`
    those that downloads may be written to. `is_open` tells whether jobs of other parties may use tables that were not
    granted to them. `new_job_id` makes the ids of jobs, which should not collide with those of other jobs of the party.
    """

    def __init__(
        self,
        folder: Path,
        database: Database,
        *,
        sources: Sequence[Path] = (),
        targets: Sequence[Path] = (),
        is_open: Callable[[], bool] = lambda: False,
        clock: WallClock | None = None,
        new_job_id: Callable[[], str] | None = None,
    ) -> None:
        self.folder, self.index, self.is_open = folder, TableIndex(database), is_open
        self._sources = [Path(os.path.abspath(one)) for one in sources]
        self._targets = [Path(os.path.abspath(one)) for one in targets]
        self._clock: WallClock = clock or RealClock()
        self.new_job_id = new_job_id or JobNames(self._clock)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @classmethod
    def open(cls, site: Path, **options: Any) -> PartyTables:
        """Return the tables in the folder of a site: files in `data/`, the index in `tables.db`."""
        database = Database(
            site / TABLES_NAME,
            what="the index of tables",
            schema=TABLES_SCHEMA,
            version=TABLES_VERSION,
            again="the tables have to be uploaded again then",
            lock_name="tables.lock",
            lasting=True,
            can_go=WHAT_PARTIES_DROP,
        )
        return cls(site / "data", database, **options)

    def close(self) -> None:
        """Close the connections to the database."""
        self.index.database.close()

    # ----------------------------------------------------------------------------------------------------- to write

    def upload(self, file: IO[bytes], new: NewTable, *, name: str, user: str = "", conf: Any = None) -> TableJob:
        """Store the rows of a CSV file, which must be seekable, and may be compressed with gzip.

        `name` is its name in messages. ConflictError: the table exists, and `drop` is not set. UsageError: a line is
        wrong, or two have the same id.
        """
        self._refuse_existing(new)
        packed = file.read(len(_GZIP)) == _GZIP
        if name.lower().endswith(".gz") and not packed:
            raise UsageError(
                f"{name} is not compressed with gzip, though its name says so", hint="Compress it, or rename it."
            )
        if packed:
            file.seek(0)
            file = cast("IO[bytes]", _Unpacked(file, name))
        file.seek(0)
        check_kind(file.read(_BEGIN), name)
        file.seek(0)
        began, job_id = self._clock.wall(), self.new_job_id()
        prefix = "" if new.auto_increasing_sid else f"{job_id}_"
        shape = CsvShape(head=new.head, delimiter=new.delimiter, extend_sid=new.extend_sid, prefix=prefix)
        rows = CsvRows(file, shape, name=name)
        with self._new_file() as (part, out):
            total = write_rows(out, rows.id_name, rows.header, rows.batches())
            if not total:
                what = "has a head and no rows" if rows.shape.head else "is empty"
                raise UsageError(f"{name} {what}", hint="Upload a file with rows.")
            if suspects := rows.suspects():
                file.seek(0)
                CsvRows(file, shape, name=name).refuse_twice(suspects)
            stored = StoredTable(
                namespace=new.namespace,
                name=new.name,
                count=total,
                id_name=rows.id_name,
                header=rows.header,
                partitions=new.partitions,
                file=self._keep(part, out),
                head=rows.shape.head,
                delimiter=new.delimiter,
                meta=new.meta,
                nbytes=out.tell(),
                created_at=began,
                job_id=job_id,
            )
        job = TableJob(
            job_id=job_id,
            kind=UPLOAD,
            namespace=new.namespace,
            name=new.name,
            count=total,
            started_at=began,
            ended_at=self._clock.wall(),
            conf=conf or {},
            user=user,
        )
        self._put(stored, drop=new.drop, job=job)
        return job

    def upload_path(self, path: str, new: NewTable, *, user: str = "", conf: Any = None) -> TableJob:
        """Store the rows of a file of the site. ForbiddenError: it lies in no folder of sources."""
        with self._source(path) as file:
            return self.upload(file, new, name=Path(path).name, user=user, conf=conf)

    def bind(self, path: str, new: NewTable, *, id_column: str = "") -> StoredTable:
        """Give a name to a file or a folder of the site, which is read where it lies.

        ForbiddenError: it lies in no folder of sources, or a link is on the way.
        """
        self._refuse_existing(new)
        id_name, header, head = id_column, tuple[str, ...](), new.head
        whole = os.path.abspath(path)
        if os.path.isdir(whole):
            self._check_folder(whole)
        else:
            with self._source(path) as file:
                if whole.endswith(".csv"):
                    check_kind(file.read(_BEGIN), Path(path).name)
                    file.seek(0)
                    rows = CsvRows(file, CsvShape(head=new.head, delimiter=new.delimiter), name=Path(path).name)
                    id_name, header, head = rows.id_name, rows.header, rows.shape.head
        stored = StoredTable(
            namespace=new.namespace,
            name=new.name,
            id_name=id_name,
            header=header,
            partitions=new.partitions,
            bound=whole,
            head=head,
            delimiter=new.delimiter,
            meta=new.meta,
            created_at=self._clock.wall(),
        )
        self._put(stored, drop=new.drop)
        return stored

    def _refuse_existing(self, new: NewTable) -> None:
        """Raise ConflictError if the table exists: before its rows are read, and again with its record."""
        if not new.drop and self.find(new.namespace, new.name) is not None:
            raise already_there(new.namespace, new.name)

    def _put(self, stored: StoredTable, *, drop: bool, job: TableJob | None = None) -> None:
        try:
            old = self.index.put(stored, drop=drop, job=job)
        except BaseException:
            self._remove(stored.file)
            raise
        for one in old:
            self._remove(one.file)

    @contextmanager
    def _new_file(self) -> Iterator[tuple[Path, IO[bytes]]]:
        """Open a new file to write; it is removed unless `_keep` was called."""
        part = self.folder / f"{secrets.token_hex(16)}{_PART}"
        with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600), "wb") as out:
            try:
                yield part, out
            finally:
                part.unlink(missing_ok=True)

    @staticmethod
    def _keep(part: Path, out: IO[bytes]) -> str:
        """Write a file to the disk and give it its final name, which is returned."""
        out.flush()
        os.fsync(out.fileno())
        final = part.with_suffix(".arrow")
        os.replace(part, final)
        try:
            sync_folder(part.parent)
        except OSError:
            final.unlink(missing_ok=True)
            raise
        return final.name

    def _remove(self, file: str) -> None:
        if file:
            (self.folder / file).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Remove the files that no table has, which a killed process has left; return their number.

        Only the server of the site may call this, when it starts.
        """
        kept = {one.file for one in self.all()}
        gone = [path for path in self.folder.iterdir() if path.name not in kept and path.suffix in (".arrow", _PART)]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    # ------------------------------------------------------------------------------------------------------ to read

    def find(self, namespace: str, name: str) -> StoredTable | None:
        """Return a table, None if there is none."""
        return self.index.find(namespace, name)

    def get(self, namespace: str, name: str) -> StoredTable:
        """Return a table. NotFoundError: there is none."""
        found = self.find(namespace, name)
        if found is None:
            raise NotFoundError(
                f"there is no table {namespace}/{name}",
                hint=f"Upload it first: weft party upload FILE {_named(namespace, name)}",
            )
        return found

    def all(self, namespace: str = "") -> list[StoredTable]:
        """Return all tables, or those of a namespace, by name."""
        return self.index.all(namespace)

    def frame(self, namespace: str, name: str, *, party: str = "") -> PartyFrame:
        """Return all rows for a component, all columns as strings; `party` submitted the job ("": this one).

        NotFoundError: no such table. PartyRefusedError: it is disabled, or not granted to the party.
        """
        table = self.usable(namespace, name, party)
        if table.bound:
            ids: list[str] = []
            columns: list[list[str]] = [[] for _ in table.header]
            for one, *others in self._bound_rows(table):
                ids.extend(one)
                for column, values in zip(columns, others, strict=True):
                    column.extend(values)
            return _frame_of(ids, table.header, columns)
        try:
            return read_raw_frame(self.folder / table.file)
        except UnreadableError:
            again = self.usable(namespace, name, party)
            if again.file == table.file:
                raise
            return read_raw_frame(self.folder / again.file)  # it was replaced meanwhile

    def usable(self, namespace: str, name: str, party: str = "") -> StoredTable:
        """Return a table that a job may use; `party` submitted the job ("": this one)."""
        table = self.get(namespace, name)
        if not table.enabled:
            raise PartyRefusedError(
                f"the table {namespace}/{name} is disabled",
                hint=f"Enable it: flow table enable -n {quote(namespace)} -t {quote(name)}",
            )
        if party and not self.is_open() and not self.granted(namespace, name, party):
            raise PartyRefusedError(
                f"the table {namespace}.{name} is not granted to party {party}",
                party=party,
                hint=f"Its owner runs: weft party grant {party} {_named(namespace, name)}",
            )
        return table

    def rows(self, table: StoredTable, limit: int = -1) -> Iterator[Sequence[str]]:
        """Return rows as strings, the id first, in the order of the upload; `limit` below 0 returns all."""
        batches = self._bound_rows(table) if table.bound else read_rows(self.folder / table.file)
        found = (row for batch in batches for row in zip(*batch, strict=True))
        return islice(found, limit) if limit >= 0 else found

    def _bound_rows(self, table: StoredTable) -> Iterator[Sequence[Sequence[str]]]:
        if not table.bound.endswith(".csv"):
            raise UsageError(
                f"the table {table.namespace}/{table.name} is bound to {table.bound}, which has no rows",
                hint="Only components that read files can use it.",
            )
        with self._source(table.bound) as file:
            rows = CsvRows(file, CsvShape(head=table.head, delimiter=table.delimiter), name=table.bound)
            yield from rows.batches()
            if suspects := rows.suspects():
                file.seek(0)
                CsvRows(file, rows.shape, name=table.bound).refuse_twice(suspects)

    def download(
        self, namespace: str, name: str, path: str, *, delimiter: str = ",", user: str = "", conf: Any = None
    ) -> TableJob:
        """Write a table as CSV with a head to a file of the site. ForbiddenError: it lies in no folder of targets."""
        table, began = self.get(namespace, name), self._clock.wall()
        root, below = self._below(path, self._targets, "targets")
        with safe_open(root, below, mode="w", make_folders=True) as out:
            total = self.write_csv(table, out, delimiter=delimiter)
        job = TableJob(
            job_id=self.new_job_id(),
            kind=DOWNLOAD,
            namespace=namespace,
            name=name,
            count=total,
            started_at=began,
            ended_at=self._clock.wall(),
            conf=conf or {},
            user=user,
        )
        self.index.put_job(job)
        return job

    def write_csv(self, table: StoredTable, out: IO[str], *, delimiter: str = ",", limit: int = -1) -> int:
        """Write rows as CSV, with a head if the table has one; return their number."""
        total = 0
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        if table.head:
            writer.writerow((table.id_name, *table.header))
        for row in self.rows(table, limit):
            if table.head:
                writer.writerow(row)
            else:
                out.write(f"{delimiter.join(row)}\n")
            total += 1
        return total

    # ---------------------------------------------------------------------------------------------------- to change

    def delete(self, namespace: str, name: str) -> None:
        """Remove a table and its grants; a bound file stays. NotFoundError: there is none."""
        table = self.get(namespace, name)
        self.index.delete(namespace, name)
        self._remove(table.file)

    def rename(self, namespace: str, name: str, new_namespace: str, new_name: str) -> None:
        """Give a table another name; its grants go along. ConflictError: there is one of that name."""
        self.get(namespace, name)
        new = NewTable(namespace=new_namespace, name=new_name)
        self.index.rename(namespace, name, new.namespace, new.name)

    def enable(self, namespace: str, name: str, *, on: bool) -> None:
        """Let jobs use a table, or refuse it to them. NotFoundError: there is none."""
        self.get(namespace, name)
        self.index.enable(namespace, name, on=on)

    def delete_disabled(self) -> list[StoredTable]:
        """Remove all disabled tables, and return them."""
        gone = [one for one in self.all() if not one.enabled]
        for one in gone:
            self.delete(one.namespace, one.name)
        return gone

    def set_meta(self, namespace: str, name: str, meta: Mapping[str, Any]) -> None:
        """Replace what is known about a table (label, delimiter and so on)."""
        self.get(namespace, name)
        self.index.set_meta(namespace, name, meta)

    # ----------------------------------------------------------------------------------------------- grants, history

    def grant(self, namespace: str, name: str, party: str) -> None:
        """Let jobs of a party use a table. Namespace and name may be `*`: all. It need not exist yet."""
        self.index.grant(namespace, name, party)

    def revoke(self, namespace: str, name: str, party: str) -> None:
        """Take a grant back; a job that is running goes on. NotFoundError: there is none."""
        self.index.revoke(namespace, name, party)

    def grants(self, party: str = "") -> list[tuple[str, str, str]]:
        """Return namespace, name and party of each grant."""
        return self.index.grants(party)

    def granted(self, namespace: str, name: str, party: str) -> bool:
        """Whether a table is granted to a party, by itself or by `*`."""
        return self.index.granted(namespace, name, party)

    def jobs(self, job_id: str = "", *, kind: str = "", limit: int = 0) -> list[TableJob]:
        """Return uploads and downloads, the latest first."""
        return self.index.jobs(job_id, kind=kind, limit=limit)

    def count_jobs(self) -> int:
        """Return the number of uploads and downloads."""
        return self.index.count_jobs()

    # ------------------------------------------------------------------------------------------------------- inside

    @contextmanager
    def _source(self, path: str) -> Iterator[IO[bytes]]:
        root, below = self._below(path, self._sources, "sources")
        with safe_open(root, below, mode="rb") as file:
            yield file

    @staticmethod
    def _below(path: str, roots: Sequence[Path], what: str) -> tuple[Path, str]:
        whole = Path(os.path.abspath(path))
        for root in roots:
            if whole != root and whole.is_relative_to(root):
                return root, str(whole.relative_to(root))
        raise ForbiddenError(
            f"{path} lies in no folder that this site allows",
            hint=f"Move the file below one of {', '.join(map(str, roots))}." if roots else _NO_FOLDER[what],
        )

    def _check_folder(self, path: str) -> None:
        root, below = self._below(path, self._sources, "sources")
        folder = root
        for name in Path(below).parts:
            folder = folder / name
            if folder.is_symlink():
                raise ForbiddenError(f"{folder} is a link", hint="Links are not followed; give the folder itself.")


def _named(namespace: str, name: str) -> str:
    """Return the options that name a table, for a shell."""
    return f"--namespace {quote(namespace)} --name {quote(name)}"


def _frame_of(ids: Sequence[str], header: Sequence[str], columns: Sequence[Sequence[str]]) -> PartyFrame:
    import numpy as np

    arrays = {name: np.array(values, dtype=object) for name, values in zip(header, columns, strict=True)}
    return PartyFrame(np.array(ids, dtype=object), arrays)
