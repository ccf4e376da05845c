"""An S3 server with a bucket of texts."""

import gzip
import json
import lzma
from collections.abc import Iterator

import boto3
import fsspec
import pytest
import s3fs
import zstandard
from moto.server import ThreadedMotoServer

CORPUS = {
    "de.txt.xz": lzma.compress(b"Eins.\nZwei.\n"),
    "fr.jsonl.gz": gzip.compress(json.dumps({"text": "Un", "name": "1", "label": "a"}).encode()),
    "news/a.txt": b"Hello.",
    "news/sport/b.txt.zst": zstandard.compress(b"Goal!\n\nTwo."),
    "news/.hidden/c.txt": b"not read",
}


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="corpus")
    for name, content in CORPUS.items():
        client.put_object(Bucket="corpus", Key=f"texts/{name}", Body=content)
    fsspec.config.conf.clear()
    s3fs.S3FileSystem.clear_instance_cache()  # one that another test left would go to its server
    yield "s3://corpus/texts"
    for found in client.list_objects_v2(Bucket="corpus")["Contents"]:
        client.delete_object(Bucket="corpus", Key=found["Key"])
    client.close()
    s3fs.S3FileSystem.clear_instance_cache()
