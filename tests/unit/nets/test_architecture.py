"""Architectures: the paper's scales and sizes, and what does not fit together is refused by name."""

from __future__ import annotations

import hashlib
import math

import pytest

from prowd.errors import ConfigError
from prowd.nets import Add, Architecture, AvgPool, Conv, Flatten, Layer, Linear, MaxPool, Take, build
from prowd.nets.architecture import alpha, fan_in, gain_name, init_limit, weight_name

# 128C3×2–MP2–256C3×2–MP2–512C3×2–MP2–1024FC–10 on 3×32×32: output channels, input channels (or pixels), kernel.
VGG7: dict[str, tuple[int, ...]] = {
    "conv1.weight": (128, 3, 3, 3),
    "conv2.weight": (128, 128, 3, 3),
    "conv3.weight": (256, 128, 3, 3),
    "conv4.weight": (256, 256, 3, 3),
    "conv5.weight": (512, 256, 3, 3),
    "conv6.weight": (512, 512, 3, 3),
    "fc1.weight": (1024, 512 * 4 * 4),
    "fc2.weight": (10, 1024),
}


def test_full_vgg7_is_the_papers() -> None:
    vgg7 = build("vgg7", (3, 32, 32), 10)
    assert vgg7.shapes == VGG7
    assert list(vgg7.alphas) == [2, 16, 16, 16, 16, 32, 32, 16]
    assert vgg7.parameters == 12_973_440
    assert vgg7.classes == 10
    assert [layer.relu for layer in vgg7.weight_layers] == [True] * 7 + [False]
    assert [layer.kind for layer in vgg7.layers] == ["conv", "conv", "maxpool"] * 3 + ["flatten", "linear", "linear"]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    # Shift(0.75/√(3/f)) = 2^round(½·log2(3f/16)) steps up where 3f/16 passes 2^(2k+1): at f = 10.7, 42.7, 170.7.
    # At f = 1 and 2 the formula gives ½, and α stays 1.
    [(1, 1), (2, 1), (3, 1), (10, 1), (11, 2), (42, 2), (43, 4), (170, 4), (171, 8), (682, 8), (683, 16)],
)
def test_alpha_is_a_power_of_two_never_below_one(inputs: int, expected: float) -> None:
    assert alpha(Linear("fc", inputs, 3)) == expected


@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 5, 6, 27, 1152])
def test_init_limit_is_at_least_three_quarters(inputs: int) -> None:
    # √(3/f) is the larger of the two up to f = 5: 3/5 = 0.6 > 0.5625 > 0.5 = 3/6.
    expected = math.sqrt(3 / inputs) if inputs <= 5 else 0.75
    assert init_limit(Linear("fc", inputs, 3)) == pytest.approx(expected, rel=1e-15)


def test_fan_in_of_a_convolution_counts_the_kernel() -> None:
    conv = Conv("c", 3, 8, kernel=(2, 5))
    assert fan_in(conv) == 3 * 2 * 5
    assert fan_in(Linear("fc", 30, 8)) == 30
    assert alpha(conv) == alpha(Linear("fc", 30, 8))
    assert (weight_name(conv), gain_name(conv)) == ("c.weight", "c.gain")


def test_width_multiplies_the_inner_sizes_only() -> None:
    small = build("vgg7", (3, 16, 16), 10, width=0.125)
    outputs = [shape[0] for shape in small.shapes.values()]
    assert outputs == [16, 16, 32, 32, 64, 64, 128, 10]
    assert small.shapes["fc1.weight"] == (128, 64 * 2 * 2)
    narrow = build("digits", (1, 8, 8), 10, width=0.001)
    assert list(narrow.shapes.values()) == [(1, 1, 3, 3), (1, 1, 3, 3), (1, 1, 3, 3), (1, 4), (10, 1)]


def test_digits_net_follows_the_image_size() -> None:
    # Odd sizes lose their last row and column in pooling: 9×13 → 4×6 → 2×3.
    assert build("digits", (1, 9, 13), 4).shapes["fc1.weight"] == (128, 64 * 2 * 3)
    assert build("digits", (1, 9, 13), 4).shapes["fc2.weight"] == (4, 128)


def test_watch_net_fits_a_small_microcontroller() -> None:
    net = build("watch", (6, 128, 1), 7)
    assert [layer.shape for layer in net.weight_layers] == [
        (16, 6, 5, 1), (16, 16, 5, 1), (32, 16, 5, 1), (32, 32, 5, 1), (64, 128), (7, 64),
    ]  # fmt: skip
    assert net.parameters == 18_080 < 64 * 1024
    assert build("watch", (3, 64, 1), 4, width=0.5).shapes["fc1.weight"] == (32, 32)
    for shape in ((6, 31, 1), (6, 128, 2)):
        with pytest.raises(ConfigError, match=r"model: inputs of .*; accepted: \(channels, samples, 1\), at least 32"):
            build("watch", shape, 7)


@pytest.mark.parametrize(("model", "least"), [("vgg7", 8), ("digits", 4)])
def test_images_too_small_to_pool_are_refused(model: str, least: int) -> None:
    assert build(model, (3, least, least), 10).classes == 10
    for shape in ((3, least - 1, least), (3, least, least - 1)):
        with pytest.raises(ConfigError, match=rf"\(3, {shape[1]}, {shape[2]}\).*at least {least} px"):
            build(model, shape, 10)


def test_unknown_model_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="vgg8"):
        build("vgg8", (3, 32, 32), 10)


LOGITS = Linear("fc", 4, 2, relu=False)
CONV = Conv("c", 1, 2, padding=(0, 0))


@pytest.mark.parametrize(
    ("layers", "shape", "named"),
    [
        ([Conv("c", 3, 4)], (1, 8, 8), "'c'.*(1, 8, 8)"),
        ([Flatten(), Conv("c", 1, 4)], (1, 8, 8), "'c'.*(64,)"),
        ([CONV], (1, 2, 8), "'c'.*(1, 2, 8)"),
        ([CONV], (1, 8, 2), "'c'.*(1, 8, 2)"),
        ([Flatten(), MaxPool()], (1, 2, 2), "'maxpool'.*(4,)"),
        ([Flatten(), Linear("l", 5, 2)], (1, 2, 2), "'l'.*(4,)"),
    ],
)
def test_shape_errors_name_the_layer_and_the_shape(
    layers: list[Layer], shape: tuple[int, int, int], named: str
) -> None:
    with pytest.raises(ConfigError, match=named.replace("(", r"\(").replace(")", r"\)")):
        Architecture((*layers, LOGITS), shape)


def test_output_shapes_follow_stride_and_padding() -> None:
    # ⌊(7 + 2·1 − 3)/2⌋ + 1 = 4 rows; ⌊(9 + 0 − 2)/3⌋ + 1 = 3 columns.
    conv = Conv("c", 1, 5, kernel=(3, 2), stride=(2, 3), padding=(1, 0))
    assert conv.output((1, 7, 9)) == (5, 4, 3)
    assert MaxPool((3, 2), (2, 1)).output((5, 6, 4)) == (5, 2, 3)
    assert Flatten().output((5, 2, 3)) == (30,)


@pytest.mark.parametrize("layers", [(), (Flatten(), Linear("fc", 4, 2)), (Flatten(), LOGITS, Flatten())])
def test_the_last_layer_gives_the_logits(layers: tuple[Layer, ...]) -> None:
    with pytest.raises(ConfigError, match="the last layer"):
        Architecture(layers, (1, 2, 2))


def test_layer_names_must_differ() -> None:
    layers = (Conv("same", 1, 1), Flatten(), Linear("same", 4, 2, relu=False))
    with pytest.raises(ConfigError, match="same"):
        Architecture(layers, (1, 2, 2))


# --- what is no plain sequence ---------------------------------------------------------------------------------------

BLOCK = (
    Conv("a", 1, 2),
    Conv("b", 2, 2, relu=False),
    Take(0),
    Conv("s", 2, 2, (1, 1), padding=(0, 0)),
    Add(1, relu=True),
)
OUT = (Flatten(), Linear("fc", 8, 2, relu=False))


def test_a_layer_reads_what_it_says() -> None:
    net = Architecture((*BLOCK, *OUT), (1, 2, 2))
    assert net.reads == ((-1,), (0,), (0,), (2,), (3, 1), (4,), (5,))
    assert net.held == {0, 1}
    assert net.given == ((2, 2, 2),) * 5 + ((8,), (2,))
    assert net.received[2] == (2, 2, 2)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((Add(0), *OUT), "layer 0 is Add.* accepted: a source from -1 to -1"),
        ((Conv("a", 1, 2), Take(1), *OUT), "layer 1 is Take"),
        ((Conv("a", 1, 2), Take(-2), *OUT), "layer 1 is Take"),
        ((Conv("a", 1, 2), Add(-1), *OUT), r"layer 1 adds tensors of shapes \(2, 2, 2\) and \(1, 2, 2\)"),
        ((Conv("a", 1, 2), Take(-1), Conv("b", 1, 2), *OUT), "nobody uses what layer 0 gives"),
        ((Conv("a", 1, 2, groups=2), *OUT), "2 groups of 1 inputs and 2 outputs; accepted: a number that divides both"),
        ((Conv("a", 1, 2, groups=0), *OUT), "0 groups"),
        ((Conv("a", 1, 8), AvgPool((2, 1), (1, 1)), AvgPool((1, 3), (1, 1)), *OUT), "at least 1×3 pixels"),
    ],
)
def test_what_does_not_fit_together_is_refused(layers: tuple[Layer, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Architecture(layers, (1, 2, 2))


def test_an_average_divides_by_a_power_of_two() -> None:
    assert AvgPool((4, 2), (1, 2)).output((3, 6, 4)) == (3, 3, 2)
    assert AvgPool((4, 2), (1, 2)).shift == 3
    with pytest.raises(ConfigError, match="7×7 = 49 places; accepted: a power of two, by which integers divide"):
        AvgPool((7, 7), (7, 7)).output((3, 7, 7))


def test_the_scale_of_a_grouped_convolution_is_that_of_one_group() -> None:
    depthwise = Conv("d", 64, 64, groups=64)
    assert depthwise.shape == (64, 1, 3, 3)
    assert (fan_in(depthwise), alpha(depthwise)) == (9, 1)
    assert alpha(Conv("d", 64, 64)) == 8


def test_the_digest_of_a_network_without_groups_has_no_groups_in_it() -> None:
    text = repr(
        ((1, 2, 2), ("c", 1, 2, (3, 3), (1, 1), (1, 1), True, "conv"), ("flatten",), ("fc", 8, 2, False, "linear"))
    )
    expected = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    assert Architecture((Conv("c", 1, 2), *OUT), (1, 2, 2)).digest == expected
    digests = {Architecture((Conv("c", 2, 2, groups=g), *OUT), (2, 2, 2)).digest for g in (1, 2)}
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("shape", "classes", "width"), [((3, 32, 32), 10, 1.0), ((1, 8, 8), 10, 0.5), ((2, 16, 8), 4, 0.25)]
)
def test_resnet8_and_dscnn(shape: tuple[int, int, int], classes: int, width: float) -> None:
    for name in ("resnet8", "dscnn"):
        net = build(name, shape, classes, width)
        assert net.classes == classes
        assert net.given[-3][1:] == (1, 1)  # the average of all pixels
    inner = round(64 * width)
    assert list(build("dscnn", shape, classes, width).shapes.values())[1:3] == [(inner, 1, 3, 3), (inner, inner, 1, 1)]
    assert sum(isinstance(layer, Add) for layer in build("resnet8", shape, classes, width).layers) == 3


def test_resnet8_at_its_full_size() -> None:
    # 432 + 2 · 2,304, then 4,608 + 9,216 + 512, 18,432 + 36,864 + 2,048, and 640: MLPerf Tiny's, without biases.
    assert build("resnet8", (3, 32, 32), 10).parameters == 77_360


def test_images_that_leave_no_power_of_two_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="7×7 = 49 places; accepted: a power of two"):
        build("resnet8", (3, 28, 28), 10)
