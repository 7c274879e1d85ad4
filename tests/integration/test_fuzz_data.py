"""Two thousand damaged files: each is read or refused with a sentence. No other error, no hang, nothing left behind.

``mutated(kind, number)`` makes any of them again.
"""

from __future__ import annotations

import io
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gated_domains import cli
from gated_domains.data.check import check_data
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading

FILES_A_KIND = 500
SECONDS_A_FILE = 20
MOST_MEGABYTES = 1_000
COMMAND = Path(sys.executable).parent / "gated-domains"
Chance = np.random.Generator


# -- good files ------------------------------------------------------------------------------------------------------


def good_csv() -> bytes:
    rows = [f'{20 + row},{row * 0.37:.3f},{["red", "", "two lines"][row % 3]},2020-01-{row % 28 + 1:02},'
            f'{"ab"[row % 2]},{row % 3 % 2}' for row in range(30)]  # fmt: skip
    text = "\n".join(["age,dose,word,day,site,y", *rows, '44,NA,"a\nb, c",,a,1', ""])
    return text.encode()


def good_npz() -> bytes:
    out = io.BytesIO()
    labels, sites = np.arange(12) % 3, np.array(["a", "b"] * 6)
    np.savez(
        out, X=np.arange(36, dtype=np.float32).reshape(12, 3) ** 2, y=labels, domain=sites, class_names=list("xyz")
    )
    return out.getvalue()


def good_png(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(256, size=(4, 5, 3), dtype=np.uint8)
    out = io.BytesIO()
    modes = ("RGB", "P", "L", "RGBA", "1", "LA")
    Image.fromarray(pixels).convert(modes[number % len(modes)]).save(out, "PNG")
    return out.getvalue()


GOOD_CARD = b"""# a card
path: table.csv
target: y
domain: site
positive: [1]
categorical: [word]
drop: [day]
notes: "first: 12, then 3"
"""


# -- damage ----------------------------------------------------------------------------------------------------------


def _block(content: bytes, chance: Chance) -> tuple[int, int]:
    start = int(chance.integers(len(content) + 1))
    return start, min(len(content), start + int(chance.integers(1, 40)))


def flip_bits(content: bytes, chance: Chance) -> bytes:
    changed = bytearray(content)
    for place in chance.integers(max(1, len(changed)), size=int(chance.integers(1, 9))):
        if changed:
            changed[place] ^= 1 << int(chance.integers(8))
    return bytes(changed)


def truncate(content: bytes, chance: Chance) -> bytes:
    return content[: int(chance.integers(len(content) + 1))]


def insert_bytes(content: bytes, chance: Chance) -> bytes:
    place, _ = _block(content, chance)
    return content[:place] + chance.bytes(int(chance.integers(1, 30))) + content[place:]


def delete_block(content: bytes, chance: Chance) -> bytes:
    start, end = _block(content, chance)
    return content[:start] + content[end:]


def double_block(content: bytes, chance: Chance) -> bytes:
    start, end = _block(content, chance)
    return content[:end] + content[start:end] * int(chance.integers(1, 20)) + content[end:]


def blank_block(content: bytes, chance: Chance) -> bytes:
    start, end = _block(content, chance)
    return content[:start] + bytes([int(chance.choice([0, 255]))]) * (end - start) + content[end:]


def random_head(content: bytes, chance: Chance) -> bytes:
    length = int(chance.integers(1, 33))
    return chance.bytes(length) + content[length:]


HUGE = [b"9" * 19, b"9" * 400, b"1e999", b"-1", b"18446744073709551616", b"nan", b"1" + b"0" * 9, b"-0", b"1e-999"]
SIGNS = [b'"', b"'", b",", b";", b"\n", b"\r", b"\t", b"|", b":", b"- ", b"[", b"]", b"{", b"}", b"&a ", b"*a", b"<<: ",
         b"!!int ", b"? ", b"%", b"~", b"#", b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"(", b"\\", b"../"]  # fmt: skip


def huge_number(content: bytes, chance: Chance) -> bytes:
    found = list(re.finditer(rb"\d+", content))
    if not found:
        return content
    match = found[int(chance.integers(len(found)))]
    return content[: match.start()] + HUGE[int(chance.integers(len(HUGE)))] + content[match.end() :]


def insert_sign(content: bytes, chance: Chance) -> bytes:
    place, _ = _block(content, chance)
    return content[:place] + SIGNS[int(chance.integers(len(SIGNS)))] + content[place:]


MUTATIONS: list[Callable[[bytes, Chance], bytes]] = [
    flip_bits, truncate, insert_bytes, delete_block, double_block, blank_block, random_head, huge_number, insert_sign,
]  # fmt: skip


def damaged(content: bytes, chance: Chance) -> bytes:
    for _ in range(int(chance.integers(1, 4))):
        content = MUTATIONS[int(chance.integers(len(MUTATIONS)))](content, chance)
    return content


def damaged_inside_npz(content: bytes, chance: Chance) -> bytes:
    """One array is damaged, and packed again so that every checksum is right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        chosen = old.namelist()[int(chance.integers(len(old.namelist())))]
        for name in old.namelist():
            new.writestr(name, damaged(old.read(name), chance) if name == chosen else old.read(name))
    return out.getvalue()


def damaged_inside_png(content: bytes, chance: Chance) -> bytes:
    """One chunk is damaged, and its length and checksum are made right."""
    chunks, place = [], 8
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + length]))
        place += length + 12
    chosen = int(chance.integers(len(chunks)))
    chunks[chosen] = (chunks[chosen][0], damaged(chunks[chosen][1], chance))
    return content[:8] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


KINDS = ("csv", "npz", "png", "yaml")


def mutated(kind: str, number: int) -> bytes:
    """The damaged file of this number, always the same."""
    chance = np.random.default_rng([KINDS.index(kind), number])
    if kind == "npz":
        return (damaged_inside_npz if number % 2 else damaged)(good_npz(), chance)
    if kind == "png":
        return (damaged_inside_png if number % 2 else damaged)(good_png(number), chance)
    return damaged(good_csv() if kind == "csv" else GOOD_CARD, chance)


# -- each in its place -----------------------------------------------------------------------------------------------


class Place:
    """A folder with good files around the one to be damaged, and how data there are named."""

    def __init__(self, root: Path, kind: str) -> None:
        self.folder = root / "inner" / "data"
        self.folder.mkdir(parents=True)
        self.reading = Reading(target="y", domain="site") if kind == "csv" else Reading()
        self.file = self.what = self.folder / {"csv": "t.csv", "npz": "d.npz", "yaml": "c.yaml", "png": "png"}[kind]
        if kind == "yaml":
            (self.folder / "table.csv").write_bytes(good_csv())
        if kind == "png":
            for number, inner in enumerate(("day/cat", "day/dog", "night/cat", "night/dog")):
                (self.what / inner).mkdir(parents=True)
                (self.what / inner / "good.png").write_bytes(good_png(number))
            self.file = self.what / "night" / "dog" / "damaged.png"

    def options(self) -> list[str]:
        return ["--target", "y", "--domain", "site"] if self.reading.target else []


@pytest.fixture
def place(tmp_path, monkeypatch) -> Callable[[str], Place]:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda kind: Place(tmp_path, kind)


class HangError(BaseException):
    """Not an Exception: nothing may catch it and go on."""


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def everything_in(root: Path) -> list[str]:
    return sorted(os.path.join(folder, name) for folder, inner, names in os.walk(root) for name in [*inner, *names])


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_with_a_sentence(kind, place, tmp_path):
    here = place(kind)
    here.file.write_bytes(b"")
    before, memory = everything_in(tmp_path), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    good, faults = 0, []
    for number in range(FILES_A_KIND):
        here.file.write_bytes(mutated(kind, number))
        try:
            with no_longer_than(SECONDS_A_FILE):
                report = check_data(here.what, here.reading)
            good += not any("cannot be read" in finding.text for finding in report.findings)
        except DataError as error:
            if not str(error).strip():
                faults.append((number, "an empty message"))
        except OSError as error:
            if error.filename is None:
                faults.append((number, f"an error of the disk that names no file: {error!r}"))
        except (Exception, HangError) as error:
            faults.append((number, repr(error)))
    assert not faults, f"{len(faults)} of {FILES_A_KIND}; mutated({kind!r}, {faults[0][0]}): {faults[0][1]}"
    assert everything_in(tmp_path) == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MOST_MEGABYTES * 1024
    # The damage is neither harmless nor so coarse that only the outermost check is met.
    assert 0.02 * FILES_A_KIND < good < 0.95 * FILES_A_KIND


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_answers_damage_with_exit_code_0_or_2(kind, place, monkeypatch, capsys):
    here = place(kind)
    for number in range(5):
        here.file.write_bytes(mutated(kind, number))
        monkeypatch.setattr(sys, "argv", ["gated-domains", "data", "check", str(here.what), *here.options()])
        code = 0
        try:
            with no_longer_than(SECONDS_A_FILE):
                cli.main()
        except SystemExit as end:
            code = end.code or 0
        printed = capsys.readouterr()
        assert code in (0, 2), (number, printed)
        assert "Traceback" not in printed.out + printed.err
        assert code == 0 or printed.out or printed.err.startswith("error: ")


@pytest.mark.parametrize("kind", KINDS)
def test_the_real_command_answers_damage_with_exit_code_0_or_2(kind, place, tmp_path):
    here = place(kind)
    here.file.write_bytes(mutated(kind, 7))
    before = everything_in(tmp_path)
    command = [COMMAND, "data", "check", here.what, *here.options()]
    done = subprocess.run(command, capture_output=True, timeout=60, cwd=here.folder)
    assert done.returncode in (0, 2), done
    assert b"Traceback" not in done.stdout + done.stderr
    assert everything_in(tmp_path) == before
