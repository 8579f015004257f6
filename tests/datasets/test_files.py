import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from datasets.files import data_directory, download, written_whole

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
    assert target.read_bytes() == CONTENT


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
    assert data_directory("~/there") == Path.home() / "there"
    monkeypatch.delenv("GRIDGRAD_DATA")
    assert "gridgrad" in str(data_directory())


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder" / "file"
    with pytest.raises(RuntimeError), written_whole(path) as beside:
        beside.write_text("half")
        raise RuntimeError
    assert list(path.parent.iterdir()) == []
    with written_whole(path) as beside:
        beside.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"


def test_links_stay_links_and_devices_stay_devices(tmp_path):
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with written_whole(tmp_path / "link") as beside:
        beside.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there").read_text() == "new"
    with pytest.raises(OSError, match="no ordinary file"), written_whole("/dev/null"):
        pass
