"""What stands for an image: the user's map, a Dockerfile, an engine, or a question."""

import os
from pathlib import Path

import pytest

from weft.frontends.training.dockerfile import parse_dockerfile
from weft.frontends.training.images import ImageResolver, image_maps
from weft.frontends.training.schema import Container
from weft.model.errors import DefinitionError, NotFoundError, UsageError


def container(image: str = "kubeflow/mnist:v1", command: tuple[str, ...] = (), args: tuple[str, ...] = ()) -> Container:
    return Container(name="tensorflow", image=image, command=command, args=args)


def resolver(near: Path, maps=()) -> ImageResolver:
    return ImageResolver(near, maps, near / "copies")


def make_folders(near: Path) -> None:
    """Make the folder and the virtual environment that maps of these tests name."""
    (near / "code").mkdir()
    (near / "env" / "bin").mkdir(parents=True)


class TestDockerfile:
    def parse(self, text: str, **arguments: str):
        return parse_dockerfile(text, "Dockerfile", arguments)

    def test_the_last_stage_counts(self):
        built = self.parse("FROM a AS build\nENTRYPOINT x\nENV A=1\nFROM b\nCOPY --from=build /x /x\nCMD run")
        assert (built.base, built.entrypoint, built.env, built.copies) == ("b", (), {}, ())
        assert built.cmd == ("/bin/sh", "-c", "run")
        assert built.ignored == ((5, "COPY --from=build /x /x"),)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ('ENTRYPOINT ["python", "/a b.py"]', ("python", "/a b.py")),
            ("ENTRYPOINT python a.py", ("/bin/sh", "-c", "python a.py")),
            ('SHELL ["/bin/bash", "-c"]\nENTRYPOINT a $HOME', ("/bin/bash", "-c", "a $HOME")),
            ('CMD ["lost"]\nENTRYPOINT ["a", \\\n   # a remark\n   "b"]', ("a", "b")),
        ],
    )
    def test_entry_points(self, line, words):
        built = self.parse(f"FROM a\n{line}")
        assert (built.entrypoint, built.cmd) == (words, ())

    @pytest.mark.parametrize(
        ("line", "env"),
        [
            ("ENV TF_USE_LEGACY_KERAS 1", {"TF_USE_LEGACY_KERAS": "1"}),
            ("ENV A=1 B='two words' \\\n  C=3", {"A": "1", "B": "two words", "C": "3"}),
            ("ARG V=2\nENV A=${V} B=${W:-none} C=${V:+some} D=\\$V", {"A": "2", "B": "none", "C": "some", "D": "$V"}),
            ("ENV A one two", {"A": "one two"}),
        ],
    )
    def test_variables(self, line, env):
        assert self.parse(f"FROM a\n{line}").env == env

    def test_arguments_from_outside_replace_defaults(self):
        text = "ARG BASE=a:1\nFROM $BASE\nARG BASE\nARG V=1\nENV B=$BASE V=$V"
        assert self.parse(text).base == "a:1"
        built = self.parse(text, BASE="b:2", V="3")
        assert (built.base, built.env) == ("b:2", {"B": "b:2", "V": "3"})

    @pytest.mark.parametrize(
        ("line", "sources", "target"),
        [
            ("ADD train.py /app", ("train.py",), "/app"),
            ("ADD --chown=1:1 a.py b.py /app", ("a.py", "b.py"), "/app/"),
            ("WORKDIR /w\nWORKDIR in\nCOPY a.py .", ("a.py",), "/w/in/"),
            ('COPY ["a b.py", "/x/"]', ("a b.py",), "/x/"),
            ("COPY a.py .", ("a.py",), "/"),
        ],
    )
    def test_copied_files(self, line, sources, target):
        (copy,) = self.parse(f"FROM a\n{line}").copies
        assert (copy.sources, copy.target) == (sources, target)

    def test_inline_documents_and_downloads_are_left_out(self):
        built = self.parse("FROM a\nRUN <<EOF\nENTRYPOINT no\nEOF\nADD https://x/y /y\nCOPY <<E /z\nCMD no\nE\nCMD yes")
        assert (built.runs, built.cmd, len(built.ignored)) == (1, ("/bin/sh", "-c", "yes"), 2)

    @pytest.mark.parametrize("text", ["", "CMD a", "FROM", "FROM a\nENV A=1 B", "FROM a\nCOPY x", "FROM a\nENV A='"])
    def test_a_wrong_line_is_named(self, text):
        with pytest.raises(DefinitionError, match="Dockerfile"):
            self.parse(text)


class TestResolver:
    def test_the_map_comes_first(self, tmp_path):
        (tmp_path / "Dockerfile").write_text("FROM a\nENTRYPOINT b")
        table = {
            "kubeflow/*": {
                "folder": "code",
                "entrypoint": ["python", "t.py"],
                "env": {"A": "1"},
                "venv": "env",
                "workdir": "/opt/code",
            }
        }
        make_folders(tmp_path)
        found = resolver(tmp_path, image_maps(table, "weft.toml", tmp_path)).resolve(container(args=("--x",)))
        assert found.words(container(args=("--x",))) == ("python", "t.py", "--x")
        assert found.env == {"A": "1", "VIRTUAL_ENV": str(tmp_path / "env")}
        assert found.programs == (f"{tmp_path}/env/bin",)
        assert [(bind.source, bind.target) for bind in found.binds] == [(str(tmp_path / "code"), "/opt/code")]
        assert found.workdir == "/opt/code"

    def test_a_map_without_entry_point_adds_to_the_dockerfile(self, tmp_path):
        (tmp_path / "Dockerfile").write_text('FROM a\nENV B=2\nENTRYPOINT ["b"]\nCMD ["c"]')
        make_folders(tmp_path)
        maps = image_maps({"*mnist": {"venv": "env"}}, "weft.toml", tmp_path)
        found = resolver(tmp_path, maps).resolve(container())
        assert found.words(container()) == ("b", "c")
        assert found.env == {"B": "2", "VIRTUAL_ENV": str(tmp_path / "env")}

    def test_the_files_of_a_dockerfile_lie_as_in_the_image(self, tmp_path):
        code = tmp_path / "examples" / "mnist"
        code.mkdir(parents=True)
        (code / "train.py").write_text("print(1)")
        (code / "__pycache__").mkdir()
        (code / "__pycache__" / "x.pyc").write_text("no")
        (tmp_path / "examples" / "util.py").write_text("two")
        (code / "Dockerfile").write_text(
            'FROM a\nADD examples/mnist/ /weft-var/mnist\nADD examples/util.py /weft-var/mnist/\nENTRYPOINT ["p"]'
        )
        (bind,) = resolver(code).resolve(container()).binds
        assert bind.target == "/weft-var"
        inside = Path(bind.source) / "mnist"
        assert sorted(os.listdir(inside)) == ["Dockerfile", "train.py", "util.py"]
        (code / "train.py").write_text("print(22)")
        (again,) = resolver(code).resolve(container()).binds
        assert (Path(again.source) / "mnist" / "train.py").read_text() == "print(22)"

    def test_files_in_a_folder_of_this_machine_hide_nothing(self, tmp_path):
        (tmp_path / "a.py").write_text("1")
        (tmp_path / "Dockerfile").write_text('FROM a\nCOPY a.py /usr/\nCOPY a.py /\nENTRYPOINT ["p"]')
        binds = resolver(tmp_path).resolve(container()).binds
        assert [bind.target for bind in binds] == ["/a.py", "/usr/a.py"]

    @pytest.mark.parametrize(
        ("lines", "place"),
        [
            ("WORKDIR /weft-app\nADD a.py /weft-app", "/weft-app/a.py"),
            ("COPY b.py /weft-app/\nCOPY a.py /weft-app", "/weft-app/a.py"),
            ("COPY a.py /usr", "/usr/a.py"),
            ("COPY a.py /weft-app", "/weft-app"),
        ],
    )
    def test_a_file_goes_into_a_folder_that_is_there(self, tmp_path, lines, place):
        (tmp_path / "a.py").write_text("1")
        (tmp_path / "b.py").write_text("2")
        (tmp_path / "Dockerfile").write_text(f'FROM a\n{lines}\nENTRYPOINT ["p"]')
        (bind,) = resolver(tmp_path).resolve(container()).binds
        assert Path(bind.source + place.removeprefix(bind.target)).read_text() == "1"

    def test_the_best_of_several_dockerfiles(self, tmp_path):
        (tmp_path / "Dockerfile").write_text("FROM a\nCMD plain")
        (tmp_path / "Dockerfile-mpi").write_text("FROM a\nCMD mpi")
        assert resolver(tmp_path).resolve(container("x/mnist-mpi:1")).cmd[-1] == "mpi"
        assert resolver(tmp_path).resolve(container("x/mnist:1")).cmd[-1] == "plain"

    def test_a_command_needs_no_image(self, tmp_path):
        asks = container(command=("echo", "a"), args=("b",))
        assert resolver(tmp_path).resolve(asks).words(asks) == ("echo", "a", "b")

    def test_the_question_says_what_to_write_where(self, tmp_path):
        with pytest.raises(NotFoundError) as raised:
            resolver(tmp_path).resolve(container())
        assert 'weft.toml: [images."kubeflow/mnist*"] with entrypoint' in raised.value.hint

    def test_a_missing_file_is_named(self, tmp_path):
        (tmp_path / "Dockerfile").write_text("FROM a\nCOPY gone-from-everywhere.py /x/\nCMD a")
        with pytest.raises(NotFoundError, match="Dockerfile:2: no folder from here upwards has gone-from"):
            resolver(tmp_path).resolve(container())

    @pytest.mark.parametrize("field", ["folder", "venv"])
    def test_a_folder_of_the_map_that_is_not_there_is_named(self, tmp_path, field):
        maps = image_maps({"kubeflow/*": {field: "none", "entrypoint": ["a"]}}, "weft.toml", tmp_path)
        with pytest.raises(UsageError, match=rf'weft.toml: \[images."kubeflow/\*"\] {field}: {tmp_path}/none is no'):
            resolver(tmp_path, maps).resolve(container())
        ImageResolver(tmp_path, maps, None).resolve(container())
        resolver(tmp_path, maps).resolve(container(image="other", command=("a",)))

    @pytest.mark.parametrize("entry", ["text", {"entrypont": "a"}, {"env": {"A": 1}}, {"folder": 3}])
    def test_a_wrong_map_names_the_field(self, entry, tmp_path):
        with pytest.raises(UsageError, match=r"weft\.toml: images\."):
            image_maps({"a*": entry}, "weft.toml", tmp_path)
