"""ResNet (He et al., 2016) for small images: a 3 x 3 stem with no pooling, basic blocks."""

from collections.abc import Sequence

from torch import Tensor, nn

from fedecado.client.tasks.models.small import scaled


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut; the first one may halve the side."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.path(x) + self.shortcut(x)
        return total.relu()


class _ResNet(nn.Module):
    def __init__(self, channels: int, classes: int, width: float, blocks: Sequence[int]) -> None:
        super().__init__()
        widths = [scaled(64 * 2**stage, width) for stage in range(len(blocks))]
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()
        )
        stages: list[nn.Module] = []
        before = widths[0]
        for stage, (outputs, count) in enumerate(zip(widths, blocks, strict=True)):
            for place in range(count):
                stages.append(_Block(before, outputs, stride=2 if stage and not place else 1))
                before = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.stages(self.stem(images))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


def resnet(channels: int, classes: int, width: float, blocks: Sequence[int]) -> nn.Module:
    """Basic blocks by stage: (2, 2, 2, 2) is ResNet-18, (3, 4, 6, 3) ResNet-34."""
    return _ResNet(channels, classes, width, blocks)
