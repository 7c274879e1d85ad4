"""replace_head on models as torchvision, timm, transformers and torch_geometric build them, with random weights."""

from __future__ import annotations

import pytest
import torch

from gated_domains import GatedDomainUnits, fit_head, model_head, replace_head

pytestmark = pytest.mark.extras


TORCHVISION = ["resnet18", "densenet121", "vgg11", "mobilenet_v3_small", "efficientnet_b0", "vit_b_16"]


def replaced(model, inputs, logits=lambda output: output, **settings):
    """The model with units for a head: same output as before, fitted, and trained by one step."""
    model.eval()
    call = (lambda: model(**inputs)) if isinstance(inputs, dict) else (lambda: model(*inputs))
    with torch.no_grad():
        before = logits(call())
    model = replace_head(model, verbose=False, **settings)
    with torch.no_grad():
        torch.testing.assert_close(logits(call()), before, rtol=1e-4, atol=1e-4)
    fit_head(model, inputs if isinstance(inputs, dict) else [(inputs, None)])
    with model_head(model).record() as outs:
        loss = (logits(call()) - 1).square().mean()
    (loss + model_head(model).penalty(outs[-1])).backward()
    assert model_head(model).shared.weight.grad.abs().sum() > 0
    return model


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(name):
    import torchvision

    size = 224 if name.startswith("vit") else 64
    model = replaced(torchvision.models.get_model(name, num_classes=7), (torch.randn(8, 3, size, size),))
    assert model_head(model).out_features == 7


def test_torchvision_with_gates_on_early_layers():
    import torchvision

    images = torch.randn(8, 3, 64, 64)
    model = replaced(
        torchvision.models.resnet18(num_classes=5), (images,), gating=("layer1", "layer2"), example=images[:2]
    )
    assert model_head(model).gating_features == 2 * (64 + 128)


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "vit_tiny_patch16_224", "regnety_002"])
def test_timm(name):
    import timm

    size = 224 if name.startswith("vit") else 64
    replaced(timm.create_model(name, num_classes=6), (torch.randn(8, 3, size, size),))


@pytest.mark.parametrize("family", ["DistilBert", "Bert", "Roberta"])
def test_transformers(family):
    import transformers

    small = {"vocab_size": 50, "num_labels": 3, "pad_token_id": 0}
    if family == "DistilBert":
        config = transformers.DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64, **small)
    else:
        kind = getattr(transformers, f"{family}Config")
        config = kind(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, **small)
    model = getattr(transformers, f"{family}ForSequenceClassification")(config)
    tokens = torch.randint(1, 50, (8, 12))
    example = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    replaced(model, example, logits=lambda output: output.logits)


def test_torch_geometric():
    from torch_geometric.nn import GIN, global_add_pool

    class Molecules(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = GIN(5, 16, num_layers=3)
            self.lin = torch.nn.Linear(16, 4)

        def forward(self, x, edges, batch):
            return self.lin(global_add_pool(self.gnn(x, edges), batch))

    nodes, edges = torch.randn(40, 5), torch.randint(0, 40, (2, 100))
    model = replaced(Molecules(), (nodes, edges, torch.arange(40) // 4))
    assert isinstance(model.lin, GatedDomainUnits)
