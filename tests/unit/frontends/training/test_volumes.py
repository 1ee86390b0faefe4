"""Volumes of a replica: folders of this machine and the mounts that show them."""

import os
import stat
from pathlib import Path, PosixPath

import pytest
from msgspec.structs import replace

from weft.frontends.training.schema import Container, FileItem, JobFile, KeyValues, PodTemplate, Volume, VolumeMount
from weft.frontends.training.volumes import VolumePlaces, claims_of, make_volumes, mounts_of, remove_volumes
from weft.model.errors import DefinitionError, ForbiddenError, NotFoundError

FILES = JobFile(
    jobs=(),
    config_maps={"conf": KeyValues(name="conf", data={"a.txt": b"one", "b.txt": b"two"})},
    secrets={"key": KeyValues(name="key", data={"token": b"hidden"})},
)


@pytest.fixture
def places(tmp_path: Path) -> VolumePlaces:
    return VolumePlaces(tmp_path / "claims", tmp_path / "replica", tmp_path)


def made(places: VolumePlaces, *volumes: Volume) -> dict[str, str]:
    return make_volumes(PodTemplate(volumes=volumes), FILES, places, lambda item: f"<{item.key}>")


def test_the_places_of_volumes(places):
    found = made(
        places,
        Volume(name="scratch", kind="empty"),
        Volume(name="data", kind="claim", source="shared-data"),
        Volume(name="here", kind="host", source="."),
    )
    assert found == {
        "scratch": str(places.replica / "scratch"),
        "data": str(places.claims / "shared-data"),
        "here": str(places.base),
    }
    assert all(os.path.isdir(path) for path in found.values())
    (places.claims / "shared-data" / "kept").touch()
    remove_volumes(places)
    assert not places.replica.exists()
    assert (places.claims / "shared-data" / "kept").exists()


def test_each_namespace_has_claims_of_its_own(tmp_path):
    folders = [claims_of(tmp_path, namespace) for namespace in ("default", "team-a", "team-b")]
    assert folders == [tmp_path, tmp_path / "@team-a", tmp_path / "@team-b"]
    with pytest.raises(ForbiddenError, match="namespace of a claim"):
        claims_of(tmp_path, "../..")


def test_config_maps_and_secrets_are_files_with_modes(places):
    found = made(
        places,
        Volume(name="all", kind="config_map", source="conf", mode=0o444),
        Volume(name="one", kind="config_map", source="conf", items=(FileItem("a.txt", "in/here", 0o755),)),
        Volume(name="secret", kind="secret", source="key"),
    )
    assert sorted(os.listdir(found["all"])) == ["a.txt", "b.txt"]
    assert stat.S_IMODE(os.stat(f"{found['all']}/a.txt").st_mode) == 0o444
    assert Path(found["one"], "in", "here").read_text() == "one"
    assert stat.S_IMODE(os.stat(f"{found['one']}/in/here").st_mode) == 0o755
    assert Path(found["secret"], "token").read_bytes() == b"hidden"
    assert stat.S_IMODE(os.stat(f"{found['secret']}/token").st_mode) == 0o600


def test_files_of_the_downward_api_are_asked_for_with_their_container(places):
    items = (FileItem("metadata.labels", "labels"), FileItem("limits.cpu", "cpu", 0o600, "main", 1))
    folder = Path(made(places, Volume(name="down", kind="downward", items=items))["down"])
    assert (folder / "labels").read_text() == "<metadata.labels>"
    assert (folder / "cpu").read_text() == "<limits.cpu>"
    assert stat.S_IMODE(os.stat(folder / "cpu").st_mode) == 0o600


def test_projected_volumes_join_their_parts(places):
    parts = (
        Volume(name="", kind="downward", items=(FileItem("metadata.name", "name"),)),
        Volume(name="", kind="secret", source="key"),
    )
    folder = Path(made(places, Volume(name="both", kind="projected", parts=parts))["both"])
    assert (folder / "name").read_text() == "<metadata.name>"
    assert (folder / "token").read_bytes() == b"hidden"


@pytest.mark.parametrize(
    "volume",
    [
        Volume(name="v", kind="secret", source="none"),
        Volume(name="v", kind="config_map", source="conf", items=(FileItem("c.txt", "c"),)),
        Volume(name="v", kind="host", source="missing"),
    ],
)
def test_what_is_missing_is_named(places, volume):
    with pytest.raises(NotFoundError, match="volume v"):
        made(places, volume)


def test_optional_sources_may_be_missing(places):
    volume = Volume(name="v", kind="secret", source="none", optional=True)
    assert os.listdir(made(places, volume)["v"]) == []


@pytest.mark.parametrize(("kind", "there"), [("DirectoryOrCreate", True), ("FileOrCreate", False)])
def test_host_paths_that_are_made(places, kind, there):
    found = made(places, Volume(name="v", kind="host", source="new/place", host_type=kind))
    assert os.path.isdir(found["v"]) is there


class RacedPath(PosixPath):
    """A path that another replica makes as soon as it was seen to be missing."""

    def exists(self) -> bool:
        there = super().exists()
        if not there:
            self.mkdir(parents=True) if self.name == "DirectoryOrCreate" else self.touch()
        return there


@pytest.mark.parametrize("kind", ["DirectoryOrCreate", "FileOrCreate"])
def test_a_host_path_that_another_replica_makes_at_once_is_taken(places, kind):
    raced = replace(places, base=RacedPath(places.base))
    assert made(raced, Volume(name="out", kind="host", source=kind, host_type=kind)) == {"out": str(places.base / kind)}


def test_the_type_of_a_host_path_is_checked(places):
    (places.base / "file").touch()
    with pytest.raises(DefinitionError, match="is not a folder"):
        made(places, Volume(name="v", kind="host", source="file", host_type="Directory"))


@pytest.mark.parametrize("name", ["../out", "/abs", "a/../../b", ""])
def test_no_name_leads_out_of_its_folder(places, name):
    with pytest.raises(ForbiddenError):
        made(places, Volume(name="v", kind="claim", source=name))


def test_mounts_of_a_container(places):
    template = PodTemplate(
        volumes=(
            Volume(name="scratch", kind="empty"),
            Volume(name="conf", kind="config_map", source="conf"),
            Volume(name="shm", kind="memory"),
        )
    )
    volumes = make_volumes(template, FILES, places, str)
    mounts = (
        VolumeMount("scratch", "/data/", sub_path="a/b"),
        VolumeMount("conf", "/etc/conf"),
        VolumeMount("shm", "/dev/shm"),
        VolumeMount("shm", "/fast"),
    )
    found = mounts_of(Container(name="c", mounts=mounts), volumes, template)
    assert [(one.source, one.target, one.read_only) for one in found if one.target != "/dev/shm"] == [
        (f"{volumes['scratch']}/a/b", "/data", False),
        (volumes["conf"], "/etc/conf", True),
        (volumes["shm"], "/fast", False),
    ]
    with pytest.raises(DefinitionError, match="mounts the volume gone"):
        mounts_of(Container(name="c", mounts=(VolumeMount("gone", "/x"),)), volumes, template)
