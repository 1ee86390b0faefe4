"""The table of verbs: the command line has each of them with its arguments, and the control socket keeps to it."""

import inspect
from pathlib import Path

import pytest

from weft.admin.settings import NAMES
from weft.cli.commands import app
from weft.cli.parsing import _given
from weft.model.errors import UsageError
from weft.runs.requests import RunRequest
from weft.runs.schedules import ScheduleService
from weft.runs.service import RunService
from weft.runs.verbs import TYPES, VERBS, protocol
from weft.store.schedules import PipelineSchedule

OWNERS = [verb.name for verb in VERBS.values() if verb.owner]


KINDS = {"flag": bool, "count": int, "path": Path}
SENT_ALONE = {"cancel": {"subject"}, "story": {"subject"}, "why": {"subject"}}
"""Arguments of orders that the command line has no option for."""
DISPLAY = {
    *("as_json", "project", "state_dir", "param_file", "quiet", "detach", "firing"),
    *("follow", "tail", "timestamps", "stdout", "stderr"),  # of logs
    "events",  # of show
}
"""Options of the command line about its own input and output."""


@pytest.mark.parametrize("name", VERBS)
def test_the_command_line_has_each_verb_with_its_arguments(name):
    verb = VERBS[name]
    command = app.find(name.split()).command
    assert (command.verb, command.summary) == (verb, verb.help)
    assert callable(command.target)
    given, wants, _ = _given(command.target, verb)
    assert wants == {"context"}
    assert {one.type for one in verb.arguments} <= TYPES.keys()
    told = {one.name: one for one in verb.arguments if one.name not in SENT_ALONE.get(name, ())}
    assert {one.key for one in given} - told.keys() <= DISPLAY
    assert told.keys() <= {one.key for one in given}
    for one in given:
        if one.key in told:
            argument = told[one.key]
            assert (one.kind, one.many, one.help) == (KINDS.get(argument.type, str), argument.many, argument.help)
    assert (inspect.getdoc(command.target) or "") == verb.help
    for alias in verb.aliases:
        assert app.find([alias]).command == command


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_is_a_method_of_the_service_with_its_arguments(name):
    first, _, second = VERBS[name].method.partition(".")
    method = getattr(ScheduleService, second) if second else getattr(RunService, first)
    known = set(inspect.signature(method).parameters) - {"self"}
    if known & {"source", "request", "schedule"}:  # made of the wishes and the settings
        known |= set(RunRequest.__struct_fields__) | set(PipelineSchedule.__struct_fields__) | set(NAMES)
        known |= {"dry_run", "touch", "dot", "expire", "no_catchup", "dsl"}
    known |= {"overrides", *NAMES} if name == "resume" else set()
    known |= {"target"} if name == "show" else set()  # a step is a part of what the service shows
    told = {one.name for one in VERBS[name].arguments} - {"parameters", *SENT_ALONE.get(name, ())}
    assert told <= known


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
