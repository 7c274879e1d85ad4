"""Digits-5 from the public originals, wherever they lie: drawn, and written as the package reads them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits5 import DOMAINS, folder_name, read_images, read_labels, read_note
from gated_domains.data.errors import DataError, data_folder, did_you_mean, listing, written_whole
from gated_domains.data.npz import read_arrays
from gated_domains.data.originals.finding import RECIPES
from gated_domains.data.originals.gathering import Original, gathered
from gated_domains.data.originals.parts import Bytes, Parts
from gated_domains.data.progress import progress

ROWS = {"training": 25_000, "test": 9_000}
SMALL_ROWS = {"training": 1_500, "test": 500}
RENDERED = "syn is rendered from fonts: the original file was missing"


@dataclass(frozen=True)
class PreparedDomain:
    """One domain's file: its rows, the originals it was made from, and what is to be said of it.

    ``sources`` are empty where the file was there already (``kept``) or rendered (``note`` says so).
    """

    path: Path
    train_rows: int
    test_rows: int
    sources: tuple[str, ...] = ()
    note: str | None = None
    kept: bool = False

    def __str__(self) -> str:
        come = "was there already" if self.kept else f"from {listing(self.sources)}" if self.sources else "rendered"
        rows = f"{self.train_rows:,} training and {self.test_rows:,} test images, {come}"
        return rows if self.note is None else f"{rows} (note: {self.note})"


@dataclass(frozen=True)
class Preparation:
    """What ``prepare_digits5`` did: the domains written or kept, and the missing ones with the files each may come of.

    ``passed_over`` has a line for each archive that cannot be read, and for pickles.
    """

    folder: Path
    domains: Mapping[str, PreparedDomain]
    missing: Mapping[str, tuple[str, ...]]
    passed_over: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.folder}:"]
        lines += [f"  {name}: {domain}" for name, domain in self.domains.items()]
        lines += [f"  {name}: missing; it is made from {' or '.join(names)}" for name, names in self.missing.items()]
        return "\n".join(lines)


def prepare_digits5(
    source: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    small: bool = False,
    domains: Sequence[str] = DOMAINS,
    force: bool = False,
    say: Callable[[str], None] | None = None,
) -> Preparation:
    """Write ``<data dir>/digits5/<domain>.npz`` from the originals found anywhere under ``source``, archives included.

    Draws 25,000 training and 9,000 test images a domain by ``seed``; USPS is taken whole. ``small`` draws 1,500 and
    500, as many of each digit, into ``digits5-small``. SYN is rendered from fonts where its original is missing, and
    the file says so. What is there and intact is kept, unless ``force``; a rendered SYN gives way to the original.
    """
    say = say or _to_stderr
    if seed < 0:
        raise DataError(f"the seed must be 0 or more, got {seed}")
    for domain in domains:
        if domain not in DOMAINS:
            raise DataError(f"digits5 has no domain {domain!r}{did_you_mean(domain, DOMAINS)}")
    source, folder = Path(source).expanduser(), data_folder(data_dir) / folder_name(small=small)
    done = {} if force else _kept(domains, folder, seed, say)
    wanted = tuple(name for name in domains if name not in done or done[name].note == RENDERED)
    with gathered(source, wanted, scratch_parent=folder.parent) as found:
        for line in found.passed_over:
            say(line)
        if not done and not found.originals and wanted != ("syn",):
            raise _nothing_found(source, wanted, found.passed_over)
        for domain in wanted:
            if domain in found.originals:
                say(f"{domain}: reading {listing(found.originals[domain].names)}")
                done[domain] = _prepare(domain, found.originals[domain], folder, seed=seed, small=small)
            elif domain == "syn" and domain not in done:
                done[domain] = render_syn(folder, seed=seed, small=small)
    missing = {name: tuple(str(recipe) for recipe in RECIPES[name]) for name in domains if name not in done}
    return Preparation(folder, {name: done[name] for name in domains if name in done}, missing, found.passed_over)


def already_prepared(path: Path) -> PreparedDomain | None:
    """One domain's file as it is, read through; None when there is none. A damaged one is refused."""
    if not path.exists():
        return None
    train, test = (len(labels) for labels in read_labels(path))
    read_images(path, "train", rows=train)
    read_images(path, "test", rows=test)
    return PreparedDomain(path, train, test, note=read_note(path), kept=True)


def _kept(domains: Sequence[str], folder: Path, seed: int, say: Callable[[str], None]) -> dict[str, PreparedDomain]:
    """What is there and intact; drawn with another seed, it stays too, but that is said."""
    kept = {}
    for domain in domains:
        path = folder / f"{domain}.npz"
        try:
            if (there := already_prepared(path)) is not None:
                kept[domain] = there
                drawn_with = read_arrays(path, wanted=["seed"]).get("seed")
                if drawn_with is not None and drawn_with != seed:
                    say(f"{path} was drawn with seed {drawn_with} and is kept; --force draws it anew with seed {seed}")
        except DataError as error:
            say(f"made again: {error}")
    return kept


def _prepare(domain: str, original: Original, folder: Path, *, seed: int, small: bool) -> PreparedDomain:
    train_images, train_labels, test_images, test_labels = original.recipe.read(*original.paths)
    train = _drawn(train_labels, domain, "training", seed=seed, small=small)
    test = _drawn(test_labels, domain, "test", seed=seed, small=small)
    drawn = (train_images[train], train_labels[train], test_images[test], test_labels[test])
    wanted = SMALL_ROWS if small else ROWS
    short = [
        f"{len(rows):,} {split} images instead of {wanted[split]:,}"
        for split, rows in (("training", train), ("test", test))
        if len(rows) < wanted[split] and (small or domain != "usps")
    ]
    note = f"{domain} has {' and '.join(short)}: the originals held no more" if short else None
    return _write(folder / f"{domain}.npz", drawn, note=note, sources=original.names, seed=seed)


def _drawn(labels: Bytes, domain: str, split: str, *, seed: int, small: bool) -> NDArray[np.int64]:
    """The rows of one split that are taken, in order."""
    if domain == "usps" and not small:
        return np.arange(len(labels))
    stream = np.random.default_rng(_seeds(domain, split, seed))
    if not small:
        return np.sort(stream.choice(len(labels), min(len(labels), ROWS[split]), replace=False))
    of_each = [np.flatnonzero(labels == digit) for digit in range(10)]
    chosen = [stream.choice(rows, min(len(rows), SMALL_ROWS[split] // 10), replace=False) for rows in of_each]
    return np.sort(np.concatenate(chosen))


def render_syn(folder: Path, *, seed: int = 0, small: bool = False) -> PreparedDomain:
    """Write a ``syn.npz`` that is rendered from fonts, with a note that says so."""
    train_images, train_labels = _rendered("training", seed=seed, small=small)
    test_images, test_labels = _rendered("test", seed=seed, small=small)
    parts = (train_images, train_labels, test_images, test_labels)
    return _write(folder / "syn.npz", parts, note=RENDERED, sources=(), seed=seed)


def _rendered(split: str, *, seed: int, small: bool) -> tuple[Bytes, Bytes]:
    from gated_domains.data.digits.numbers import render

    count = (SMALL_ROWS if small else ROWS)[split]
    seeds = _seeds("syn", split, seed)
    labels = np.random.default_rng(seeds).permutation(np.arange(count) % 10)
    with progress(f"rendering SYN, {count:,} {split} images", total=count) as advance:
        images = render(labels, seed=int(seeds.generate_state(1)[0]), advance=advance)
    return images, labels.astype(np.uint8)


def _seeds(domain: str, split: str, seed: int) -> np.random.SeedSequence:
    """Numbers of its own for each domain and split, whichever others are prepared with it."""
    return np.random.SeedSequence([seed, DOMAINS.index(domain), int(split == "test")])


def _write(path: Path, parts: Parts, *, note: str | None, sources: tuple[str, ...], seed: int) -> PreparedDomain:
    train_images, train_labels, test_images, test_labels = (np.ascontiguousarray(part) for part in parts)
    with written_whole(path) as draft:
        np.savez(
            draft,
            train_images=train_images,
            train_labels=train_labels,
            test_images=test_images,
            test_labels=test_labels,
            note=np.array(note or ""),
            seed=np.array(seed),
        )
    return PreparedDomain(path, len(train_labels), len(test_labels), sources, note)


def _nothing_found(source: Path, domains: tuple[str, ...], passed_over: tuple[str, ...]) -> DataError:
    taken = "; ".join(f"{name}: {' or '.join(str(recipe) for recipe in RECIPES[name])}" for name in domains)
    also = "".join(f". Passed over: {line}" for line in passed_over)
    return DataError(f"no original of digits5 was found under {source}. What would be taken: {taken}{also}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)
