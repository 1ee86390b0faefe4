"""The modules of the user, which a program may load again after an edit, as notebooks do, and its worker processes too.

A worker process imports the module of a function once. When the program has loaded one of its modules again, workers
forget all of the user's modules before they get the next code, and import them from their files when they need them.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from contextlib import suppress
from importlib import invalidate_caches
from importlib.machinery import ExtensionFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

_INSTALLED: Final = tuple(
    f"{path}{os.sep}" for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))
)
_PACKAGES: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_NOT_OWN: Final = ("__main__", "__mp_main__", "weft")


class _Loaded:
    """A module of the user as it was when first looked at: the module, its spec, its code, the time of its file."""

    __slots__ = ("changed", "code", "module", "spec")

    def __init__(self, module: ModuleType, spec: Any) -> None:
        self.module = module
        self.spec = spec
        self.changed = _changed(spec)
        self.code = _code(module)

    def is_current(self, name: str) -> bool:
        """Whether the program has the module as it was."""
        module = sys.modules.get(name)
        if module is not self.module or _spec(module) is not self.spec:
            return False
        if "IPython" not in sys.modules:
            return True
        # It may put new code into functions of a module whose file has changed, and not load the module again.
        return _changed(self.spec) == self.changed or _code(self.module) == self.code


_lock: Final = threading.Lock()
_loaded: Final[dict[str, _Loaded]] = {}
_seen: set[str] = set()
_generation = 0
_name: Final = os.urandom(16).hex()


def program() -> str:
    """Return a name of this process, which forks of it do not have."""
    return f"{_name} {os.getpid()}"


def generation() -> int:
    """Return a number that is larger after the program has loaded a module of the user again."""
    global _generation, _seen
    with _lock:
        for name, loaded in list(_loaded.items()):
            if not loaded.is_current(name):
                _generation += 1
                del _loaded[name]
                _seen.discard(name)
        if len(sys.modules) != len(_seen):
            names = set(sys.modules)
            for name in names - _seen:
                module = sys.modules.get(name)
                spec = _spec(module)
                if _is_own(name, spec):
                    assert isinstance(module, ModuleType)
                    _loaded[name] = _Loaded(module, spec)
            _seen = names
        return _generation


def forget(sender: str) -> None:
    """Forget the modules of the user, which are imported again when they are needed, also in workers of this process.

    Packages with modules of C stay, since most of these cannot be loaded twice. `sender` is the program that has loaded
    modules again: a worker in its own process has what that has.
    """
    global _generation
    if sender == program():
        return
    specs = {name: _spec(module) for name, module in list(sys.modules.items())}
    fixed = {
        _top(name) for name, spec in specs.items() if isinstance(getattr(spec, "loader", None), ExtensionFileLoader)
    }
    for name, spec in specs.items():
        if _is_own(name, spec) and _top(name) not in fixed and not getattr(spec, "_initializing", False):
            sys.modules.pop(name, None)
    invalidate_caches()
    with _lock:
        _generation += 1


def _is_own(name: str, spec: Any) -> bool:
    origin = getattr(spec, "origin", None)
    return (
        isinstance(origin, str)
        and origin.endswith(".py")
        and _top(name) not in _NOT_OWN
        and not origin.startswith(_INSTALLED)
        and not any(part in origin for part in _PACKAGES)
    )


def _top(name: str) -> str:
    return name.partition(".")[0]


def _spec(module: Any) -> Any:
    """Return the spec of a module, which is not loaded for that if it is to be loaded later.

    Libraries of `cffi` say that they are modules, and have nothing of one.
    """
    if not issubclass(type(module), ModuleType):
        return None
    return object.__getattribute__(module, "__dict__").get("__spec__")


def _changed(spec: Any) -> int:
    """Return the time of the last change of a module's file, 0 if it is gone."""
    with suppress(OSError):
        return os.stat(spec.origin).st_mtime_ns
    return 0


def _code(module: ModuleType) -> list[CodeType]:
    """Return the code of the functions and methods of a module."""
    found = []
    for value in list(object.__getattribute__(module, "__dict__").values()):
        members = list(vars(value).values()) if isinstance(value, type) else [value]
        found += [each.__code__ for each in members if isinstance(each, FunctionType)]
    return found
