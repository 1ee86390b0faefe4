"""What `weft doctor` says of this machine."""

from types import SimpleNamespace

import pytest

from weft.runtime import health
from weft.runtime.state import StateRoot


@pytest.mark.parametrize(
    ("does", "what", "hinted"),
    [
        ("pass", "steps can have mounts", False),
        ("raise OSError(28, '')", "steps cannot have mounts: this system lets its users make no more namespaces", True),
        ("raise OSError(1, '')", "steps cannot have mounts: this system does not let you make namespaces", True),
    ],
)
def test_it_says_whether_steps_can_have_mounts(tmp_path, monkeypatch, does, what, hinted):
    file = tmp_path / "mounting.py"
    file.write_text(f"def enter(copies, made, binds):\n    {does}\n")
    monkeypatch.setattr(health, "mounting", SimpleNamespace(__file__=str(file)))
    found = next(iter(health.examine(StateRoot(tmp_path / "none"), None)))  # type: ignore[arg-type]
    assert found.what.startswith(what)
    assert (found.problem, bool(found.hint)) == ("", hinted)
