"""A finder of the modules of Weft, for commands.

A command loads 280 of them. The finder of Python looks through the paths of a package and opens a file by seven calls,
which takes longer than most of the modules themselves: this one knows where a module lies and opens one file.
"""

from __future__ import annotations

import marshal
import os
import sys

# These are the classes of `importlib`, without the files that load it.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, PathFinder, SourceFileLoader

TYPE_CHECKING = False  # as in `weft.cli.main`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

PACKAGE = "weft."
_CHECKED_BY_TIME = MAGIC_NUMBER + bytes(4)
"""The beginning of a compiled file of this Python that is valid while its source has the same time and size."""
_SUFFIX = f".{sys.implementation.cache_tag}.pyc"


class _KnownLoader(SourceFileLoader):
    """Reads a compiled file that is known to belong to its source; `SourceFileLoader` does all else."""

    def __init__(self, name: str, path: str, compiled: str, source: os.stat_result) -> None:
        super().__init__(name, path)
        self._compiled, self._source = compiled, source

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the module."""
        source = self._source
        wanted = _CHECKED_BY_TIME + _word(source.st_mtime) + _word(source.st_size)
        try:
            file = os.open(self._compiled, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return super().get_code(fullname)
        try:
            size = os.fstat(file).st_size
            data = os.read(file, size)
        finally:
            os.close(file)
        if len(data) == size and data.startswith(wanted):
            code: CodeType = marshal.loads(memoryview(data)[len(wanted) :])
            return code
        return super().get_code(fullname)


def _word(number: float) -> bytes:
    return (int(number) & 0xFFFFFFFF).to_bytes(4, "little")


class KnownFinder:
    """Finds a module of Weft beside the other modules of its package; it leaves packages to the next finder."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not fullname.startswith(PACKAGE) or path is None or len(path) != 1:
            return None
        (folder,) = path
        name = fullname.rpartition(".")[2]
        file = f"{folder}{os.sep}{name}.py"
        try:
            source = os.stat(file)
        except OSError:
            return None
        compiled = f"{folder}{os.sep}__pycache__{os.sep}{name}{_SUFFIX}"
        spec = ModuleSpec(fullname, _KnownLoader(fullname, file, compiled, source), origin=file)
        spec.has_location, spec.cached = True, compiled
        return spec


def find_known_modules() -> None:
    """Let this process find modules of Weft by `KnownFinder`, unless it has compiled files of another kind."""
    finders = sys.meta_path
    if PathFinder in finders and not sys.flags.optimize and sys.pycache_prefix is None and KnownFinder not in finders:
        finders.insert(finders.index(PathFinder), KnownFinder)
