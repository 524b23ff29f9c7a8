"""The numbers of an integer client: random words, rounding, losses, updates and what methods send of them.

Slow and obvious: Python integers only, as any device can follow them.
"""

import hashlib
from collections.abc import Sequence

Key = tuple[int, int]

WORD = 32
RANDOM_BITS = 24  # of a word decide a stochastic rounding
ONE = 30  # fraction bits of probabilities
LOSS = 16  # fraction bits of a loss
LN2 = 45426  # ln 2 with LOSS fraction bits


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


# --- rounding ---------------------------------------------------------------------------------------------------------


def divide_half_even(a: int, b: int) -> int:
    """round_half_even(a / b) for b > 0."""
    whole, rest = divmod(a, b)
    return whole + (2 * rest > b or (2 * rest == b and whole % 2 == 1))


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


# --- losses -----------------------------------------------------------------------------------------------------------


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


# --- updates ----------------------------------------------------------------------------------------------------------


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
