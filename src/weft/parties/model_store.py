"""The models of a party on its disk: deployed versions, and models that came from an archive.

::

    models/VERSION/about.json                       the files of the training job, and the deployed versions
    models/VERSION/ROLE/PARTY/COMPONENT.json        what an import or a migration has brought; models of jobs lie in
                                                    their folders
    models/services.json                            which version answers to the id of a service

A deployed version is called `VERSION.1`, `VERSION.2`, ...: each party finds its part of the model by this name, and
only the party that predicts needs the DSL that belongs to it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from weft.frontends.federated.schema import Party
from weft.model.errors import ConflictError, InputLimitError, NotFoundError, UnreadableError, UsageError
from weft.parties.site import write_file

if TYPE_CHECKING:
    from weft.parties.part_folders import PartFolders

ARCHIVE_KIND: Final = "weft.party.model/1"
MODEL_FILE: Final = "model.json"
_ABOUT: Final = "about.json"
_MANIFEST: Final = "manifest.json"
_SERVICES: Final = "services.json"
_DEPLOYED: Final = re.compile(r"(.+)\.(\d{1,6})")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
_MOST_BYTES: Final = 512 << 20
_MOST_FILES: Final = 10_000


class Deployment(Struct, frozen=True):
    """A deployed version: the DSL of its predictions, as JSON, and when it was made (seconds since 1970)."""

    dsl: Mapping[str, Any]
    created: float


class BoundService(Struct, frozen=True):
    """The version of a model that answers to the id of a service, and since when (seconds since 1970)."""

    model_id: str
    version: str
    bound: float


_read_services: Final = msgspec.json.Decoder(dict[str, BoundService]).decode


class ModelAbout(Struct, frozen=True, kw_only=True):
    """What a party knows of a model beside its values: the files of its training job, as JSON.

    `loaded` counts by version how often it was loaded here.
    """

    version: str
    model_id: str
    roles: Mapping[str, list[str]]
    dsl: Mapping[str, Any]
    conf: Mapping[str, Any]
    created: float
    imported: bool = False
    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    loaded: Mapping[str, int] = field(default_factory=dict)


_read_about: Final = msgspec.json.Decoder(ModelAbout).decode


class ModelManifest(Struct, frozen=True, kw_only=True):
    """The first file of an archive. `digests` has the SHA-256 of each model by its component."""

    kind: str
    about: ModelAbout
    role: str
    party: str
    digests: Mapping[str, str]


_read_manifest: Final = msgspec.json.Decoder(ModelManifest).decode


def trained_version(version: str) -> str:
    """Return the version that the training job has made, for a deployed one or for itself."""
    found = _DEPLOYED.fullmatch(version)
    return found[1] if found else version


class ModelStore:
    """The models below `root`; those that jobs have made lie in `folders`."""

    def __init__(self, root: Path, folders: PartFolders) -> None:
        self._root, self._folders = root, folders
        self._lock = Lock()

    # ------------------------------------------------------------------------------------------------------- values

    def file(self, version: str, part: Party, component: str) -> Path | None:
        """Return the file of the model of a component at a part; None: there is none."""
        version = trained_version(version)
        try:
            found = self._folders.current(version, part, component) / MODEL_FILE
        except NotFoundError:
            found = self._root / _safe(version) / _safe(part.role) / _safe(part.id) / f"{_safe(component)}.json"
        return found if found.is_file() else None

    def has_made(self, version: str, party: str) -> bool:
        """Whether the job of a version has left a model at a party; its files need not be read for that."""
        found = self._folders.job(version).glob(f"*/{party}/*/*/{MODEL_FILE}")
        return next(found, None) is not None

    def files(self, version: str, part: Party) -> dict[str, Path]:
        """Return the files of a model at a part, by component."""
        version = trained_version(version)
        folder, below = self._folders.part(version, part), self._root / _safe(version) / part.role / part.id
        names = {one.name for one in folder.iterdir() if one.is_dir()} if folder.is_dir() else set()
        names |= {one.stem for one in below.glob("*.json")}
        found = {name: self.file(version, part, name) for name in sorted(names)}
        return {name: path for name, path in found.items() if path is not None}

    # ------------------------------------------------------------------------------------------------------ records

    def about(self, version: str) -> ModelAbout | None:
        """Return what is kept about a model; None: nothing. UnreadableError: the record is damaged."""
        path = self._root / _safe(trained_version(version)) / _ABOUT
        if not path.is_file():
            return None
        try:
            return _read_about(path.read_bytes())
        except msgspec.MsgspecError as error:
            raise UnreadableError(f"{path} is damaged: {error}", hint="Import the model again.") from None

    def all(self) -> Iterator[ModelAbout]:
        """Yield what is kept about models: those that were deployed or imported."""
        folders = sorted(self._root.iterdir()) if self._root.is_dir() else []
        for folder in folders:
            about = self.about(folder.name) if _NAME.fullmatch(folder.name) else None
            if about is not None:
                yield about

    def keep(self, about: ModelAbout) -> None:
        """Keep what is known of a model."""
        folder = self._root / _safe(about.version)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(folder, _ABOUT, msgspec.json.format(msgspec.json.encode(about)))

    def change(self, about: ModelAbout, change: Callable[[ModelAbout], ModelAbout]) -> ModelAbout:
        """Keep what `change` makes of the record of a model, `about` if there is none, and return it."""
        with self._lock:
            found = change(self.about(about.version) or about)
            self.keep(found)
            return found

    def services(self) -> dict[str, BoundService]:
        """Return the services by their ids. UnreadableError: the record is damaged."""
        path = self._root / _SERVICES
        if not path.is_file():
            return {}
        try:
            return _read_services(path.read_bytes())
        except msgspec.MsgspecError as error:
            raise UnreadableError(f"{path} is damaged: {error}", hint="Remove it, and bind the models again.") from None

    def bind(self, service: str, bound: BoundService) -> None:
        """Let a version answer to the id of a service, in the place of another one."""
        with self._lock:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.services() | {service: bound}
            write_file(self._root, _SERVICES, msgspec.json.format(msgspec.json.encode(found)))

    def put(self, about: ModelAbout, part: Party, models: Mapping[str, Any]) -> None:
        """Keep models of a part by component, as JSON, of a version that no job has made.

        ConflictError: the part has this version already.
        """
        part = Party(_safe(part.role), _safe(part.id))
        with self._lock:
            if self.files(about.version, part):
                raise ConflictError(f"{part} has version {about.version} already", hint="Choose another version.")
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".migrate-", dir=self._root))
            try:
                for name, model in models.items():
                    (aside / f"{_safe(name)}.json").write_bytes(msgspec.json.encode(model))
                place = self._root / _safe(about.version) / part.role / part.id
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.replace(aside, place)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            self.keep(self.about(about.version) or about)

    # ----------------------------------------------------------------------------------------------------- archives

    def pack(self, about: ModelAbout, part: Party, folder: Path) -> Path:
        """Write the model of a part to a ZIP file in `folder`. NotFoundError: the part has no model."""
        files = self.files(about.version, part)
        if not files:
            raise NotFoundError(f"{part} has no model of version {about.version}")
        digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
        manifest = ModelManifest(kind=ARCHIVE_KIND, about=about, role=part.role, party=part.id, digests=digests)
        path = folder / "model.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
            for name, file in files.items():
                archive.write(file, f"{name}.json")
        return path

    def read_manifest(self, archive: Path) -> ModelManifest:
        """Return the manifest of an archive. UsageError: it is none of Weft. InputLimitError: it is too large."""
        with _opened(archive) as file:
            try:
                manifest = _read_manifest(file.read(_MANIFEST))
            except (KeyError, msgspec.MsgspecError) as error:
                raise UsageError(
                    f"the archive has no valid {_MANIFEST}: {error}", hint="Use one that `flow model export` has made."
                ) from None
        if manifest.kind != ARCHIVE_KIND:
            raise UsageError(f"the archive is of the kind {manifest.kind!r}", hint=f"Weft reads {ARCHIVE_KIND}.")
        return manifest

    def unpack(self, archive: Path, manifest: ModelManifest, *, replace: bool) -> None:
        """Take the model of an archive.

        ConflictError: the version is there, and `replace` is not set. UsageError: a file is damaged or has no digest.
        """
        part, about = Party(_safe(manifest.role), _safe(manifest.party)), manifest.about
        if self.files(about.version, part) and not replace:
            raise ConflictError(
                f"{part} has version {about.version} already",
                hint="Replace it with --replace (clients of FATE: force_update).",
            )
        if self._folders.part(about.version, part).is_dir():
            raise ConflictError(f"version {about.version} was made by a job here", hint="It needs no import.")
        target = self._root / _safe(about.version)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".import-", dir=self._root))
        try:
            with _opened(archive) as file:
                names = {name.removesuffix(".json") for name in file.namelist() if name != _MANIFEST}
                if names != set(manifest.digests):
                    raise UsageError("the archive and its manifest name different components")
                for name, digest in manifest.digests.items():
                    data = file.read(f"{_safe(name)}.json")
                    if hashlib.sha256(data).hexdigest() != digest:
                        raise UsageError(f"the model of {name} in the archive is damaged", hint="Export it again.")
                    msgspec.json.decode(data)
                    (aside / f"{name}.json").write_bytes(data)
            place = target / part.role / part.id
            place.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.rmtree(place, ignore_errors=True)
            os.replace(aside, place)
        except msgspec.MsgspecError as error:
            raise UsageError(f"a model in the archive is no JSON: {error}") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        self.keep(msgspec.structs.replace(about, imported=True))


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise UsageError(f"the archive cannot be read: {error}", hint="Use one of `flow model export`.") from None
    members = archive.infolist()
    if len(members) > _MOST_FILES or sum(one.file_size for one in members) > _MOST_BYTES:
        archive.close()
        raise InputLimitError(f"the archive has more than {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes")
    return archive


def _safe(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:60]!r} is no name in a model", hint="Use letters, digits, '_' and '-'.")
    return name
