"""Where replicas at the machines of a cluster listen, and when those that know an old address begin again."""

import pytest

from weft.frontends.training.addresses import AddressBook, ReplicaAddress
from weft.model.failures import Failure

A, B = ("worker", 0), ("worker", 1)
RUNNING = {A: (1, ""), B: (1, "")}
LOST = Failure.INFRASTRUCTURE.value


def at(host: str, port: int = 20_000) -> ReplicaAddress:
    return ReplicaAddress(host, {2222: port})


@pytest.fixture
def book() -> AddressBook:
    """Two replicas that run, and know each other."""
    found = AddressBook()
    for key, host in ((A, "a"), (B, "b")):
        found.listen(key, 1, at(host))
    for key in (A, B):
        assert found.ask(key, RUNNING) == {A: at("a"), B: at("b")}
    return found


def test_nobody_gets_addresses_before_all_have_told_theirs():
    book = AddressBook()
    book.listen(A, 1, at("a"))
    assert book.ask(A, RUNNING) is None
    book.listen(B, 1, at("b"))
    assert book.ask(A, RUNNING) == {A: at("a"), B: at("b")}


def test_one_that_has_ended_is_not_waited_for_and_keeps_its_address(book):
    book.listen(A, 2, at("a"))
    assert book.ask(A, {A: (2, "user")}) == {A: at("a"), B: at("b")}


def test_one_that_never_began_has_no_address():
    book = AddressBook()
    book.listen(A, 1, at("a"))
    assert book.ask(A, {A: (1, "")}) == {A: at("a")}


def test_a_start_in_place_concerns_nobody_else(book):
    going = {A: (2, Failure.USER.value), B: (1, "")}
    assert book.why_again(B, going) == ""
    assert book.before(A, "a") == {2222: 20_000}
    book.listen(A, 2, at("a"))
    assert book.ask(A, going) == {A: at("a"), B: at("b")}
    assert book.why_again(B, going) == ""


def test_one_at_another_address_has_those_begin_again_that_know_the_old_one(book):
    assert book.before(A, "c") == {}
    going = {A: (2, Failure.USER.value), B: (1, "")}
    book.listen(A, 2, at("a", 20_001))
    assert book.why_again(B, going) == "worker[0] has begun again at another address"
    assert book.ask(A, going) is None, "B is about to end"
    going[B] = (2, Failure.MOVED.value)
    book.listen(B, 2, at("b"))
    for key in (A, B):
        assert book.ask(key, going) == {A: at("a", 20_001), B: at("b")}
        assert book.why_again(key, going) == ""


@pytest.mark.parametrize("failure", [LOST, Failure.CRASH.value])
def test_a_lost_one_has_the_others_begin_again_before_it_has_another_address(book, failure):
    going = {A: (2, failure), B: (1, "")}
    assert book.why_again(B, going) == "worker[0] was lost with its machine or process"
    book.listen(A, 2, at("a"))  # it may even be the old one
    assert book.why_again(B, going)
    assert book.ask(A, going) is None
    going[B] = (2, Failure.MOVED.value)
    assert book.ask(A, going) is None, "B has not begun again"
    book.listen(B, 2, at("b"))
    assert book.ask(A, going)
    assert book.ask(B, going)
    assert not book.why_again(A, going)
    assert not book.why_again(B, going)


def test_one_that_joins_later_concerns_nobody_else(book):
    third = ("worker", 2)
    going = {**RUNNING, third: (1, "")}
    book.listen(third, 1, at("c"))
    assert book.ask(third, going) == {A: at("a"), B: at("b"), third: at("c")}
    assert book.why_again(A, going) == ""


def test_another_job_of_the_file_is_known_and_concerns_nobody(book):
    other = ("second.worker", 0)
    book.listen(other, 1, at("o"))
    book.listen(A, 2, at("a"))
    assert book.ask(A, {A: (2, ""), B: (1, "")})[other] == at("o")
    book.listen(other, 2, at("p"))
    assert book.why_again(A, {A: (2, ""), B: (1, "")}) == ""


def test_the_fault_of_a_failed_one_is_known_once_the_others_are_heard_or_gone(book):
    failed = book.hear(A)
    assert book.silent(A, RUNNING, failed)
    assert not book.silent(A, {A: (1, "")}, failed), "B has ended"
    assert not book.silent(A, {A: (1, ""), B: (2, LOST)}, failed), "the loss of B is known"
    book.hear(A)
    assert book.silent(A, RUNNING, failed)
    book.hear(B)
    assert not book.silent(A, RUNNING, failed)
