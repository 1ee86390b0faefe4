"""What the work of a party stands on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.federated.schema import FederatedJob, Party
    from weft.parties.ledger import PartyLedger
    from weft.parties.model_store import ModelStore
    from weft.parties.part_folders import PartFolders
    from weft.parties.tables import PartyTables
    from weft.runtime.clock import RealClock
    from weft.wiring.session import Session


class PartySurroundings(Struct, frozen=True):
    """What the work of a party stands on.

    `call(party, path, body)` reaches another party, `check_route(party)` raises PartyIdentityError if there is no way
    to it; `failed` logs an error, `problem` returns why messages of others cannot be recorded.
    """

    me: str
    cores: int
    ledger: PartyLedger
    tables: PartyTables
    folders: PartFolders
    models: ModelStore
    session: Session
    clock: RealClock
    sockets: Path
    call: Callable[[str, str, bytes], bytes]
    check_route: Callable[[str], object]
    failed: Callable[[str, BaseException], None]
    asks_approval: Callable[[FederatedJob, Party], bool]
    queue: Callable[[], str]
    shows_ids: Callable[[], bool]
    problem: Callable[[], Exception | None] = lambda: None
