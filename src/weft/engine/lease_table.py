"""Leases by number, where leases given out together share one record."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

if TYPE_CHECKING:
    from collections.abc import ItemsView, ValuesView

Row = TypeVar("Row")
Other = TypeVar("Other")
Row_co = TypeVar("Row_co", covariant=True)


class SharedRecord(Protocol[Row_co]):
    """A record of several leases."""

    @property
    def leases(self) -> tuple[int, ...]: ...  # noqa: D102

    def of(self, lease: int) -> Row_co:
        """Return the record of one of the leases."""
        ...


Shared = TypeVar("Shared", bound=SharedRecord[Any])


class LeaseTable(MutableMapping[int, Row], Generic[Row, Shared]):
    """The records of leases by number.

    `records` has for each lease its own record, or the one that it shares with others (of the class `shared`). A lease
    gets its own one when somebody asks for it, so only what counts many leases at a time looks into `records`.
    """

    __slots__ = ("_shared", "records")

    def __init__(self, shared: type[Shared]) -> None:
        self._shared = shared
        self.records: dict[int, Row | Shared] = {}

    def share(self, record: Shared) -> None:
        """Add leases that share a record."""
        self.records.update(dict.fromkeys(record.leases, record))

    def _own(self, lease: int, record: Row | Shared) -> Row:
        if type(record) is not self._shared:
            return cast("Row", record)
        own: Row = record.of(lease)
        self.records[lease] = own
        return own

    def _separate(self) -> dict[int, Row]:
        """Give each lease its own record."""
        shared = self._shared
        for lease in [lease for lease, record in self.records.items() if type(record) is shared]:
            self._own(lease, self.records[lease])
        return cast("dict[int, Row]", self.records)

    def __getitem__(self, lease: int) -> Row:
        return self._own(lease, self.records[lease])

    @overload
    def get(self, lease: int, default: None = None, /) -> Row | None: ...
    @overload
    def get(self, lease: int, default: Row | Other, /) -> Row | Other: ...
    def get(self, lease: int, default: Any = None, /) -> Any:
        """See `Mapping.get`."""
        record = self.records.get(lease)
        return default if record is None else self._own(lease, record)

    @overload
    def pop(self, lease: int, /) -> Row: ...
    @overload
    def pop(self, lease: int, default: Row | Other, /) -> Row | Other: ...
    def pop(self, lease: int, *default: Any) -> Any:
        """See `MutableMapping.pop`."""
        record = self.records.pop(lease, *default)
        return record.of(lease) if type(record) is self._shared else record

    def __setitem__(self, lease: int, row: Row) -> None:
        self.records[lease] = row

    def __delitem__(self, lease: int) -> None:
        del self.records[lease]

    def __contains__(self, lease: object) -> bool:
        return lease in self.records

    def __iter__(self) -> Iterator[int]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def values(self) -> ValuesView[Row]:
        """See `Mapping.values`."""
        return self._separate().values()

    def items(self) -> ItemsView[int, Row]:
        """See `Mapping.items`."""
        return self._separate().items()
