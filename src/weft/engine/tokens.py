"""Tokens of a job: counted limits that tasks take while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.agenda import Phase

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.model.resources import Resources


def has_tokens(core: Core, tokens: tuple[tuple[str, int], ...]) -> bool:
    """Return whether so many tokens are free."""
    return all(core.tokens.get(name, 0) >= count for name, count in tokens)


def take_tokens(core: Core, wants: Resources) -> bool:
    """Take the tokens of one task, all or none. False: too few are free."""
    if not has_tokens(core, wants.tokens):
        return False
    for name, count in wants.tokens:
        core.tokens[name] -= count
    return True


def return_tokens(core: Core, wants: Resources) -> None:
    """Return the tokens of one task, and serve the token waiters."""
    for name, count in wants.tokens:
        core.tokens[name] += count
    if core.unslotted and wants.tokens:
        core.later(Phase.UNSLOTTED)
    if core.token_waiters and wants.tokens:
        core.later(Phase.REQUESTS, *(core.token_waiters[index] for index in sorted(core.token_waiters)))
        core.token_waiters.clear()
