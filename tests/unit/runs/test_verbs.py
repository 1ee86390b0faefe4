"""The table of verbs: the command line has each of them with its arguments, and the control socket keeps to it."""

import inspect

import pytest

from weft.cli.commands import app
from weft.model.errors import UsageError
from weft.runs.verbs import TYPES, VERBS, protocol

OWNERS = [verb.name for verb in VERBS.values() if verb.owner]


@pytest.mark.parametrize("name", VERBS)
def test_the_command_line_has_each_verb_with_its_arguments(name):
    assert name in list(app)
    function = app._find([name], "weft").target
    assert callable(function)
    known = set(inspect.signature(function).parameters)
    assert {one.type for one in VERBS[name].arguments} <= TYPES.keys()
    flags = {one.name for one in VERBS[name].arguments if one.type != "run"} - {"reason", "subject"}
    assert flags <= known
    assert (inspect.getdoc(function) or "") == VERBS[name].help


def test_the_socket_answers_the_verbs_of_owners_alone():
    answers = protocol({name: lambda order: dict(order) for name in OWNERS})
    assert list(answers) == OWNERS
    assert answers["cancel"]({"do": "cancel", "force": True}) == {"do": "cancel", "force": True}


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ({"do": "cancel", "force": "yes"}, "force of cancel is 'yes'; it must be a bool"),
        ({"do": "cancel", "hard": True}, "cancel takes no argument 'hard'"),
        ({"do": "explain", "subject": "a"}, "explain takes no argument 'subject'"),
    ],
)
def test_an_order_with_other_arguments_is_refused(order, told):
    answers = protocol({name: lambda order: None for name in OWNERS})
    with pytest.raises(UsageError, match=told):
        answers[order["do"]](order)


def test_every_verb_of_an_owner_needs_an_answer():
    with pytest.raises(KeyError):
        protocol({})
