"""DistilBERT: the transformer that WILDS takes for text, by the library ``transformers``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int64
from torch import Tensor, nn

from gated_domains.backbones.backbone import Body
from gated_domains.data.errors import DataError, first_line, listing
from gated_domains.torchvision_operators import let_torchvision_import

#: What a body is built with, and what ``transformers`` calls it.
_FIELDS = {
    "vocabulary": "vocab_size",
    "pad": "pad_token_id",
    "positions": "max_position_embeddings",
    "layers": "n_layers",
    "heads": "n_heads",
    "width": "dim",
    "hidden": "hidden_dim",
    "dropout": "dropout",
}


class DistilBERT(Body):
    """Tokens -> the last hidden state of the first token, which stands for the whole text, as in WILDS.

    Padding is not attended to: a text gives the same however far it is padded. The defaults are those of the published
    network (Sanh et al., 2019, "DistilBERT, a distilled version of BERT").
    """

    takes = "tokens"
    large = True
    static = False  # texts are padded to the longest of a batch, and the library looks at the mask

    def __init__(
        self,
        shape: Sequence[int],
        *,
        vocabulary: int = 30522,
        pad: int = 0,
        positions: int = 512,
        layers: int = 6,
        heads: int = 12,
        width: int = 768,
        hidden: int = 3072,
        dropout: float | int = 0.1,
    ) -> None:
        super().__init__(shape)
        if self.shape[0] > positions:
            raise DataError(
                f"texts of up to {self.shape[0]} tokens are longer than the {positions} that this DistilBERT has "
                f"places for; cut them (--tokens {positions})"
            )
        if width % heads:
            raise DataError(f"a width of {width} cannot be shared out among {heads} heads; choose a multiple of them")
        self.vocabulary, self.pad, self.features = vocabulary, pad, width
        chosen = (vocabulary, pad, positions, layers, heads, width, hidden, dropout)
        self._architecture = dict(zip(_FIELDS, chosen, strict=True))
        library = _transformers()
        config = library.DistilBertConfig(**{_FIELDS[name]: value for name, value in self._architecture.items()})
        config._attn_implementation = "sdpa"
        self.network: nn.Module = library.DistilBertModel(config)
        self.pre_classifier = self.after()

    def forward(self, inputs: Int64[Tensor, "batch length"]) -> Float[Tensor, "batch features"]:
        states = self.network(input_ids=inputs, attention_mask=(inputs != self.pad).long())
        return self.pre_classifier(states.last_hidden_state[:, 0])

    def after(self) -> nn.Module:
        """What the state of the first token goes through; nothing, unless a subclass has layers there."""
        return nn.Identity()

    def architecture(self) -> dict[str, Any]:
        return dict(self._architecture)

    def checkpoint_activations(self, on: bool) -> None:
        network: Any = self.network
        if on:
            network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        else:
            network.gradient_checkpointing_disable()


class DistilBERTClassifier(DistilBERT):
    """``dropout(relu(W h + b))`` of DistilBERT's features h: the layer that WILDS's classifier has before its head.

    W is square, drawn from N(0, 0.02^2), b is 0 and a fifth is dropped, as ``DistilBertForSequenceClassification`` of
    transformers has it. Published weights of DistilBERT have no such layer: it is always learned from the data.
    """

    def after(self) -> nn.Module:
        linear = nn.Linear(self.features, self.features)
        nn.init.normal_(linear.weight, std=0.02)
        nn.init.zeros_(linear.bias)
        return nn.Sequential(linear, nn.ReLU(), nn.Dropout(0.2))


def published_architecture(folder: Path, *, vocabulary: int | None) -> dict[str, Any]:
    """The architecture that a folder's ``config.json`` names; its vocabulary must be that of the data's tokenizer."""
    library = _transformers()
    try:
        config = library.DistilBertConfig.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} names no DistilBERT in its config.json: {first_line(error)}") from error
    if config.model_type != "distilbert" or config.activation != "gelu":
        raise DataError(
            f"{folder} holds a {config.model_type} with {config.activation}; the body distilbert takes weights of a "
            "DistilBERT with gelu, such as distilbert-base-uncased"
        )
    if vocabulary is not None and vocabulary != config.vocab_size:
        raise DataError(
            f"the tokenizer of these data knows {vocabulary:,} tokens and the weights in {folder} "
            f"{config.vocab_size:,}: numbers would stand for other words; take the tokenizer of these weights "
            f"(--tokenizer {folder}), or train from random weights (--pretrained false)"
        )
    return {name: getattr(config, theirs) for name, theirs in _FIELDS.items()}


def load_published(body: DistilBERT, folder: Path) -> None:
    """Put the weights of a folder (``model.safetensors``) into a body of its architecture: all of them, or an error."""
    library = _transformers()
    try:
        network, report = library.DistilBertModel.from_pretrained(
            str(folder),
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # told below, in our words
        )
    except Exception as error:  # the library raises errors of every kind for a damaged file
        raise DataError(f"the weights in {folder} cannot be read: {first_line(error)}; bring them anew") from error
    missing = sorted(str(name) for name in report["missing_keys"])
    other = sorted(str(name[0] if isinstance(name, tuple) else name) for name in report["mismatched_keys"])
    if missing or other:
        said = [
            f"{what}: {listing(names, 6)}"
            for what, names in (("missing", missing), ("of another shape", other))
            if names
        ]
        raise DataError(f"the weights in {folder} are not whole ({'; '.join(said)}); bring them anew")
    body.network.load_state_dict(network.state_dict())


def _transformers() -> Any:
    let_torchvision_import()  # transformers imports it where it is installed
    try:
        import transformers
    except ImportError as error:
        raise DataError(
            "the body distilbert stands on transformers, which is not installed: pip install 'gated-domains[wilds]'; "
            "or read text as words (--as words), for which there is the body mlp"
        ) from error
    return transformers
