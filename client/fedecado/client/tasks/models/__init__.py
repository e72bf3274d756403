"""Models whose initial weights follow from a seed alone, so that every client builds the same one."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import nn

from fedecado.client.device import isolated_rng
from fedecado.client.tasks.models import resnet, small, vgg
from fedecado.client.tasks.models.mlp import mlp
from fedecado.common.errors import ConfigError

__all__ = ["ImageModel", "Images", "image_model", "mlp"]

ImageModel = Literal["mlp", "lenet5", "cnn", "vgg11", "vgg11_bn", "resnet18", "resnet34"]


class Images(NamedTuple):
    """What a model for images must know about them: `channels` x `side` x `side`, and the classes."""

    channels: int
    side: int
    classes: int


def image_model(name: ImageModel, images: Images, seed: int, width: float = 1.0) -> nn.Module:
    """The named model with weights from `seed`; `width` scales the channels of its hidden layers."""
    if name not in get_args(ImageModel):
        raise ConfigError(f"model is {name!r}; it must be one of {', '.join(get_args(ImageModel))}")
    if not 0 < width <= 8:
        raise ConfigError(f"width is {width!r}; it must be above 0 and at most 8, 1 being the usual size")
    channels, side, classes = images
    builders: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: small.flat_mlp(channels * side * side, classes, width),
        "lenet5": lambda: small.lenet5(channels, side, classes, width),
        "cnn": lambda: small.cnn(channels, side, classes, width),
        "vgg11": lambda: vgg.vgg11(channels, classes, width, norm=False),
        "vgg11_bn": lambda: vgg.vgg11(channels, classes, width, norm=True),
        "resnet18": lambda: resnet.resnet(channels, classes, width, blocks=(2, 2, 2, 2)),
        "resnet34": lambda: resnet.resnet(channels, classes, width, blocks=(3, 4, 6, 3)),
    }
    with isolated_rng(torch.device("cpu"), seed):
        return builders[name]()
