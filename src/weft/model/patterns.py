"""Regular expressions that are compiled, and modules that are loaded, at their first use.

Compiling one takes 0.02 to 0.4 ms, and a command loads fifty of which it uses ten. Those of other libraries take longer
still: one of PyYAML, which only its slow reader uses, takes 7 ms. Some of these libraries also load modules for what is
seldom asked of them: `urllib.parse` loads `ipaddress`, which takes 2 to 5 ms, for URLs with an address of IPv6.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, AnyStr, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


class _LatePattern:
    """Has the methods of a compiled expression; each is kept once it was used."""

    def __init__(self, text: Any, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def late_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return an expression whose methods compile it; re.error comes from the first call."""
    return cast("re.Pattern[AnyStr]", _LatePattern(text, flags))


class _LateModule(ModuleType):
    """Has what a module has, which is loaded when the first of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)
        return found


@contextmanager
def late_modules(*names: str) -> Iterator[None]:
    """Have the modules that are loaded meanwhile load those with `names` at their first use.

    For libraries that use them in functions alone, in a process that has no other thread yet.
    """
    late = {name: _LateModule(name) for name in names if name not in sys.modules}
    sys.modules.update(late)
    try:
        yield
    finally:
        for name, module in late.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


@contextmanager
def late_patterns() -> Iterator[None]:
    """Have the modules that are loaded meanwhile compile their expressions at the first use.

    For libraries that use their expressions by methods alone, in a process that has no other thread yet.
    """
    compile_now = re.compile
    re.compile = cast("Any", late_pattern)
    try:
        yield
    finally:
        re.compile = compile_now
