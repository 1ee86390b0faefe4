"""Which statements at the top of imported modules change the leaves of a Python function."""

from pathlib import Path

import pytest

from weft.frontends.pipelines.code.dependencies import leaves


def write(folder: Path, text: str) -> dict[str, str]:
    (folder / "steps.py").write_text(text)
    return leaves(str(folder), "steps:f")


HELPERS = "F = 0\ndef f(): return F\nclass M:\n    b = 0\nm = M()\n"
SETTINGS = [
    "import random\nrandom.seed(@)\n",
    "import random\n_ = random.seed(@)\n",
    "import random\ndef setup(n): random.seed(n)\nsetup(@)\n",
    "def setup():\n    import random\n    random.seed(@)\nsetup()\n",
    "def setup(n):\n    inner(n)\ndef inner(n):\n    import random\n    random.seed(n)\nsetup(@)\n",
    "import decimal\ndecimal.getcontext().prec = @\n",
    "from decimal import getcontext\ngetcontext().prec = @\n",
    "from decimal import *\ngetcontext().prec = @\n",
    "import decimal\ncontext = decimal.getcontext()\ncontext.prec = @\n",
    "import decimal\ndef setup():\n    context = decimal.getcontext()\n    context.prec = @\nsetup()\n",
    "import csv\ncsv.register_dialect('d', delimiter='@')\n",
    "import csv\nfor name in 'ab':\n    csv.register_dialect(name, delimiter='@')\n",
    "import os\nos.environ.setdefault('A', '@')\n",
    "import os\nos.environ['A'] = '@'\n",
    "import os\nos.environ |= {'A': '@'}\n",
    "import builtins\nbuiltins.A = @\n",
    "import math\nmath.pi = @\n",
    "import math\nsetattr(math, 'pi', @)\n",
    "try:\n    import numpy as np\nexcept ImportError:\n    np = None\nnp.random.seed(@)\n",
    "import logging\nlogging.getLogger('x').setLevel(@)\n",
    "import helpers\nhelpers.F = @\n",
    "import helpers\nhelpers.NEW = @\n",
    "import helpers\nh = helpers\nh.F = @\n",
    "import helpers\nsetattr(helpers, 'F', @)\n",
    "import helpers\nvars(helpers).update(F=@)\n",
    "import helpers\nhelpers.__dict__['F'] = @\n",
    "import sys, helpers\nsys.modules['helpers'].F = @\n",
    "from unittest import mock\nmock.patch('helpers.F', @).start()\n",
    "import helpers\ndef apply():\n    helpers.F = @\napply()\n",
    "import helpers\ndef apply(to):\n    to.F = @\napply(helpers)\n",
    "import helpers\ndef apply(to):\n    setattr(to, 'F', @)\napply(helpers)\n",
    "import helpers\nfor one in [helpers]:\n    one.F = @\n",
    "import helpers\nhelpers.m.b = @\n",
    "from helpers import M\nM.b = @\n",
]
"""Statements of a module that change more than the module's own names, with @ in place of a value."""


@pytest.mark.parametrize("text", SETTINGS)
@pytest.mark.parametrize("at", ["imported", "imported by that", "here"])
def test_what_a_statement_changes_beyond_its_module_counts(tmp_path, text, at):
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "between.py").write_text("import conf\n")
    found = []
    for value in "12":
        own = text.replace("@", value)
        (tmp_path / "conf.py").write_text(own)
        start = {"imported": "import conf\n", "imported by that": "import between\n", "here": own}[at]
        found.append(write(tmp_path, f"import helpers\n{start}def f(): return helpers.f(), helpers.m, helpers.M\n"))
    assert found[0] != found[1]


def test_the_module_with_such_a_statement_is_named(tmp_path):
    (tmp_path / "conf.py").write_text("import random\nIDLE = 1\nrandom.seed(1)\nlist_of = []\nlist_of.append(1)\n")
    before = write(tmp_path, "import conf\ndef f(): return 1\n")
    assert {name for name in before if not name.startswith("code")} == {"python", "import conf"}
    (tmp_path / "conf.py").write_text("import random\nIDLE = 2\nrandom.seed(1)\nlist_of = []\nlist_of.append(2)\n")
    assert write(tmp_path, "import conf\ndef f(): return 1\n") == before


@pytest.mark.parametrize(
    "text",
    [
        "def setup():\n    global Q\n    Q = @\nsetup()\ndef f(): return Q\n",
        "def setup(value):\n    global Q\n    Q = value\nsetup(@)\ndef f(): return Q\n",
        "class A:\n    global Q\n    Q = @\ndef f(): return Q\n",
        "Q = 0\nclass A:\n    global Q\n    Q = @\ndef f(): return Q\n",
    ],
)
def test_a_global_that_is_bound_inside_counts(tmp_path, text):
    assert write(tmp_path, text.replace("@", "1")) != write(tmp_path, text.replace("@", "2"))


def test_the_names_that_a_star_brings_count(tmp_path):
    (tmp_path / "one.py").write_text("def g(): return 1\n")
    text = "from one import *\nfrom two import *\ndef f(): return g()\n"
    found = []
    for names in ("'g'", ""):
        (tmp_path / "two.py").write_text(f"__all__ = [{names}]\ndef g(): return 2\n")
        found.append(write(tmp_path, text))
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "use",
    [
        "import subprocess, sys\ndef f(): return subprocess.check_output([sys.executable, 'tools/x.py'])\n",
        "import subprocess, sys\ndef f(): return subprocess.check_output([sys.executable, '-m', 'tools.x'])\n",
        "import runpy\ndef f(): return runpy.run_path('tools/x.py')\n",
        "def f(): exec(open('tools/x.py').read())\n",
        "import subprocess\nTOOL = 'tools/x.py'\ndef f(): return subprocess.check_output(['python3', TOOL])\n",
        "from pathlib import Path\nTOOL = Path(__file__).parent / 'tools/x.py'\ndef f(): return TOOL.read_text()\n",
        "import tools.run\ndef f(): return tools.run.start()\n",
    ],
)
@pytest.mark.parametrize("changed", ["tools/x.py", "tools/below.py"])
def test_a_script_that_a_constant_names_counts(tmp_path, use, changed):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").touch()
    (tmp_path / "tools" / "run.py").write_text("import subprocess\ndef start(): return subprocess.run(['x.py'])\n")
    (tmp_path / "tools" / "x.py").write_text("import tools.below\nif __name__ == '__main__':\n    print(1)\n")
    (tmp_path / "tools" / "below.py").write_text("A = 1\n")
    (tmp_path / "tools" / "idle.py").write_text("A = 1\n")
    before = write(tmp_path, use)
    (tmp_path / "tools" / "idle.py").write_text("A = 2\n")
    assert write(tmp_path, use) == before
    text = (tmp_path / changed).read_text()
    (tmp_path / changed).write_text(text.replace("1", "2"))
    after = write(tmp_path, use)
    assert [name for name in before | after if before.get(name) != after.get(name)] == [f"script {changed}"]
