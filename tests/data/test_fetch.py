"""Fetching, from a server on this machine that cuts connections, lies about lengths, stalls and sends wrong files."""

from __future__ import annotations

import bz2
import hashlib
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from gated_domains.data import catalogue, download, fetch
from gated_domains.data.catalogue import DIGITS5, RemoteFile
from gated_domains.data.digits5 import DOMAINS
from gated_domains.data.errors import DataError
from gated_domains.data.originals import prepare

CONTENT = np.random.default_rng(0).bytes(200_000)
WRONG = np.random.default_rng(1).bytes(200_000)
CUT = 70_000


class Handler(BaseHTTPRequestHandler):
    """The first part of the path says how to behave."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        manner, _, name = self.path.strip("/").partition("/")
        self.server.asked.append((manner, self.headers.get("Range")))
        content = self.server.files.get(name, CONTENT)
        self.close_connection = True
        getattr(self, manner.replace("-", "_"))(content)

    def start(self, content):
        """The byte that is asked for first."""
        asked = self.headers.get("Range")
        return int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0

    def head(self, status, *, length=None, **headers):
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()

    def good(self, content, *, most=None, said=None):
        start, said = self.start(content), len(content) if said is None else said
        if start >= len(content):
            return self.head(416, length=0, Content_Range=f"bytes */{len(content)}")
        if start:
            self.head(206, length=said - start, Content_Range=f"bytes {start}-{len(content) - 1}/{said}")
        else:
            self.head(200, length=said)
        return self.wfile.write(content[start:][:most])

    def cut(self, content):
        self.good(content, most=CUT)

    def cut_to_nothing(self, content):
        """Sends one part, and nothing more however often it is asked."""
        self.good(content, most=0 if self.start(content) else CUT)

    def no_range(self, content):
        self.head(200, length=len(content))
        self.wfile.write(content)

    def no_range_and_cut(self, content):
        self.head(200, length=len(content))
        self.wfile.write(content[:CUT])

    def says_more(self, content):
        self.good(content, said=len(content) + 1_000)

    def says_less(self, content):
        self.good(content, said=len(content) - 1_000) if not self.start(content) else self.good(content)

    def says_nothing(self, content):
        self.head(200)
        self.wfile.write(content)

    def chunked(self, content):
        self.head(200, Transfer_Encoding="chunked")
        for begin in range(0, len(content), 60_000):
            block = content[begin : begin + 60_000]
            self.wfile.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def wrong(self, content):
        self.good(WRONG[: len(content)])

    def shorter(self, content):
        self.good(content[:-1_000])

    def endless(self, content):
        self.head(200)
        for _ in range(100):
            self.wfile.write(content)

    def another_range(self, content):
        if not self.start(content):
            return (
                self.good(content, most=CUT)
                if self.server.asked.count(("another-range", None)) == 1
                else self.good(content)
            )
        self.head(206, length=10, Content_Range=f"bytes 5-14/{len(content)}")
        return self.wfile.write(content[5:15])

    def web_page(self, content):
        self.head(200, length=5, Content_Type="text/html; charset=utf-8")
        self.wfile.write(b"hello")

    def stall(self, content):
        """Stops in the middle; goes on when it is asked again."""
        if self.start(content):
            return self.good(content)
        self.head(200, length=len(content))
        self.wfile.write(content[:CUT])
        return self.server.over.wait(20)

    def silent(self, content):
        self.server.over.wait(20)

    def missing(self, content):
        self.head(404, length=0)

    def broken(self, content):
        self.head(500, length=0)

    def redirect(self, content):
        self.head(302, length=0, Location="/good/file.bin")

    def to_ftp(self, content):
        self.head(302, length=0, Location="ftp://127.0.0.1/file.bin")

    def in_circles(self, content):
        self.head(302, length=0, Location="/in-circles/file.bin")

    def rubbish(self, content):
        self.wfile.write(b"no http at all\r\n\r\n")


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.files, server.over = [], {}, threading.Event()
    server.handle_error = lambda *_: None  # a client that hangs up is what is tested
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GATED_DOMAINS_DATA", raising=False)


def url(server, manner, name="file.bin"):
    return f"http://127.0.0.1:{server.server_address[1]}/{manner}/{name}"


def remote(server, *manners, digest="sha256", size=True, content=CONTENT, name="file.bin"):
    known = {digest: hashlib.new(digest, content).hexdigest()} if digest else {}
    mirrors = tuple(url(server, manner, name) for manner in manners)
    return RemoteFile(name, mirrors, size=len(content) if size else None, **known)


def have(file, folder, **settings):
    said = []
    path = fetch.download(file, folder, timeout=settings.pop("timeout", 5.0), say=said.append, **settings)
    assert path == folder / file.name
    assert path.read_bytes() == CONTENT
    assert sorted(other.name for other in folder.iterdir()) == [file.name]
    return said


def fails(file, folder, *, left=(), **settings):
    said = []
    with pytest.raises(DataError) as caught:
        fetch.download(file, folder, timeout=settings.pop("timeout", 5.0), say=said.append, **settings)
    assert [path.name for path in folder.iterdir()] == list(left)
    return str(caught.value), said


def test_a_file_is_fetched_and_then_never_again(server, tmp_path):
    assert have(remote(server, "good"), tmp_path) == []
    have(remote(server, "good"), tmp_path)
    assert server.asked == [("good", None)]


def test_after_a_cut_the_rest_is_asked_for(server, tmp_path):
    have(remote(server, "cut"), tmp_path)
    assert server.asked == [("cut", None), ("cut", "bytes=70000-"), ("cut", "bytes=140000-")]


def test_a_later_call_goes_on_from_what_has_arrived(server, tmp_path):
    message, _ = fails(remote(server, "cut-to-nothing"), tmp_path, left=["file.bin.part"])
    assert "the connection was cut after 70,000 of 200,000 bytes" in message
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:CUT]
    server.asked.clear()
    have(remote(server, "good"), tmp_path)
    assert server.asked == [("good", "bytes=70000-")]


def test_another_mirror_goes_on_where_one_was_cut(server, tmp_path):
    said = have(remote(server, "cut-to-nothing", "good"), tmp_path)
    assert server.asked[-1] == ("good", "bytes=70000-")
    assert len(said) == 1
    assert "cut-to-nothing" in said[0]


def test_a_server_that_does_not_resume_sends_all_again(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1_000])
    have(remote(server, "no-range"), tmp_path)
    assert server.asked == [("no-range", "bytes=1000-")]


def test_a_server_that_does_not_resume_and_always_cuts_is_given_up(server, tmp_path):
    message, _ = fails(remote(server, "no-range-and-cut"), tmp_path, left=["file.bin.part"])
    assert "cut after 70,000 of 200,000" in message
    assert len(server.asked) == 2


def test_a_server_that_sends_another_range_is_asked_for_all(server, tmp_path):
    have(remote(server, "another-range"), tmp_path)
    assert server.asked == [("another-range", None), ("another-range", "bytes=70000-"), ("another-range", None)]


@pytest.mark.parametrize("manner", ["says-more", "says-less", "says-nothing", "chunked"])
@pytest.mark.parametrize("digest", ["sha256", "md5"])
def test_a_wrong_word_about_the_length_does_no_harm(server, tmp_path, manner, digest):
    have(remote(server, manner, digest=digest), tmp_path)


@pytest.mark.parametrize("manner", ["says-more", "says-nothing", "chunked"])
def test_where_nobody_tells_the_size_the_digest_decides(server, tmp_path, manner):
    have(remote(server, manner, size=False), tmp_path)


def test_a_length_that_cuts_the_file_short_is_found_out_by_the_digest(server, tmp_path):
    message, _ = fails(remote(server, "says-less", size=False), tmp_path)
    assert "it sends a wrong file (its sha256 is" in message


def test_a_wrong_file_is_removed_and_the_next_mirror_asked(server, tmp_path):
    said = have(remote(server, "wrong", "good"), tmp_path)
    assert server.asked == [("wrong", None), ("good", None)]
    assert len(said) == 1
    assert "/wrong/file.bin: it sends a wrong file (its sha256 is" in said[0]
    assert said[0].endswith("passed over")


def test_half_a_wrong_file_does_not_spoil_the_right_one(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(WRONG[:CUT])
    have(remote(server, "good"), tmp_path)
    assert server.asked == [("good", "bytes=70000-"), ("good", None)]


def test_a_part_that_is_too_long_is_thrown_away(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    have(remote(server, "good"), tmp_path)


def test_a_part_that_was_complete_is_taken_without_asking(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    have(remote(server, "good"), tmp_path)
    assert server.asked == []
    (tmp_path / "file.bin").rename(tmp_path / "file.bin.part")
    have(remote(server, "good", size=False), tmp_path)
    assert server.asked == [("good", "bytes=200000-")]


@pytest.mark.parametrize("size", [True, False])
def test_a_file_that_is_too_short_is_refused(server, tmp_path, size):
    message, _ = fails(remote(server, "shorter", size=size), tmp_path, left=["file.bin.part"] if size else [])
    assert ("it has 199,000 bytes instead of 200,000" if size else "a wrong file") in message


def test_a_file_that_never_ends_is_stopped(server, tmp_path, monkeypatch):
    message, _ = fails(remote(server, "endless"), tmp_path)
    assert "it sends more than 200,000 bytes" in message
    monkeypatch.setattr(download, "_MOST_BYTES", 300_000)
    message, _ = fails(remote(server, "endless", size=False), tmp_path)
    assert "it sends more than 300,000 bytes" in message


def test_a_server_that_stalls_is_asked_again(server, tmp_path):
    have(remote(server, "stall"), tmp_path, timeout=0.3)
    assert server.asked == [("stall", None), ("stall", "bytes=70000-")]


DEAD = {
    "silent": "",
    "missing": "it answers 404 Not Found",
    "broken": "it answers 500 Internal Server Error",
    "web-page": "it sends a web page instead of the file",
    "to-ftp": "it cannot be reached (unknown url type: ftp)",
    "in-circles": "it answers 302",
    "rubbish": "it cannot be reached",
}


@pytest.mark.parametrize("manner", DEAD)
def test_a_dead_mirror_is_passed_over_with_one_line(server, tmp_path, manner):
    said = have(remote(server, manner, "good"), tmp_path, timeout=0.3)
    assert len(said) == 1
    assert said[0].startswith(url(server, manner) + ": " + DEAD[manner])
    assert server.asked[-1] == ("good", None)


def test_a_mirror_that_refuses_or_has_no_address_is_passed_over(server, tmp_path, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    real = socket.getaddrinfo

    def lookup(host, *rest, **settings):
        if host == "nowhere.invalid":
            raise socket.gaierror(-2, "Name or service not known")
        return real(host, *rest, **settings)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    good = remote(server, "good")
    dead = (
        f"http://127.0.0.1:{port}/x",
        "http://nowhere.invalid/x",
        "file:///etc/passwd",
        "ftp://h/x",
        "http://[bad/x",
    )
    said = have(RemoteFile("file.bin", (*dead, *good.mirrors), good.size, good.sha256), tmp_path)
    assert len(said) == 5
    assert "refused" in said[0]
    assert "not known" in said[1]
    assert said[2] == "file:///etc/passwd: only http and https are fetched; passed over"
    assert said[3] == "ftp://h/x: only http and https are fetched; passed over"


def test_a_redirection_is_followed(server, tmp_path):
    have(remote(server, "redirect"), tmp_path)


def test_where_every_mirror_is_dead_each_is_listed_with_its_reason(server, tmp_path):
    message, said = fails(remote(server, "missing", "broken", "wrong"), tmp_path)
    for word in ("/missing/file.bin: it answers 404", "/broken/file.bin: it answers 500", "/wrong/file.bin: it sends"):
        assert word in message
    assert f"put the file there by hand: {tmp_path / 'file.bin'}" in message
    assert len(said) == 3


def test_offline_nothing_is_fetched(server, tmp_path):
    file = remote(server, "good")
    message, _ = fails(file, tmp_path, offline=True)
    assert f"{tmp_path / 'file.bin'} is not there, and nothing is fetched offline" in message
    (tmp_path / "file.bin").write_bytes(CONTENT)
    have(file, tmp_path, offline=True)
    (tmp_path / "file.bin").write_bytes(WRONG)
    message, _ = fails(file, tmp_path, offline=True, left=["file.bin"])
    assert "is there but wrong (its sha256 is" in message
    assert server.asked == []


def test_a_wrong_file_that_is_there_is_set_aside_and_fetched_again(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(WRONG[:-1])
    said = []
    path = fetch.download(remote(server, "good"), tmp_path, say=said.append)
    assert path.read_bytes() == CONTENT
    assert (tmp_path / "file.bin.wrong").read_bytes() == WRONG[:-1]
    assert len(said) == 1
    assert "it has 199,999 bytes instead of 200,000; moved to file.bin.wrong, and fetched again" in said[0]


def test_without_a_published_digest_the_one_found_is_kept_and_checked(server, tmp_path):
    file = remote(server, "good", digest=None, size=False)
    (tmp_path / "file.bin.part").write_bytes(b"of who knows what file")
    said = []
    fetch.download(file, tmp_path, say=said.append)
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert server.asked == [("good", None)]
    assert len(said) == 1
    assert f"Its SHA-256 is {digest}; kept in file.bin.sha256" in said[0]
    assert (tmp_path / "file.bin.sha256").read_text() == f"{digest}  file.bin\n"
    said.clear()
    fetch.download(file, tmp_path, say=said.append)
    assert said == []
    (tmp_path / "file.bin").write_bytes(WRONG)
    with pytest.raises(DataError, match="is there but wrong"):
        fetch.download(file, tmp_path, offline=True)


def test_a_full_disk_is_not_blamed_on_the_mirror(server, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "_append", full)
    with pytest.raises(OSError, match="No space left"):
        fetch.download(remote(server, "good", "good"), tmp_path)
    assert len(server.asked) == 1


# Data sets by name


@pytest.fixture
def shop(server, monkeypatch):
    """A catalogue of tiny originals on our server; ``dead`` makes those of a domain unavailable."""
    from test_originals import LABELS, images, libsvm, text, write_mnist, write_svhn

    monkeypatch.setattr(prepare, "ROWS", {"training": 30, "test": 20})
    monkeypatch.setattr(
        "gated_domains.data.digits.numbers.render",
        lambda labels, *, seed, advance=None: np.zeros((len(labels), 32, 32, 3), np.uint8),
    )
    pictures = {"mnist": images(28, 28), "svhn": images(32, 32, 3), "usps": images(16, 16), "syn": images(32, 32, 3)}

    def stock(tmp_path, *, dead=()):
        source = tmp_path / "served"
        source.mkdir()
        write_mnist(source, pictures["mnist"])
        write_svhn(source, pictures["svhn"])
        write_svhn(source, pictures["syn"], prefix="synth_")
        for name, split in (("usps.bz2", 0), ("usps.t.bz2", 1)):
            (source / name).write_bytes(bz2.compress(libsvm(pictures["usps"][split], LABELS[split])))
        for name, split in (("zip.train.gz", 0), ("zip.test.gz", 1)):
            (source / name).write_bytes(text(pictures["usps"][split], LABELS[split]))
        server.files.update({path.name: path.read_bytes() for path in source.iterdir()})

        def ours(file, part):
            manner = "missing" if part in dead or file.name in dead else "good"
            content = server.files[file.name]
            known = hashlib.sha256(content).hexdigest() if file.sha256 else None
            return RemoteFile(file.name, (url(server, manner, file.name),), len(content), known)

        parts = {
            part: tuple(tuple(ours(file, part) for file in file_set) for file_set in sets)
            for part, sets in DIGITS5.items()
            if part != "mnistm"
        }
        monkeypatch.setattr(fetch, "DIGITS5", parts)

    return stock


def test_a_data_set_is_fetched_and_prepared(shop, server, tmp_path):
    shop(tmp_path)
    done = fetch.fetch("digits5", data_dir=tmp_path / "data", say=lambda line: None)
    assert list(done.domains) == ["mnist", "svhn", "usps", "syn"]
    assert all(domain.note is None for domain in done.domains.values())
    assert done.folder == tmp_path / "data" / "digits5"
    names = {path.name for path in (tmp_path / "data" / "originals" / "digits5").iterdir()}
    assert {"train-images-idx3-ubyte.gz", "usps.bz2", "train_32x32.mat", "synth_train_32x32.mat"} <= names
    server.asked.clear()
    shutil.rmtree(tmp_path / "data" / "originals")  # not needed any more
    again = fetch.fetch("digits5", data_dir=tmp_path / "data", offline=True, say=lambda line: None)
    assert all(domain.kept for domain in again.domains.values())
    assert server.asked == []


def test_one_domain_is_fetched_alone(shop, tmp_path):
    shop(tmp_path, dead=("mnist", "svhn", "syn"))
    done = fetch.fetch("usps", data_dir=tmp_path / "data", say=lambda line: None)
    assert list(done.domains) == ["usps"]
    assert [path.name for path in done.folder.iterdir()] == ["usps.npz"]


def test_another_form_of_the_data_does_where_the_first_is_not_to_be_had(shop, tmp_path):
    shop(tmp_path, dead=("usps.t.bz2",))
    done = fetch.fetch("usps", data_dir=tmp_path / "data", say=lambda line: None)
    assert done.domains["usps"].sources == ("zip.train.gz", "zip.test.gz")


def test_originals_put_there_by_hand_are_not_fetched(shop, server, tmp_path):
    shop(tmp_path)
    folder = tmp_path / "data" / "originals" / "digits5"
    folder.mkdir(parents=True)
    for name in ("zip.train.gz", "zip.test.gz"):
        (folder / name).write_bytes(server.files[name])
    done = fetch.fetch("usps", data_dir=tmp_path / "data", offline=True, say=lambda line: None)
    assert done.domains["usps"].train_rows == 30
    assert server.asked == []


def test_syn_is_rendered_where_it_is_not_to_be_had(shop, tmp_path):
    shop(tmp_path, dead=("syn",))
    said = []
    done = fetch.fetch("digits5", data_dir=tmp_path / "data", say=said.append)
    assert done.domains["syn"].note == prepare.RENDERED
    assert any(line.startswith("syn: ") and "rendered from fonts instead" in line for line in said)
    with pytest.raises(DataError, match=r"synth_train_32x32\.mat could not be fetched"):
        fetch.fetch("syn", data_dir=tmp_path / "data", say=said.append)


def test_what_can_be_had_is_prepared_before_the_rest_is_reported(shop, tmp_path):
    shop(tmp_path, dead=("svhn",))
    with pytest.raises(DataError) as caught:
        fetch.fetch("digits5", data_dir=tmp_path / "data", say=lambda line: None)
    assert "svhn: train_32x32.mat could not be fetched" in str(caught.value)
    assert "digits5 is not complete; prepared are mnist, usps, syn" in str(caught.value)
    assert (tmp_path / "data" / "digits5" / "mnist.npz").is_file()
    assert not (tmp_path / "data" / "digits5" / "svhn.npz").exists()


def test_offline_without_originals_every_file_is_named(shop, server, tmp_path):
    shop(tmp_path)
    with pytest.raises(
        DataError, match=r"(?s)mnist: .*ubyte\.gz is not there, .*svhn: .*train_32x32\.mat is not there"
    ):
        fetch.fetch("digits5", data_dir=tmp_path / "data", offline=True, say=lambda line: None)
    assert server.asked == []
    assert not (tmp_path / "data").exists()


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(DataError, match="nothing called 'digit5' to fetch; did you mean 'digits5'"):
        fetch.fetch("digit5", data_dir=tmp_path)
    assert fetch.fetchable()[:6] == ("digits5", "mnist", "mnistm", "svhn", "usps", "syn")


def test_the_catalogue_is_complete_and_well_formed():
    assert set(catalogue.DIGITS5) == set(DOMAINS)
    for sets in catalogue.DIGITS5.values():
        assert all(file.sha256 and file.size for file in sets[0])  # the first choice is always checked in full
        for file in (file for file_set in sets for file in file_set):
            assert len(file.mirrors) >= 2
            assert all(mirror.startswith(("https://", "http://ufldl")) for mirror in file.mirrors)
            assert file.sha256 is None or (len(file.sha256) == 64 and int(file.sha256, 16))
            assert file.md5 is None or (len(file.md5) == 32 and int(file.md5, 16))
