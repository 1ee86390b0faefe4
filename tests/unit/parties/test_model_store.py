"""Models of a party on its disk."""

import json
import zipfile

import msgspec
import pytest

from weft.frontends.federated.schema import Party
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.parties.model_store import ModelAbout, ModelStore, trained_version
from weft.parties.part_folders import PartFolders

GUEST = Party("guest", "1")
ABOUT = ModelAbout(version="v", model_id="m", roles={"guest": ["1"], "host": ["2"]}, dsl={}, conf={}, created=5.0)


def store_at(root):
    return ModelStore(root / "models", PartFolders(root / "jobs"))


def trained(root, **models):
    """Leave models of components as a job does."""
    for name, model in models.items():
        folder = PartFolders(root / "jobs").component("v", GUEST, name)
        (folder / "1-1").mkdir(parents=True)
        (folder / "1-1" / "model.json").write_text(json.dumps(model))
        (folder / "current").write_text("1-1")


def test_a_model_moves_from_one_server_to_another(tmp_path):
    trained(tmp_path / "old", lr_0={"w": [1.5]}, scale_0={"mean": 2})
    old, new = store_at(tmp_path / "old"), store_at(tmp_path / "new")
    archive = old.pack(ABOUT, GUEST, tmp_path)
    manifest = new.read_manifest(archive)
    assert manifest.about == ABOUT
    new.unpack(archive, manifest, replace=False)
    assert sorted(new.files("v", GUEST)) == ["lr_0", "scale_0"]
    found = new.file("v.3", GUEST, "lr_0")
    assert found is not None
    assert json.loads(found.read_text()) == {"w": [1.5]}
    assert new.about("v.1").imported
    assert [one.version for one in new.all()] == ["v"]
    with pytest.raises(ConflictError, match="already"):
        new.unpack(archive, manifest, replace=False)
    new.unpack(archive, manifest, replace=True)
    with pytest.raises(ConflictError, match="made by a job"):
        old.unpack(archive, manifest, replace=True)
    assert not list((tmp_path / "new" / "models").glob(".import-*"))


def test_a_part_without_a_model_is_not_exported(tmp_path):
    with pytest.raises(NotFoundError, match="guest 1 has no model"):
        store_at(tmp_path).pack(ABOUT, GUEST, tmp_path)


def rewritten(archive, target, change):
    """Copy an archive, with other members."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(target, "w") as new:
        members = {name: old.read(name) for name in old.namelist()}
        change(members)
        for name, data in members.items():
            new.writestr(name, data)
    return target


def renamed(members, component):
    manifest = json.loads(members["manifest.json"])
    manifest["digests"] = {component: next(iter(manifest["digests"].values()))}
    members["manifest.json"] = json.dumps(manifest).encode()
    members[f"{component}.json"] = members.pop("lr_0.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda members: members.pop("manifest.json"), "manifest"),
        (lambda members: members.update({"manifest.json": b"{}"}), "manifest"),
        (lambda members: members.update({"lr_0.json": b'{"w": 2}'}), "damaged"),
        (lambda members: members.update({"more.json": b"1"}), "different components"),
        (lambda members: renamed(members, "../x"), "is no name"),
    ],
)
def test_a_changed_archive_is_refused(tmp_path, change, message):
    trained(tmp_path / "old", lr_0={"w": 1})
    archive = rewritten(store_at(tmp_path / "old").pack(ABOUT, GUEST, tmp_path), tmp_path / "changed.zip", change)
    new = store_at(tmp_path / "new")
    with pytest.raises(UsageError, match=message):
        new.unpack(archive, new.read_manifest(archive), replace=False)
    assert not new.files("v", GUEST)
    assert not list(tmp_path.glob("**/x.json"))


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "a").write_text("no archive")
    with pytest.raises(UsageError, match="cannot be read"):
        store_at(tmp_path).read_manifest(tmp_path / "a")
    with zipfile.ZipFile(tmp_path / "b", "w") as archive:
        manifest = {
            "kind": "other/1",
            "about": msgspec.to_builtins(ABOUT),
            "role": "guest",
            "party": "1",
            "digests": {},
        }
        archive.writestr("manifest.json", json.dumps(manifest))
    with pytest.raises(UsageError, match="other/1"):
        store_at(tmp_path).read_manifest(tmp_path / "b")


def test_a_deployed_version_names_the_trained_one():
    assert trained_version("20261127.12") == "20261127"
    assert trained_version("20261127") == "20261127"
