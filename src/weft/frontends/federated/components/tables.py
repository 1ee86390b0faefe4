"""The tables of parts on disk: Arrow files whose schema has what a `PartyFrame` knows beside its columns."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import UnreadableError

if TYPE_CHECKING:
    from pathlib import Path

_ABOUT: Final = b"weft.frame"
_ID: Final = "sid"


def write_frame(path: Path, frame: PartyFrame) -> None:
    """Write a frame; a crash leaves the old file or the new one."""
    arrays = [pa.array(frame.ids.astype(str), pa.string()), *(_array(one) for one in frame.columns.values())]
    about = {"label": frame.label, "weight": frame.weight, "about": dict(frame.about)}
    fields = [pa.field(name, one.type) for name, one in zip((_ID, *frame.columns), arrays, strict=True)]
    schema = pa.schema(fields, metadata={_ABOUT: json.dumps(about).encode()})
    aside = path.with_name(f"{path.name}.part")
    with pa.ipc.new_file(str(aside), schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    os.replace(aside, path)


def read_frame(path: Path) -> PartyFrame:
    """Return a frame. UnreadableError: the file is none, or damaged."""
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        about = json.loads((table.schema.metadata or {}).get(_ABOUT, b"{}"))
        columns = {name: _values(table.column(name)) for name in table.schema.names[1:]}
        ids = np.asarray(table.column(0).to_pylist(), dtype=object)
    except (OSError, pa.ArrowException, ValueError, IndexError) as error:
        raise UnreadableError(f"{path} is no table of a part: {error}", hint="Run the component again.") from None
    return PartyFrame(
        ids, columns, label=about.get("label", ""), weight=about.get("weight", ""), about=about.get("about", {})
    )


def frame_shape(path: Path) -> tuple[int, list[str]]:
    """Return the rows and the names of the columns of a frame. UnreadableError: the file is none, or damaged."""
    try:
        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            rows = sum(file.get_batch(at).num_rows for at in range(file.num_record_batches))
            return rows, list(file.schema.names[1:])
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UnreadableError(f"{path} is no table of a part: {error}", hint="Run the component again.") from None


def _array(values: np.ndarray) -> pa.Array:
    return pa.array(values.tolist() if values.dtype.kind in "OUS" else np.ascontiguousarray(values))


def _values(column: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        found: np.ndarray = column.to_numpy()
        return found
    return np.asarray(column.to_pylist(), dtype=object)
