"""Futures that tell an exception which nobody has read, as asyncio does."""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

from weft.model.errors import RunCancelledError


class TellingFuture(Future[Any]):
    """A future whose exception is a RuntimeWarning when the last reference goes and nobody has read it.

    Read is an exception by `result`, `exception` or a done callback. The end of a cancelled run is not told.
    """

    about = "a call"
    _read = False

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the value and return it, or raise the exception."""
        try:
            return super().result(timeout)
        finally:
            self._read = self._read or self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return the exception, None if there is none."""
        try:
            return super().exception(timeout)
        finally:
            self._read = self._read or self.done()

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn(future)` at the end, at once if it has ended."""
        self._read = True
        super().add_done_callback(fn)

    def __del__(self) -> None:
        if self._read or sys.is_finalizing() or not self.done() or self.cancelled():
            return
        error = super().exception()
        if error is not None and not isinstance(error, RunCancelledError):
            line = str(error).partition("\n")[0] or type(error).__name__
            warnings.warn(f"nobody has read the error of {self.about}: {line}", RuntimeWarning, stacklevel=2)
