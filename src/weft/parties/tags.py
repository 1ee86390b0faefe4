"""The tags of models: words that a party gives to versions of models, to find them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.parties.ledger import WHAT_PARTIES_DROP
from weft.runtime.clock import RealClock
from weft.store.database import Database

if TYPE_CHECKING:
    from pathlib import Path

    from weft.runtime.clock import WallClock
    from weft.store.database import Connection

TAGS_NAME: Final = "tags.db"
_VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE model_tags (
        name VARCHAR(255) PRIMARY KEY, description TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE tagged_models (
        tag VARCHAR(255) NOT NULL, version VARCHAR(255) NOT NULL, PRIMARY KEY (tag, version))""",
)
_MOST_NAME: Final = 255


class ModelTag(Struct, frozen=True, kw_only=True):
    """A tag, and the models (versions) that bear it."""

    name: str
    description: str = ""
    created_at: float = 0.0
    versions: Sequence[str] = ()


class ModelTags:
    """The tags of one party, in its folder. Safe to use from several threads."""

    def __init__(self, site: Path, *, clock: WallClock | None = None) -> None:
        self._clock: WallClock = clock or RealClock()
        self.database = Database(
            site / TAGS_NAME,
            what="the tags of models",
            schema=_SCHEMA,
            version=_VERSION,
            again="tags have to be given again then",
            lock_name="tags.lock",
            lasting=True,
            can_go=WHAT_PARTIES_DROP,
        )

    def close(self) -> None:
        """Close the connections to the database."""
        self.database.close()

    def all(self, name: str = "", *, limit: int = 0) -> list[ModelTag]:
        """Return one tag, or all by name, at most `limit`."""
        where = " WHERE name = :name" if name else ""
        with self.database.read() as db:
            return [] if db is None else _tags(db, f"{where} ORDER BY name", name, limit)

    def of_model(self, version: str) -> list[ModelTag]:
        """Return the tags of a model by name."""
        where = " WHERE name IN (SELECT tag FROM tagged_models WHERE version = :name) ORDER BY name"
        with self.database.read() as db:
            return [] if db is None else _tags(db, where, version)

    def put(self, name: str, description: str | None, *, new_name: str = "", create: bool) -> None:
        """Create a tag, or change its description (None keeps it) and its name; its models keep it.

        ConflictError: a tag of that name is there. NotFoundError: there is none to change.
        """
        final = new_name or name
        if not 0 < len(final) <= _MOST_NAME or not final.isprintable():
            raise UsageError(f"{final!r} cannot name a tag", hint=f"Give 1 to {_MOST_NAME} printable characters.")
        with self.database.write() as db:
            old = _tags(db, " WHERE name = :name", name)
            if not create and not old:
                raise _no_tag(name)
            if (create or final != name) and _tags(db, " WHERE name = :name", final):
                raise ConflictError(f"there is a tag {final} already", hint="List the tags: flow tag list")
            told = description if description is not None else old[0].description if old else ""
            created = old[0].created_at if old else self._clock.wall()
            db.run("DELETE FROM model_tags WHERE name = :name", {"name": name})
            db.run(
                "INSERT INTO model_tags (name, description, created_at) VALUES (:name, :description, :created_at)",
                {"name": final, "description": told, "created_at": created},
            )
            db.run("UPDATE tagged_models SET tag = :final WHERE tag = :name", {"final": final, "name": name})

    def delete(self, name: str) -> None:
        """Remove a tag from all models. NotFoundError: there is none."""
        with self.database.write() as db:
            db.run("DELETE FROM tagged_models WHERE tag = :name", {"name": name})
            if not db.run("DELETE FROM model_tags WHERE name = :name", {"name": name}):
                raise _no_tag(name)

    def give(self, version: str, name: str) -> None:
        """Give a tag to a model; a new tag is made. Giving it again does nothing."""
        if not self.all(name):
            self.put(name, "", create=True)
        values = {"name": name, "version": version}
        with self.database.write() as db:
            db.run("DELETE FROM tagged_models WHERE tag = :name AND version = :version", values)
            db.run("INSERT INTO tagged_models (tag, version) VALUES (:name, :version)", values)

    def take(self, version: str, name: str) -> None:
        """Take a tag from a model. NotFoundError: the model does not have it."""
        values = {"name": name, "version": version}
        with self.database.write() as db:
            if not db.run("DELETE FROM tagged_models WHERE tag = :name AND version = :version", values):
                raise NotFoundError(f"the model {version} has no tag {name}", hint="List its tags: flow model tag-list")


def _no_tag(name: str) -> NotFoundError:
    return NotFoundError(f"there is no tag {name}", hint="List the tags: flow tag list")


def _tags(db: Connection, where: str, name: str, limit: int = 0) -> list[ModelTag]:
    most = f" LIMIT {limit:d}" if limit > 0 else ""
    found = []
    for tag, description, created_at in db.rows(
        f"SELECT name, description, created_at FROM model_tags{where}{most}", {"name": name}
    ):
        versions = db.rows("SELECT version FROM tagged_models WHERE tag = :tag ORDER BY version", {"tag": tag})
        one = ModelTag(
            name=tag, description=description, created_at=created_at, versions=tuple(row[0] for row in versions)
        )
        found.append(one)
    return found
