"""How arrays are shown."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays.display import html, picture


def parts(svg, kind):
    return [one for one in ElementTree.fromstring(svg).iter() if one.tag.endswith(kind)]


def test_what_is_not_computed_is_told():
    x = wt.zeros((4, 6), chunk_size=2) + 1
    assert repr(x) == "Tensor <add, shape=(4, 6), dtype=float64, chunks=6>"
    assert not x._ready()
    assert repr(x[x > 1]).startswith("Tensor <")
    assert "shape=(?,)" in repr(x[x > 1])


def test_values_are_shown_once_they_are_there():
    assert repr(wt.asarray([1.5, 2.0]).execute()) == "Tensor([1.5, 2. ])"
    assert repr(wt.asarray([[1, 2], [3, 4]]).execute()) == "Tensor([[1, 2],\n        [3, 4]])"
    assert repr(wt.asarray([1, 2], dtype="i2").execute()) == "Tensor([1, 2], dtype=int16)"
    assert str(wt.asarray([1, 2])) == "[1 2]"


def test_of_large_arrays_the_corners_are_read():
    x = wt.reshape(wt.arange(10_000_000), (2500, 4000)).execute()
    shown = repr(x)
    assert x._value is None  # the values of the whole were not put together
    theirs = repr(np.arange(10_000_000).reshape(2500, 4000))
    assert shown.replace("Tensor(", "array(").split() == theirs.split()
    long = wt.arange(5000).execute()
    assert repr(long) == "Tensor([   0,    1,    2, ..., 4997, 4998, 4999], shape=(5000,))"


@pytest.mark.parametrize("chunks", [[(2, 2, 1)], [(2, 2, 1), (3, 3)], [(1, 1), (2, 2, 1), (3, 3)]])
def test_chunks_are_drawn(chunks):
    svg = picture(chunks)
    ndim = len(chunks)
    assert len(parts(svg, "polygon")) == (3 if ndim == 3 else 1)
    inner = [len(axis) - 1 for axis in chunks]
    assert len(parts(svg, "line")) == (2 * sum(inner) if ndim == 3 else sum(inner))
    assert parts(svg, "svg")[0].get("role") == "img"
    assert not re.search(r"script|href|on\w+=", svg)
    xs = [float(x) for one in parts(svg, "polygon") for x in re.findall(r"([\d.]+),", one.get("points"))]
    width = float(parts(svg, "svg")[0].get("viewBox").split()[2])
    assert min(xs) >= 0
    assert max(xs) <= width


def test_of_many_chunks_some_lines_are_drawn():
    assert 10 < len(parts(picture([(1,) * 5000]), "line")) < 30
    assert parts(picture([(0,)]), "polygon")


def test_a_table_tells_what_an_array_is():
    x = wt.zeros((1000, 2000), dtype="f4", chunk_size=(500, 2000))
    shown = x._repr_html_()
    tree = ElementTree.fromstring(shown)
    cells = {row[0].text: row[1].text for row in tree.iter("tr")}
    assert cells == {
        "Shape": "(1,000, 2,000)",
        "Chunks": "2 of at most (500, 2,000)",
        "Type": "float32",
        "Bytes": "7.6 MiB",
        "Made by": "full, to be computed",
    }
    assert "<svg" in shown
    assert "computed" in x.execute()._repr_html_()


def test_what_is_unknown_or_has_no_axes_is_not_drawn():
    x = wt.zeros(6, chunk_size=2)
    shown = x[x > 1]._repr_html_()
    assert "(?,)" in shown
    assert "<svg" not in shown
    assert "<svg" not in wt.asarray(1.0)._repr_html_()


def test_what_others_wrote_is_escaped():
    assert "<b>" not in html([(1,)], np.dtype("f8"), 8, "state", "<b>")
