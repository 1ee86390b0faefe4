"""Methods of arrays that are defined beside the functions that they are, and loaded when one is first looked up."""

from __future__ import annotations

from typing import Any

from weft.frontends.tensors.arrays.stubs import Definition, entries, load


class _NotLoaded:
    """A method whose module is not loaded."""

    def __init__(self, name: str, place: Definition) -> None:
        self._name = name
        self._place = place

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        setattr(Methods, self._name, load(self._place))
        return getattr(owner if instance is None else instance, self._name)


class Methods:
    """The base class of arrays, with the methods that the registry has."""

    __slots__ = ()


for _name, _place in entries(__name__)[0].items():
    setattr(Methods, _name, _NotLoaded(_name, _place))
