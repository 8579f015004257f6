import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gridgrad.datasets.files import data_directory, download

CONTENT = b"some published bytes"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/file"
        server.shutdown()


def test_downloads_and_checks(server, tmp_path):
    target = tmp_path / "data" / "file"
    download(server, f"md5:{hashlib.md5(CONTENT).hexdigest()}", target, "it")
    assert target.read_bytes() == CONTENT and list(target.parent.iterdir()) == [target]
    (tmp_path / "other").touch()
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode, "a group reads it where the umask lets it"


@pytest.mark.parametrize("change", [lambda url: url, lambda url: url + "-missing"])
def test_a_wrong_checksum_or_address_keeps_no_file(server, tmp_path, change):
    target = tmp_path / "data" / "file"
    with pytest.raises(OSError, match=r"no file .*/data/file, and the download from .* failed .*put it there") as error:
        download(change(server), "md5:" + "0" * 32, target, "it")
    assert "\n" not in str(error.value)
    assert not target.exists()


def test_the_data_directory(monkeypatch):
    monkeypatch.setenv("GRIDGRAD_DATA", "/somewhere")
    assert data_directory() == Path("/somewhere")
    assert data_directory("~/there") == Path.home() / "there" and data_directory("~nobody-of-this-name") == Path(
        "~nobody-of-this-name"
    )
    monkeypatch.delenv("GRIDGRAD_DATA")
    assert "gridgrad" in str(data_directory())
