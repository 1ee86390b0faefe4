"""The tags of models."""

from __future__ import annotations

import pytest

from tests.party_ports import FixedClock
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.parties.tags import ModelTags


@pytest.fixture
def tags(tmp_path):
    found = ModelTags(tmp_path, clock=FixedClock())
    yield found
    found.close()


def test_tags_are_created_changed_and_deleted(tags):
    assert tags.all() == []
    tags.put("b", "two", create=True)
    tags.put("a", None, create=True)
    assert [(one.name, one.description) for one in tags.all()] == [("a", ""), ("b", "two")]
    assert [one.name for one in tags.all(limit=1)] == ["a"]
    born = tags.all("b")[0].created_at
    tags.put("b", None, new_name="c", create=False)
    assert [(one.description, one.created_at) for one in tags.all("c")] == [("two", born)]
    tags.put("c", "three", create=False)
    assert tags.all("c")[0].description == "three"
    tags.delete("c")
    assert [one.name for one in tags.all()] == ["a"]


def test_models_keep_a_tag_that_is_renamed(tags):
    tags.give("1", "a")
    tags.give("1", "a")
    tags.give("2", "a")
    tags.put("a", None, new_name="b", create=False)
    assert tags.all("b")[0].versions == ("1", "2")
    assert [one.name for one in tags.of_model("1")] == ["b"]
    tags.take("1", "b")
    assert tags.of_model("1") == []
    tags.delete("b")
    assert tags.of_model("2") == []


def test_mistakes_change_nothing(tags):
    tags.put("a", "", create=True)
    tags.put("b", "", create=True)
    for name, new_name, create, error in (
        ("a", "", True, ConflictError),
        ("a", "b", False, ConflictError),
        ("c", "", False, NotFoundError),
        ("", "", True, UsageError),
        ("a\n", "", True, UsageError),
    ):
        with pytest.raises(error):
            tags.put(name, "x", new_name=new_name, create=create)
    with pytest.raises(NotFoundError):
        tags.delete("c")
    with pytest.raises(NotFoundError):
        tags.take("1", "a")
    assert [(one.name, one.description) for one in tags.all()] == [("a", ""), ("b", "")]
