"""VGG-11 (Simonyan & Zisserman, 2015) for small images: its convolutions, and one linear layer after them."""

from torch import Tensor, nn

from fedecado.client.tasks.models.small import scaled

# Channels of the 3 x 3 convolutions; the groups are parted by pooling.
_GROUPS = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class _Vgg(nn.Module):
    def __init__(self, channels: int, classes: int, width: float, *, norm: bool) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for group in _GROUPS:
            for outputs in (scaled(full, width) for full in group):
                # A bias before BatchNorm would be taken off again by its mean.
                steps.append(nn.Conv2d(channels, outputs, 3, padding=1, bias=not norm))
                steps += [nn.BatchNorm2d(outputs)] if norm else []
                steps.append(nn.ReLU())
                channels = outputs
            # Images of 28 pixels leave a side of 1 before the last pooling; it is then passed through.
            steps.append(nn.MaxPool2d(2, ceil_mode=True))
        self.features = nn.Sequential(*steps)
        self.classifier = nn.Linear(channels, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                # Without normalisation torch's default lets the signal die out over eight layers.
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.features(images)
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


def vgg11(channels: int, classes: int, width: float, *, norm: bool) -> nn.Module:
    """Eight convolutions; with `norm`, BatchNorm after each."""
    return _Vgg(channels, classes, width, norm=norm)
