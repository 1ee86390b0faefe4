"""Launches as bytes for other machines: equal launches have equal bytes, which can be signed.

The form is MessagePack by field names, with each spec in the form of `weft.graph.task_wire`: a sender may keep the
bytes of a spec for all launches that carry it.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import MsgspecError, Struct, convert, msgpack
from msgspec.structs import asdict

from weft.engine.commands import Launch
from weft.graph.lease import Cone
from weft.graph.task_wire import Pickle, Unpickle, decode_spec, encode_spec
from weft.model.errors import GraphError
from weft.model.resources import Resources  # noqa: TC001 - msgspec reads it

VERSION: Final = 1


class _ConeForm(Struct, forbid_unknown_fields=True):
    members: tuple[str, ...]
    mult: tuple[int, ...]
    inner: tuple[tuple[tuple[int, int], ...], ...]
    height: int
    linear: bool
    held_bytes: int


class _LaunchForm(Struct, forbid_unknown_fields=True):
    version: int
    worker: int
    lease: int
    vertex: str
    lo: int
    hi: int
    cone: _ConeForm | None
    attempt: int
    resources: Resources
    nbytes: int
    backup_of: int
    specs: tuple[bytes, ...]


def encode_launch(launch: Launch, pickle: Pickle) -> bytes:
    """Return a launch as bytes. Errors as `encode_spec`."""
    cone, resources = launch.cone, launch.resources
    form: dict[str, Any] = {"version": VERSION} | asdict(launch)
    form["cone"] = None if cone is None else {name: getattr(cone, name) for name in _ConeForm.__struct_fields__}
    form["resources"] = asdict(resources) | {"cpu": float(resources.cpu)}
    form["specs"] = [encode_spec(spec, pickle) for spec in launch.specs]
    return msgpack.encode(form)


def decode_launch(data: bytes, unpickle: Unpickle) -> Launch:
    """Return the launch of `encode_launch`, of the same version. GraphError: the bytes are no launch.

    Unpickling runs code: decode only bytes with a checked signature.
    """
    try:
        form = convert(msgpack.decode(data), _LaunchForm)
    except MsgspecError as error:
        raise GraphError(f"these bytes are no launch: {error}", rule="wire-value") from error
    if form.version != VERSION:
        raise GraphError(
            f"the launch is of version {form.version}, and this is version {VERSION}",
            rule="wire-version",
            hint="Run the same version of Weft on all machines.",
        )
    fields = asdict(form)
    del fields["version"]
    fields["cone"] = None if form.cone is None else Cone(**asdict(form.cone))
    fields["specs"] = tuple([decode_spec(spec, unpickle) for spec in form.specs])
    return Launch(**fields)
