"""The words for what components send are complete."""

import re
from pathlib import Path

import pytest

from weft.frontends.federated import components
from weft.frontends.federated.components.messages import _COMMON, _OF_MODULES, message_words
from weft.frontends.federated.components.registry import COMPONENTS

FOLDER = Path(components.__file__).parent
SENDS = r'(?:\.send|\.send_encrypted|\.same|\.squares|_name|common_values)\((?:\w+, )?f?"([a-z_]+)'
KNOWN = {*_COMMON, *(kind for kinds in _OF_MODULES.values() for kind in kinds)}


def test_all_that_components_send_has_words():
    sent = {
        name: set(re.findall(SENDS, path.read_text()))
        for path in FOLDER.glob("*.py")
        if path.name != "sockets.py" and (name := path.stem)
    }
    assert sum(map(len, sent.values())) > 40
    assert {name: kinds - KNOWN for name, kinds in sent.items() if kinds - KNOWN} == {}


def test_words_belong_to_modules_that_exist():
    assert set(_OF_MODULES) <= set(COMPONENTS)


@pytest.mark.parametrize("module", sorted(set(COMPONENTS) & set(_OF_MODULES)))
def test_each_module_says_what_it_sends(module):
    for kind in _OF_MODULES[module]:
        assert message_words(module, kind) != kind.replace("_", " ")


def test_words_tell_what_is_not_encrypted():
    assert message_words("HeteroLR", "residual") == "encrypted residuals of rows"
    assert message_words("HeteroLR", "residual", plain=True) == "unencrypted residuals of rows"
    assert message_words("Unknown", "some_kind") == "some kind"
