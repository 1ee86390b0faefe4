"""What a command step makes of its parameters, its environment and its log, without running anything."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from weft.model.errors import DefinitionError, ProgramError, RunCancelledError
from weft.operators import call
from weft.operators.call import CommandSpec, last_lines, run_command

SPEC = CommandSpec(text="true", env={}, cwd=Path("/"), log=Path("/logs/step.log"))


def context(*, cancelled: bool = False, parallelism: int = 1, index: int = 0, **params: Any) -> Any:
    return SimpleNamespace(
        vertex="train",
        index=index,
        attempt=0,
        parallelism=parallelism,
        params=params,
        cancelled=lambda: cancelled,
        on_cancel=lambda callback: None,
        gate=None,
    )


class TestParameters:
    def test_names_the_step_after_its_vertex(self):
        spec = call._spec(context(command="true", cwd="/", log="/logs/a.log"))
        assert spec == replace(SPEC, log=Path("/logs/a.log"), name="train")

    def test_takes_the_fields_of_a_specification(self):
        spec = call._spec(context(command="true", cwd="/", log="a", env={"A": "1"}, timeout_s=2, name="x", record="r"))
        assert (spec.env, spec.timeout_s, spec.name, spec.record) == ({"A": "1"}, 2, "x", Path("r"))

    def test_gives_each_task_of_many_its_own_files(self):
        spec = call._spec(context(command="c", cwd="/a.b", log="/l/a.log", record="/l/a", parallelism=3, index=2))
        assert (spec.log, spec.record, spec.cwd) == (Path("/l/a.2.log"), Path("/l/a.2"), Path("/a.b"))

    @pytest.mark.parametrize(
        ("params", "told"),
        [
            ({"cwd": "/", "log": "a"}, "command"),
            ({"command": "c", "log": "a"}, "cwd"),
            ({"command": "c", "cwd": "/", "log": "a", "shell": 1}, "unknown fields: shell"),
            ({"command": "c", "cwd": 3, "log": "a"}, "int"),
        ],
    )
    def test_wrong_ones_are_named(self, params, told):
        with pytest.raises(ProgramError, match=told) as caught:
            call._spec(context(**params))
        assert "train" in str(caught.value)

    def test_nothing_starts_for_a_cancelled_task(self, tmp_path):
        with pytest.raises(RunCancelledError, match="train"):
            run_command(context(cancelled=True, command="true", cwd=str(tmp_path), log=str(tmp_path / "log")), {})
        assert not list(tmp_path.iterdir())


class TestMessage:
    def path_for(self, env: dict[str, str]) -> list[str]:
        path: bytes = call._message(replace(SPEC, env=env))["env"][b"PATH"]
        return path.decode().split(os.pathsep)

    def test_path_begins_with_the_folder_of_this_python(self):
        folder = str(Path(sys.executable).parent)
        assert self.path_for({"PATH": "/a:/b"}) == [folder, "/a", "/b"]
        assert self.path_for({}) == [folder, *os.defpath.split(os.pathsep)]

    def test_environment_is_complete_and_its_own(self):
        env = {"A": "1"}
        assert call._message(replace(SPEC, env=env))["env"].keys() == {b"A", b"PATH"}
        assert env == {"A": "1"}

    def test_bytes_that_are_no_text_pass(self):
        env = {"A": os.fsdecode(b"\xff")}
        assert call._message(replace(SPEC, env=env))["env"][b"A"] == b"\xff"

    def test_text_goes_to_sh_as_one_argument(self):
        assert call._message(replace(SPEC, text="a 'b' $c"))["argv"] == [b"sh", b"-c", b"a 'b' $c"]

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"text": "a\0b"}, "command"),
            ({"cwd": Path("a\0b")}, "cwd"),
            ({"log": Path("a\0b")}, "log"),
            ({"env": {"A": "a\0b"}}, "'A'"),
            ({"env": {"A=B": "1"}}, "'A=B'"),
            ({"env": {"": "1"}}, "''"),
        ],
    )
    def test_what_no_system_takes_is_refused(self, change, told):
        with pytest.raises(DefinitionError, match=told):
            call._message(replace(SPEC, **change))


class TestLastLines:
    def of(self, tmp_path: Path, data: bytes, *, start: int = 0) -> list[str]:
        log = tmp_path / "log"
        log.write_bytes(data)
        return last_lines(log, start=start)

    def test_are_the_last_twenty(self, tmp_path):
        data = b"".join(b"%d\n" % number for number in range(50))
        assert self.of(tmp_path, data) == [str(number) for number in range(30, 50)]

    def test_begin_where_the_run_began(self, tmp_path):
        assert self.of(tmp_path, b"old\nnew\n", start=4) == ["new"]

    def test_read_no_more_than_they_must(self, tmp_path):
        lines = self.of(tmp_path, b"x" * 1_000_000 + b"\nlast\n")
        assert lines == ["last"]
        assert len(self.of(tmp_path, b"x" * 1_000_000)[0]) == call.TAIL_BYTES

    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            (b"\x1b[31mred\x1b[0m", "red"),
            (b"\x1b]0;title\x07text", "text"),
            (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"10%\r50%\r100%", "100%"),
            (b"windows\r", "windows"),
            (b"a\tb\x00\x07\x7f\xc2\x9bc", "a\tbc"),
            ("right\u202eleft\u2028".encode(), "rightleft"),
            (b"\xff\xfe", "\ufffd\ufffd"),
            ("größe 東京".encode(), "größe 東京"),
        ],
    )
    def test_are_fit_to_print(self, tmp_path, line, shown):
        assert self.of(tmp_path, line + b"\n") == [shown]

    def test_of_nothing(self, tmp_path):
        assert self.of(tmp_path, b"") == []
        assert last_lines(tmp_path / "none") == []
