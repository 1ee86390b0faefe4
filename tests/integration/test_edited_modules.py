"""Worker processes and modules that the program has loaded again after an edit, as notebooks do."""

import importlib
import os
import secrets
import sys
from types import ModuleType
from typing import Any

import pytest

import weft
import weft.remote as wr
import weft.tensor as wt
from weft.backends.cluster import Cluster
from weft.testing.local_nodes import LocalNodes
from weft.wiring import concrete
from weft.worker import own_modules


class Edited:
    """A module `name` of functions `f(x)`, which adds a number by its module `helper`, as `self.write` left them."""

    def __init__(self, folder):
        self.folder = folder
        self.name = f"edited_{secrets.token_hex(4)}"
        self.helper = f"{self.name}_helper"
        self.edits = 0
        self.write(self.name, f"from {self.helper} import more\ndef f(x):\n    return more(x)\n")
        self.write(self.helper, self.more(1))
        self.module = importlib.import_module(self.name)

    @staticmethod
    def more(number):
        return f"def more(x):\n    return x + {number}\n"

    def write(self, name, text):
        path = self.folder / f"{name}.py"
        self.edits += 1
        path.write_text(text + "\n" * self.edits)  # the cache of Python tells texts apart by their size and second
        importlib.invalidate_caches()

    def reload(self, *names):
        for name in names:
            importlib.reload(sys.modules[name])


@pytest.fixture
def edited(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = Edited(tmp_path)
    yield found
    for name in (found.name, found.helper):
        sys.modules.pop(name, None)


def mapped(edited):
    with weft.Session("processes", workers=1) as session:
        while True:
            yield session.map(edited.module.f, [0]).results()[0]


def spawned(edited):
    with wt.Session(backend="processes", workers=1):
        while True:
            yield wr.spawn(edited.module.f, (0,)).fetch()


def blocks(edited):
    with wt.Session(backend="processes", workers=1):
        while True:
            yield int(wt.map_blocks(edited.module.f, wt.zeros(1, dtype=int)).fetch()[0])


def at_nodes(edited):
    with LocalNodes(1, 1) as found, pytest.MonkeyPatch.context() as patch:
        make = lambda at: Cluster(found.nodes, found.secret, at.store, grace_s=at.grace_s)  # noqa: E731
        patch.setitem(concrete.BACKENDS, "cluster", make)
        with weft.Session("cluster") as session:
            while True:
                yield session.map(edited.module.f, [0]).results()[0]


@pytest.fixture(params=[mapped, spawned, blocks, at_nodes])
def values(request, edited):
    made = request.param(edited)
    yield made
    made.close()


def test_workers_have_the_code_of_a_module_that_was_loaded_again(edited, values):
    assert next(values) == 1
    edited.write(edited.name, "def f(x):\n    return x + 1000\n")
    assert next(values) == 1  # as in the program
    edited.reload(edited.name)
    assert next(values) == 1000
    edited.write(edited.name, "def f(x):\n    return x + 2000\n")
    del sys.modules[edited.name]
    edited.module = importlib.import_module(edited.name)
    assert next(values) == 2000


def test_workers_have_the_code_of_modules_that_others_import(edited, values):
    assert next(values) == 1
    edited.write(edited.helper, edited.more(50))
    edited.reload(edited.helper, edited.name)
    assert next(values) == 50


def test_workers_have_code_that_ipython_puts_into_functions(edited, values, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    assert next(values) == 1
    edited.write(edited.helper, edited.more(70))
    new: dict[str, Any] = {}
    exec(compile((edited.folder / f"{edited.helper}.py").read_text(), "new", "exec"), new)
    sys.modules[edited.helper].more.__code__ = new["more"].__code__
    assert next(values) == 70


class Posing:
    """What `cffi` puts among the modules, which says that it is one."""

    __slots__ = ()
    __class__ = ModuleType  # type: ignore[assignment]


def test_what_only_says_that_it_is_a_module_is_none_of_the_user(edited, monkeypatch):
    monkeypatch.setitem(sys.modules, "posing", Posing())
    assert isinstance(sys.modules["posing"], ModuleType)
    with weft.Session("processes", workers=1) as session:
        assert session.map(edited.module.f, [0]).results() == [1]


def test_a_worker_in_the_process_of_the_program_keeps_what_that_has(edited):
    own_modules.forget(own_modules.program())
    assert sys.modules[edited.name] is edited.module


def test_workers_keep_modules_that_nobody_has_loaded_again(edited):
    edited.write(edited.name, "import os\nwhole = os.urandom(8)\ndef f(x):\n    return whole, os.getpid()\n")
    edited.reload(edited.name)
    with weft.Session("processes", workers=1) as session:
        first = session.map(edited.module.f, [0]).results()
        os.utime(edited.folder / f"{edited.name}.py", (1, 1))
        assert session.map(edited.module.f, [0]).results() == first
        assert session.map(edited.module.f, [1]).results() == first
