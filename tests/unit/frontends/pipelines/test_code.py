"""What a Python function is made of: which changes of the source change its leaves, and which do not."""

import os
from pathlib import Path

import pytest

from weft.frontends.pipelines.code import modules, statements
from weft.frontends.pipelines.code.dependencies import leaves
from weft.model.errors import ProgramError
from weft.store.digests import DIGEST

STEPS = '''
"""Steps."""
import json
from pathlib import Path

import weft
import helpers
from package.deep import tables as t
from constants import *

LIMIT = 3
UNUSED = 4
TABLE = {"a": 1}
TABLE["b"] = 2


class Base:
    """A base."""

    def rate(self):
        return LIMIT


class Model(Base):
    def fit(self, rows):
        return helpers.clean(rows)


def unused():
    return UNUSED


def make(n):
    def inner(x):
        return x * n

    return inner


triple = make(3)


@weft.step(cache=True, timeout_s=5)
def train(data: weft.Input, model: weft.Output, epochs: int = 3):
    """Train."""
    from lazy import later

    # a comment
    rows = [triple(json.loads(line)) for line in data.read_text().split()]
    model.write_text(f"{Model().fit(rows)} {t.load(TABLE)} {later(epochs)} {STAR}")


if __name__ == "__main__":
    train(Path("a"), Path("b"))
'''
FILES = {
    "steps.py": STEPS,
    "helpers.py": """
def clean(rows):
    return other(rows)


def other(rows):
    return rows


def idle():
    pass
""",
    "package/__init__.py": "",
    "package/deep/__init__.py": "",
    "package/deep/tables.py": """
from . import sizes
from .sizes import BIG


def load(x):
    return x, sizes.small(), BIG
""",
    "package/deep/sizes.py": "BIG = 10\nOTHER = 11\n\n\ndef small():\n    return 1\n",
    "constants.py": "STAR = 1\nPLANET = 2\n",
    "lazy.py": "def later(n):\n    return n\n",
}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def change(project: Path, name: str, old: str, new: str) -> None:
    text = (project / name).read_text()
    assert old in text
    (project / name).write_text(text.replace(old, new))


def found(project: Path) -> dict[str, str]:
    return leaves(str(project), "steps:train")


def test_it_is_what_names_lead_to_and_nothing_else(project):
    names = set(found(project))
    assert names == {
        "python",
        "code steps.train",
        "code steps.LIMIT",
        "code steps.TABLE",
        "code steps.t",
        "code steps.Base",
        "code steps.Model",
        "code steps.make",
        "code steps.triple",
        "code helpers.clean",
        "code helpers.other",
        "code package.deep.tables.load",
        "code package.deep.sizes.small",
        "code package.deep.sizes.BIG",
        "code constants.STAR",
        "code lazy.later",
    }


def test_a_constant_is_told_as_it_is_written(project):
    said = found(project)
    assert said["code steps.LIMIT"] == "3"
    assert said["code steps.train"].startswith(DIGEST)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("steps.py", "# a comment", "# another\n\n"),
        ("steps.py", '    """Train."""\n', ""),
        ("steps.py", '    """Train."""\n', '    """Teach."""\n'),
        ("steps.py", '    """A base."""\n', ""),
        ("steps.py", "cache=True, timeout_s=5", "cache=False"),
        ("steps.py", "@weft.step(cache=True, timeout_s=5)\n", "@weft.step\n"),
        ("steps.py", '("a")', "('a')"),
        ("steps.py", "UNUSED = 4", "UNUSED = 5"),
        ("steps.py", "return UNUSED", "return 0"),
        ("steps.py", 'train(Path("a"), Path("b"))', "print('other')"),
        ("steps.py", "import json\nfrom pathlib import Path\n", "from pathlib import Path\nimport json\n"),
        ("helpers.py", "    pass", "    return 1"),
        ("package/deep/sizes.py", "OTHER = 11", "OTHER = 12"),
        ("constants.py", "PLANET = 2", "PLANET = 3"),
    ],
)
def test_what_changes_nothing_of_it(project, name, old, new):
    before = found(project)
    change(project, name, old, new)
    assert found(project) == before


@pytest.mark.parametrize(
    ("name", "old", "new", "leaf"),
    [
        ("steps.py", "x * n", "x + n", "steps.make"),
        ("steps.py", "make(3)", "make(4)", "steps.triple"),
        ("steps.py", "LIMIT = 3", "LIMIT = 4", "steps.LIMIT"),
        ("steps.py", 'TABLE["b"] = 2', 'TABLE["b"] = 3', "steps.TABLE"),
        ("steps.py", "return LIMIT", "return -LIMIT", "steps.Base"),
        ("steps.py", "epochs: int = 3", "epochs: float = 3", "steps.train"),
        ("steps.py", 'f"{Model()', 'f" {Model()', "steps.train"),
        ("helpers.py", "    return rows\n", "    return rows[1:]\n", "helpers.other"),
        ("package/deep/tables.py", "return x,", "return -x,", "package.deep.tables.load"),
        ("package/deep/sizes.py", "BIG = 10", "BIG = 11", "package.deep.sizes.BIG"),
        ("package/deep/sizes.py", "return 1", "return 2", "package.deep.sizes.small"),
        ("constants.py", "STAR = 1", "STAR = 2", "constants.STAR"),
        ("lazy.py", "return n", "return n + 1", "lazy.later"),
    ],
)
def test_what_changes_it_is_named(project, name, old, new, leaf):
    before = found(project)
    change(project, name, old, new)
    after = found(project)
    assert [key for key in before | after if before.get(key) != after.get(key)] == [f"code {leaf}"]


def write(folder: Path, text: str, name: str = "steps.py") -> dict[str, str]:
    (folder / name).write_text(text)
    return leaves(str(folder), "steps:f")


def test_an_installed_package_counts_by_its_version(tmp_path):
    import numpy
    import yaml

    said = write(tmp_path, "import numpy as np\nimport yaml\ndef f():\n    return np.zeros(3), yaml\n")
    assert said["package numpy"] == f"numpy {numpy.__version__}"
    assert said["package yaml"].lower() == f"pyyaml {yaml.__version__}"


def test_an_installed_function_counts_by_the_version_of_its_package(tmp_path):
    import numpy

    assert leaves(str(tmp_path), "numpy.linalg:norm")["package numpy"] == f"numpy {numpy.__version__}"


def test_nothing_is_imported(tmp_path):
    write(tmp_path, "import helper\ndef f():\n    helper.g()\n")
    (tmp_path / "helper.py").write_text("raise RuntimeError('was imported')\ndef g(): pass\n")
    assert "code helper.g" in leaves(str(tmp_path), "steps:f")


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\ndef f(): return importlib.import_module('package.helper').g()\n",
        "import importlib as i\ndef f(): return i.import_module(name='package.helper').g()\n",
        "from importlib import import_module\ndef f(): return import_module('package.helper').g()\n",
        "from importlib import import_module as load\nH = load('package.helper')\ndef f(): return H.g()\n",
        "def f():\n    import importlib\n    return importlib.import_module('package.helper').g()\n",
        "import importlib\nNAME = 'package.helper'\ndef f(): return importlib.import_module(NAME).g()\n",
        "import importlib\ndef f():\n    n = 'package.helper'\n    return importlib.import_module(n).g()\n",
        "import importlib\ndef f(): return importlib.import_module('.helper', 'package').g()\n",
        "import importlib\ndef f(): return importlib.import_module('..helper', package='package.deep').g()\n",
        "def f(): return __import__('package.helper').helper.g()\n",
        "import builtins\ndef f(): return builtins.__import__('package.helper').helper.g()\n",
        "def f(): return __import__('package', fromlist=['helper']).helper.g()\n",
        "def f(): return __import__('package', globals(), locals(), ('helper',), 0).helper.g()\n",
        "import runpy\ndef f(): return runpy.run_module('package.helper')\n",
        "import pkgutil\ndef f(): return pkgutil.resolve_name('package.helper:g')()\n",
        "from importlib import util\ndef f(): return util.find_spec('package.helper').loader.load_module().g()\n",
        "import importlib\nT = {}\nimportlib.import_module('package.helper')\ndef f(): return T\n",
    ],
)
def test_a_module_that_is_imported_by_a_call_counts_whole(tmp_path, text):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    helper = "import steps\ndef g(): return A\nA = 1\nsteps.T['x'] = 1\n"
    (tmp_path / "package/helper.py").write_text(helper)
    before = write(tmp_path, text)
    (tmp_path / "package/helper.py").write_text(helper.replace("1", "2"))
    assert write(tmp_path, text) != before


@pytest.mark.parametrize("name", ["'hel' + which", "f'hel{which}'", "which", "'hel%s' % which", "f'{which}per'"])
def test_a_loaded_module_counts_whole_that_a_computed_name_may_import(tmp_path, name):
    text = f"import importlib, helper, other\ndef f(which): return importlib.import_module({name}).g()\n"
    for module in ("helper", "other"):
        (tmp_path / f"{module}.py").write_text("def g(): return 1\n")
    before = write(tmp_path, text)
    (tmp_path / "helper.py").write_text("def g(): return 2\n")
    after = write(tmp_path, text)
    assert after != before
    (tmp_path / "other.py").write_text("def g(): return 2\n")
    assert (write(tmp_path, text) == after) == name.startswith(("'hel' ", "f'hel")), "its name begins otherwise"
    assert write(tmp_path, text + "def unused(): return 1\n") == write(tmp_path, text)


def test_a_call_that_imports_a_sibling_by_a_relative_name_is_followed(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/helper.py").write_text("A = 1\n")
    (tmp_path / "package/own.py").write_text(
        "import importlib\ndef g(): return importlib.import_module('.helper', __package__)\n"
    )
    assert "code package.helper" in write(tmp_path, "from package import own\ndef f(): return own.g()\n")


def test_a_package_that_is_not_there_is_said(tmp_path):
    assert write(tmp_path, "import no_such_thing\ndef f():\n    no_such_thing.g()\n")["package no_such_thing"]


def test_a_local_extension_module_counts_by_its_bytes(tmp_path):
    (tmp_path / "fast.cpython-311-x86_64-linux-gnu.so").write_bytes(b"one")
    one = write(tmp_path, "import fast\ndef f():\n    fast.g()\n")
    (tmp_path / "fast.cpython-311-x86_64-linux-gnu.so").write_bytes(b"two")
    assert write(tmp_path, "import fast\ndef f():\n    fast.g()\n")["code fast"] != one["code fast"]


def test_a_module_that_is_handed_on_counts_whole(tmp_path):
    (tmp_path / "helper.py").write_text("A = 1\n\n\ndef g():\n    return A\n")
    before = write(tmp_path, "import helper\ndef f():\n    return vars(helper)\n")
    (tmp_path / "helper.py").write_text("A = 2\n\n\ndef g():\n    return A\n")
    assert write(tmp_path, "import helper\ndef f():\n    return vars(helper)\n") != before


def test_local_names_hide_those_of_the_module(tmp_path):
    text = """
x = 1
y = 2
z = 3
w = 4
def f(x):
    y = [z for z in x]
    try:
        pass
    except ValueError as w:
        return w
    return y
"""
    assert set(write(tmp_path, text)) == {"python", "code steps.f"}


def test_a_comprehension_hides_only_inside(tmp_path):
    assert "code steps.z" in write(tmp_path, "z = 3\ndef f(x):\n    return [z for z in x], z\n")


def test_names_are_seen_in_defaults_decorators_lambdas_and_nested_functions(tmp_path):
    text = """
A, B, C, D = 1, 2, 3, 4
def wrap(g):
    return g
@wrap
def f(x=A):
    def inner(y=B):
        return C + y
    return inner, lambda: D
"""
    said = write(tmp_path, text)
    assert {"code steps.A", "code steps.B", "code steps.C", "code steps.D", "code steps.wrap"} <= set(said)


def test_a_choice_of_imports_is_followed_both_ways(tmp_path):
    (tmp_path / "one.py").write_text("def g(): return 1\n")
    (tmp_path / "two.py").write_text("def g(): return 2\n")
    text = "try:\n    from one import g\nexcept ImportError:\n    from two import g\ndef f():\n    g()\n"
    assert {"code one.g", "code two.g"} <= set(write(tmp_path, text))


def test_what_goes_round_in_circles_ends(tmp_path):
    (tmp_path / "other.py").write_text("import steps\ndef g():\n    return steps.f()\n")
    said = write(tmp_path, "import other\ndef f():\n    return other.g() + f()\n")
    assert set(said) == {"python", "code steps.f", "code other.g"}


def test_a_global_that_a_function_sets_counts(tmp_path):
    assert "code steps.N" in write(tmp_path, "N = 1\ndef f():\n    global N\n    N = 2\n")


def test_a_module_beside_the_steps_wins_over_one_of_the_standard_library(tmp_path):
    (tmp_path / "statistics.py").write_text("def mean(x): return x\n")
    assert "code statistics.mean" in write(tmp_path, "import statistics\ndef f():\n    statistics.mean(1)\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [("def g(): pass\n", "has no 'f'"), ("def f(:\n", "is not Python"), (None, "no module steps")],
)
def test_what_cannot_be_read_is_said(tmp_path, text, said):
    if text is not None:
        (tmp_path / "steps.py").write_text(text)
    with pytest.raises(ProgramError, match=said):
        leaves(str(tmp_path), "steps:f")


REGISTRY = """
TABLE = {}
def reg(f):
    TABLE[f.__name__] = f
    return f
"""


@pytest.mark.parametrize(
    "text",
    [
        REGISTRY + "@reg\ndef one(x): return x + 1\ndef f(): return TABLE['one'](1)\n",
        REGISTRY + "def one(x): return x + 1\nreg(one)\ndef f(): return TABLE['one'](1)\n",
        REGISTRY + "def one(x): return x + 1\none = reg(one)\ndef f(): return TABLE['one'](1)\n",
        REGISTRY + "if True:\n    @reg\n    def one(x): return x + 1\ndef f(): return TABLE['one'](1)\n",
        REGISTRY + "@reg\nclass One:\n    def one(self, x): return x + 1\ndef f(): return TABLE\n",
        REGISTRY + "add = reg\n@add\ndef one(x): return x + 1\ndef f(): return TABLE\n",
        REGISTRY
        + "def more():\n    for g in (one,):\n        reg(g)\ndef one(x): return x + 1\nmore()\ndef f(): TABLE\n",
        REGISTRY + "def one(x): return x + 1\n[reg(g) for g in (one,)]\ndef f(): return TABLE\n",
        REGISTRY + "def one(x): return x + 1\nlist(map(reg, [one]))\ndef f(): return TABLE\n",
        "T = {}\ndef named(n):\n    def deco(g):\n        T[n] = g\n        return g\n    return deco\n"
        "@named('a')\ndef one(x): return x + 1\ndef f(): return T['a'](1)\n",
        "class R:\n    def __init__(self): self.t = {}\n    def add(self, g): self.t[1] = g\nr = R()\n"
        "@r.add\ndef one(x): return x + 1\ndef f(): return r.t[1](1)\n",
        "class R:\n    t = {}\n    @classmethod\n    def add(cls, g): cls.t[1] = g\n"
        "@R.add\ndef one(x): return x + 1\ndef f(): return R.t[1](1)\n",
        "from functools import singledispatch\n@singledispatch\ndef g(x): pass\n"
        "@g.register\ndef _(x: int): return x + 1\ndef f(): return g(1)\n",
        "from functools import singledispatch\n@singledispatch\ndef g(x): pass\n"
        "@g.register(int)\ndef _(x): return x + 1\ndef f(): return g(1)\n",
        "T = {}\ndef fill(): T['a'] = lambda x: x + 1\nfill()\ndef f(): return T['a'](1)\n",
        "T = {}\ndef fill():\n    t = T\n    t['a'] = lambda x: x + 1\nfill()\ndef f(): return T['a'](1)\n",
        "N = 1\ndef fill():\n    global N\n    N = lambda x: x + 1\nfill()\ndef f(): return N(1)\n",
        "class A: k = 1\ndef fill(): A.k = lambda x: x + 1\nfill()\ndef f(): return A.k(1)\n",
        "T = []\ndef put(t, g): t.append(g)\ndef one(x): return x + 1\nn = put(T, one)\ndef f(): return T\n",
        "class P:\n    kinds = {}\n    def __init_subclass__(cls): P.kinds[cls.__name__] = cls\n"
        "class Q(P):\n    def g(self, x): return x + 1\ndef f(): return P.kinds['Q']().g(1)\n",
        "K = {}\nclass P:\n    def __init_subclass__(cls): K[cls.__name__] = cls\nclass M(P): pass\n"
        "class Q(M):\n    def g(self, x): return x + 1\ndef f(): return K['Q']().g(1)\n",
        "K = {}\nclass Meta(type):\n    def __init__(cls, name, *more): K[name] = cls\n"
        "class Q(metaclass=Meta):\n    def g(self, x): return x + 1\ndef f(): return K['Q']().g(1)\n",
        "class P: pass\nclass Q(P):\n    def g(self, x): return x + 1\ndef f(): return P.__subclasses__()[0]().g(1)\n",
        "def Q(x): return x + 1\ndef f(): return globals()['Q'](1)\n",
        "def Q(x): return x + 1\ndef f(): return eval('Q')(1)\n",
        "import sys\ndef Q(x): return x + 1\ndef f(): return sys.modules[__name__].Q(1)\n",
        "globals()['Q'] = lambda x: x + 1\ndef f(): return Q(1)\n",
        "def export(g): globals()['Q'] = g\n@export\ndef one(x): return x + 1\ndef f(): return Q(1)\n",
    ],
)
def test_what_changes_a_name_as_the_module_is_loaded_counts(tmp_path, text):
    before = write(tmp_path, text)
    assert write(tmp_path, text.replace("x + 1", "x + 100")) != before


@pytest.mark.parametrize(
    ("steps", "plugin"),
    [
        (
            "import plugin\nfrom registry import TABLE\ndef f(): return TABLE['one'](1)\n",
            "from registry import reg\n@reg\n",
        ),
        ("import plugin, registry\ndef f(): return registry.TABLE['one'](1)\n", "import registry as r\n@r.reg\n"),
        (
            "import registry\ndef f():\n    import plugin\n    return registry.get('one')(1)\n",
            "from registry import *\n@reg\n",
        ),
        ("from plugin import TABLE\ndef f(): return TABLE['one'](1)\n", "from registry import reg, TABLE\n@reg\n"),
        (
            "import plugin\nfrom registry import P\ndef f(): return P.first().one(1)\n",
            "from registry import P\nclass Q(P):\n  ",
        ),
    ],
)
def test_what_another_module_changes_as_it_is_loaded_counts(tmp_path, steps, plugin):
    more = "def get(n): return TABLE[n]\nclass P:\n    def first():\n        return P.__subclasses__()[0]\n"
    (tmp_path / "registry.py").write_text(REGISTRY + more)
    (tmp_path / "plugin.py").write_text(f"{plugin}def one(x): return x + 1\n")
    before = write(tmp_path, steps)
    (tmp_path / "plugin.py").write_text(f"{plugin}def one(x): return x + 100\n")
    assert write(tmp_path, steps) != before


def test_what_is_registered_is_named(tmp_path):
    text = REGISTRY + "@reg\ndef one(x): return x + 1\n@reg\ndef two(x): return x\ndef f(): return TABLE['one'](1)\n"
    before = write(tmp_path, text)
    after = write(tmp_path, text.replace("x + 1", "x + 100"))
    assert [key for key in before | after if before.get(key) != after.get(key)] == ["code steps.one"]


def test_the_order_in_which_things_are_registered_counts(tmp_path):
    one, two = "@reg\ndef one(x): return x + 1\n", "@reg\ndef two(x): return x\n"
    rest = "def f(): return TABLE['one'](1)\n"
    assert write(tmp_path, REGISTRY + one + two + rest) != write(tmp_path, REGISTRY + two + one + rest)


@pytest.mark.parametrize(
    "text",
    [
        "from functools import lru_cache\n@lru_cache\ndef one(x): return x\n"
        "@lru_cache\ndef idle(x): return x + 1\ndef f(): one(1)\n",
        "import logging\nlog = logging.getLogger()\ndef loud(g):\n    log.info(g)\n    return g\n"
        "@loud\ndef one(x): return x\n@loud\ndef idle(x): return x + 1\ndef f(): return log.info(one(1))\n",
        "import logging\nlog = logging.getLogger()\nlog.info('x + 1')\nprint('x + 1')\ndef f(): return 1\n",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--x + 1')\ndef f(): return 1\n",
        "import math\nIDLE = math.sqrt(len('x + 1'))\ndef f(): return 1\n",
        "import re\nIDLE = re.compile('x + 1')\ndef f(): return 1\n",
        "import time\nT = {}\ndef reg(g): T[1] = g\ndef idle(x):\n    time.sleep(1)\n    return x + 1\n"
        "reg(idle)\ndef f(): return 1\n",
        REGISTRY + "@reg\ndef idle(x): return x + 1\ndef one(x): return x\ndef f(): return one(1)\n",
        "class P: pass\nclass Q(P):\n    def g(self, x): return x + 1\ndef f(): return P()\n",
        "from pathlib import Path\nROOT = Path(__file__).parent / 'data'\ndef load(n): return (ROOT / n).read_text()\n"
        "A = load('a')\nB = lambda x: x + 1\nC = load('c') + 'x + 1'\ndef f(): return A, ROOT\n",
        "LIMIT = 3\ndef make(n): return LIMIT * n\nA = make(3)\nidle = make('x + 1')\ndef f(): return A, LIMIT\n",
    ],
)
def test_what_changes_only_other_names_does_not_count(tmp_path, text):
    before = write(tmp_path, text)
    assert write(tmp_path, text.replace("x + 1", "x + 100")) == before


def test_what_only_a_type_checker_loads_changes_nothing(tmp_path):
    (tmp_path / "registry.py").write_text(REGISTRY)
    (tmp_path / "plugin.py").write_text("from registry import reg\n@reg\ndef one(x): return x\n")
    said = write(tmp_path, "import registry\nif TYPE_CHECKING:\n    import plugin\ndef f(): return registry.TABLE\n")
    assert "code plugin.one" not in said


def test_a_module_that_is_loaded_and_not_used_may_be_anything(tmp_path):
    (tmp_path / "broken.py").write_text("def (:")
    said = write(
        tmp_path, "try:\n    import broken, steps, no_such_thing\nexcept Exception:\n    pass\ndef f(): return 1\n"
    )
    assert set(said) == {"python", "code steps.f"}


def test_what_a_module_changes_is_found_out_once_for_all_its_functions(tmp_path, monkeypatch):
    asked = []
    may_change = statements.may_change

    def asks(statement, rest):
        asked.append(statement)
        return may_change(statement, rest)

    monkeypatch.setattr(modules, "may_change", asks)
    text = REGISTRY + "".join(f"@reg\ndef f{n}(x): return x\n" for n in range(20)) + "def f(): return TABLE\n"
    first = write(tmp_path, text)
    before = len(asked)
    assert 0 < before < 10
    assert leaves(str(tmp_path), "steps:f") == first
    leaves(str(tmp_path), "steps:f1")
    assert len(asked) == before
    assert write(tmp_path, text.replace("return x", "return x + 1")) != first
    assert len(asked) > before


def test_a_package_that_imports_what_lies_in_it(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text("from . import deep\nfrom .deep import g as h\n")
    (tmp_path / "pack/deep.py").write_text(REGISTRY + "@reg\ndef g(x): return x + 1\n")
    text = "import pack\nfrom pack import deep\ndef f(): return pack.deep.TABLE, deep.g(1), pack.h(1)\n"
    said = write(tmp_path, text)
    assert {"code pack.deep.TABLE", "code pack.deep.g"} <= said.keys()


def test_modules_that_import_a_name_from_each_other_end(tmp_path):
    (tmp_path / "one.py").write_text("from two import g\n")
    (tmp_path / "two.py").write_text("from one import g\n")
    assert set(write(tmp_path, "from one import g\ndef f(): return g(1)\n")) == {"python", "code steps.f"}


def test_a_long_way_from_name_to_name_needs_no_deep_stack(tmp_path):
    lines = [f"def f{n}(x):\n    return f{n + 1}(x)\n" for n in range(3_000)]
    (tmp_path / "steps.py").write_text("".join([*lines, "def f3000(x):\n    return x\n"]))
    assert {"code steps.f0", "code steps.f1500", "code steps.f3000"} <= leaves(str(tmp_path), "steps:f0").keys()


class TestAskedAgain:
    """What was found out once is used again only as long as every file and folder is what it was."""

    STEP = "import helper\n\n\ndef f():\n    return helper.g()\n\n\ndef other():\n    return 1\n"

    @pytest.fixture
    def place(self, tmp_path):
        (tmp_path / "steps.py").write_text(self.STEP)
        (tmp_path / "helper.py").write_text("def g():\n    return 1\n")
        return tmp_path

    def asked(self, place: Path) -> dict[str, str]:
        return leaves(str(place), "steps:f")

    def test_it_is_the_same(self, place):
        first = self.asked(place)
        first["spoilt"] = "by who asked"
        again = self.asked(place)
        assert again == {name: text for name, text in first.items() if name != "spoilt"}
        assert leaves(str(place), "steps:other").keys() == {"python", "code steps.other"}

    def test_a_change_that_keeps_size_and_time_is_noticed(self, place):
        before = self.asked(place)
        file = place / "helper.py"
        told = file.stat()
        file.write_text("def g():\n    return 2\n")
        os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))
        assert self.asked(place) != before

    def test_a_file_that_takes_the_place_of_another_is_noticed(self, place):
        before = self.asked(place)
        (place / "helper").mkdir()
        (place / "helper" / "__init__.py").write_text("def g():\n    return 3\n")
        assert self.asked(place)["code helper.g"] != before["code helper.g"]

    def test_so_is_one_that_is_gone(self, place):
        self.asked(place)
        (place / "helper.py").unlink()
        assert self.asked(place)["package helper"] == "not installed"
        (place / "helper.py").write_text("def g():\n    return 1\n")
        assert "code helper.g" in self.asked(place)

    def test_and_one_that_can_be_read_now(self, place):
        (place / "helper.py").write_text("def g(:\n")
        with pytest.raises(ProgramError, match="not Python"):
            self.asked(place)
        (place / "helper.py").write_text("def g():\n    return 1\n")
        assert "code helper.g" in self.asked(place)

    def test_and_an_extension_module(self, place):
        (place / "helper.py").unlink()
        binary = place / "helper.cpython-311-x86_64-linux-gnu.so"
        binary.write_bytes(b"one")
        before = self.asked(place)
        binary.write_bytes(b"two")
        assert self.asked(place)["code helper"] != before["code helper"]

    def test_and_a_module_that_is_there_now_behind_the_path(self, place, tmp_path_factory, monkeypatch):
        (place / "helper.py").unlink()
        assert self.asked(place)["package helper"] == "not installed"
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        (elsewhere / "helper.py").write_text("def g():\n    return 1\n")
        monkeypatch.syspath_prepend(str(elsewhere))
        assert "code helper.g" in self.asked(place)


EITHER = "try:\n    from h import {} as f1\nexcept ImportError:\n    from h import {} as f1\ng1 = 1\n"


class TestNamesThatLeadElsewhere:
    """Edits after which a name stands for something else, though what is reached is the same, or lies deeper."""

    def changed(self, place: Path, file: str, text: str) -> bool:
        before = leaves(str(place), "steps:f")
        (place / file).write_text(text)
        return leaves(str(place), "steps:f") != before

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("from h import a as f1, b as g1\n", "from h import b as f1, a as g1\n"),
            ("import h as f1, k as g1\n", "import k as f1, h as g1\n"),
            ("from math import floor as f1, ceil as g1\n", "from math import ceil as f1, floor as g1\n"),
            (EITHER.format("a", "b"), EITHER.format("b", "a")),
        ],
    )
    def test_aliases_that_change_places(self, tmp_path, old, new):
        (tmp_path / "h.py").write_text("def a(): return 1\ndef b(): return 2\n")
        (tmp_path / "k.py").write_text("A = 1\n")
        step = "def f():\n    return f1, g1\n"
        (tmp_path / "steps.py").write_text(old + step)
        assert self.changed(tmp_path, "steps.py", new + step)

    @pytest.mark.parametrize(
        "step",
        [
            "from tools import *\ndef f(): return val()\n",
            "import tools\ndef f(): return tools.val()\n",
            "from tools import val\ndef f(): return val()\n",
            "import tools\ndef f(): return use(tools)\n",
            "from tools import *\ndef f(): return globals()['val']()\n",
        ],
    )
    def test_stars_of_stars(self, tmp_path, step):
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools/__init__.py").write_text("from .core import *\n")
        (tmp_path / "tools/core.py").write_text("from .impl import *\n")
        (tmp_path / "tools/impl.py").write_text("from .last import val\n")
        (tmp_path / "tools/last.py").write_text("def val(): return 1\n")
        (tmp_path / "steps.py").write_text(step)
        assert self.changed(tmp_path, "tools/last.py", "def val(): return 2\n")
        assert self.changed(tmp_path, "tools/core.py", "def val(): return 3\n")

    @pytest.mark.parametrize(
        "step", ["from one import *\ndef f(): return val()\n", "import one\ndef f(): return one.val()\n"]
    )
    def test_stars_that_lead_in_a_circle(self, tmp_path, step):
        (tmp_path / "one.py").write_text("from two import *\n")
        (tmp_path / "two.py").write_text("from one import *\nfrom last import *\n")
        (tmp_path / "last.py").write_text("def val(): return 1\n")
        (tmp_path / "steps.py").write_text(step)
        assert self.changed(tmp_path, "last.py", "def val(): return 2\n")

    def test_a_module_that_a_star_brings(self, tmp_path):
        (tmp_path / "core").mkdir()
        (tmp_path / "core/__init__.py").write_text("__all__ = ['sub']\n")
        (tmp_path / "core/sub.py").write_text("def v(): return 1\n")
        (tmp_path / "steps.py").write_text("from core import *\ndef f(): return sub.v()\n")
        assert self.changed(tmp_path, "core/sub.py", "def v(): return 2\n")

    def test_a_star_of_an_extension_module(self, tmp_path):
        binary = tmp_path / "ext.abi3.so"
        binary.write_bytes(b"\0one")
        (tmp_path / "steps.py").write_text("from ext import *\ndef f(): return val()\n")
        before = leaves(str(tmp_path), "steps:f")
        binary.write_bytes(b"\0two")
        assert leaves(str(tmp_path), "steps:f") != before

    def test_python_takes_an_extension_module_first(self, tmp_path):
        (tmp_path / "ext.py").write_text("VALUE = 1\n")
        (tmp_path / "ext.abi3.so").write_bytes(b"one")
        (tmp_path / "steps.py").write_text("import ext\ndef f(): return ext.VALUE\n")
        before = leaves(str(tmp_path), "steps:f")
        (tmp_path / "ext.abi3.so").write_bytes(b"two")
        assert leaves(str(tmp_path), "steps:f") != before

    def test_links_that_lead_nowhere_hide_nothing(self, tmp_path):
        (tmp_path / "pkg").mkdir()
        (tmp_path / "pkg/__init__.py").touch()
        (tmp_path / "pkg/helpers.py").write_text("def val(): return 1\n")
        for name, target in (("current", "current"), ("old", "helpers.py/old"), ("gone.py", "/nowhere/x.py")):
            (tmp_path / "pkg" / name).symlink_to(target)
        (tmp_path / "local_settings.py").symlink_to("/nowhere/x.py")
        text = "try:\n    import local_settings as L\nexcept ImportError:\n    L = None\n"
        (tmp_path / "steps.py").write_text(f"{text}from pkg.helpers import val\ndef f(): return val(), L\n")
        assert self.changed(tmp_path, "pkg/helpers.py", "def val(): return 100\n")

    def test_a_module_that_appears_between_two_looks(self, tmp_path):
        (tmp_path / "reg.py").write_text("TABLE = {}\n")
        text = "from reg import TABLE\ntry:\n    import plugin\nexcept ImportError:\n    pass\n"
        (tmp_path / "steps.py").write_text(f"{text}def f(): return sorted(TABLE)\n")
        assert self.changed(tmp_path, "plugin.py", "import reg\nreg.TABLE['x'] = 1\n")
