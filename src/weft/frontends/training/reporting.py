"""Reports of a training program: its step, epoch, progress and metrics, as lines of a file of its replica.

A replica of any Python from 3.8 on imports this module, so it uses the standard library only. Each line is one append,
so that lines of several processes stay whole. The longer the file, the fewer of the reports are written.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
import time

TYPE_CHECKING = False  # `typing` takes longer than this module
if TYPE_CHECKING:
    from pathlib import Path

METRICS = "WEFT_METRICS"
"""The variable with the file for the reports of a replica."""
CHECKPOINTS = "WEFT_CHECKPOINT_DIR"
RESTARTS = "WEFT_RESTARTS"
RESUMED = "WEFT_RESUMED"
"""The variables with the folder for checkpoints, the number of earlier starts, and "1" if those left a checkpoint."""
TRIAL = "WEFT_TRIAL"
"""The variable that is "1" in the short trial of a tuned job."""
FUNCTION = "WEFT_FUNCTION"
VALUE = "WEFT_VALUE"
"""The variables with the files of a pickled call and of its value, in replicas that run a Python function."""
MOST_METRICS = 64
MOST_LINE_BYTES = 4096
MOST_FILE_BYTES = 64 << 20
FIRST_INTERVAL_S = 0.1
SLOWER_BYTES = 4 << 20
"""The shortest time between two lines of a process; each further so many bytes of the file multiply it by four."""


class ReportFile:
    """A file of reports, as one process writes it. The newest report that is not written yet waits for the next one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._last = -math.inf
        self._waiting = b""

    def add(self, line: bytes) -> None:
        """Write a report, unless another one was just written."""
        self._waiting = line
        self._write(at_end=False)

    def end(self) -> None:
        """Write the report that waits."""
        if self._waiting:
            self._write(at_end=True)

    def _write(self, *, at_end: bool) -> None:
        try:
            size = os.stat(self.path).st_size
        except OSError:
            size = 0
        now = time.monotonic()
        soon = now - self._last < FIRST_INTERVAL_S * 4 ** (size // SLOWER_BYTES)
        if size >= MOST_FILE_BYTES or (soon and not at_end):
            return
        line, self._waiting, self._last = self._waiting, b"", now
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)
        except OSError:
            pass  # a report must not end a training


_files: dict[tuple[int, str], ReportFile] = {}
"""The file of this process; a fork starts anew, because its parent writes the report that waits."""


def _add(line: bytes) -> None:
    path = os.environ.get(METRICS)
    if path:
        key = os.getpid(), path
        if key not in _files:
            _files.clear()
            _files[key] = ReportFile(path)
            atexit.register(_files[key].end)
            if "multiprocessing.util" in sys.modules:  # its children end without `atexit`
                sys.modules["multiprocessing.util"].Finalize(None, _files[key].end, exitpriority=0)
        _files[key].add(line)


def report(
    step: int | None = None, *, epoch: float | None = None, progress: float | None = None, **metrics: float
) -> None:
    """Report the state of the training; a program outside of Weft may call it too, without effect.

    `step` and `epoch` are counts, `progress` is the part that is done, from 0 to 1, and `metrics` are numbers such as
    `loss=0.3`; what turns into a float counts as a number, such as an array with one element. Of more than ten reports
    in a second the newest are kept. TypeError, ValueError: a value is no number, `progress` is not between 0 and 1, or
    there are more than 64 metrics.
    """
    if len(metrics) > MOST_METRICS:
        raise ValueError(f"report takes at most {MOST_METRICS} metrics, not {len(metrics)}")
    line: dict[str, object] = {}
    for name, value in (("step", step), ("epoch", epoch), ("progress", progress)):
        if value is not None:
            line[name] = _number(name, value)
    if progress is not None and not 0 <= float(progress) <= 1:
        raise ValueError(f"progress is {progress!r}; it is the part that is done, from 0 to 1")
    restarts = os.environ.get(RESTARTS)
    if restarts and restarts != "0":
        line["restarts"] = int(restarts)
    text = report_line(time.time(), line, {name: _number(name, value) for name, value in metrics.items()})
    if len(text) > MOST_LINE_BYTES:
        raise ValueError(f"the report has {len(text)} bytes, at most {MOST_LINE_BYTES} are taken: use shorter names")
    _add(text)


def report_line(at: float, about: dict[str, object], metrics: dict[str, object]) -> bytes:
    """Return the line of a report; `about` has its step and the like, `at` is in seconds since 1970."""
    return json.dumps({"time": round(at, 3), **about, "metrics": metrics}, separators=(",", ":")).encode() + b"\n"


def _number(name: str, value: object) -> object:
    """Return a value as JSON has it: texts for numbers that are not finite."""
    if isinstance(value, int):  # a truth value too
        return int(value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}, which is no number") from None
    return number if math.isfinite(number) else str(number)


def checkpoint_dir(default: str | os.PathLike[str] = "checkpoints") -> Path:
    """Return the folder for the checkpoints of the job; outside of Weft `default`. The folder exists.

    All replicas of a job share it. It stays over restarts of replicas and a resume of the run.
    """
    from pathlib import Path

    folder = Path(os.environ.get(CHECKPOINTS) or default)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def resumed() -> bool:
    """Return whether an earlier start of the job left a checkpoint."""
    return os.environ.get(RESUMED) == "1"
