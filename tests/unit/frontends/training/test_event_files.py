"""Event files of TensorBoard: formats of scalars, files that are still written, and damaged ones."""

import math
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.event_files import block, crc, event, first, framed, plugin, tensor
from weft.frontends.training.event_files import (
    MOST_RECORD_BYTES,
    EventFile,
    EventFileName,
    EventScalar,
    masked_crc,
    parse_name,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.out.tfevents.1700000000.host.7.0"


def read(path: Path, *parts: bytes) -> list[EventScalar]:
    path.write_bytes(b"".join(parts))
    return EventFile(str(path)).read()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("events.out.tfevents.1700000000.job-worker-1.1234.0.v2", EventFileName("job-worker-1", 1234)),
        ("events.out.tfevents.1700000000.host.example.org.7.0", EventFileName("host.example.org", 7)),
        ("events.out.tfevents.1700000000.host", EventFileName("host", 0)),
        ("other.txt", None),
        ("events.out.tfevents.now.host", None),
    ],
)
def test_the_name_tells_host_and_process(name, found):
    assert parse_name(name) == found


def test_the_checksum_is_that_of_the_format():
    """The vector is of RFC 3720: 32 bytes of zeros have the checksum 0x8a9136aa."""
    masked = (0x8A9136AA >> 15 | 0x8A9136AA << 17) + 0xA282EAD8 & 0xFFFFFFFF
    assert masked_crc(bytes(32)) == crc(bytes(32)) == masked


def test_scalars_are_plain_numbers_or_tensors(path):
    found = read(
        path,
        first(),
        event("loss", 0.5, 1, at=10.0),
        event("new", 0, 2, new=tensor(0.25), about=plugin("scalars")),
        event("new", 0, 3, new=tensor(0.75, content=True)),
        event("wide", 0, 4, new=tensor(1e300, kind=2)),
        event("count", 0, -1, new=tensor(-7, kind=9, shape=(1,))),
    )
    assert found == [
        EventScalar("loss", 0.5, 1, 10.0),
        EventScalar("new", 0.25, 2, 1.0),
        EventScalar("new", 0.75, 3, 1.0),
        EventScalar("wide", 1e300, 4, 1.0),
        EventScalar("count", -7.0, -1, 1.0),
    ]


def test_half_numbers_are_read(path):
    half = b"\x08\x13" + block(13, b"\x80\x70")  # 0x3800: 0.5
    brain = b"\x08\x0e" + block(4, struct.pack("<H", 0x3F00))
    found = read(path, event("half", 0, 1, new=half), event("brain", 0, 1, new=brain))
    assert [one.value for one in found] == [0.5, 0.5]


def test_what_is_no_scalar_is_left_out(path):
    images = event("image", 0, 1, new=tensor(1.0), about=plugin("images"))
    found = read(path, images, event("image", 0, 2, new=tensor(1.0)), event("v", 0, 1, new=tensor(1.0, shape=(3,))))
    assert found == []


def test_numbers_that_are_not_finite_stay(path):
    found = read(path, event("loss", math.nan, 1), event("loss", math.inf, 2))
    assert math.isnan(found[0].value)
    assert found[1].value == math.inf


def test_a_large_record_is_passed_over(path):
    large = framed(block(6, bytes(MOST_RECORD_BYTES)))
    assert [one.step for one in read(path, event("loss", 1, 1), large, event("loss", 2, 2))] == [1, 2]


def test_a_damaged_record_is_passed_over_and_a_damaged_length_ends_the_file(path):
    damaged = bytearray(event("loss", 1, 1))
    damaged[20] ^= 1
    assert [one.step for one in read(path, bytes(damaged), event("loss", 2, 2))] == [2]
    head = bytearray(event("loss", 1, 1))
    head[3] = 0x7F
    path.write_bytes(bytes(head) + event("loss", 2, 2))
    file = EventFile(str(path))
    for more in range(30):
        with path.open("ab") as longer:
            longer.write(bytes(more))
        assert file.read() == []
    assert file.broken


def test_no_file_no_link_no_pipe(path, tmp_path):
    with pytest.raises(OSError, match=r"\[Errno"):
        EventFile(str(path)).read()
    os.mkfifo(path)
    assert EventFile(str(path)).read() == []
    link = tmp_path / "link"
    link.symlink_to("/dev/zero")
    with pytest.raises(OSError, match=r"\[Errno"):
        EventFile(str(link)).read()


@given(cuts=st.lists(st.integers(0, 400), max_size=6))
def test_a_file_that_grows_by_pieces_has_the_same_scalars(tmp_path_factory, cuts):
    path = tmp_path_factory.mktemp("events") / "file"
    whole = first() + b"".join(event(f"tag{step % 3}", step, step) for step in range(6))
    path.touch()
    file, found = EventFile(str(path)), []
    for end in (*sorted(min(cut, len(whole)) for cut in cuts), len(whole)):
        path.write_bytes(whole[:end])
        found += file.read()
    assert [one.step for one in found] == list(range(6))


@given(data=st.binary(max_size=300), framing=st.booleans())
def test_any_bytes_are_read_without_an_error(tmp_path_factory, data, framing):
    path = tmp_path_factory.mktemp("events") / "file"
    path.write_bytes(framed(data) + framed(block(5, block(1, data))) if framing else data)
    EventFile(str(path)).read()
