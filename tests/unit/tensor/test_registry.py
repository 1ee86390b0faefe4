"""The registry of public names, and the stub files that are written from it."""

import inspect

import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays import registry
from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.stubs import entries, load
from weft.tensor.stubs import SPACES, stubs

SPACE_MODULES = ["weft.tensor" + (f".{space}" if space else "") for space in SPACES]


def test_stub_files_say_what_the_registry_says():
    old = [path.name for path, text in stubs() if path.read_text() != text]
    assert old == [], "write them again: python -m weft.tensor.stubs"


@pytest.mark.parametrize("module", [*SPACE_MODULES, "weft.frontends.tensors.arrays.methods"])
def test_every_name_of_a_stub_is_there(module):
    for name, place in entries(module)[0].items():
        if place.module != module:
            assert load(place) is not None or name == "newaxis"


def test_a_name_that_is_public_twice_is_refused():
    def one():
        """Return nothing."""

    before = list(registry.rows)
    try:
        registry.public(space="nowhere")(one)
        registry.expose(__name__, "two=one", space="nowhere")
        with pytest.raises(ValueError, match="one is public twice"):
            registry.table("nowhere")
    finally:
        registry.rows[:] = before


def test_public_functions_tell_what_they_do():
    for name in wt.__all__:
        found = getattr(wt, name)
        assert not inspect.isfunction(found) or found.__doc__, name


def test_methods_are_loaded_when_they_are_looked_up():
    assert Tensor.sum is wt.sum
    assert "cumsum" in dir(Tensor)
    assert wt.asarray([1.5]).round() is not None


def test_what_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = wt.nothing  # type: ignore[attr-defined]
