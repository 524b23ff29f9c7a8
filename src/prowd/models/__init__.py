"""An architecture is described once, as data, and built for any width."""

from prowd.models.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool, WeightLayer
from prowd.models.sequential import describe
from prowd.models.zoo import MODELS, build

__all__ = [
    "MODELS",
    "Architecture",
    "Conv",
    "Flatten",
    "Layer",
    "Linear",
    "MaxPool",
    "WeightLayer",
    "build",
    "describe",
]
