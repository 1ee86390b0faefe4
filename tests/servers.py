"""A local S3 server for tests, as fixtures; a module names them to use them."""

import uuid

import fsspec
import pytest

SECRET = "very-secret"


@pytest.fixture(scope="module")
def s3_endpoint():
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server_of = pytest.importorskip("moto.server", reason="moto with its server is not installed")
    server = server_of.ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_bucket(s3_endpoint, monkeypatch):
    """Return the name of a new bucket; the environment has the way to it."""
    settings = {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    name = f"weft-{uuid.uuid4().hex[:12]}"
    fsspec.filesystem("s3").mkdir(name)
    yield name
    s3fs.S3FileSystem.clear_instance_cache()
