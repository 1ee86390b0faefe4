"""Values come back as they were encoded; what is damaged says so."""

import contextlib
import io
import pickle
import subprocess
import sys
import threading
from array import array

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from weft.model.errors import NotFoundError, ProgramError
from weft.store import codec
from weft.store.api import ABSENT


def round_trip(value):
    chunk = codec.encode(value)
    data = codec.to_bytes(chunk)
    assert len(data) == chunk.nbytes
    return codec.decode(data)


def same_array(left, right):
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    assert left.tobytes() == right.tobytes()


dtypes = st.one_of(
    hnp.scalar_dtypes(),
    hnp.byte_string_dtypes(min_len=1),
    hnp.unicode_string_dtypes(min_len=1),
    hnp.array_dtypes(allow_subarrays=True),
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))


@given(arrays, st.sampled_from("CF"))
def test_arrays(array, order):
    array = np.asarray(array, order=order)
    found = round_trip(array)
    same_array(found, array)
    assert found.flags.f_contiguous == array.flags.f_contiguous
    assert not found.flags.writeable or not found.nbytes


@given(arrays.filter(lambda array: array.ndim > 0))
def test_strided_arrays(array):
    view = array[::2]
    same_array(round_trip(view), view)
    same_array(round_trip(array[::-1].T), array[::-1].T)


@pytest.mark.parametrize(
    "array",
    [
        np.array(5),
        np.zeros((0, 3)),
        np.zeros((3, 4), order="F"),
        np.array([], dtype="U"),
        np.zeros(2, dtype="V0"),
        np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        np.arange(6, dtype=">i4"),
        np.zeros(3, dtype=[("a", "i4"), ("b", "f8", (2,))]),
        np.zeros(3, dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True)),
        np.broadcast_to(np.arange(3), (2, 3)),
    ],
)
def test_odd_arrays(array):
    same_array(round_trip(array), array)


def test_objects_and_subclasses_keep_their_type():
    objects = np.array([1, "two", None], dtype=object)
    assert round_trip(objects).tolist() == [1, "two", None]
    masked = np.ma.masked_array([1, 2, 3], mask=[False, True, False])
    assert isinstance(round_trip(masked), np.ma.MaskedArray)
    assert round_trip(masked).mask.tolist() == [False, True, False]
    assert type(round_trip(np.float32(2.5))) is np.float32


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain)
def test_plain_values(value):
    found = round_trip(value)
    assert found == value
    assert type(found) is type(value)


def test_large_bytes():
    value = bytes(range(256)) * 100
    assert round_trip(value) == value
    assert type(round_trip(value)) is bytes


tables = st.builds(
    lambda rows, seed: pa.table(
        {
            "i": pa.array(np.arange(rows) * seed),
            "s": pa.array([None if i % 3 else "x" * i for i in range(rows)], type=pa.string()),
            "d": pa.array(["a", "b"] * (rows // 2) + ["a"] * (rows % 2)).dictionary_encode(),
            "l": pa.array([[i] * (i % 4) for i in range(rows)], type=pa.list_(pa.int64())),
        }
    ).replace_schema_metadata({"seed": str(seed)}),
    st.integers(0, 50),
    st.integers(0, 1000),
)


@given(tables, st.integers(0, 10))
def test_tables(table, start):
    for value in (table, table.slice(start), table.select(["s"]), pa.concat_tables([table, table.slice(start)])):
        found = round_trip(value)
        assert found.equals(value, check_metadata=True)
        found.validate(full=True)


@given(tables)
def test_record_batches(table):
    for batch in table.to_batches():
        found = round_trip(batch)
        assert isinstance(found, pa.RecordBatch)
        assert found.equals(batch, check_metadata=True)


def test_table_without_columns_and_array():
    assert round_trip(pa.table({})).equals(pa.table({}))
    assert round_trip(pa.array([1, None, 3])).equals(pa.array([1, None, 3]))


def test_encoding_refers_to_the_values_memory():
    array = np.zeros(100_000)
    nested = {"a": [array], "t": pa.table({"a": array})}
    for value, wanted in ((array, array.nbytes), (nested, 2 * array.nbytes), (pa.table({"a": array}), array.nbytes)):
        chunk = codec.encode(value)
        large = [buffer for buffer in chunk.buffers if isinstance(buffer, memoryview) and buffer.nbytes == array.nbytes]
        assert sum(buffer.nbytes for buffer in large) == wanted
        assert all(np.shares_memory(np.frombuffer(buffer, np.uint8), array) for buffer in large)


@pytest.mark.parametrize("step", [1, 2, -1])
def test_elements_that_do_not_lie_side_by_side_are_copied_strip_by_strip(step):
    array = np.arange(1_200_000.0).reshape(600, 2000)[::step, 100:1900]
    chunk = codec.encode(array)
    strips = [span for span in codec.spans(chunk) if isinstance(span, memoryview)]
    assert len(strips) > 2
    assert max(span.nbytes for span in strips) <= 1 << 20
    assert chunk.nbytes == sum(map(len, codec.spans(chunk)))
    assert np.array_equal(codec.decode(codec.to_bytes(chunk)), array)


@pytest.mark.parametrize("value", [np.arange(5000), {"a": np.arange(5000)}, pa.table({"a": np.arange(5000)})])
def test_decoding_is_a_view_of_the_memory(value):
    data = memoryview(codec.to_bytes(codec.encode(value)))
    whole = np.frombuffer(data, np.uint8)
    for copy in (False, True):
        found = codec.decode(data, copy=copy)
        array = found if isinstance(found, np.ndarray) else found["a"]
        array = array if isinstance(array, np.ndarray) else array.chunk(0).to_numpy()
        assert np.shares_memory(array, whole) is not copy
        assert (array == np.arange(5000)).all()


def test_buffers_are_aligned():
    chunk = codec.encode([np.arange(1100, dtype=np.int8), np.arange(3333, dtype=np.int8), np.arange(5000)])
    assert len(chunk.offsets) == 3
    assert all(offset % 64 == 0 for offset in chunk.offsets)


class Local:
    """Of a module that a worker can import."""

    def __eq__(self, other):
        return isinstance(other, Local)

    def __hash__(self):
        return 1


def test_functions_by_value_and_classes_by_name():
    step = 3
    assert round_trip(lambda x: x + step)(4) == 7
    assert round_trip(Local()) == Local()


def test_what_a_script_defines_is_read_where_the_script_is_unknown(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom weft.store import codec\n"
        "class Point:\n    def __init__(self, x): self.x = x\n"
        "open(sys.argv[1], 'wb').write(codec.to_bytes(codec.encode([Point(5)])))\n"
    )
    subprocess.run([sys.executable, str(script), str(tmp_path / "chunk")], check=True, timeout=180)
    found = codec.decode((tmp_path / "chunk").read_bytes())
    assert found[0].x == 5


@pytest.mark.parametrize("value", [threading.Lock(), (i for i in range(3)), [sys.stdout]])
def test_what_cannot_be_pickled_names_its_type_and_a_way_out(value):
    with pytest.raises(ProgramError) as caught:
        codec.encode(value)
    assert type(value).__qualname__ in str(caught.value)
    assert "threads" in caught.value.hint


class Vanished:
    def __reduce__(self):
        return (getattr, (codec, "no_such_name"))


def test_what_cannot_be_read_back_says_where_to_look():
    with pytest.raises(ProgramError, match="cannot be read back") as caught:
        round_trip(Vanished())
    assert "importable" in caught.value.hint


def test_parts_are_aligned_and_read_alone():
    pieces = [np.arange(10), "text", ABSENT, np.arange(100_000), [1, 2], pa.table({"a": [1]})]
    chunk = codec.encode_parts(pieces)
    data = codec.to_bytes(chunk)
    assert (chunk.parts, len(data)) == (6, chunk.nbytes)
    start, size = codec.directory_range(0, 6)
    places = codec.directory(data[start : start + size], chunk.nbytes)
    assert places[3][0] % codec.PAGE == 0
    spoilt = bytearray(data)
    for at, nbytes in (places[i] for i in (0, 1, 4, 5)):
        spoilt[at : at + nbytes] = b"\xff" * nbytes
    assert (codec.decode_part(bytes(spoilt), 3) == np.arange(100_000)).all()
    assert codec.decode_part(data, 2) is ABSENT
    whole = codec.decode(data)
    assert whole[1:3] == ["text", ABSENT]
    assert whole[5].equals(pieces[5])
    with pytest.raises(IndexError):
        codec.decode_part(data, 6)


def test_parts_of_a_plain_list_are_its_items():
    assert codec.decode_part(codec.to_bytes(codec.encode(["a", "b"])), 1) == "b"


@given(plain)
def test_write_into_memory_and_files(value):
    chunk = codec.encode_parts([value, np.arange(10_000), b"x" * 2000])
    memory = memoryview(bytearray(chunk.nbytes + 10))
    file = io.BytesIO()
    assert codec.write(chunk, memory) == codec.write(chunk, file) == chunk.nbytes
    assert bytes(memory[: chunk.nbytes]) == file.getvalue() == codec.to_bytes(chunk)


def test_absent_is_one_object_in_every_process():
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT
    assert round_trip([ABSENT])[0] is ABSENT


@given(st.binary(max_size=200))
def test_noise_is_refused(data):
    with pytest.raises(NotFoundError, match="damaged"):
        codec.decode(data)


@given(st.sampled_from([np.arange(300), pa.table({"a": np.arange(300)}), b"x" * 3000]), st.data())
def test_damage_is_refused_or_harmless(value, data):
    chunk = bytearray(codec.to_bytes(codec.encode(value)))
    cut = data.draw(st.integers(0, len(chunk) - 1))
    with pytest.raises(NotFoundError, match="damaged"):
        codec.decode(bytes(chunk[:cut]))
    at = data.draw(st.integers(0, 39))  # the head and the first entry
    chunk[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(NotFoundError, ProgramError):
        codec.decode(bytes(chunk))


def test_neither_numpy_nor_arrow_is_imported_for_plain_values():
    code = (
        "import sys\nfrom weft.store import blocks, codec\n"
        "codec.decode(codec.to_bytes(codec.encode([1, 'x', b'y' * 5000])))\n"
        "print([name for name in ('numpy', 'pyarrow', 'cloudpickle') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=180)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------- values that change type


@pytest.mark.parametrize("around", [lambda file: file, lambda file: [1, file], lambda file: lambda: file])
def test_an_open_file_is_refused(tmp_path, around):
    (tmp_path / "text").write_text("words")
    with (
        (tmp_path / "text").open() as file,
        pytest.raises(ProgramError, match=r"cannot pickle the open file .*text"),
    ):
        codec.encode(around(file))


def test_the_standard_streams_are_kept_by_name():
    assert codec.from_pickle(codec.to_pickle(lambda: sys.stdout))() is sys.stdout


@pytest.mark.parametrize("view", [memoryview(b"abc"), memoryview(array("i", range(6))).cast("B").cast("i", (2, 3))])
def test_a_view_of_memory_stays_one(view):
    found = codec.from_pickle(codec.to_pickle([view]))[0]
    assert type(found) is memoryview
    assert (found.tolist(), found.format, found.shape) == (view.tolist(), view.format, view.shape)


@pytest.mark.parametrize("kind", ["table", "batch"])
@pytest.mark.parametrize("dumps", [codec.dumps, codec.dumps_by_value])
def test_a_pickled_slice_takes_no_other_rows_along(kind, dumps):
    table = pa.table({"n": range(10_000), "s": list(map(str, range(10_000)))})
    rows = table if kind == "table" else table.to_batches()[0]
    pieces = {at: rows.slice(at * 100, 100) for at in range(100)}
    data = dumps(pieces, protocol=5)
    assert len(data) < 2 * rows.nbytes
    found = pickle.loads(data)
    assert found == pieces
    assert {type(piece) for piece in found.values()} == {type(rows)}
    assert round_trip([pieces, rows]) == [pieces, rows]
    assert codec.encode([*pieces.values()]).nbytes < 2 * rows.nbytes
