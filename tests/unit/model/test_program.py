"""What programs are called, and that their empty parameters are shared."""

from functools import partial
from typing import Any

import pytest

from weft.model.program import NO_PARAMS, Program, Style


class Model:
    def __repr__(self):
        return "a model"

    def __call__(self):
        return None

    def fit(self):
        return None


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("package.module:function", "package.module:function"),
        (len, "len"),
        (Model, "Model"),
        (Model.fit, "Model.fit"),
        (Model().fit, "Model.fit"),
        (Model(), "a model"),
        (partial(len), repr(partial(len))),
    ],
)
def test_name(target: Any, name: str):
    assert Program(target).name == name


def test_defaults():
    program = Program("m:f")
    assert (program.params, program.items, program.style) == ({}, None, Style.FUNCTION)
    assert program.params is NO_PARAMS is Program("m:g").params
    assert program == Program("m:f", {})
