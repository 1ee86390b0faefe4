"""Element-wise functions and operators."""

import random
from functools import partial
from operator import invert, neg, pos
from typing import Any

import numpy as np

import weft.tensor as wt
from tests.properties.tensors.drawing import (
    NUMBERS,
    REAL,
    TYPES,
    Case,
    Draw,
    array,
    broadcastable,
    keyed,
    matrices,
    shape,
    simple,
)

# ------------------------------------------------------------------------------------------------ element by element

ELEMENTWISE: dict[str, Draw] = {}
ONE = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj", "cos", "cosh", "exp",
    "floor", "imag", "isfinite", "isinf", "isnan", "log", "log1p", "log2", "log10", "logical_not", "negative",
    "positive", "real", "reciprocal", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "trunc",
]  # fmt: skip
TWO = [
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "copysign", "divide", "equal", "greater", "greater_equal", "hypot", "less", "less_equal", "logaddexp",
    "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow",
    "remainder", "subtract",
]  # fmt: skip
EXACT = {
    "abs", "add", "subtract", "multiply", "divide", "negative", "positive", "sqrt", "square", "ceil", "floor", "trunc",
    "sign", "reciprocal",
}  # fmt: skip
for _name in ONE:
    ELEMENTWISE[_name] = simple(_name, lambda rng: [array(rng, shape(rng))], _name in EXACT)


def _expm1(x: Any) -> Any:
    made = np.expm1(x)
    return np.where(np.isfinite(x), made, np.exp(x) - 1).astype(made.dtype) if made.dtype.kind == "c" else made


def _tanh(x: Any) -> Any:
    made = np.tanh(x)
    return np.where(np.isinf(x.real), np.sign(x.real), made).astype(made.dtype) if made.dtype.kind == "c" else made


def _floor_divide(x: Any, y: Any) -> Any:
    made = np.floor_divide(x, y)
    if made.dtype.kind != "f":
        return made
    return np.where(np.isinf(x) != np.isinf(y), np.true_divide(x, y), made).astype(made.dtype)


ELEMENTWISE["expm1"] = simple("expm1", lambda rng: [array(rng, shape(rng))], theirs=_expm1)
ELEMENTWISE["tanh"] = simple("tanh", lambda rng: [array(rng, shape(rng))], theirs=_tanh)


def _round(rng: random.Random) -> Any:
    return [array(rng, shape(rng), NUMBERS)], ({} if rng.random() < 0.5 else {"decimals": rng.randint(0, 3)})


ELEMENTWISE["round"] = keyed("round", _round)


def scalar(rng: random.Random, dtype: np.dtype[Any], *, odd: float = 0.05) -> Any:
    """Draw a Python number that goes with a type; `odd` is how often one does not."""
    if rng.random() < odd:
        return rng.choice([300, -1, 1.5, 1j])
    return {"b": True, "i": -2, "u": 3, "f": 1.5, "c": 2 - 1j}[dtype.kind]


def _two(name: str, theirs: Any, exact: bool) -> Draw:
    def draw(rng: random.Random) -> Case:
        first, second = broadcastable(rng, 2)
        types = [rng.choice(TYPES)] if rng.random() < 0.5 else TYPES
        x = array(rng, first, types)
        if rng.random() < 0.2:
            number = scalar(rng, x.dtype)
            if rng.random() < 0.5:
                return Case(f"{name}(x, {number})", [x], lambda a: ours(a, number), lambda a: theirs(a, number), exact)
            return Case(f"{name}({number}, x)", [x], lambda a: ours(number, a), lambda a: theirs(number, a), exact)
        y = array(rng, second, types)
        if name in ("bitwise_left_shift", "bitwise_right_shift"):
            y = np.abs(y) % 7 if y.dtype.kind in "iu" else y
        return Case(name, [x, y], ours, theirs, exact and "c" not in (x.dtype.kind, y.dtype.kind))

    ours = getattr(wt, name)
    return draw


for _name in TWO:
    ELEMENTWISE[_name] = _two(_name, getattr(np, _name), _name in EXACT)
ELEMENTWISE["floor_divide"] = _two("floor_divide", _floor_divide, False)


def _clip(rng: random.Random) -> Case:
    x = array(rng, shape(rng), REAL)
    low, high = sorted([rng.randint(0, 3), rng.randint(0, 5)])
    kwargs = {"min": rng.choice([None, low]), "max": rng.choice([None, high])}
    if x.dtype.kind == "f" and rng.random() < 0.5:
        lows = np.broadcast_to(np.asarray(low, x.dtype), x.shape[1:]).copy()
        return Case("clip", [x, lows], lambda a, b: wt.clip(a, b, high), lambda a, b: np.clip(a, b, high), True)
    return Case(f"clip {kwargs}", [x], partial(wt.clip, **kwargs), partial(_clipped, **kwargs), True)


def _clipped(x: Any, min: Any, max: Any) -> Any:
    made = x if min is None else np.maximum(x, min)
    return made if max is None else np.minimum(made, max)


ELEMENTWISE["clip"] = _clip


def _where(rng: random.Random) -> Case:
    a, b, c = broadcastable(rng, 3)
    x = array(rng, b, TYPES)
    if rng.random() < 0.3:
        number = scalar(rng, x.dtype, odd=0)  # NumPy casts one that does not fit, without a word
        return Case(
            f"where {number}",
            [array(rng, a, ["bool"]), x],
            lambda p, q: wt.where(p, q, number),
            lambda p, q: np.where(p, q, number),
            True,
        )
    return Case("where", [array(rng, a, ["bool"]), x, array(rng, c)], wt.where, np.where, True)


ELEMENTWISE["where"] = _where


# --------------------------------------------------------------------------------------------------------- operators

OPERATORS: dict[str, Draw] = {}
_SYMBOLS = ["+", "-", "*", "/", "%", "**", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "@", "//"]


def _operator(symbol: str) -> Draw:
    def draw(rng: random.Random) -> Case:
        first, second = broadcastable(rng, 2)
        if symbol == "@":
            first, second = matrices(rng)
        types = [rng.choice(TYPES)]
        special = symbol not in ("//", "@")
        x, y = array(rng, first, types, special=special), array(rng, second, types, special=special)
        if symbol in ("<<", ">>") and y.dtype.kind in "iu":
            y = np.abs(y) % 7
        exact = symbol in "+-*&|^<=>=!=" and x.dtype.kind != "c"  # a processor multiplies complex numbers in two ways
        run = eval(f"lambda a, b: a {symbol} b")
        if rng.random() < 0.3 and symbol not in ("@", "<", "<=", ">", ">=", "==", "!="):

            def place(a: Any, b: Any) -> Any:
                a = a.copy() if isinstance(a, np.ndarray) else wt.asarray(a, copy=True)
                names = {"a": a, "b": b}
                try:
                    exec(f"a {symbol}= b", {}, names)
                except TypeError:
                    if not (isinstance(a, np.ndarray) and a.ndim == b.ndim == 0):
                        raise
                    names["a"] = a[()]  # a result without axes is a scalar of NumPy, which gives way to a new one
                    exec(f"a {symbol}= b", {}, names)
                return names["a"]

            return Case(f"{symbol}=", [x, y], place, place, exact)
        return Case(symbol, [x, y], run, run, exact)

    return draw


for _symbol in _SYMBOLS:
    OPERATORS[_symbol] = _operator(_symbol)


def _unary(name: str, run: Any) -> Draw:
    return lambda rng: Case(name, [array(rng, shape(rng))], run, run, True)


for _name, _run in {"-x": neg, "+x": pos, "~x": invert, "abs(x)": abs}.items():
    OPERATORS[_name] = _unary(_name, _run)
