"""Who follows a job outlives a restart of the server."""

from __future__ import annotations

from typing import Any

import pytest

from weft.model.errors import PartyUnreachableError
from weft.parties.demo import AWAY_S, DemoClock, follow


class Client:
    """A server that does not answer from second 2 on, until it is back."""

    def __init__(self, back: float) -> None:
        self.time, self.back = 0.0, back
        self.clock = DemoClock(self.now, self.now, self.pause)

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def post(self, route: str, body: Any) -> dict[str, Any]:
        if 2 <= self.time < self.back:
            raise PartyUnreachableError("the server of party 1 does not answer", party="1")
        status = "success" if self.time >= self.back else "running"
        return {"status": status, "components": [{"name": "a_0", "status": status, "seconds": 1.0}]}


def test_a_server_that_comes_back_is_waited_for_and_the_user_is_told():
    client = Client(back=30.0)
    told: list[str] = []
    assert follow(client, "job", client.clock, told.append)["status"] == "success"  # type: ignore[arg-type]
    assert [line.partition(";")[0] for line in told] == [
        "the server of party 1 does not answer",
        "the server answers again",
        "a_0: success (1.0 s)",
    ]


def test_a_server_that_stays_away_is_an_error():
    client = Client(back=1e9)
    told: list[str] = []
    with pytest.raises(PartyUnreachableError):
        follow(client, "job", client.clock, told.append)  # type: ignore[arg-type]
    assert AWAY_S <= client.time - 2 < AWAY_S + 1
    assert len(told) == 1
