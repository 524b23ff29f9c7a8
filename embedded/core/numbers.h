/* Numbers of an s-bit client: codes, rounding and random words. Integers only; right shifts of negative numbers are
 * arithmetic, as on every compiler this is meant for. */
#ifndef PROWD_NUMBERS_H
#define PROWD_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

typedef char prowd_needs_arithmetic_shifts[(-1 >> 1) == -1 ? 1 : -1];

/* Functions that are worth compiling once for each instruction set; empty where the build does not ask for it. */
#ifndef PROWD_CLONES
#define PROWD_CLONES
#endif

/* S - 1, the largest code of s bits. */
static inline int32_t prowd_max_code(int bits) { return ((int32_t)1 << (bits - 1)) - 1; }

static inline int32_t prowd_clip(int32_t code, int32_t least, int32_t largest) {
    return code < least ? least : code > largest ? largest : code;
}

/* round_half_even(n / 2^k), k from 1 to 30, |n| + 2^k below 2^31. */
static inline int32_t prowd_round_shift(int32_t n, int k) {
    return (n + (((int32_t)1 << (k - 1)) - 1) + ((n >> k) & 1)) >> k;
}

/* Q_Int2 of an s-bit code: round_half_even(2c / S), clipped to -1, 0 and 1. Ties go to 0. */
static inline int16_t prowd_ternary(int32_t code, int bits) {
    const int32_t half = (int32_t)1 << (bits - 1);
    return (int16_t)((4 * code > half) - (4 * code < -half));
}

/* round(log2 x), and 0 for x = 0, x below 2^63: up when x > 2^(b + 1/2), b being the bit length less one. The constant
 * is floor(2^62.5), so the digits of 2^(b + 1/2) before the point are its leading bits. */
static inline int prowd_shift_exponent(uint64_t x) {
    int b = 0;
    if (!x) return 0;
    for (uint64_t y = x; y >>= 1;) b++;
    return b + (x > (UINT64_C(0x5a827999fcef3242) >> (62 - b)));
}

/* Four random words for a counter (step, layer, block, 0): Philox4x32-10. */
static inline void prowd_philox(const uint32_t key[2], uint32_t step, uint32_t layer, uint32_t block, uint32_t out[4]) {
    uint32_t a = step, b = layer, c = block, d = 0, k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t one = (uint64_t)0xD2511F53u * a, two = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(two >> 32) ^ b ^ k0, b = (uint32_t)two;
        c = (uint32_t)(one >> 32) ^ d ^ k1, d = (uint32_t)one;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

enum { PROWD_WORDS = 64 }; /* that are made together */

/* Words `first` to `first` + 63 of a step and layer, `first` being a multiple of 4: the same, sixteen counters at once. */
static inline void prowd_words(const uint32_t key[2], uint32_t step, uint32_t layer, uint32_t first,
                               uint32_t out[PROWD_WORDS]) {
    uint32_t a[16], b[16], c[16], d[16], k0 = key[0], k1 = key[1];
    for (uint32_t i = 0; i < 16; i++) a[i] = step, b[i] = layer, c[i] = first / 4 + i, d[i] = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 16; i++) {
            const uint64_t one = (uint64_t)0xD2511F53u * a[i], two = (uint64_t)0xCD9E8D57u * c[i];
            a[i] = (uint32_t)(two >> 32) ^ b[i] ^ k0, b[i] = (uint32_t)two;
            c[i] = (uint32_t)(one >> 32) ^ d[i] ^ k1, d[i] = (uint32_t)one;
        }
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 16; i++) out[4 * i] = a[i], out[4 * i + 1] = b[i], out[4 * i + 2] = c[i], out[4 * i + 3] = d[i];
}

enum { PROWD_RANDOM = 24, PROWD_BEYOND = 17 };

/* floor|x| + [frac|x| > r / 2^24] for |x| = product / 2^down, product below 2^63, r being the upper 24 bits of the word.
 * More steps than there are codes count as 2^16. */
static inline int32_t prowd_step_size(uint64_t product, int down, uint32_t word) {
    const uint64_t chance = word >> (32 - PROWD_RANDOM);
    uint64_t size;
    if (down <= 0) {
        const uint64_t most = (uint64_t)1 << PROWD_BEYOND;
        size = (product < most ? product : most) << (-down < PROWD_BEYOND ? -down : PROWD_BEYOND);
    } else if (down <= PROWD_RANDOM) {
        const uint64_t rest = product & (((uint64_t)1 << down) - 1);
        size = (product >> down) + (rest << (PROWD_RANDOM - down) > chance);
    } else {
        const int whole = down < 63 ? down : 63, part = down - PROWD_RANDOM < 63 ? down - PROWD_RANDOM : 63;
        const uint64_t rest = product & (((uint64_t)1 << whole) - 1);
        size = (product >> whole) + (rest && (rest - 1) >> part >= chance);
    }
    return (int32_t)(size < 65536 ? size : 65536);
}

/* A whole number from 0 to bound - 1. */
static inline uint32_t prowd_below(uint32_t word, uint32_t bound) { return (uint32_t)((uint64_t)word * bound >> 32); }

#endif
