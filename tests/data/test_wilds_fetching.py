"""Fetching the eight, from a server on this machine: whole archives, archives in parts, bare files, and nothing."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from gated_domains.data.catalogue import RemoteFile
from gated_domains.data.errors import DataError
from gated_domains.data.fetch import fetch, fetchable
from gated_domains.data.wilds import WILDS, fetching
from gated_domains.data.wilds.fetching import archives_in, fetch_wilds
from gated_domains.data.wilds.molecules import read_molecules
from gated_domains.data.wilds.sources import SOURCES, Files, Listed
from made_ogb import write_ogb

CAMELYON = WILDS["camelyon17"]


class Handler(BaseHTTPRequestHandler):
    """Sends what there is under a path, from the byte asked for; the first answer to some is cut in the middle."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        content = self.server.files.get(self.path)
        self.close_connection = True
        if content is None:
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.path in self.server.cut and not asked
        self.wfile.write(content[start : len(content) // 2 if cut else None])


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.files, server.cut = [], {}, set()
    server.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def packed(files, *, below=""):
    """A tar.gz of these files, by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as pack:
        for name, content in files.items():
            info = tarfile.TarInfo(below + name)
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def contents(chosen=CAMELYON):
    rubbish = np.random.default_rng(0).bytes(5_000)
    return {**dict.fromkeys(chosen.files, b"a,b\n1,2\n"), chosen.version: b"", "patches/one/0.png": rubbish}


def serve(server, monkeypatch, *sources, name="camelyon17"):
    monkeypatch.setitem(SOURCES, name, sources)


def official(server, name="official.tar.gz", about=None):
    return Files((RemoteFile("camelyon17_v1.0.tar.gz", (f"{server.address}/{name}",), about=about),))


def sums(files):
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()).encode()


def brought(tmp_path, **settings):
    said = []
    folder = fetch_wilds("wilds/camelyon17", data_dir=tmp_path, timeout=5.0, say=said.append, **settings)
    assert folder == tmp_path / "wilds" / "camelyon17_v1.0"
    assert (folder / "patches/one/0.png").read_bytes() == contents()["patches/one/0.png"]
    assert (folder / "metadata.csv").is_file()
    assert (folder / "RELEASE_v1.0.txt").is_file()
    assert sorted(path.name for path in (tmp_path / "wilds").iterdir()) == ["camelyon17_v1.0"]
    return said


@pytest.mark.parametrize("below", ["", "camelyon17_v1.0/", "./"])
def test_an_archive_is_fetched_and_unpacked_to_where_it_is_read(server, monkeypatch, tmp_path, below):
    serve(server, monkeypatch, official(server))
    server.files["/official.tar.gz"] = packed(contents(), below=below)
    said = brought(tmp_path)
    assert "no digest of it is published" in said[0]
    assert not (tmp_path / "originals/wilds/camelyon17").exists()


def test_what_is_there_is_not_fetched_again(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, official(server))
    server.files["/official.tar.gz"] = packed(contents())
    brought(tmp_path)
    server.asked.clear()
    assert "already there" in brought(tmp_path)[0]
    assert server.asked == []


def test_a_folder_that_is_not_whole_is_not_written_over(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, official(server))
    (tmp_path / "camelyon17_v1.0").mkdir()
    with pytest.raises(DataError, match=r"is there, but not whole \(RELEASE_v1.0.txt, metadata.csv missing\)"):
        fetch_wilds("camelyon17", data_dir=tmp_path)
    assert server.asked == []


def test_a_mirror_with_a_list_of_digests_is_asked_for_the_labelled_archive_of_our_version(
    server, monkeypatch, tmp_path
):
    serve(server, monkeypatch, Listed(f"{server.address}/hub/"), official(server))
    files = {
        "camelyon17_unlabeled_v1.0.tar.gz": b"unlabelled",
        "camelyon17_v1.0.tar.gz": packed(contents()),
        "README.md": b"hello",
    }
    server.files |= {f"/hub/{name}": content for name, content in files.items()}
    server.files["/hub/SHA256SUMS"] = sums(files)
    brought(tmp_path)
    assert [path for path, _ in server.asked] == ["/hub/SHA256SUMS", "/hub/camelyon17_v1.0.tar.gz"]


def test_an_archive_in_parts_is_joined(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, Listed(f"{server.address}/hub/"))
    whole = packed(contents())
    parts = {f"camelyon17_v1.0.tar.gz.part-{n:02}": whole[n * 2_000 : (n + 1) * 2_000] for n in range(3)}
    assert b"".join(parts.values()) == whole
    server.files |= {f"/hub/{name}": content for name, content in parts.items()}
    server.files["/hub/SHA256SUMS"] = sums(parts)
    brought(tmp_path)


def test_a_wrong_file_behind_a_digest_is_passed_over_for_the_next_source(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, Listed(f"{server.address}/hub/"), official(server))
    server.files["/hub/SHA256SUMS"] = sums({"camelyon17_v1.0.tar.gz": b"something else"})
    server.files["/hub/camelyon17_v1.0.tar.gz"] = server.files["/official.tar.gz"] = packed(contents())
    said = brought(tmp_path)
    assert "it sends a wrong file (its sha256 is" in said[0]


def test_after_a_cut_the_rest_is_asked_for(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, official(server))
    server.files["/official.tar.gz"] = content = packed(contents())
    server.cut.add("/official.tar.gz")
    brought(tmp_path)
    assert server.asked == [("/official.tar.gz", None), ("/official.tar.gz", f"bytes={len(content) // 2}-")]


def test_a_large_archive_from_one_place_is_gone_on_with_in_a_later_call(server, monkeypatch, tmp_path):
    content = packed(contents())
    serve(server, monkeypatch, official(server, about=len(content) + 20))
    server.files["/official.tar.gz"] = content
    begun = tmp_path / "originals/wilds/camelyon17/0/camelyon17_v1.0.tar.gz.part"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(content[:1_000])
    brought(tmp_path)
    assert server.asked == [("/official.tar.gz", "bytes=1000-")]


def test_an_archive_far_from_the_size_known_is_refused(server, monkeypatch, tmp_path):
    content = packed(contents())
    serve(server, monkeypatch, official(server, about=2 * len(content)))
    server.files["/official.tar.gz"] = content
    with pytest.raises(DataError, match=rf"it has {len(content):,} bytes instead of about {2 * len(content):,}"):
        fetch_wilds("camelyon17", data_dir=tmp_path)


def test_a_damaged_archive_is_fetched_anew_the_next_time(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, official(server))
    server.files["/official.tar.gz"] = packed(contents())[:-500]
    with pytest.raises(DataError, match="damaged or cut short"):
        fetch_wilds("camelyon17", data_dir=tmp_path)
    assert list((tmp_path / "wilds").iterdir()) == []
    server.files["/official.tar.gz"] = packed(contents())
    brought(tmp_path)


def test_an_archive_of_something_else_is_refused(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, official(server))
    server.files["/official.tar.gz"] = packed({"cats.csv": b""})
    with pytest.raises(DataError, match=r"what was fetched has no metadata.csv: it is not Camelyon17"):
        fetch_wilds("camelyon17", data_dir=tmp_path)


def test_when_everything_fails_every_address_is_named_and_what_to_do_by_hand(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, Listed(f"{server.address}/hub/"), official(server))
    with pytest.raises(DataError) as caught:
        fetch_wilds("camelyon17", data_dir=tmp_path)
    said = str(caught.value)
    for address in ("/hub/SHA256SUMS", "/official.tar.gz"):
        assert f"{server.address}{address}: it answers 500" in said
    assert "has been down for months" in said
    by_hand = tmp_path / "originals/wilds/camelyon17/camelyon17_v1.0.tar.gz"
    assert str(by_hand) in said
    assert str(tmp_path / "wilds/camelyon17_v1.0/metadata.csv") in said
    by_hand.write_bytes(packed(contents()))
    server.asked.clear()
    brought(tmp_path, offline=True)
    assert server.asked == []
    assert by_hand.is_file()


def test_offline_nothing_is_asked_for(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, Listed(f"{server.address}/hub/"), official(server))
    with pytest.raises(DataError, match="nothing is fetched offline"):
        fetch_wilds("camelyon17", data_dir=tmp_path, offline=True)
    assert server.asked == []


def test_a_data_set_of_one_file_needs_no_archive(server, monkeypatch, tmp_path):
    name = "all_data_with_identities.csv"
    bare = Files((RemoteFile(name, (f"{server.address}/{name}",)),), to=(name,))
    serve(server, monkeypatch, bare, name="civilcomments")
    server.files[f"/{name}"] = b"comment_text,split\n"
    folder = fetch_wilds("wilds/civilcomments", data_dir=tmp_path)
    assert (folder / name).read_bytes() == b"comment_text,split\n"
    assert (folder / "RELEASE_v1.0.txt").is_file()


def test_the_molecules_come_from_ogb_with_their_scaffolds(server, monkeypatch, tmp_path):
    made = write_ogb(tmp_path / "made" / "pcba")
    scaffolds = (made / "raw" / "scaffold_group.npy").read_bytes()
    (made / "raw" / "scaffold_group.npy").unlink()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as pack:
        for path in sorted(made.rglob("*")):
            if path.is_file():
                pack.write(path, path.relative_to(made.parent))
    server.files |= {"/pcba.zip": buffer.getvalue(), "/scaffold_group.npy": scaffolds}
    for name, file in (("MOLECULES", "pcba.zip"), ("SCAFFOLDS", "scaffold_group.npy")):
        monkeypatch.setattr(fetching, name, RemoteFile(file, (f"{server.address}/{file}",)))
    folder = fetch_wilds("wilds/ogb-molpcba", data_dir=tmp_path)
    assert folder == tmp_path / "wilds" / "ogbg_molpcba"
    assert len(read_molecules(folder).graphs) == 40


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("nonsense\n", "names no archive of camelyon17_v1.0"),
        (f"{'0' * 64}  camelyon17_v0.9.tar.gz\n", "names no archive of camelyon17_v1.0"),
        (f"{'0' * 64}  ../camelyon17_v1.0.tar.gz\n", "names no archive of camelyon17_v1.0"),
        (f"{'0' * 64}  a/camelyon17_v1.0.tar.gz\n{'1' * 64}  b/camelyon17_v1.0.tar.gz\n", "names several archives"),
    ],
)
def test_a_list_without_our_archive_is_refused(lines, message):
    with pytest.raises(DataError, match=message):
        archives_in(lines, Listed("http://127.0.0.1/"), CAMELYON)


@pytest.mark.parametrize("path", ["camelyon17_v1.0.tar.gz", "./v1.0/archive.tar.gz", "labeled/camelyon17-1.0.tgz"])
def test_an_archive_is_known_by_its_version(path):
    (file,) = archives_in(f"{'a' * 64} *{path}\n", Listed("http://127.0.0.1/"), CAMELYON)
    assert file.sha256 == "a" * 64
    assert file.mirrors == (f"http://127.0.0.1/{path.removeprefix('./')}",)


def test_every_one_of_the_eight_can_be_fetched_by_name(server, monkeypatch, tmp_path):
    assert {f"wilds/{name}" for name in WILDS} <= set(fetchable())
    serve(server, monkeypatch, official(server))
    server.files["/official.tar.gz"] = packed(contents())
    assert fetch("wilds/camelyon17", data_dir=tmp_path) == tmp_path / "wilds" / "camelyon17_v1.0"


def test_sources_are_addresses_of_the_version_that_is_read():
    assert set(SOURCES) == set(WILDS) - {"ogb-molpcba"}
    for name, sources in SOURCES.items():
        *_, last = sources
        assert isinstance(last, Files)
        assert last.files[0].about == WILDS[name].bytes
        assert last.files[0].mirrors[0].startswith("https://worksheets.codalab.org/rest/bundles/0x")
        for source in sources:
            addresses = [source.address] if isinstance(source, Listed) else source.files[0].mirrors
            assert all(address.startswith("https://") for address in addresses)
