"""The built-in models: shapes, equal starts, published sizes, gradients everywhere."""

from typing import get_args

import pytest
import torch

from fedecado.client.tasks.models import ImageModel, Images, image_model
from fedecado.client.tasks.models.lstm import next_symbol
from fedecado.common.errors import ConfigError

MODELS = get_args(ImageModel)


@pytest.mark.parametrize("images", [Images(1, 28, 10), Images(3, 32, 100)])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_a_logit_per_class_and_every_parameter_learns(name: ImageModel, images: Images) -> None:
    model = image_model(name, images, seed=0, width=0.25)
    pixels = torch.randn(
        3, images.channels, images.side, images.side, generator=torch.Generator().manual_seed(0)
    )
    logits = model(pixels)
    assert logits.shape == (3, images.classes)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_weights_follow_from_the_seed_and_nothing_else(name: ImageModel) -> None:
    before = torch.get_rng_state()
    first, again, other = (image_model(name, Images(1, 28, 10), seed, 0.25) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    pairs = list(zip(first.parameters(), again.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("lenet5", 62_006), ("vgg11", 9_225_610), ("resnet18", 11_173_962), ("resnet34", 21_282_122)],
)
def test_full_models_have_their_published_number_of_parameters(name: ImageModel, parameters: int) -> None:
    model = image_model(name, Images(3, 32, 10), seed=0)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_batch_norm_is_what_sets_the_two_vggs_apart() -> None:
    plain, normed = (image_model(name, Images(3, 32, 10), 0, 0.25) for name in ("vgg11", "vgg11_bn"))
    assert not list(plain.buffers())
    assert len(list(normed.buffers())) == 3 * 8


def test_an_unknown_model_or_width_is_refused() -> None:
    with pytest.raises(ConfigError, match="resnet18"):
        image_model("resnet", Images(1, 28, 10), 0)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ConfigError, match="width"):
        image_model("cnn", Images(1, 28, 10), 0, width=0.0)


def test_the_text_model_predicts_after_every_symbol_from_what_stands_before_it() -> None:
    model = next_symbol(symbols=7, seed=0)
    text = torch.tensor([[1, 2, 3, 4]])
    changed = torch.tensor([[1, 2, 3, 6]])
    assert model(text).shape == (1, 7, 4)
    assert torch.equal(model(text)[..., :3], model(changed)[..., :3])
