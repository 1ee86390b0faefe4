"""Event files of TensorBoard: the scalars in them, read while a program still writes.

A file is a sequence of records: the length of the data, its checksum, the data, its checksum. The data is an `Event` of
protocol buffers, of which few fields are read here. Nothing in a file is trusted: a length counts only with its
checksum, and a record that is too large is passed over. Formats: TFRecord of TensorFlow, `event.proto`,
`summary.proto`, `tensor.proto` and `types.proto`.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

from msgspec import Struct

from weft.model.patterns import late_pattern

MOST_RECORD_BYTES: Final = 1 << 20
"""A record with more data is passed over: it has images or a graph."""
MOST_CHECKED_BYTES: Final = 16 << 10
"""A record with more data is parsed without its checksum, which takes long in Python."""
MOST_READ_BYTES: Final = 4 << 20
"""The bytes that one call of `EventFile.read` reads."""
MOST_TAGS: Final = 256
"""The tags of a file whose scalars are read."""
_MOST_TAG: Final = 200
_MOST_TRIES: Final = 20
_NAME: Final = late_pattern(
    r".*\.tfevents\.[0-9]{1,20}\.(?P<host>.+?)(?:\.(?P<pid>[0-9]{1,10})\.[0-9]{1,10}(?:\.v2)?)?", re.DOTALL
)
_SCALARS: Final = "scalars"
_HEAD: Final = struct.Struct("<QI")
_CHECK: Final = struct.Struct("<I")
_FRAME: Final = _HEAD.size + _CHECK.size


class EventScalar(Struct, frozen=True):
    """One value of a tag. `time` is in seconds since 1970."""

    tag: str
    value: float
    step: int
    time: float


class EventFileName(Struct, frozen=True):
    """What the name of an event file tells: the host and the process that write it (0: unknown)."""

    host: str
    pid: int


def parse_name(name: str) -> EventFileName | None:
    """Return what the name of an event file tells; None for other files."""
    match = _NAME.fullmatch(name)
    return None if match is None else EventFileName(match["host"], int(match["pid"] or 0))


class EventFile:
    """An event file as a program writes it: each `read` goes on behind the last whole record.

    After several calls that find the same damaged record, `broken` is true and nothing more is read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.broken = False
        self._offset = self._size = self._tries = 0
        self._plugins: dict[str, str] = {}

    def read(self) -> list[EventScalar]:
        """Return the scalars of the next whole records, at most 4 MiB of them. OSError: the file cannot be read."""
        if self.broken:
            return []
        fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode) or about.st_size < self._offset:
                self.broken = True  # it is no file, or was written anew
            if self.broken or about.st_size in (self._size, self._offset):
                return []
            data = os.pread(fd, MOST_READ_BYTES, self._offset)
        finally:
            os.close(fd)
        payloads, end = self._records(data, about.st_size - self._offset)
        self._tries = 0 if end else self._tries
        self._offset += end
        self._size = about.st_size if not end else 0
        return [scalar for payload in payloads for scalar in self._scalars(payload)]

    def _records(self, data: bytes, left: int) -> tuple[list[bytes], int]:
        """Return the data of the whole records, and the offset behind them; the file has `left` more bytes."""
        found: list[bytes] = []
        at = 0
        while at + _FRAME <= len(data):
            length, check = _HEAD.unpack_from(data, at)
            if check != masked_crc(data[at : at + 8]):
                self._damaged()
                break
            end = at + _FRAME + length
            if end > left or (end > len(data) and length <= MOST_RECORD_BYTES):
                break
            if length <= MOST_RECORD_BYTES:
                payload = data[at + _HEAD.size : end - _CHECK.size]
                (check,) = _CHECK.unpack_from(data, end - _CHECK.size)
                if length > MOST_CHECKED_BYTES or check == masked_crc(payload):
                    found.append(payload)
                elif end == left:  # its last bytes may be on their way
                    self._damaged()
                    break
            at = end
        return found, at

    def _damaged(self) -> None:
        self._tries += 1
        self.broken = self._tries >= _MOST_TRIES

    def _scalars(self, payload: bytes) -> Iterator[EventScalar]:
        """Yield the scalars of an event; of damaged data those before the damage."""
        time, step, summaries = 0.0, 0, []
        try:
            for number, value in fields(payload):
                if number == 1 and isinstance(value, bytes) and len(value) == 8:
                    (time,) = struct.unpack("<d", value)
                elif number == 2 and isinstance(value, int):
                    step = _signed(value)
                elif number == 5 and isinstance(value, bytes):
                    summaries.append(value)
            for summary in summaries:
                for number, value in fields(summary):
                    if number == 1 and isinstance(value, bytes):
                        yield from self._value(value, step, time)
        except ValueError:
            return

    def _value(self, data: bytes, step: int, time: float) -> Iterator[EventScalar]:
        tag, plugin, found = "", "", None
        for number, value in fields(data):
            if not isinstance(value, bytes):
                continue
            if number == 1:
                tag = value[:_MOST_TAG].decode("utf-8", "replace")
            elif number == 2 and len(value) == 4:
                (found,) = struct.unpack("<f", value)
            elif number == 8:
                found = tensor_value(value)
            elif number == 9:
                plugin = _plugin(value)
        if tag not in self._plugins:  # only the first value of a tag must name its plugin
            if len(self._plugins) >= MOST_TAGS:
                return
            self._plugins[tag] = plugin or _SCALARS
        if tag and found is not None and self._plugins[tag] == _SCALARS:
            yield EventScalar(tag, found, step, time)


# ---------------------------------------------------------------------------------------------------------- checksums


@cache
def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        found.append(byte)
    return tuple(found)


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of data as TFRecord files have it: rotated and with a constant added."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --------------------------------------------------------------------------------------------------- protocol buffers


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: number, and the whole number or the bytes. ValueError: it is no message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"wire type {wire}")
        length, at = _varint(data, at) if wire == 2 else ((8 if wire == 1 else 4), at)
        if length > len(data) - at:
            raise ValueError("a field is cut")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number is cut")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _plugin(metadata: bytes) -> str:
    """Return the name of the plugin in `SummaryMetadata`."""
    for number, value in fields(metadata):
        if number == 1 and isinstance(value, bytes):
            for inner, name in fields(value):
                if inner == 1 and isinstance(name, bytes):
                    return name[:_MOST_TAG].decode("utf-8", "replace")
    return ""


_CONTENT: Final = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 17: "<H", 19: "<e"} | {
    22: "<I",
    23: "<Q",
}
"""The binary forms of data types; `bfloat16` is the upper half of a float."""
_BFLOAT16: Final = 14
_HALF: Final = 19
_LISTS: Final = {5: "<f", 6: "<d", 7: "", 10: "", 11: "", 13: "", 16: "", 17: ""}
"""The fields with the elements of a tensor, and the binary forms of those that are no variable length numbers."""


def tensor_value(tensor: bytes) -> float | None:
    """Return the number in a `TensorProto` with one element; None for other tensors. ValueError: it is no message."""
    kind, content, element = 0, b"", None
    for number, value in fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes):
            if not _one_element(value):
                return None
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in _LISTS and element is None:
            element = _first(value, _LISTS[number])
    if content:
        if kind == _BFLOAT16 and len(content) == 2:
            return float(struct.unpack("<f", b"\0\0" + content)[0])
        form = _CONTENT.get(kind)
        return float(struct.unpack(form, content)[0]) if form and struct.calcsize(form) == len(content) else None
    if element is not None and kind in (_BFLOAT16, _HALF):
        bits = (int(element) & 0xFFFF).to_bytes(2, "little")
        return float(struct.unpack("<f", b"\0\0" + bits)[0] if kind == _BFLOAT16 else struct.unpack("<e", bits)[0])
    return None if element is None or kind not in _CONTENT else float(element)


def _one_element(shape: bytes) -> bool:
    for number, value in fields(shape):
        if number == 3:
            return False  # of unknown rank
        if number == 2 and isinstance(value, bytes):
            sizes = [size for inner, size in fields(value) if inner == 1]
            if sizes != [1]:
                return False
    return True


def _first(value: int | bytes, form: str) -> float | None:
    """Return the first element of a field with elements, packed or not."""
    if isinstance(value, int):
        return _signed(value)
    if form:
        size = struct.calcsize(form)
        return float(struct.unpack(form, value[:size])[0]) if len(value) >= size else None
    return _signed(_varint(value, 0)[0]) if value else None
