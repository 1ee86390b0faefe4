"""`spawn`, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.tensors.arrays.executables import ExecutableTuple, Watch, here
from weft.graph.task import LATER, LATER_HINT, runs_later
from weft.model.errors import ProgramError, UsageError
from weft.model.resources import Resources
from weft.model.wording import no_attribute, type_of
from weft.remote.calls import NO_KEYWORDS, RETRIES, CallResult, RemoteCall
from weft.remote.scheduler import call_scheduler
from weft.runtime.arguments import wrong
from weft.tensor.sessions import current

if TYPE_CHECKING:
    from weft.runtime.kept import KeptValues
    from weft.tensor.sessions import TensorSession


_OTHERS: Final = dict.fromkeys(("compute", "get", "result"), "fetch()") | {
    "cancel": "execute(wait=False), which returns a future with cancel()",
    "done": "execute(wait=False), which returns a future with done()",
    "add_done_callback": "execute(wait=False), which returns a future with add_done_callback()",
    "persist": "execute()",
}
"""Names of futures and of delayed calls, with what is there instead."""


class Object(CallResult):
    """The result of a call to come: `execute` computes it, `fetch` returns it, and other calls take it as argument."""

    __slots__ = ()

    def _ready(self) -> bool:
        return self.call.done

    @classmethod
    def _compute(cls, things: Sequence[Any], session: TensorSession | None, watch: Watch) -> None:
        calls = list({one.call.number: one.call for one in things}.values())
        away = getattr(here, "away", None)
        if away is not None:
            away(calls)
            return
        call_scheduler(session or current()).run(calls, watch)

    def _value_of(self) -> Any:
        return self.call.output(self.output)

    def kept_chunks(self) -> KeptValues | None:
        """Return the computed value as the only chunk that the session keeps; None for small values and for outputs."""
        return self.call.kept if self.output < 0 else None

    def _give_name(self, name: str, session: TensorSession | None) -> None:
        (session or current()).name(name, self)

    def to_object(self, session: TensorSession | None = None) -> Any:
        """Return the result, computing it first where that was not done yet."""
        return self.fetch(session)

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of {self!r} is that of a value to come: write x.fetch()")

    def __eq__(self, other: object) -> bool:
        """Whether it is the same object; TypeError for values of other types, to which its value may be equal."""
        if isinstance(other, Object):
            return self is other
        raise TypeError(f"{self!r} has no value to compare with {type_of(other)}: write x.fetch() == ...")

    __hash__ = CallResult.__hash__

    def __repr__(self) -> str:
        part = "" if self.output < 0 else f"[{self.output}]"
        return f"Object <{self.call.name}{part}, {'computed' if self.call.done else 'to be computed'}>"

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, name, _OTHERS)

    def __reduce__(self) -> tuple[Any, ...]:
        return Object, (self.call, self.output)


def spawn(
    function: Callable[..., Any],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    n_output: int | None = None,
    retry_when_fail: bool = False,
    resolve_tileable_input: bool = False,
    resources: Resources | Sequence[Resources] | None = None,
) -> Any:
    """Return what a function will return: nothing runs before it is asked for, and then once.

    Results of other calls and arrays among the arguments, also inside lists, tuples, sets, deques, dicts and arrays
    of objects, are computed first; the function gets the values of calls, and arrays as they are, or as NumPy's
    with `resolve_tileable_input`. With `n_output` the function returns that many values (with 1 its value is taken
    as it is), and an `ExecutableTuple` of as many results is returned. With `retry_when_fail` a call that fails is
    tried up to three more times. The function holds `resources` while it runs, by default a core; of several the first
    that some node can give. While it waits for other calls it holds none. A single argument need not be in a tuple.
    TypeError: the arguments are none. UsageError: a wrong option. ProgramError: the function is a generator or
    `async def`.
    """
    if not callable(function):
        raise TypeError(f"{type(function).__name__} cannot be called: give a function")
    if runs_later(function):
        raise ProgramError(f"{getattr(function, '__name__', str(function))!r} {LATER}", hint=LATER_HINT)
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs is {kwargs!r}: give a dict")
    if n_output is not None and (isinstance(n_output, bool) or not isinstance(n_output, int) or n_output < 1):
        raise UsageError(f"n_output is {n_output!r}", hint="Give the number of values that the function returns.")
    given = tuple(args) if isinstance(args, tuple) and not isinstance(args, ExecutableTuple) else (args,)
    retries = RETRIES if retry_when_fail else 0
    outputs = -1 if n_output in (None, 1) else n_output
    keywords = kwargs or NO_KEYWORDS
    call = RemoteCall(function, given, keywords, outputs, retries, resolve_tileable_input, _alternatives(resources))
    if n_output is None:
        return Object(call)
    if n_output == 1:
        return ExecutableTuple([Object(call)])
    return ExecutableTuple([Object(call, at) for at in range(n_output)])


def _alternatives(given: Any) -> tuple[Resources, ...]:
    """Return the resources of a call, () for a core."""
    if given is None:
        return ()
    found = (given,) if isinstance(given, Resources) else tuple(given) if isinstance(given, list | tuple) else ()
    if not found or not all(isinstance(one, Resources) for one in found):
        raise wrong("resources", given, "weft.Resources(...), or several of them in a tuple")
    for one in found:
        if one.cpu <= 0:
            raise UsageError("a call takes a core or a part of one", hint="Give Resources a cpu above 0.")
        if one.tokens:
            raise UsageError("tokens are limits of one graph, and calls have none", hint="Use custom= or memory=.")
    return () if found[0].plain else found
