"""Values that parts of a component send to each other, as MessagePack: numbers, text, lists, maps and arrays.

Integers of any size and NumPy arrays of numbers, booleans or fixed-size bytes travel as extension types. There is no
pickle and no object array, so bytes of another organisation can only become plain data. Tuples arrive as lists.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from weft.model.errors import PartyMessageError, UsageError

_INT, _ARRAY, _INTS = 1, 2, 3
_KINDS: Final = frozenset("biufS")
_MOST_DIMENSIONS: Final = 8


class Integers(list[int]):
    """Integers of any size, such as ciphertexts: they travel as one block of `width` bytes each."""


def encode(value: Any) -> bytes:
    """Return a value as bytes. UsageError: it has a type that does not travel."""
    return _encoder.encode(_plain(value))


def decode(data: bytes) -> Any:
    """Return the value of bytes. PartyMessageError: they are no value of `encode`."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, SyntaxError) as error:
        raise PartyMessageError(f"a part received bytes that are no value: {error}") from None


def _plain(value: Any) -> Any:
    """Wrap integers beyond 64 bits, which MessagePack does not know."""
    if type(value) is int and not -(2**63) <= value < 2**64:
        return msgspec.msgpack.Ext(_INT, _int_bytes(value))
    if isinstance(value, Integers):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (np.ndarray, np.generic, set, frozenset)):
        return _extension(value)
    return value


def _int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _extension(value: Any) -> Any:
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise UsageError(
                f"an array of {value.dtype} does not travel between parties", hint="Send numbers or bytes."
            )
        head = msgspec.msgpack.encode((value.dtype.str, value.shape))
        return msgspec.msgpack.Ext(
            _ARRAY, len(head).to_bytes(2, "little") + head + np.ascontiguousarray(value).tobytes()
        )
    raise UsageError(f"a {type(value).__name__} does not travel between parties")


def _enc_hook(value: Any) -> Any:
    return _extension(value)


def _ext_hook(code: int, data: memoryview) -> Any:
    if code == _INT:
        return int.from_bytes(data, "little", signed=True)
    if code == _INTS:
        width = int.from_bytes(data[:4], "little")
        if not width or (len(data) - 4) % width:
            raise ValueError("a block of integers has a wrong length")
        return Integers(int.from_bytes(data[at : at + width], "little") for at in range(4, len(data), width))
    if code == _ARRAY:
        size = int.from_bytes(data[:2], "little")
        kind, shape = msgspec.msgpack.decode(data[2 : 2 + size], type=tuple[str, tuple[int, ...]])
        dtype = np.dtype(kind)
        if dtype.kind not in _KINDS or len(shape) > _MOST_DIMENSIONS or any(length < 0 for length in shape):
            raise ValueError(f"an array of {kind} with shape {shape} does not travel")
        return np.frombuffer(data[2 + size :], dtype=dtype).reshape(shape).copy()
    raise ValueError(f"there is no extension {code}")


def integers(values: Any) -> Any:
    """Return non-negative integers of any size as one block."""
    found = [int(one) for one in values]
    if any(one < 0 for one in found):
        raise UsageError("a block of integers has no negative ones")
    width = max((one.bit_length() + 7) // 8 for one in found) if found else 1
    width = max(width, 1)
    block = b"".join(one.to_bytes(width, "little") for one in found)
    return msgspec.msgpack.Ext(_INTS, width.to_bytes(4, "little") + block)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_enc_hook)
_decoder: Final = msgspec.msgpack.Decoder(ext_hook=_ext_hook)
