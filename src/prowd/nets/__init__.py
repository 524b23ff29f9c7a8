"""An architecture is described once, as data, and built for any width."""

from prowd.nets.architecture import Architecture
from prowd.nets.layers import Add, AvgPool, Conv, Flatten, Layer, Linear, MaxPool, Take, WeightLayer
from prowd.nets.tracing import describe
from prowd.nets.zoo import MODELS, build

__all__ = [
    "MODELS",
    "Add",
    "Architecture",
    "AvgPool",
    "Conv",
    "Flatten",
    "Layer",
    "Linear",
    "MaxPool",
    "Take",
    "WeightLayer",
    "build",
    "describe",
]
