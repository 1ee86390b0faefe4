"""The table of kinds of failure: complete, and read the same way from errors, exits and names."""

import pytest

from weft.graph.logical import DEFAULT_RETRY, Retry
from weft.model import errors
from weft.model.failures import FAILURES, Failure, RetryClass, error_of, kind_of, kind_of_exit, kind_of_input


def test_every_kind_has_a_row_and_every_class_of_retries_a_count():
    assert set(FAILURES) == set(Failure)
    assert [DEFAULT_RETRY[each] for each in RetryClass] == [0, 2, 8, 2]
    assert Retry(memory=5)[RetryClass.MEMORY] == 5
    assert {each.field for each in RetryClass} < set(Retry.__struct_fields__)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), Failure.MEMORY),
        (errors.OutOfMemoryError("killed"), Failure.MEMORY),
        (errors.TaskError("it failed"), Failure.USER),
        (errors.DiskFullError("full"), Failure.DISK),
        (errors.CapacityError("too large"), Failure.CAPACITY),
        (errors.ProgramError("not there"), Failure.PROGRAM),
        (errors.NotFoundError("not there"), Failure.USER),
        (ValueError(), Failure.INFRASTRUCTURE),
    ],
)
def test_an_error_tells_its_kind(error, kind):
    assert kind_of(error, Failure.INFRASTRUCTURE) is kind


def test_an_input_is_gone_or_cannot_be_read():
    assert kind_of_input(errors.NotFoundError("gone")) is Failure.INPUT
    assert kind_of_input(errors.UnreadableError("a bad disk")) is Failure.READ


@pytest.mark.parametrize(
    ("exit_code", "signal", "out_of_memory", "kind"),
    [
        (None, 9, True, Failure.MEMORY),
        (137, None, True, Failure.MEMORY),
        (None, 9, False, Failure.USER),
        (137, None, False, Failure.USER),
        (None, 15, True, Failure.USER),
        (1, None, True, Failure.USER),
    ],
)
def test_a_kill_is_for_memory_if_the_kernel_has_killed_for_memory(exit_code, signal, out_of_memory, kind):
    assert kind_of_exit(exit_code, signal, out_of_memory=out_of_memory) is kind


def test_a_run_that_failed_by_a_kind_has_its_error():
    assert {kind.value: error_of(kind.value).code for kind in Failure} == {
        "user": "WEFT501",
        "memory": "WEFT503",
        "infrastructure": "WEFT500",
        "crash": "WEFT501",
        "input": "WEFT500",
        "read": "WEFT500",
        "moved": "WEFT504",
        "capacity": "WEFT400",
        "disk": "WEFT401",
        "program": "WEFT204",
        "stopped": "WEFT500",
        "cancelled": "WEFT502",
        "journal": "WEFT500",
        "internal": "WEFT900",
    }
    assert error_of("") is errors.RunFailedError
