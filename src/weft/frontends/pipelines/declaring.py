"""Functions as steps: signatures, and the decorators that turn functions into steps and pipelines.

This module is independent of graphs: a step that is called outside of a pipeline under construction calls its function.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    NoReturn,
    Protocol,
    Self,
    TypedDict,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    overload,
)

from msgspec import Struct, field

from weft.model.errors import DefinitionError
from weft.model.suggestions import did_you_mean
from weft.model.wording import type_of, with_article

if TYPE_CHECKING:
    from weft.graph.logical import Retry
    from weft.model.resources import Resources

_INPUT: Final = "weft input"
_OUTPUT: Final = "weft output"
Input = Annotated[Path, _INPUT]
"""The annotation of an input artifact: the argument is its path, with `list[Input]` a list of paths."""
Output = Annotated[Path, _OUTPUT]
"""The annotation of an output artifact: the argument is the path to write to."""

REFERENCE: Final = "PF_REF-"
"""The prefix of component names in templates of deferred values; no component can have such a name."""
TAKEN_IN: Final = "__"
"""The suffix of parameters and inputs that are no arguments of the function and are not passed to it."""
TYPES: Final[Mapping[Any, str]] = {str: "string", int: "int", float: "float", list: "list", Path: "path"}
MISSING: Final = inspect.Parameter.empty


class SourceLine(Struct, frozen=True):
    """A line of a Python file, for messages; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Signature(Struct, frozen=True):
    """The signature of a function: inputs (and whether each takes several paths), outputs, parameters.

    `order` has inputs and parameters in order; `parameters` maps names to types of the language ("" without an
    annotation), `defaults` has the defaults of inputs and parameters.
    """

    inputs: Mapping[str, bool] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    @classmethod
    def of(cls, function: Callable[..., Any], *, any_value: bool = False) -> Signature:
        """Return the signature of a function; `any_value` allows parameters of any type.

        DefinitionError: an invalid argument.
        """
        inputs: dict[str, bool] = {}
        outputs: list[str] = []
        parameters: dict[str, str] = {}
        defaults: dict[str, Any] = {}
        for name, argument in inspect.signature(function).parameters.items():
            if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
                raise wrong(function, f"argument *{name} cannot be one of a step", "name each argument")
            if argument.kind is argument.POSITIONAL_ONLY:
                raise wrong(function, f"argument {name} is given by position only", "leave out the / behind it")
            role, kind = _role(function, name, argument.annotation, any_value)
            if role == _OUTPUT:
                outputs.append(name)
                continue
            if role:
                inputs[name] = kind == "list"
            else:
                parameters[name] = kind
            if argument.default is not MISSING:
                defaults[name] = argument.default
        order = tuple(name for name in inspect.signature(function).parameters if name not in outputs)
        return cls(inputs, tuple(outputs), parameters, defaults, order)


def _role(function: Callable[..., Any], name: str, annotation: Any, any_value: bool) -> tuple[str, str]:
    """Return whether an argument is an input, an output or ("") a parameter, and its type in the language."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, getattr(function, "__globals__", {}))
        except Exception:  # noqa: BLE001 - a name imported for type checkers only
            return "", ""
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next((one for one in get_args(annotation) if one is not types.NoneType), annotation)
    if get_origin(annotation) is list and _mark(get_args(annotation)[0]) == _INPUT:
        return _INPUT, "list"
    if role := _mark(annotation):
        return role, ""
    plain = get_origin(annotation) or annotation
    if plain is Annotated:
        plain = get_args(annotation)[0]
    if plain in (bool, dict, set, bytes) and not any_value:
        hint = {bool: "write an int, 0 or 1"}.get(plain, "write it as text, or hand it on as a file")
        raise wrong(function, f"parameter {name} is {with_article(plain.__name__)}, which no step can be given", hint)
    if plain is bool:
        return "", "bool"
    return "", TYPES.get(plain, "list" if plain is tuple else "") if isinstance(plain, type) else ""


def _mark(annotation: Any) -> str:
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((one for one in marks if one in (_INPUT, _OUTPUT)), "")


def place_of(function: Callable[..., Any]) -> SourceLine:
    """Return the source line of a function."""
    code = inspect.unwrap(function).__code__
    return SourceLine(code.co_filename, code.co_firstlineno)


_PACKAGE: Final = str(Path(__file__).parents[2])


def here() -> SourceLine:
    """Return the caller's source line outside of Weft."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)


def wrong(function: Callable[..., Any], message: str, hint: str) -> DefinitionError:
    """Return the error of a function that cannot become a step or pipeline."""
    return DefinitionError(f"{place_of(function)}: {function.__name__}: {message}", hint=hint)


# ----------------------------------------------------------------------------------------------- what is known later


class DeferredValue:
    """A value that is known only while the run goes on: `name` of component `owner`, in the family `scope`.

    An f-string turns it into a template, which readers of the text map back by `number`.
    """

    def __init__(self, scope: EnclosingBuilder, owner: str, name: str) -> None:
        self.scope, self.owner, self.name = scope, owner, name
        self.number = scope.note(self)

    def __str__(self) -> str:
        return f"{{{{{REFERENCE}{self.number}.{self.name}}}}}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.owner}.{self.name}>"

    def _early(self, *_: object) -> NoReturn:
        message = f"{here()}: {self.owner}.{self.name} is known only when the run goes on"
        hint = "Hand it to a step; for a decision use options(when=...), for a loop weft.each(...)."
        raise DefinitionError(message, hint=hint)

    def __eq__(self, other: object) -> bool:
        return self._early()

    __hash__ = object.__hash__
    __bool__ = __int__ = __float__ = __index__ = __len__ = __iter__ = __fspath__ = __getitem__ = _early
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __mul__ = __truediv__ = _early


class Artifact(DeferredValue):
    """A file or folder that a step makes, in a pipeline under construction; pass it to an `Input` of another step."""


class Parameter(DeferredValue):
    """A parameter of a step, or the item of a loop, in a pipeline under construction."""


class LoopItems(Struct, frozen=True):
    """An argument with one item after the other; made by `each`."""

    items: Sequence[Any] | DeferredValue


def each(items: Sequence[Any] | Artifact | Parameter) -> Any:
    """Run a step, or a pipeline inside another, once for each item: `train(rate=weft.each([0.1, 0.01]))`.

    Items are texts, numbers or lists of these; an artifact is a file with a JSON list.
    """
    if isinstance(items, DeferredValue):
        return LoopItems(items)
    if isinstance(items, str) or not isinstance(items, Iterable):
        message = f"{here()}: weft.each({items!r}): {type_of(items)} is not a list"
        raise DefinitionError(message, hint="Give it a list. Where that is empty, the step is skipped.")
    return LoopItems(tuple(items))


class EnclosingBuilder(Protocol):
    """The pipeline or dag under construction."""

    def call(self, what: StepFunction | PipelineBuilder, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Add a component and return its handle."""
        ...

    def note(self, later: DeferredValue) -> int:
        """Register a deferred value and return its number."""
        ...

    def looping(self, owner: str, name: str) -> str:
        """Return the component whose items make an artifact together; "" if one execution makes it."""
        ...


CURRENT: Final[ContextVar[EnclosingBuilder | None]] = ContextVar("weft pipeline", default=None)
"""The pipeline or dag that calls of steps and pipelines are added to; None: calls run the function."""


# ------------------------------------------------------------------------------------------------------------- steps


class CacheOptions(TypedDict, total=False):
    """The cache of a step or of a pipeline, with the fields of the file: see docs/pipelines.md, Cache."""

    enable: bool
    max_expired_time: int
    fs_scope: list[dict[str, str]]
    mode: str


class StepOptions(TypedDict, total=False):
    """Options of a step beside its arguments. `when` is a condition as in a file.

    With `training`, a step is a training job, and its function or command runs in each replica: options of the step
    kind `training` (see docs/training-steps.md), such as `{"kind": "TFJob", "replicas": {"worker": 2}}`.
    """

    name: str
    when: str
    cache: bool | CacheOptions
    env: Mapping[str, str | int | float | Mapping[str, str]]
    docker_env: str
    timeout_s: float
    retry: Retry
    resources: Resources
    environment: Mapping[str, str]
    stderr: str
    extra_fs: Sequence[Mapping[str, Any]]
    training: Mapping[str, Any]


class OptionValue(Struct, frozen=True):
    """The value of an option and its source line."""

    value: Any
    where: SourceLine


def _unlike_a_function(value: object) -> str:
    """Return what a value is instead of a function whose body runs when it is called; "" for such a function."""
    if not inspect.isfunction(value):
        return repr(value)
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        return f"{value.__qualname__}, a generator,"
    return f"{value.__qualname__}, an async function," if inspect.iscoroutinefunction(value) else ""


class _Declared:
    """A function with options; a call inside a pipeline under construction adds a component."""

    known: ClassVar[frozenset[str]]
    what: ClassVar[str]
    runs: ClassVar[bool]
    """Whether the function is called during the run, so that its arguments must be serialised."""

    def __init__(self, function: Callable[..., Any], chosen: Mapping[str, OptionValue]) -> None:
        kind = _unlike_a_function(function)
        if kind:
            raise DefinitionError(f"{here()}: {kind} cannot be a {self.what}", hint="Decorate a plain function.")
        functools.update_wrapper(cast("Any", self), function)
        self.function, self.chosen = function, chosen
        self.where = place_of(function)
        self.signature = Signature.of(function, any_value=not self.runs)

    def __repr__(self) -> str:
        return f"<{self.what} {self.function.__qualname__}>"

    @classmethod
    def noted(cls, options: Mapping[str, Any]) -> dict[str, OptionValue]:
        """Return options with their source line. DefinitionError: an unknown option."""
        for name in options:
            if name not in cls.known:
                hint = did_you_mean(name, cls.known, f"There are: {', '.join(sorted(cls.known))}")
                raise DefinitionError(f"{here()}: a {cls.what} has no option {name!r}", hint=hint)
        return {name: OptionValue(value, here()) for name, value in options.items() if value is not None}


class StepFunction(_Declared):
    """A step: a Python function, or (`shell`) a function that returns the text of a command."""

    known = frozenset(StepOptions.__annotations__)
    what = "step"
    runs = True

    def __init__(self, function: Callable[..., Any], chosen: Mapping[str, OptionValue], *, shell: bool = False) -> None:
        super().__init__(function, chosen)
        self.shell = shell

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function; inside a pipeline under construction add the step and return its handle."""
        builder = CURRENT.get()
        return self.function(*args, **named) if builder is None else builder.call(self, args, named)

    def options(self, **given: Unpack[StepOptions]) -> StepFunction:
        """Return the same step with other options."""
        return StepFunction(self.function, {**self.chosen, **self.noted(given)}, shell=self.shell)


class PipelineBuilder(_Declared):
    """A function that builds a pipeline, or a dag if it is called inside another pipeline."""

    known = frozenset(
        {"name", "when", "parallelism", "on_failure", "cache", "docker_env", "main_fs", "extra_fs", "disabled",
         "as_paddleflow", "defaults", "profiles"}
    )  # fmt: skip
    what = "pipeline"
    runs = False

    def options(self, **given: Any) -> Self:
        """Return the same pipeline with other options."""
        return type(self)(self.function, {**self.chosen, **self.noted(given)})


@overload
def step(function: Callable[..., Any], /) -> StepFunction: ...
@overload
def step(**options: Unpack[StepOptions]) -> Callable[[Callable[..., Any]], StepFunction]: ...
def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a step of a function: inside a pipeline it runs in its own process, elsewhere a call is an ordinary call.

    Arguments annotated `weft.Input` and `weft.Output` are paths of artifacts, all others are parameters. Options are
    the fields of `StepOptions`. DefinitionError: an invalid argument or option.
    """
    chosen = StepFunction.noted(options)
    return StepFunction(function, chosen) if function is not None else lambda function: StepFunction(function, chosen)


@overload
def command(function: Callable[..., Any], /) -> StepFunction: ...
@overload
def command(**options: Unpack[StepOptions]) -> Callable[[Callable[..., Any]], StepFunction]: ...
def command(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a step of a function that returns the text of a command for `sh`.

    Arguments and options are as for `step`. The function is called while the pipeline is built, with templates in place
    of values; it may only put them into the text.
    """
    chosen = StepFunction.noted(options)
    return (
        StepFunction(function, chosen, shell=True)
        if function is not None
        else lambda f: StepFunction(f, chosen, shell=True)
    )
