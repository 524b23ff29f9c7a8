"""Your own network: any module that torch.fx can trace, trained at two widths, then used from Python.

    python examples/own_network.py
"""  # fmt: skip

import torch
from torch import Tensor, nn

import prowd


class Residual(nn.Module):
    """8×8 grey images to ten classes, with an addition; no biases, which integer clients do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.second = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(2)
        self.classes = nn.Linear(16 * 4 * 4, 10, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Layers, functions and methods that integers have are read; everything else is refused with its reason."""
        x = torch.relu(self.first(images))
        x = torch.relu(x + self.second(x))
        logits: Tensor = self.classes(self.pool(x).flatten(1))
        return logits


if __name__ == "__main__":  # worker processes import this file
    result = prowd.run("quick", model=Residual(), clients="int4:2, int8:2, float32:2", rounds=4, steps=15)
    print({width: f"{accuracy:.1%}" for width, accuracy in result.summary["accuracy"]["trained"].items()})
    model = prowd.load(result.path, width="int8")  # in exact integers, as an Int8 device computes
    images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    print("classes of five images:", model.predict(images).tolist())
