"""What the words of a command line mean."""

from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Struct

from weft.cli.commands import app as the_app
from weft.cli.parsing import CommandGroup, CommandParameter, Invocation, _given, _summary
from weft.cli.reference import commands
from weft.model.errors import UsageError
from weft.runs.verbs import Argument, Verb

Flag = Annotated[bool, CommandParameter(["-q", "--quiet"], help="Say little.")]


def one(
    file: Annotated[Path, CommandParameter(help="What to read.")],
    more: Annotated[str | None, CommandParameter()] = None,
    /,
    *,
    quiet: Flag = False,
    deep: Annotated[bool, CommandParameter("-d")] = False,
    number: Annotated[int, CommandParameter(["-n", "--number"])] = 20,
    params: Annotated[list[str] | None, CommandParameter(["-p", "--param"], help="Set one.")] = None,
    max_size: Annotated[str | None, CommandParameter()] = None,
    folder: Annotated[Path | None, CommandParameter()] = None,
    only: Annotated[str, CommandParameter(filled=True)] = "",
    hidden: Annotated[str, CommandParameter(show=False)] = "",
    context: Annotated[object, CommandParameter(parse=False)],
) -> None:
    """Do one
    thing.

    And another.
    """


def many(
    *names: Annotated[str, CommandParameter(help="All of them.")], when: Annotated[str, CommandParameter()]
) -> None:
    """Do many things."""


@pytest.fixture
def app() -> CommandGroup:
    app = CommandGroup("tool", help="A tool.")
    app.command(one)
    below = CommandGroup("below", help="More.")
    below.command(name="many")(many)
    app.command(below)
    app.command("weft.cli.results:cache_app", name="later", help="Loaded when asked for.")
    return app


def call(app: CommandGroup, *words: str) -> Invocation:
    found = app.parse(words)
    assert isinstance(found, Invocation)
    return found


@pytest.mark.parametrize(
    ("words", "args", "kwargs"),
    [
        (["f"], ["f"], {}),
        (["f", "g"], ["f", "g"], {}),
        (["-q", "f"], ["f"], {"quiet": True}),
        (["f", "--quiet", "-d"], ["f"], {"quiet": True, "deep": True}),
        (["f", "-qd"], ["f"], {"quiet": True, "deep": True}),
        (["f", "-qdn7"], ["f"], {"quiet": True, "deep": True, "number": 7}),
        (["f", "-n", "5"], ["f"], {"number": 5}),
        (["f", "-n5"], ["f"], {"number": 5}),
        (["f", "-n=5"], ["f"], {"number": 5}),
        (["f", "--number=-5"], ["f"], {"number": -5}),
        (["f", "-n", "-5"], ["f"], {"number": -5}),
        (["-p", "a=b", "f", "--param=c=d", "-pe"], ["f"], {"params": ["a=b", "c=d", "e"]}),
        (["f", "--max-size", ""], ["f"], {"max_size": ""}),
        (["f", "--max-size="], ["f"], {"max_size": ""}),
        (["f", "-p", "--unknown"], ["f"], {"params": ["--unknown"]}),
        (["-"], ["-"], {}),
        (["--", "-q"], ["-q"], {}),
        (["-q", "--", "--help", "--"], ["--help", "--"], {"quiet": True}),
        (["f", "--hidden", "x"], ["f"], {"hidden": "x"}),
    ],
)
def test_what_a_command_is_given(app, words, args, kwargs):
    found = call(app, "one", *words)
    assert found.function is one
    assert [str(arg) for arg in found.args] == args
    assert isinstance(found.args[0], Path)
    assert found.kwargs == kwargs
    assert found.wants == {"context"}


def test_as_many_as_there_are(app):
    found = call(app, "below", "many", "a", "--when", "now", "b")
    assert (found.function, found.args, found.kwargs, found.wants) == (many, ["a", "b"], {"when": "now"}, frozenset())
    assert call(app, "below", "many", "--when=now").args == []


@pytest.mark.parametrize(
    ("words", "said", "see"),
    [
        (["oen"], 'Unknown command "oen". Did you mean one?', "tool"),
        (["xyz"], 'Unknown command "xyz". There are: below, later, one', "tool"),
        (["--wrong"], "Unknown option --wrong", "tool"),
        (["below", "few"], 'Unknown command "few". There are: many', "tool below"),
        (["one"], "FILE is missing", "tool one"),
        (["one", "f", "g", "h"], "'h' is one word too many", "tool one"),
        (["one", "f", "--nubmer", "3"], "Unknown option --nubmer. Did you mean --number?", "tool one"),
        (["one", "f", "--tumber", "3"], "Unknown option --tumber. There are: --folder", "tool one"),
        (
            ["one", "f", "-x"],
            "Unknown option -x. There are: --folder, --max-size, --number, --only, --param, --quiet, -d",
            "tool one",
        ),
        (
            ["one", "f", "-C", "sub"],
            "Unknown option -C: the project is that of FILE, so write tool one sub/f",
            "tool one",
        ),
        (["one", "--project=sub", "f"], "Unknown option --project: the project is that of FILE", "tool one"),
        (["-n", "1", "one", "f"], "Unknown option -n before the command; it belongs behind: tool one -n", "tool"),
        (["help"], 'Unknown command "help". Did you mean tool --help?', "tool"),
        (["one", "f", "-qx"], "Unknown option -x", "tool one"),
        (["one", "f", "-n", "x"], "-n is 'x'; it must be a whole number", "tool one"),
        (["one", "f", "-n"], "-n needs a value", "tool one"),
        (["one", "f", "-p", "--quiet"], "-p needs a value", "tool one"),
        (["one", ""], "FILE is empty", "tool one"),
        (["one", "f", "--folder", ""], "--folder is empty", "tool one"),
        (["one", "f", "--only="], "--only is empty", "tool one"),
        (["one", "a" * 256], "FILE is longer than a path can be: aaaa", "tool one"),
        (["one", "f", "--folder", "a/" * 3000], "--folder is longer than a path can be: a/a/", "tool one"),
        (["one", "f", "-n1", "--number", "2"], "--number is given twice", "tool one"),
        (["one", "f", "--quiet=yes"], "--quiet takes no value", "tool one"),
        (["one", "f", "--context", "x"], "Unknown option --context", "tool one"),
        (["below", "many", "a"], "--when is missing", "tool below many"),
    ],
)
def test_what_makes_no_sense_is_said(app, words, said, see):
    with pytest.raises(UsageError) as caught:
        app.parse(words)
    assert caught.value.message.startswith(said)
    assert caught.value.hint == f"See: {see} --help"


def test_long_words_are_not_repeated_in_full(app):
    for words in (["x" * 10_000], ["one", "-" + "x" * 10_000], ["one", "f", "-n", "x" * 10_000]):
        with pytest.raises(UsageError) as caught:
            app.parse(words)
        assert len(str(caught.value)) < 300


def test_help(app, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert app.parse([]) == app.parse(["--help"]) == app.parse(["-h"])
    assert app.parse([]) == (
        "Usage: tool COMMAND\n\nA tool.\n\nCommands:\n  below                   More.\n"
        "  later                   Loaded when asked for.\n  one                     Do one thing.\n\n"
        "Options:\n  --help, -h              Print this help, or the help of a command.\n"
        "  --version, -V           Print the version.\n"
    )
    assert app.parse(["one", "x", "--help"]) == (
        "Usage: tool one [OPTIONS] FILE [MORE]\n\nDo one thing.\n\nArguments:\n"
        "  FILE                    What to read.\n  MORE\n\nOptions:\n"
        "  -q, --quiet             Say little.\n  -d\n  -n, --number INT\n"
        "  -p, --param STR...      Set one.\n  --max-size STR\n  --folder PATH\n  --only STR\n"
    )
    assert "Usage: tool below many [OPTIONS] [NAMES...]\n" in str(app.parse(["below", "many", "-h"]))
    assert "Loaded when asked for." in str(app.parse(["later"]))


def test_help_is_no_wider_than_the_terminal(app, monkeypatch):
    for columns in (60, 80, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        for words in ([], ["run", "--help"], ["schedule", "create", "--help"], ["cache"]):
            assert max(map(len, str(the_app.parse(words)).splitlines())) <= columns


@pytest.mark.parametrize("path", list(commands(the_app)), ids=" ".join)
def test_every_command_can_be_read_and_is_explained(path):
    command = the_app.find(path).command
    target, about, verb = command.target, command.about, command.verb
    assert callable(target)
    given, _, _ = _given(target, verb)
    names = [name for one in given for name in one.names]
    assert len(names) == len(set(names))
    assert all(one.help for one in given if not one.by_place)
    page = str(the_app.parse([*path, "--help"]))
    assert about in ("", _summary(target))
    assert page.startswith(f"Usage: weft {' '.join(path)}")
    assert page.splitlines()[2]


class Several(Struct, frozen=True):
    needed: str
    level: int = 3
    deep: Annotated[bool, CommandParameter("-d", help="Look deeper.")] = False


SEARCH = Verb(
    "corpus search",
    "search",
    "Search a corpus.",
    (
        Argument("place", "path", "Where to look."),
        Argument("needed", "text", "Needed.", options=("-n", "--needed")),
        Argument("level", "count", "How deep."),
    ),
    (),
    aliases=("find",),
)


def search(place: Path, /, *, how: Several, loud: Flag = False) -> None:
    """Search a corpus."""


def test_an_option_may_stand_without_its_value(app):
    def serve(
        file: Annotated[Path, CommandParameter(help="What to serve.")],
        /,
        *,
        port: Annotated[str, CommandParameter(help="Where.", bare="auto")] = "off",
    ) -> None:
        """Serve."""

    app.command(serve)
    assert call(app, "serve", "--port", "file").kwargs == {"port": "auto"}
    assert call(app, "serve", "--port=7", "file").kwargs == {"port": "7"}
    assert call(app, "serve", "file").kwargs == {}
    assert "--port[=STR]" in str(app.parse(["serve", "--help"]))


def test_a_command_of_a_verb_has_its_name_and_help_and_groups_of_options():
    app = CommandGroup("tool")
    app.command(search, verb=SEARCH)
    assert list(app) == ["search"]
    for name in ("search", "find"):
        found = call(app, name, "x", "--needed", "y", "-d", "-q")
        assert (found.args, found.kwargs) == ([Path("x")], {"how": Several("y", deep=True), "loud": True})
    assert call(app, "find", "x", "-ny", "--level=5").kwargs == {"how": Several("y", 5)}
    page = str(app.parse(["search", "--help"]))
    for line in ("Search a corpus.", "Where to look.", "-n, --needed STR", "How deep.", "-d ", "-q, --quiet"):
        assert line in page
    with pytest.raises(UsageError, match="--needed is missing"):
        app.parse(["search", "x"])
    with pytest.raises(UsageError, match="PLACE and --needed are missing"):
        app.parse(["search"])


@pytest.mark.parametrize("annotation", [float, dict[str, str], int | str])
def test_a_type_that_cannot_be_read_is_an_error_of_the_program(annotation):
    def wrong(**given: Any) -> None: ...

    wrong.__annotations__ = {"given": Annotated[annotation, CommandParameter()]}
    with pytest.raises((TypeError, ValueError)):
        _given(wrong)


def test_a_parameter_that_nothing_is_said_of_is_an_error_of_the_program():
    def wrong(given: str) -> None: ...

    with pytest.raises(TypeError, match="given has no CommandParameter"):
        _given(wrong)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("sub/flow.yaml", "weft run sub/flow.yaml"),
        ("status", "ls"),
        ("stop", "cancel"),
        ("rerun", "resume"),
        ("rnu", "run"),
    ],
)
def test_a_word_that_is_no_command_is_understood(word, meant):
    with pytest.raises(UsageError) as caught:
        the_app.parse([word])
    assert caught.value.message == f'Unknown command "{word}". Did you mean {meant}?'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["why", "1", "fit"], "'fit' is one word too many. Did you mean 1/fit?"),
        (["logs", "1/fit", "more"], "'more' is one word too many"),
        (["resume", "1", "fit"], "'fit' is one word too many"),
        (["run", "p.yaml", "rw=other"], "'rw=other' is one word too many. Did you mean -p rw=other?"),
        (["ls", "a=b"], "'a=b' is one word too many. Did you mean --tag a=b?"),
        (["prune", "a=b"], "'a=b' is one word too many"),
        (["plan", "-f", "p.yaml"], "FILE is missing: -f took p.yaml as its value; leave out -f"),
        (["run", "-p", "p.yaml"], "FILE is missing: -p took p.yaml as its value; leave out -p"),
    ],
)
def test_a_word_that_does_not_fit_is_put_right(words, said):
    with pytest.raises(UsageError) as caught:
        the_app.parse(words)
    assert caught.value.message == said


@pytest.mark.parametrize(
    "words",
    [
        *(["run", "a.yaml", f"--{name}="] for name in ("only", "from", "profile", "state-dir", "param-file")),
        *(["sweep", "a.yaml", f"--{name}="] for name in ("metric", "stop-when", "halve")),
        ["prune", "--keep", "0", "-C", ""],
        ["schedule", "create", "a.yaml", "--cron", "@daily", "--tz="],
    ],
)
def test_a_variable_of_the_shell_that_is_not_set_is_no_absent_option(words):
    with pytest.raises(UsageError, match="is empty"):
        the_app.parse(words)
