"""Functions of arrays that take sparse ones, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from weft.frontends.tensors.arrays.conversion import SparseArgumentError

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def takes_sparse(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Let a function take sparse arrays as NumPy's function of its name does: a decorator.

    The function for dense arrays is called first, and refuses them, so that it costs nothing to allow them.
    """

    @wraps(function)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        try:
            return function(*args, **kwargs)
        except SparseArgumentError:
            from weft.frontends.tensors.arrays.sparse import call_numpy

            return call_numpy(function.__name__, args, kwargs)  # type: ignore[no-any-return]

    return called
