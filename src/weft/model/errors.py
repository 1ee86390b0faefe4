"""The tree of all errors that Weft raises on purpose.

::

    WeftError                    code, message, hint; `exit_code` for the command line
    ├── UsageError               2   a flag, a setting or an argument is wrong
    ├── DefinitionError          3   a graph or a file cannot run
    │   ├── GraphError               a graph breaks a rule; names vertex or edge, and the rule
    │   ├── DocumentError            a file breaks a rule; names file, line, column and field
    │   │   ├── PipelineError            a pipeline file
    │   │   ├── JobFileError             a file of training jobs
    │   │   ├── FederatedFileError       a DSL or a conf of a federated job
    │   │   └── SqlError                 a query
    │   ├── InputLimitError          a file or graph is over one of the documented limits
    │   └── ProgramError             a program cannot be imported or sent to a worker
    ├── NotFoundError            4   no run, step or vertex of that name
    │   └── UnreadableError          stored bytes exist but cannot be read here
    ├── ForbiddenError           5   a path or an action is outside what is allowed
    ├── ConflictError            7   already finished, owned by another process, or of another version
    ├── CapacityError            8   no worker, memory budget or disk can ever satisfy the request
    │   └── DiskFullError            the spill or state disk is full
    ├── RunFailedError           1   the run failed
    │   ├── TaskError                the user's code raised; carries the remote traceback
    │   │   └── OutOfMemoryError         the task ran out of memory, or was killed for it
    │   └── PeerMovedError           a task that this one works with has begun again elsewhere
    ├── RunCancelledError      130   the run was cancelled
    ├── PartyError               6   another party of a federated job, or what it sent; names the party
    │   ├── PartyIdentityError       a certificate, signature or role is not the one that was agreed
    │   ├── PartyMessageError        a message breaks the protocol
    │   ├── PartyRefusedError        a party does not allow it
    │   ├── PartyUnreachableError    a party does not answer
    │   └── PartyVersionError        a party has another version of a component's messages
    ├── MissingExtraError        2   an optional dependency is not installed
    └── InternalError           70   a fault of Weft itself
        └── InvalidTransition        a state transition that no table allows; carries the history

`code` is stable and names a section of `docs/errors.md`. A message says whose fault it is and names the field or file;
`hint` is the next step to take.
"""

from __future__ import annotations

from typing import Any, ClassVar


class WeftError(Exception):
    """Base of all errors that Weft raises on purpose."""

    code: ClassVar[str] = "WEFT000"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.__dict__)


def _rebuild(kind: type[WeftError], message: str, hint: str, fields: dict[str, object]) -> WeftError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.message, error.hint = message, hint
    error.__dict__.update(fields)
    return error


class UsageError(WeftError):
    """A flag, a setting or an argument is wrong."""

    code = "WEFT100"
    exit_code = 2


class MissingExtraError(UsageError):
    """An optional dependency is not installed; the hint names the extra."""

    code = "WEFT101"


class DefinitionError(WeftError):
    """A graph or a file cannot run as written."""

    code = "WEFT200"
    exit_code = 3


class GraphError(DefinitionError):
    """A graph breaks a rule. `subject` is the vertex or edge, `rule` the short name of the rule."""

    code = "WEFT201"

    def __init__(self, message: str, *, subject: str = "", rule: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.subject = subject
        self.rule = rule


class DocumentError(DefinitionError):
    """A file breaks a rule; the message begins with `file:line:column`, `path` is the field's path.

    A text that is no file of the user, `file` "", has no places that the user could look at.
    """

    code = "WEFT205"

    def __init__(
        self, message: str, *, file: str = "", line: int = 0, column: int = 0, path: str = "", hint: str = ""
    ) -> None:
        where = f"{file}:{line}:{column}: " if file and line else (f"{file}: " if file else "")
        at = f"{path}: " if path else ""
        super().__init__(f"{where}{at}{message}", hint=hint)
        self.file, self.line, self.column, self.path = file, line, column, path


class PipelineError(DocumentError):
    """A pipeline file breaks a rule."""

    code = "WEFT202"


class JobFileError(DocumentError):
    """A file of training jobs breaks a rule."""

    code = "WEFT206"


class FederatedFileError(DocumentError):
    """A DSL or a conf of a federated job breaks a rule."""

    code = "WEFT208"


class SqlError(DocumentError):
    """A query is not SQL, names something that does not exist, or meets a value that it cannot compute with.

    The message begins with `query:line:column` where the place is known.
    """

    code = "WEFT207"

    def __init__(self, message: str, *, line: int = 0, column: int = 0, hint: str = "") -> None:
        super().__init__(message, file="query", line=line, column=column, hint=hint)


class InputLimitError(DefinitionError):
    """A file or graph is over one of the documented limits (size, depth, nodes)."""

    code = "WEFT203"


class ProgramError(DefinitionError):
    """A program cannot be imported, or cannot be sent to a worker."""

    code = "WEFT204"


class NotFoundError(WeftError):
    """There is no run, step or vertex of that name."""

    code = "WEFT300"
    exit_code = 4


class UnreadableError(NotFoundError):
    """A stored chunk exists but cannot be read here; another node may be able to read it."""

    code = "WEFT303"


class ForbiddenError(WeftError):
    """A path or an action is outside what is allowed."""

    code = "WEFT301"
    exit_code = 5


class ConflictError(WeftError):
    """The run is already finished, owned by another process, or of another version."""

    code = "WEFT302"
    exit_code = 7


class CapacityError(WeftError):
    """No worker, memory budget or disk can ever satisfy the request."""

    code = "WEFT400"
    exit_code = 8


class DiskFullError(CapacityError):
    """The disk for spilled chunks or for state is full."""

    code = "WEFT401"


class RunFailedError(WeftError):
    """The run failed."""

    code = "WEFT500"


class TaskError(RunFailedError):
    """The code of a task raised, or its command failed.

    `task` is `vertex[index]`, `traceback_text` the remote traceback.
    `raised` is the class of the exception as `module:qualname`, or "" if it is unknown. `status` is the exit code of
    the task's command, 128 plus the signal if a signal ended it; None if no process has ended. `origin` is the
    `weft.model.raised.Origin` of the exception, if it is known.
    """

    code = "WEFT501"

    def __init__(
        self,
        message: str,
        *,
        task: str = "",
        traceback_text: str = "",
        raised: str = "",
        status: int | None = None,
        origin: Any = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.task = task
        self.traceback_text = traceback_text
        self.raised = raised
        self.status = status
        self.origin = origin


class OutOfMemoryError(TaskError):
    """The task ran out of memory, or the system killed its command for lack of memory."""

    code = "WEFT503"


class PeerMovedError(RunFailedError):
    """A task that this one works with has begun again at another place, so that this one must begin again too."""

    code = "WEFT504"


class ActorEndedError(RunFailedError):
    """An actor has ended, before a call or before its answer."""

    code = "WEFT505"


class RunCancelledError(WeftError):
    """The run was cancelled."""

    code = "WEFT502"
    exit_code = 130


class PartyError(WeftError):
    """Another party of a federated job, or what it sent. `party` is its id, "" if it is not known."""

    code = "WEFT600"
    exit_code = 6

    def __init__(self, message: str, *, party: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.party = party


class PartyIdentityError(PartyError):
    """A certificate, a signature or a role is not the one that was agreed with the party."""

    code = "WEFT601"


class PartyMessageError(PartyError):
    """A message of another party breaks the protocol."""

    code = "WEFT602"


class PartyRefusedError(PartyError):
    """A party does not allow what it was asked for: by its policy, its grants, an approval or its cores."""

    code = "WEFT603"


class PartyUnreachableError(PartyError):
    """A party does not answer."""

    code = "WEFT604"


class PartyVersionError(PartyError):
    """A party has another version of the messages of a component."""

    code = "WEFT605"


class InternalError(WeftError):
    """A fault of Weft itself; please report it with the output of `weft story`."""

    code = "WEFT900"
    exit_code = 70


class InvalidTransition(InternalError):
    """A state transition that no table allows. `story` is the history of the subject."""

    code = "WEFT901"

    def __init__(self, message: str, *, story: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.story = story

    def __str__(self) -> str:
        return "\n".join((self.message, *(f"  {line}" for line in self.story)))
