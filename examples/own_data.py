"""Your own data, dealt out by person: arrays in, a federation of eight people out, measured on two others.

    python examples/own_data.py
"""  # fmt: skip

from typing import Any

import numpy as np
from numpy.typing import NDArray

import prowd


def recordings(people: int = 10, each: int = 60) -> dict[str, NDArray[Any]]:
    """In place of yours: windows of three sensors, what was done in each, and who did it at a pace of their own."""
    random = np.random.default_rng(0)
    person, exercise = np.repeat(np.arange(people), each), np.tile(np.arange(3), people * each // 3)
    pace = (1 + exercise) * (0.9 + 0.02 * person)
    start = random.uniform(0, 2 * np.pi, (len(person), 3, 1))
    wave = np.sin(start + 2 * np.pi * pace[:, None, None] * np.arange(64) / 64)
    codes = np.clip(60 * wave + random.normal(0, 20, wave.shape), -127, 127).round().astype(np.int8)
    return {
        "x_train": codes[..., None],  # NCHW: example, sensor, sample, 1. int8 codes c stand for c/128
        "y_train": exercise,
        "client": person,  # of whom each example is
    }


if __name__ == "__main__":  # worker processes import this file
    result = prowd.run(
        "watch",  # the preset's settings, but for these
        data=recordings(),
        partition="natural",  # a client is a person
        clients="int8:4, float32:4",
        test_clients=2,  # people whom no client has seen are the test
        method="prowd-plus",
        rounds=4,
        steps=15,
    )
    for width, accuracy in result.summary["accuracy"]["trained"].items():
        print(f"{width:8} {accuracy:.1%} of what the two did is recognised")
    print(result.path)
