"""The process of a part, which calls `main` with its folder.

The folder has `task.json`. The process loads its inputs, says that it is prepared, waits for the word to go, runs the
component, and writes what it has made: `data_0.arrow` and so on, `model.json`, `summary.json`, `metrics.jsonl`,
`progress.json`, and at last `result.json`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from weft.frontends.federated.components.base import ComponentPart
from weft.frontends.federated.components.raw_tables import read_columns, read_raw_frame
from weft.frontends.federated.components.registry import component
from weft.frontends.federated.components.sockets import SocketChannel
from weft.frontends.federated.components.tables import read_frame, write_frame
from weft.frontends.federated.schema import Party  # noqa: TC001 - fields of records are read at run time
from weft.model.errors import PartyError, RunCancelledError, WeftError
from weft.store.limits import disk_error

if TYPE_CHECKING:
    from types import FrameType

TASK, RESULT, METRICS = "task.json", "result.json", "metrics.jsonl"
SUCCESS, FAILED, CANCELED = "success", "failed", "canceled"
_STOPPED: Final = 3


class PartTask(Struct, frozen=True, kw_only=True):
    """What the process of a part is given.

    `data` has the paths of frames by the key of the data input, `sources` the components that have made them, `models`
    those of models by kind and component ("" if another part has the model), `table` that of the table of a reader, all
    as the server has resolved them. `outputs` is the number of data outputs.
    """

    job: str
    component: str
    module: str
    here: Party
    parties: Mapping[str, Sequence[str]]
    parameters: Mapping[str, Any]
    socket: str
    token: str
    outputs: int = 0
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    table: str = ""
    seed: int = 0
    shows_ids: bool = False


class FileTracker:
    """A tracker that writes into the folder of the part."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._metrics = (folder / METRICS).open("a", encoding="utf-8")
        self._summary: dict[str, Any] = {}

    def metric(self, namespace: str, name: str, value: float) -> None:
        """See `PartTracker.metric`."""
        self._line(namespace=namespace, name=name, value=float(value))

    def curve(self, namespace: str, name: str, points: Sequence[tuple[float, float]], *, kind: str = "") -> None:
        """See `PartTracker.curve`."""
        self._line(namespace=namespace, name=name, kind=kind, points=[[float(x), float(y)] for x, y in points])

    def summary(self, values: Mapping[str, Any]) -> None:
        """See `PartTracker.summary`."""
        self._summary |= values
        write_json(self._folder / "summary.json", self._summary)

    def progress(self, done: int, total: int) -> None:
        """See `PartTracker.progress`."""
        write_json(self._folder / "progress.json", {"done": done, "total": total})

    def log(self, text: str) -> None:
        """See `PartTracker.log`."""
        print(text, flush=True)  # noqa: T201 - the log of the part

    def close(self) -> None:
        """Close the file of metrics."""
        self._metrics.close()

    def _line(self, **values: Any) -> None:
        self._metrics.write(json.dumps(values) + "\n")
        self._metrics.flush()


def main(name: str) -> int:
    """Run the part of a folder; return the exit code of the process."""
    folder = Path(name)
    signal.signal(signal.SIGTERM, _end)
    try:
        run_part(folder)
        result: dict[str, Any] = {"status": SUCCESS}
    except RunCancelledError as error:
        result = {"status": CANCELED, "error": _described(error)}
    except WeftError as error:
        print(error, file=sys.stderr)  # noqa: T201
        result = {"status": FAILED, "error": without_columns(_described(error), folder)}
    except Exception as error:  # noqa: BLE001 - the party that has started it must hear the reason
        traceback.print_exc()  # into the log of the part: the text may have values of rows, which stay at this party
        known = disk_error(error, folder)
        result = {"status": FAILED, "error": _unexpected(error) if known is None else _described(known)}
    write_json(folder / RESULT, result)
    return {SUCCESS: 0, CANCELED: _STOPPED}.get(str(result["status"]), 1)


def run_part(folder: Path) -> None:
    """Run the part of a folder to its end. Errors: those of the component."""
    task = msgspec.json.decode((folder / TASK).read_bytes(), type=PartTask)
    run = component(task.module)
    channel, tracker = SocketChannel(task.socket, task.token), FileTracker(folder)
    try:
        table = task.table
        part = ComponentPart(
            here=task.here,
            parties=task.parties,
            job=task.job,
            component=task.component,
            module=task.module,
            parameters=task.parameters,
            channel=channel,
            tracker=tracker,
            data={key: [read_frame(Path(one)) for one in paths] for key, paths in task.data.items()},
            sources=task.sources,
            models={kind: {name: _model(one) for name, one in of.items()} for kind, of in task.models.items()},
            tables=(lambda _namespace, _name: read_raw_frame(table)) if table else None,
            seed=task.seed,
            shows_ids=task.shows_ids,
        )
        channel.prepared()
        output = run(part)
        for at, frame in enumerate(output.data):
            if frame is not None and at < task.outputs:
                write_frame(folder / f"data_{at}.arrow", frame)
        if output.model is not None:
            write_json(folder / "model.json", output.model)
        if output.cache is not None:
            write_json(folder / "cache.json", output.cache)
        channel.finish()
    finally:
        tracker.close()
        channel.close()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file; a crash leaves the old one or the new one."""
    aside = path.with_name(f"{path.name}.part")
    aside.write_text(json.dumps(value))
    os.replace(aside, path)


def _model(path: str) -> Any:
    """Return the model in a file; an empty one if this part has none."""
    return json.loads(Path(path).read_text()) if path else {}


def _described(error: WeftError) -> dict[str, str]:
    party = error.party if isinstance(error, PartyError) else ""
    return {"code": error.code, "message": error.message, "hint": error.hint, "party": party}


def without_columns(error: dict[str, str], folder: Path) -> dict[str, str]:
    """Return an error for other parties: without columns of this one that the parameters of the job do not name.

    Components name columns in quotes. The log has the whole text.
    """
    task = msgspec.json.decode((folder / TASK).read_bytes(), type=PartTask)
    parameters = json.dumps(task.parameters, ensure_ascii=False)
    columns: set[str] = set()
    for paths in task.data.values():
        for path in paths:
            with suppress(OSError, WeftError):
                columns |= set(read_columns(path)[1:])
    hidden = [repr(name) for name in columns if json.dumps(name, ensure_ascii=False) not in parameters]
    found = dict(error)
    for name in sorted(hidden, key=len, reverse=True):
        found = {key: text.replace(name, "(named in its log)") for key, text in found.items()}
    return found


def _unexpected(error: Exception) -> dict[str, str]:
    message = f"the component ended with {type(error).__name__}"
    return {"code": "WEFT501", "message": message, "hint": "Its log at the party where it failed tells more."}


def _end(number: int, _frame: FrameType | None) -> None:
    raise RunCancelledError(f"stopped by signal {number}")
