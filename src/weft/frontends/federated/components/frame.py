"""The table of a party inside a component: ids, named columns, and which of them is the label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.errors import UsageError


class PartyFrame(Struct, frozen=True, eq=False):
    """Rows of one party. `ids` are unique strings, `columns` arrays of equal length by name, in order.

    `label` and `weight` name columns that are no features. `about` has what later components must know, in JSON: for
    example `{"anonymous": {...}}`.
    """

    ids: np.ndarray[Any, Any]
    columns: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    label: str = ""
    weight: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = [name for name, values in self.columns.items() if len(values) != len(self.ids)]
        if wrong:
            raise UsageError(
                f"column {wrong[0]!r} has {len(self.columns[wrong[0]])} rows, and there are {len(self.ids)} ids"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in order."""
        return tuple(name for name in self.columns if name not in (self.label, self.weight))

    @property
    def y(self) -> np.ndarray[Any, Any] | None:
        """The labels; None at a party without."""
        return self.columns[self.label] if self.label else None

    def matrix(self) -> np.ndarray[Any, Any]:
        """Return the features as float64, shape (rows, features). UsageError: a feature is not a number."""
        found = np.empty((len(self.ids), len(self.features)))
        for at, name in enumerate(self.features):
            try:
                found[:, at] = self.columns[name]
            except (TypeError, ValueError):
                raise UsageError(
                    f"column {name!r} has values that are no numbers", hint="Put a DataTransform before this component."
                ) from None
        return found

    def take(self, rows: Any) -> PartyFrame:
        """Return the rows at these positions, or where a mask holds, in this order."""
        return replace(self, ids=self.ids[rows], columns={name: one[rows] for name, one in self.columns.items()})

    def with_features(self, names: Sequence[str], values: np.ndarray[Any, Any]) -> PartyFrame:
        """Return the frame with other features; label and weight stay. `values` has shape (rows, features)."""
        kept = {name: self.columns[name] for name in (self.label, self.weight) if name}
        return replace(self, columns=kept | {name: values[:, at] for at, name in enumerate(names)})
