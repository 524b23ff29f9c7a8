"""An architecture is described once, as data, and built for any width."""

from prowd.nets.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool, WeightLayer
from prowd.nets.sequential import describe
from prowd.nets.zoo import MODELS, build

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
