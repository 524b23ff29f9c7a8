"""One local round of an integer client, from image bytes and a task to the new codes and the reported loss.

Slow and obvious: Python integers only, as any device can follow them. What the package computes must be the same
numbers, to the bit, for every width s = 2..16. An image is a list of planes, a plane a list of rows. Weights are a flat
list in the order (output, input, row, column). Layers are described by the attributes of prowd.nets.architecture.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Key = tuple[int, int]
Plane = list[list[int]]
Image = list[Plane]

WORD = 32
RANDOM_BITS = 24  # of a word decide a stochastic rounding
ONE = 30  # fraction bits of probabilities
LOSS = 16  # fraction bits of a loss
LN2 = 45426  # ln 2 with LOSS fraction bits
DEGREES = 15  # of the largest rotation
PER_DEGREE = 4  # angles that are told apart


# --- random words -----------------------------------------------------------------------------------------------------


def stream_key(seed: int, *path: str | int) -> Key:
    """The key of a stream: the first 64 bits of SHA-256 over typed, length-prefixed parts."""
    digest = hashlib.sha256()
    for part in (seed, *path):
        text = (f"str:{part}" if isinstance(part, str) else f"int:{part}").encode()
        digest.update(len(text).to_bytes(4, "little") + text)
    found = int.from_bytes(digest.digest()[:8], "little")
    return found % 2**WORD, found >> WORD


def philox(counter: Sequence[int], key: Key) -> list[int]:
    """Philox4x32-10 of Salmon et al. (2011): four random words for a counter of four words."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        one, two = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (two >> WORD) ^ b ^ k0, two % 2**WORD, (one >> WORD) ^ d ^ k1, one % 2**WORD
        k0, k1 = (k0 + 0x9E3779B9) % 2**WORD, (k1 + 0xBB67AE85) % 2**WORD
    return [a, b, c, d]


def word(key: Key, step: int, layer: int, index: int) -> int:
    """The random word for one thing in a layer and a step."""
    return philox((step, layer, index // 4, 0), key)[index % 4]


def below(random: int, bound: int) -> int:
    """A whole number from 0 to bound − 1."""
    return random * bound >> WORD


# --- batches ----------------------------------------------------------------------------------------------------------


def permutation(key: Key, epoch: int, count: int) -> list[int]:
    """Fisher and Yates, from the last place to the first."""
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = below(word(key, epoch, 0, last), last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def batches(key: Key, count: int, batch: int, steps: int) -> list[list[int]]:
    """Rows of full batches; epochs follow one another without a gap."""
    batch = min(batch, count)
    epochs = -(-steps * batch // count)
    stream = [row for epoch in range(epochs) for row in permutation(key, epoch, count)]
    return [stream[step * batch : (step + 1) * batch] for step in range(steps)]


# --- images -----------------------------------------------------------------------------------------------------------


def divide_half_even(a: int, b: int) -> int:
    """round_half_even(a / b) for b > 0."""
    whole, rest = divmod(a, b)
    return whole + (2 * rest > b or (2 * rest == b and whole % 2 == 1))


def image_code(u: int, s: int) -> int:
    """The s-bit code of an image byte."""
    return clip(divide_half_even((2 * u - 255) << (s - 1), 255), s)


def sensor_code(c: int, s: int) -> int:
    """The s-bit code of an int8 code."""
    return clip(round_shift(c, 8 - s), s)


def augment(image: Image, operations: Sequence[str], words: Sequence[int], turn: tuple[int, int]) -> Image:
    """Shift, mirror and turn an image of bytes; what comes in from outside is 0.

    ``words`` are those of (step, 0, image of the batch); ``turn`` is (cosine, sine) of the angle with 15 fraction bits.
    """
    height, width = len(image[0]), len(image[0][0])
    reach = (height // 8, width // 8) if "crop" in operations else (0, 0)
    down, right = (below(words[i], 2 * reach[i] + 1) - reach[i] for i in (0, 1))
    side = -1 if "flip" in operations and words[2] < 2**31 else 1
    cosine, sine = turn if "rotate" in operations else (1 << 15, 0)

    def pixel(plane: Plane, y: int, x: int) -> int:
        return plane[y][x] if 0 <= y < height and 0 <= x < width else 0

    def sample(plane: Plane, y: int, x: int) -> int:
        u, v = side * (2 * x - width + 1), 2 * y - height + 1  # half pixels from the centre
        across = cosine * u - sine * v + ((2 * right + width - 1) << 15)  # pixels, with 16 fraction bits
        along = sine * u + cosine * v + ((2 * down + height - 1) << 15)
        x0, y0, fx, fy = across >> 16, along >> 16, (across >> 8) % 256, (along >> 8) % 256
        top = (256 - fx) * pixel(plane, y0, x0) + fx * pixel(plane, y0, x0 + 1)
        bottom = (256 - fx) * pixel(plane, y0 + 1, x0) + fx * pixel(plane, y0 + 1, x0 + 1)
        return ((256 - fy) * top + fy * bottom + (1 << 15)) >> 16

    return [[[sample(plane, y, x) for x in range(width)] for y in range(height)] for plane in image]


def angle(random: int) -> int:
    """The angle of a rotation, in quarters of a degree."""
    most = DEGREES * PER_DEGREE
    return below(random, 2 * most + 1) - most


# --- numbers ----------------------------------------------------------------------------------------------------------


def max_code(s: int) -> int:
    """S − 1 with S = 2^(s−1)."""
    return (1 << (s - 1)) - 1


def clip(code: int, s: int) -> int:
    """clip_s."""
    return max(-max_code(s), min(max_code(s), code))


def shift_exponent(m: int) -> int:
    """round(log2 m) of an integer m ≥ 1; Shift(0) = 1, so 0 for m = 0.

    With 2^b ≤ m < 2^(b+1): up exactly when log2 m > b + 1/2, that is m² > 2^(2b+1) (m² is never equal to it).
    """
    if m == 0:
        return 0
    b = m.bit_length() - 1
    return b + (m * m > 1 << (2 * b + 1))


def round_shift(n: int, k: int) -> int:
    """round_half_even(n / 2^k); for k ≤ 0 that is the integer n · 2^−k."""
    return n << -k if k <= 0 else divide_half_even(n, 1 << k)


def floor_shift(n: int, k: int) -> int:
    """floor(n · 2^k)."""
    return n << k if k >= 0 else n >> -k


def alpha_exponent(fan_in: int) -> int:
    """log2 of a layer's scale α = max(1, Shift(0.75·sqrt(fan_in/3))): the largest k ≥ 0 with 3·fan_in/16 > 2^(2k−1)."""
    k = 0
    while 3 * fan_in > 16 << (2 * k + 1):
        k += 1
    return k


def ternary(code: int, s: int) -> int:
    """Q_Int2 of an s-bit code: round_half_even(2c/S), clipped to {−1, 0, 1}."""
    return max(-1, min(1, round_shift(code, s - 2)))


def normalise(errors: Sequence[Any], s: int) -> list[Any]:
    """Codes of Q_s(n / Shift(max|n|)), the maximum taken over the whole layer and batch."""
    k = shift_exponent(max((abs(n) for n in flat(errors)), default=0))
    return mapped(lambda n: clip(round_shift(n, k - (s - 1)), s), errors)


def flat(tensor: Any) -> list[int]:
    """The numbers of nested lists."""
    return [n for part in tensor for n in flat(part)] if isinstance(tensor, list) else [tensor]


def mapped(function: Any, *tensors: Any) -> Any:
    """A function of the numbers of nested lists."""
    if not isinstance(tensors[0], list):
        return function(*tensors)
    return [mapped(function, *parts) for parts in zip(*tensors, strict=True)]


# --- layers: a linear layer is a convolution whose window is the whole image ------------------------------------------


@dataclass(frozen=True)
class Window:
    """A convolution from planes of ``image`` pixels to planes of ``positions``."""

    inputs: int
    outputs: int
    image: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    @property
    def positions(self) -> tuple[int, int]:
        """Rows and columns of what it gives."""
        high, wide = ((self.image[i] + 2 * self.padding[i] - self.kernel[i]) // self.stride[i] + 1 for i in (0, 1))
        return high, wide

    def places(self) -> list[tuple[int, int, int, int, int]]:
        """All (row, column, tap, row below, column below) that meet, but for the padding."""
        found = []
        for y in range(self.positions[0]):
            for x in range(self.positions[1]):
                for tap in range(self.kernel[0] * self.kernel[1]):
                    v = y * self.stride[0] - self.padding[0] + tap // self.kernel[1]
                    u = x * self.stride[1] - self.padding[1] + tap % self.kernel[1]
                    if 0 <= v < self.image[0] and 0 <= u < self.image[1]:
                        found.append((y, x, tap, v, u))
        return found

    def at(self, output: int, channel: int, tap: int) -> int:
        """The place of a weight."""
        return (output * self.inputs + channel) * self.kernel[0] * self.kernel[1] + tap


def window_of(layer: Any, image: Image) -> Window:
    """What a weight layer does to an image."""
    size = len(image[0]), len(image[0][0])
    if layer.kind == "linear":
        return Window(len(image), layer.outputs, size, size, (1, 1), (0, 0))
    return Window(layer.inputs, layer.outputs, size, layer.kernel, layer.stride, layer.padding)


def zeros(planes: int, size: tuple[int, int]) -> Image:
    """An image of zeros."""
    return [[[0] * size[1] for _ in range(size[0])] for _ in range(planes)]


def weighted_sum(window: Window, t: Sequence[int], a: Image) -> Image:
    """n = Σ t·a for every output."""
    n = zeros(window.outputs, window.positions)
    for y, x, tap, v, u in window.places():
        for o in range(window.outputs):
            n[o][y][x] += sum(t[window.at(o, c, tap)] * a[c][v][u] for c in range(window.inputs))
    return n


def error_below(window: Window, t: Sequence[int], e: Image) -> Image:
    """Σ t·e for every input."""
    n = zeros(window.inputs, window.image)
    for y, x, tap, v, u in window.places():
        for c in range(window.inputs):
            n[c][v][u] += sum(t[window.at(o, c, tap)] * e[o][y][x] for o in range(window.outputs))
    return n


def add_gradient(window: Window, e: Image, a: Image, g: list[int]) -> None:
    """Add Σ e·a of one image to the gradient of every weight."""
    for y, x, tap, v, u in window.places():
        for o in range(window.outputs):
            for c in range(window.inputs):
                g[window.at(o, c, tap)] += e[o][y][x] * a[c][v][u]


def winners(layer: Any, plane: Plane) -> list[tuple[int, int, int, int]]:
    """For each (row, column) of a pooling the (row, column) below that wins: the first maximum, row by row."""
    high, wide = ((size - layer.kernel[i]) // layer.stride[i] + 1 for i, size in enumerate((len(plane), len(plane[0]))))
    found = []
    for y in range(high):
        for x in range(wide):
            v, u = best = y * layer.stride[0], x * layer.stride[1]
            for down in range(layer.kernel[0]):
                for across in range(layer.kernel[1]):
                    if plane[v + down][u + across] > plane[best[0]][best[1]]:
                        best = v + down, u + across
            found.append((y, x, *best))
    return found


def max_pool(layer: Any, image: Image) -> Image:
    """The maximum of each window."""
    pooled = []
    for plane in image:
        places = winners(layer, plane)
        rows: Plane = [[] for _ in range(places[-1][0] + 1)]
        for y, _, v, u in places:
            rows[y].append(plane[v][u])
        pooled.append(rows)
    return pooled


def max_pool_error(layer: Any, n: Image, image: Image) -> Image:
    """Each output's error goes to the input that won; windows may overlap, so errors add up."""
    spread = zeros(len(image), (len(image[0]), len(image[0][0])))
    for channel, plane in enumerate(image):
        for y, x, v, u in winners(layer, plane):
            spread[channel][v][u] += n[channel][y][x]
    return spread


# --- one step ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tape:
    """What the backward pass needs of an image."""

    logits: list[int]
    inputs: list[Image]
    """Of every layer."""
    passes: list[Image]
    """Of each weight layer: 1 where an error reaches it, neither saturated nor cut by the ReLU."""


def forward(layers: Sequence[Any], s: int, ternaries: Sequence[Sequence[int]], image: Image) -> Tape:
    """Logit codes of an image of codes."""
    a, inputs, passes = image, [], []
    for layer in layers:
        if layer.kind == "flatten":
            inputs.append(a)
            continue
        inputs.append(a)
        if layer.kind == "maxpool":
            a = max_pool(layer, a)
            continue
        window, t = window_of(layer, a), ternaries[len(passes)]
        k = alpha_exponent(len(t) // layer.outputs) + 1
        r = mapped(lambda n, k=k: round_shift(n, k), weighted_sum(window, t, a))
        least = 0 if layer.relu else -max_code(s)
        passes.append(mapped(lambda n, relu=layer.relu: int(abs(n) <= max_code(s) and not (relu and n <= 0)), r))
        a = mapped(lambda n, least=least: max(least, min(max_code(s), n)), r)
    return Tape(flat(a), inputs, passes)


def backward(
    layers: Sequence[Any], s: int, ternaries: Sequence[Sequence[int]], tapes: Sequence[Tape], errors: list[list[int]]
) -> list[list[int]]:
    """Weight gradients of a batch, first layer first, for the integer errors of its logits."""
    gradients = [[0] * len(t) for t in ternaries]
    at = len(ternaries)
    n: list[Image] = [[[[e]] for e in error] for error in errors]
    for number in range(len(layers) - 1, -1, -1):
        layer, received = layers[number], [tape.inputs[number] for tape in tapes]
        if layer.kind == "flatten":
            continue
        if layer.kind == "maxpool":
            n = [max_pool_error(layer, one, a) for one, a in zip(n, received, strict=True)]
            continue
        at -= 1
        passing = [mapped(lambda e, p: e * p, one, tape.passes[at]) for one, tape in zip(n, tapes, strict=True)]
        codes = normalise(passing, s)
        for e, a in zip(codes, received, strict=True):
            add_gradient(window_of(layer, a), e, a, gradients[at])
        n = [error_below(window_of(layer, a), ternaries[at], e) for e, a in zip(codes, received, strict=True)]
    return gradients


def exponential(n: int, k: int) -> int:
    """round(2^30 · e^(−n·2^k)) for n ≥ 0: Taylor's series of a small part of it, squared again and again."""
    bits, halvings = 192, 40
    x = floor_shift(n, bits + k - halvings)
    term = total = 1 << bits
    for i in range(1, 40):
        term = -(term * x >> bits) // i
        total += term
    for _ in range(halvings):
        total = total * total >> bits
    return divide_half_even(total, 1 << (bits - ONE))


def log2_fixed(z: int) -> int:
    """floor(log2 z), about, with 16 fraction bits found one by one by squaring a number of 32 bits."""
    b = z.bit_length() - 1
    y, found = floor_shift(z, 31 - b), b
    for _ in range(LOSS):
        y = y * y >> 31
        found = 2 * found + (y >> WORD)
        y >>= y >> WORD
    return found


def cross_entropy(logits: Sequence[int], label: int, s: int, scale: int) -> tuple[int, list[int]]:
    """The loss of an image, 16 fraction bits, and the errors of its logits, 30; 2^scale multiplies the logits."""
    k = scale - (s - 1)
    gaps = [max(logits) - z for z in logits]
    e = [exponential(d % 256, k) * exponential(d // 256, k + 8) >> ONE for d in gaps]
    total = sum(e)
    inverse = (1 << 62) // total
    errors = [one * inverse >> WORD for one in e]
    errors[label] -= 1 << ONE
    loss = ((log2_fixed(total) - (ONE << LOSS)) * LN2 >> LOSS) + floor_shift(gaps[label], LOSS + k)
    return loss, errors


def squared_error(logits: Sequence[int], label: int, s: int) -> tuple[int, list[int]]:
    """½·Σ(value − target)², the target being the largest code for the label and 0 elsewhere."""
    errors = [z - max_code(s) * (i == label) for i, z in enumerate(logits)]
    return floor_shift(sum(e * e for e in errors), LOSS - 2 * (s - 1) - 1), errors


def step_size(g: int, k: int, rate: tuple[int, int], random: int) -> int:
    """floor|x| + [frac|x| > r/2^24] for x = η·g / 2^k, η = mantissa · 2^exponent, r the upper 24 bits of the word."""
    mantissa, exponent = rate
    product, d = mantissa * abs(g), k - exponent  # |x| = product / 2^d
    if d <= 0:
        return product << -d
    whole, rest = product >> d, product % (1 << d)
    return whole + (rest << RANDOM_BITS > (random >> (WORD - RANDOM_BITS)) << d)


def update(codes: Sequence[int], g: Sequence[int], rate: tuple[int, int], words: Sequence[int], s: int) -> list[int]:
    """q ← clip_s(q − Q_stoch_s(η·g / Shift(max|g|)))."""
    k = shift_exponent(max(abs(n) for n in g))
    sizes = [step_size(n, k, rate, random) for n, random in zip(g, words, strict=True)]
    return [clip(q - (size if n > 0 else -size), s) for q, n, size in zip(codes, g, sizes, strict=True)]


# --- one round --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What the task and the run say of one client's round."""

    seed: int
    round: int
    client: int
    s: int
    steps: int
    batch: int
    rate: tuple[int, int]
    """Mantissa and exponent."""
    logit_scale: int = 3
    """Its logarithm."""
    loss: str = "cross-entropy"
    operations: tuple[str, ...] = ()


def local_round(
    work: Work,
    layers: Sequence[Any],
    codes: Sequence[Sequence[int]],
    images: Sequence[Image],
    labels: Sequence[int],
    turns: Sequence[tuple[int, int]] = (),
) -> tuple[list[list[int]], int]:
    """Train; return the new codes of every weight layer and the mean loss with 16 fraction bits.

    ``turns`` holds (cosine, sine) of 0, 1, 2 … quarters of a degree.
    """
    where = work.round, work.client
    weights = [list(layer) for layer in codes]
    total = 0
    rows = batches(stream_key(work.seed, "batches", *where), len(images), work.batch, work.steps)
    for step, chosen in enumerate(rows):
        ternaries = [[ternary(q, work.s) for q in layer] for layer in weights]
        tapes, errors = [], []
        for n, row in enumerate(chosen):
            varied = images[row]
            if work.operations:
                words = philox((step, 0, n, 0), stream_key(work.seed, "augment", *where))
                varied = augment(varied, work.operations, words, turned(turns, angle(words[3])))
            tape = forward(layers, work.s, ternaries, mapped(lambda u: image_code(u, work.s), varied))
            if work.loss == "squared":
                loss, error = squared_error(tape.logits, labels[row], work.s)
            else:
                loss, error = cross_entropy(tape.logits, labels[row], work.s, work.logit_scale)
            total += loss
            tapes.append(tape)
            errors.append(error)
        gradients = backward(layers, work.s, ternaries, tapes, errors)
        key = stream_key(work.seed, "rounding", *where)
        for layer, gradient in enumerate(gradients):
            words = [word(key, step, layer, index) for index in range(len(gradient))]
            weights[layer] = update(weights[layer], gradient, work.rate, words, work.s)
    return weights, total // (work.steps * len(rows[0]))


def turned(turns: Sequence[tuple[int, int]], quarters: int) -> tuple[int, int]:
    """Cosine and sine of an angle of either sign."""
    if not turns:
        return 1 << 15, 0
    cosine, sine = turns[abs(quarters)]
    return cosine, sine if quarters >= 0 else -sine


# --- what a method's client half sends --------------------------------------------------------------------------------


def movement(trained: Sequence[int], received: Sequence[int], most: int, words: Sequence[int]) -> tuple[list[int], int]:
    """Codes and the smallest k with max ≤ most·2^k: FedPAQ's unbiased message."""
    moved = [a - b for a, b in zip(trained, received, strict=True)]
    k = 0
    while max((abs(n) for n in moved), default=0) > most << k:
        k += 1
    if k == 0:
        return moved, 0
    bits = WORD - RANDOM_BITS
    return [
        ((n << RANDOM_BITS) + ((random >> bits) << k)) >> (RANDOM_BITS + k)
        for n, random in zip(moved, words, strict=True)
    ], k


def three_levels(moved: Sequence[int], s: int) -> tuple[list[int], tuple[int, int]]:
    """prowd-plus: codes in {−1, 0, 1} of the best three levels, and the full level as mantissa and exponent.

    Entries of at least θ steps are kept; the best θ, and the smallest of equals, has the largest (Σ|x|)² / count.
    """
    sizes = [abs(n) for n in moved]
    best, threshold = (0, 1), 0
    for theta in range(1, max(sizes, default=0) + 1):
        kept = [n for n in sizes if n >= theta]
        if sum(kept) ** 2 * best[1] > best[0] ** 2 * len(kept):
            best, threshold = (sum(kept), len(kept)), theta
    if not threshold:
        return [0] * len(moved), (1, 0)
    square, along = sum(n * n for n in sizes), best[0]
    if square > 2 * max_code(s) * along:  # no weight moves further
        square, along = 2 * max_code(s), 1
    return [(n > 0) - (n < 0) if abs(n) >= threshold else 0 for n in moved], nearest_rate(square, along)


def nearest_rate(a: int, b: int) -> tuple[int, int]:
    """The number mantissa · 2^exponent nearest to a / b, the mantissa odd and of at most 8 bits."""
    exponent = a.bit_length() - b.bit_length() - 8
    while a << max(0, -exponent) >= (b << max(0, exponent)) * 256:
        exponent += 1
    mantissa = divide_half_even(a << max(0, -exponent), b << max(0, exponent))
    while mantissa % 2 == 0:
        mantissa, exponent = mantissa // 2, exponent + 1
    return mantissa, exponent
