"""Texts as words: counted once, weighed by the training rows alone, and the same as scikit-learn has it."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from gated_domains.data import encoding_from, fit_encoding
from gated_domains.data import other_encodings as encoding_words
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, fingerprint
from gated_domains.data.other_encodings import WordsEncoding
from gated_domains.data.text import words
from gated_domains.data.text.inputs import Text
from gated_domains.data.text.sparse import SparseRows
from gated_domains.data.text.words import WORD, count_words, words_of

REVIEWS = [
    "A good book, really good.",
    "Not a good book",
    "don't read this book; it isn't good",
    "The film was not good at all",
    "zebra zebra",
    "",
    "Good GOOD good good book film",
]


def many(count: int = 60) -> list[str]:
    rng = np.random.default_rng(0)
    known = [f"word{number}" for number in range(40)]
    return [" ".join(rng.choice(known, rng.integers(1, 30))) for _ in range(count)]


def by_scikit(texts: list[str], vocabulary: list[str], rows: np.ndarray) -> np.ndarray:
    made = TfidfVectorizer(
        vocabulary=vocabulary, ngram_range=(1, 2), token_pattern=WORD.pattern, sublinear_tf=True, dtype=np.float64
    )
    made.fit([texts[row] for row in rows])
    return made.transform(texts).toarray()


def test_words_are_small_letters_with_their_apostrophes():
    assert words_of("Don\u2019t PANIC, it's 42!") == ["don't", "panic", "it's", "42"]
    assert words_of("do n't 'quoted'") == ["do", "n't", "quoted"]


@pytest.mark.parametrize("texts", [REVIEWS, many()], ids=["reviews", "many"])
def test_it_is_tf_idf_as_scikit_learn_has_it(texts):
    rows = np.arange(0, len(texts), 2)
    encoding = WordsEncoding.fit(Text(texts), rows)
    found = encoding.prepare(Text(texts)).read(np.arange(len(texts)))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, by_scikit(texts, list(encoding.vocabulary), rows), atol=5e-4)


@given(st.lists(st.text(alphabet="ab' c", max_size=12), min_size=1, max_size=8))
def test_counts_of_any_texts_are_those_of_a_plain_loop(texts):
    counts = count_words(Text(texts))
    for row, text in enumerate(texts):
        found = words_of(text)
        expected: dict[str, int] = {}
        for term in [*found, *(f"{first} {second}" for first, second in pairwise(found))]:
            expected[term] = expected.get(term, 0) + 1
        own = slice(counts.offsets[row], counts.offsets[row + 1])
        terms = counts.spelled(counts.terms[own].astype(np.int64))
        assert dict(zip(terms, counts.counts[own].tolist(), strict=True)) == expected


def test_counts_do_not_depend_on_how_many_texts_are_counted_together(monkeypatch):
    whole = WordsEncoding.fit(Text(many()), np.arange(60)).describe()
    monkeypatch.setattr(words, "_TOGETHER", 7)
    assert WordsEncoding.fit(Text(many()), np.arange(60)).describe() == whole


def test_a_word_of_other_rows_alone_has_no_column():
    encoding = WordsEncoding.fit(Text([*REVIEWS, "zebra again"]), np.array([0, 1, 2, 3]))
    assert "zebra" not in encoding.vocabulary
    assert "good" in encoding.vocabulary
    assert "good book" in encoding.vocabulary
    assert "film" not in encoding.vocabulary  # in one training text only


def test_other_rows_change_nothing_that_is_learned():
    rows = np.arange(4)
    one = WordsEncoding.fit(Text(REVIEWS), rows).describe()
    assert WordsEncoding.fit(Text([*REVIEWS[:4], "quite another text, good book"]), rows).describe() == one


def test_the_order_of_the_texts_changes_nothing():
    texts = many()
    one = WordsEncoding.fit(Text(texts), np.arange(60)).describe()
    other = WordsEncoding.fit(Text(texts[::-1]), np.arange(60)).describe()
    assert one["vocabulary"] == other["vocabulary"]
    assert one["idf"] == other["idf"]


def test_the_most_frequent_words_are_taken_and_ties_go_by_the_alphabet(monkeypatch):
    monkeypatch.setattr(encoding_words, "MOST_TERMS", 3)
    texts = ["b", "b", "b", "z", "z", "a", "a", "c", "c"]
    assert WordsEncoding.fit(Text(texts), np.arange(9)).vocabulary == ("a", "b", "c")


def test_a_text_without_a_known_word_is_zero_and_others_have_length_one():
    encoding = WordsEncoding.fit(Text(REVIEWS), np.arange(4))
    found = encoding.prepare(Text(["", "unheard of words", "a good film"])).read(np.arange(3)).astype(np.float64)
    assert not found[:2].any()
    assert np.linalg.norm(found[2]) == pytest.approx(1, abs=1e-3)


def test_a_single_new_text_is_encoded_as_it_was_among_others():
    encoding = WordsEncoding.fit(Text(REVIEWS), np.arange(7))
    together = encoding.prepare(Text(REVIEWS)).read(np.arange(7))
    for row, text in enumerate(REVIEWS):
        np.testing.assert_array_equal(encoding.prepare(Text([text])).read(np.arange(1))[0], together[row])


def test_many_texts_are_kept_sparse_and_read_the_same(monkeypatch):
    texts = Text(many())
    encoding = WordsEncoding.fit(texts, np.arange(60))
    dense = encoding.prepare(texts)
    assert isinstance(dense, Features)
    monkeypatch.setattr(encoding_words, "_DENSE", 0)
    sparse = encoding.prepare(texts)
    assert isinstance(sparse, SparseRows)
    rows = np.array([5, 3, 3, 59])
    np.testing.assert_array_equal(sparse.read(rows), dense.read(rows))
    np.testing.assert_array_equal(sparse.take(rows).read(np.arange(4)), dense.read(rows))
    np.testing.assert_array_equal(sparse.digests(), dense.digests())


def test_sixteen_hold_outs_count_once(monkeypatch):
    texts, calls = Text(many()), []
    monkeypatch.setattr(words, "words_of", lambda text: calls.append(text) or words_of(text))
    for start in range(16):
        WordsEncoding.fit(texts, np.arange(start, 60)).prepare(texts)
    assert len(calls) == 60


def test_counts_are_not_sent_to_other_processes():
    texts = Text(REVIEWS)
    count_words(texts)
    again = pickle.loads(pickle.dumps(texts))
    assert again.word_counts is None
    assert again.texts(np.arange(7)) == REVIEWS


def test_it_comes_back_from_json_the_same():
    encoding = WordsEncoding.fit(Text(many()), np.arange(60))
    again = encoding_from(json.loads(json.dumps(encoding.describe())))
    assert again.describe() == encoding.describe()
    np.testing.assert_array_equal(
        again.prepare(Text(many())).read(np.arange(60)), encoding.prepare(Text(many())).read(np.arange(60))
    )


def test_texts_with_nothing_in_common_are_refused():
    with pytest.raises(DataError, match="no word is in 2 or more of 2 training texts"):
        WordsEncoding.fit(Text(["one", "two"]), np.arange(2))


def test_words_and_weights_that_do_not_go_together_are_refused():
    with pytest.raises(DataError, match="2 words with 1 weights"):
        encoding_from({"kind": "words", "vocabulary": ["a", "b"], "idf": [1.0]})


# -- the texts themselves --------------------------------------------------------------------------------------------


def test_texts_are_given_back_as_they_were_whatever_their_letters():
    written = ["", "plain", "zürich 東京 🧪", "tab\tnewline\n"]
    texts = Text(written)
    assert texts.texts(np.array([3, 2, 1, 0])) == written[::-1]
    assert texts.read(np.array([2])).tolist() == ["zürich 東京 🧪"]
    assert texts.take(np.array([2, 0])).texts(np.arange(2)) == ["zürich 東京 🧪", ""]
    assert texts.nbytes == len("".join(written).encode()) + 5 * 8


def test_half_a_letter_is_replaced_and_upsets_nobody():
    assert Text(["a\ud800b"]).texts(np.arange(1)) == ["a?b"]


def test_equal_texts_have_equal_digests_and_others_not():
    digests = Text(["a", "b", "a", ""]).digests()
    assert digests[0] == digests[2]
    assert len(set(digests.tolist())) == 3


def test_what_is_seen_of_texts_changes_the_fingerprint():
    def of(**seen: object) -> str:
        return fingerprint(DomainDataset(name="t", inputs=Text(["a", "b"], **seen), targets=np.array([0.0, 1.0])))

    found = {of(), of(form="tokens"), of(form="tokens", tokens=99), of(form="tokens", tokenizer="somewhere")}
    assert len(found) == 4
    assert of() == of(tokens=99)  # which words do not look at


def test_a_form_that_texts_do_not_have_is_refused(without_shape_checks):
    with pytest.raises(DataError, match="'word'; did you mean 'words'"):
        Text(["a"], form="word")
    with pytest.raises(DataError, match="at least 3"):
        Text(["a"], form="tokens", tokens=2)


def test_data_of_texts_are_encoded_by_words():
    data = DomainDataset(name="t", inputs=Text(REVIEWS), targets=np.arange(7.0))
    assert fit_encoding(data, np.arange(7)).kind == "words"
    assert data.inputs.describe() == "texts, words"
