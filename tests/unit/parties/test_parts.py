"""How the end of a process of a part is told."""

import pytest

from weft.operators.call import CommandResult
from weft.parties.parts import _how


@pytest.mark.parametrize(
    ("exit_code", "signal", "told"),
    [
        (3, None, "its process ended with exit code 3"),
        (None, 9, "its process was ended by SIGKILL, perhaps since the memory was full"),
        (None, 11, "its process was ended by SIGSEGV"),
        (None, 127, "its process was ended by signal 127"),
    ],
)
def test_the_end_of_a_process_is_told_in_words(exit_code, signal, told):
    result = CommandResult(
        exit_code=exit_code, signal=signal, cause="exit", wall_s=0.0, cpu_s=0.0, memory=0, log_bytes=0,
        dropped_bytes=0, log_start=0,
    )  # fmt: skip
    assert _how(result) == told
