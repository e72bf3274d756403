"""Small models for images: a perceptron, LeNet-5 and a CNN of two layers."""

import torch
from torch import Tensor, nn

from fedecado.client.tasks.models.mlp import layers


class Pictures(nn.Sequential):
    """Layers that see images with a pixel's channels side by side in memory.

    Few channels are slow otherwise: a step of LeNet-5 on colour images takes a third less time on a CPU.
    """

    def forward(self, images: Tensor) -> Tensor:
        values = images.contiguous(memory_format=torch.channels_last)
        for layer in self:
            values = layer(values)
        return values


def scaled(channels: int, width: float) -> int:
    """A hidden layer's channels at a relative width, at least one."""
    return max(1, round(channels * width))


def flat_mlp(inputs: int, classes: int, width: float) -> nn.Sequential:
    """Two hidden layers of 128 and 64."""
    hidden = [scaled(128, width), scaled(64, width)]
    return nn.Sequential(nn.Flatten(), *layers(inputs, hidden, classes))


def lenet5(channels: int, side: int, classes: int, width: float) -> Pictures:
    """LeNet-5 (LeCun et al., 1998) with ReLU and max pooling, for 28 or 32 pixels a side.

    Its input is 32 x 32, so smaller images are padded by the first convolution, as LeCun did.
    """
    first, second = scaled(6, width), scaled(16, width)
    padding = max(0, (32 - side) // 2)
    after = (((side + 2 * padding - 4) // 2) - 4) // 2
    return Pictures(
        nn.Conv2d(channels, first, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *layers(second * after * after, [scaled(120, width), scaled(84, width)], classes),
    )


def cnn(channels: int, side: int, classes: int, width: float) -> Pictures:
    """Two convolutions (32 and 64 channels) with pooling and one hidden layer of 128."""
    first, second = scaled(32, width), scaled(64, width)
    return Pictures(
        nn.Conv2d(channels, first, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *layers(second * (side // 4) ** 2, [scaled(128, width)], classes),
    )
