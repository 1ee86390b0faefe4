"""Whatever the text, references are replaced as the loop of Kubernetes does it, and nothing else changes."""

from hypothesis import given
from hypothesis import strategies as st

from weft.frontends.training.expansion import PodFacts, expanded, expanded_text
from weft.frontends.training.schema import EnvVar, JobFile

NAMES = st.sampled_from(["A", "B", "", "a b", "$", "("])
TEXTS = st.lists(st.sampled_from(["$", "$$", "$(", ")", "(", "A", "B", "$(A)", "$(B)", "\n", "é", " "])).map("".join)
ENVIRONMENTS = st.dictionaries(NAMES, st.text())


def loop(text: str, environment: dict[str, str]) -> str:
    """Replace references with a cursor over the text, the algorithm of Kubernetes."""
    done, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            done, at = done + text[at], at + 1
        elif text[at + 1] == "$":
            done, at = done + "$", at + 2
        elif text[at + 1] == "(" and (end := text.find(")", at)) >= 0:
            name = text[at + 2 : end]
            done, at = done + environment.get(name, f"$({name})"), end + 1
        else:
            done, at = done + text[at : at + 2], at + 2
    return done


@given(TEXTS | st.text(), ENVIRONMENTS)
def test_references_are_replaced_as_by_the_loop(text: str, environment: dict[str, str]) -> None:
    assert expanded_text(text, environment) == loop(text, environment)


@given(st.text().filter(lambda text: "$" not in text), ENVIRONMENTS)
def test_a_text_without_dollar_stays(text: str, environment: dict[str, str]) -> None:
    assert expanded_text(text, environment) == text


@given(st.text(), ENVIRONMENTS)
def test_an_escaped_text_stays(text: str, environment: dict[str, str]) -> None:
    assert expanded_text(text.replace("$", "$$"), environment) == text


@given(st.lists(st.tuples(NAMES, TEXTS)))
def test_an_environment_has_each_name_once_with_its_last_definition(pairs: list[tuple[str, str]]) -> None:
    found = expanded([EnvVar(name, text) for name, text in pairs], (), PodFacts(name="p"), JobFile(jobs=()))
    before: dict[str, str] = {}
    for name, text in pairs:
        before[name] = loop(text, before)
    assert found.values == before
