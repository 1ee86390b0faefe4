"""The variables of a step whose values are known before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.frontends.pipelines.named_files import ITEM_TEMPLATE
from weft.frontends.pipelines.parts import ITEM, Placeholder
from weft.frontends.pipelines.paths import WORK_DIR
from weft.frontends.pipelines.shell_functions import EXPANDABLE
from weft.frontends.pipelines.templates import LOOP_ARGUMENT, STEP_NAME
from weft.store.variables import variables_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.pipelines.resolved import ResolvedStep


def declared(step: ResolvedStep) -> dict[str, str]:
    """Return the environment that the file declares, with the template of the item in its texts."""
    found = {}
    for name, value in step.declared_env.items():
        parts = [value] if isinstance(value, str) else value
        if all(isinstance(part, str) or part.kind == ITEM for part in parts):
            found[name] = "".join(ITEM_TEMPLATE if isinstance(part, Placeholder) else part for part in parts)
    return found


_here: tuple[Mapping[str, str] | None, dict[str, str]] = None, {}


def _expandable_here() -> dict[str, str]:
    """Return the variables of this process whose values stand for themselves; recomputed only after a change."""
    global _here
    now = variables_here()
    if now is not _here[0]:
        _here = now, {name: value for name, value in now.items() if value and EXPANDABLE.fullmatch(value)}
    return _here[1]


def variables(step: ResolvedStep) -> dict[str, str]:
    """Return the variables of a step whose values stand for themselves in a command.

    Those of this process are among them, which a step on this machine inherits.
    """
    inherited = {} if step.docker_env else _expandable_here()
    known = {name: value for name, value in inherited.items() if name not in step.env}
    known |= {name: value for name, value in declared(step).items() if EXPANDABLE.fullmatch(value)}
    known |= {LOOP_ARGUMENT: ITEM_TEMPLATE} if step.loops else {}
    system = {name: step.env.get(name) for name in (STEP_NAME, WORK_DIR)}
    known |= {name: text for name, text in system.items() if isinstance(text, str) and EXPANDABLE.fullmatch(text)}
    return {name: value for name, value in known.items() if name not in ("PATH", "PYTHONPATH")}
