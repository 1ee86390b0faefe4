"""Registered types: their values in columns and containers, in workers, in files, and clear errors where one lacks."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import weft
from weft.model.errors import ProgramError, UsageError
from weft.store import codec, serializers


class Locked:
    """A value that pickle refuses."""

    def __init__(self, data: object) -> None:
        self.data = data
        self.lock = threading.Lock()


class Derived(Locked):
    pass


@pytest.fixture
def known() -> Iterator[None]:
    weft.register_serializer(Locked, lambda value: value.data, Locked)
    yield
    serializers.registered.pop(Locked)
    serializers._known.pop(f"{__name__}:Locked")


def again(value: object) -> object:
    return codec.from_pickle(codec.to_pickle(value))


@pytest.mark.usefixtures("known")
def test_a_value_of_a_registered_type_comes_back_also_in_containers_and_with_arrays():
    found = again({"a": [Locked(3), Locked(np.arange(10_000))]})
    assert isinstance(found, dict)
    assert found["a"][0].data == 3
    assert (found["a"][1].data == np.arange(10_000)).all()
    by_value = codec.from_pickle(codec.to_pickle((lambda: 1, Locked("b"))))
    assert by_value[1].data == "b"


@pytest.mark.usefixtures("known")
def test_a_derived_class_needs_a_registration_of_its_own():
    with pytest.raises(ProgramError, match=r"type .*Derived cannot leave the process") as caught:
        again(Derived(1))
    assert "weft.register_serializer" in caught.value.hint


def test_a_reader_without_the_type_says_so(known):
    data = codec.to_pickle(Locked(1))
    serializer = serializers._known.pop(f"{__name__}:Locked")
    try:
        with pytest.raises(ProgramError, match=r"a value of type .*Locked was written by a serializer of the module"):
            codec.from_pickle(data)
    finally:
        serializers._known[f"{__name__}:Locked"] = serializer


@pytest.mark.parametrize(
    ("dump", "load", "text"),
    [
        (lambda value: 1 / 0, Locked, "dump of the serializer of .*Locked raised ZeroDivisionError"),
        (lambda value: value, Locked, "dump of the serializer of .*Locked returns a Locked again"),
        (lambda value: 1, lambda data: 1 / 0, "load of the serializer of .*Locked raised ZeroDivisionError"),
    ],
)
def test_a_wrong_serializer_is_named(known, dump, load, text):
    weft.register_serializer(Locked, dump, load)
    with pytest.raises(ProgramError, match=text):
        again(Locked(1))


def test_a_local_class_has_one_name_in_all_processes():
    class Local(Locked):
        pass

    weft.register_serializer(Local, lambda value: value.data, lambda data: Local(data))
    (serializer,) = [one for one in serializers.all_serializers() if one.kind is Local]
    try:
        with weft.Session("processes", workers=1) as session:
            (found,) = session.map(lambda number: Local(number), [7]).results()
            assert (type(found), found.data) == (Local, 7)
    finally:
        serializers.registered.pop(Local)
        serializers._known.pop(serializer.tag)


def test_wrong_arguments_are_refused():
    for kind in (int, list, type(None)):
        with pytest.raises(UsageError, match="written as they are"):
            weft.register_serializer(kind, str, kind)
    with pytest.raises(UsageError, match="registered for a class"):
        weft.register_serializer("Locked", str, str)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="load of the serializer of"):
        weft.register_serializer(Locked, str, None)  # type: ignore[arg-type]


PROGRAM = """
import threading
import weft

class Own:
    def __init__(self, number):
        self.number, self.lock = number, threading.Lock()

def make(number):
    return [Own(number)]

def read(owns):
    return owns[0].number + 1

if __name__ == "__main__":
    with weft.Session("processes", workers=1) as session:
        assert session.map(abs, [-1]).results() == [1]  # the worker is born before the registration
        weft.register_serializer(Own, lambda own: own.number, lambda number: Own(number))
        g = weft.Graph("own")
        made = g.map(make, [1, 2])
        print(session.run(g, progress=False)[made][1][0].number, session.map(read, [[Own(5)]]).results())
"""


def test_workers_learn_what_a_script_has_registered(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=180, check=False)
    assert (done.stdout, done.returncode) == ("2 [6]\n", 0), done.stderr
