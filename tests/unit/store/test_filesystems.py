"""What is given for names of file systems."""

import pytest

from weft.model.errors import UsageError
from weft.store.filesystems import file_systems, parse_given


def test_pairs_are_read():
    assert parse_given(["a=x", " b = s3://y ", "a=x"]) == {"a": "x", "b": "s3://y"}


@pytest.mark.parametrize(
    ("pairs", "told"),
    [(["a"], "-f 'a' is not of the form"), (["=x"], "not of the form"), (["a=.", "a=.."], "a twice: . and ..")],
)
def test_what_is_refused(pairs, told):
    with pytest.raises(UsageError, match=told):
        parse_given(pairs)


def test_a_pipeline_behind_f_is_told_where_it_belongs():
    with pytest.raises(UsageError) as caught:
        parse_given(["sub/p.yaml"])
    assert caught.value.hint == (
        "-f defines a file system. A pipeline stands without it: weft run sub/p.yaml -p NAME=VALUE"
    )


def test_a_folder_whose_name_is_too_long_is_no_folder(tmp_path):
    with pytest.raises(UsageError, match="-f a"):
        file_systems(tmp_path, {"a": "x" * 300}, tmp_path)
