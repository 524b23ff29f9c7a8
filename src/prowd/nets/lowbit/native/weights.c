/* The passes over weights: ternary, packed as the products take them, and updated. */
#include "target.h"

#include "passes.h"
#include "numbers.h"
#include "vectors.h"

#include <stdlib.h>
#include <string.h>

void ternarize(const int16_t *codes, Weights w, int limit, int8_t *ternary) {
    memset(ternary, 0, (size_t)w.padded_outputs * w.taps * w.padded_inputs);
    for (int o = 0; o < w.outputs; o++) {
        int8_t *to = ternary + (ptrdiff_t)o * w.taps * w.padded_inputs;
        for (int i = 0; i < w.inputs; i++)
            for (int t = 0; t < w.taps; t++) {
                const int twice = 2 * *codes++;
                to[(ptrdiff_t)t * w.padded_inputs + i] = (int8_t)((twice > limit) - (twice < -limit));
            }
    }
}

void pack_forward(const int8_t *ternary, Weights w, int lanes, int offset, int8_t *packed, int32_t *start) {
    const ptrdiff_t each = (ptrdiff_t)w.taps * w.padded_inputs;
    for (int o = 0; o < w.padded_outputs; o++) {
        const int8_t *from = ternary + o * each;
        int8_t *to = packed + o / lanes * each * lanes + o % lanes * 4;
        int32_t sum = 0;
        for (ptrdiff_t i = 0; i < each; i++) sum += from[i];
        for (ptrdiff_t g = 0; g < each; g += 4) memcpy(to + g * lanes, from + g, 4);
        start[o] = -offset * sum;
    }
}

void pack_pairs(const int8_t *ternary, Weights w, int lanes, int largest, int8_t *packed, int32_t *start) {
    const int channels = w.padded_inputs, rows = w.taps / 3;
    const ptrdiff_t each = (ptrdiff_t)rows * channels, part = each * w.padded_outputs;
    const int up = OFFSET ? largest : 0, above[4] = {up, up - largest, up, up}; /* what bytes are above their numbers */
    for (int o = 0; o < w.padded_outputs; o++) {
        const int8_t *from = ternary + 3 * o * each;
        int8_t *to = packed + o / lanes * each * lanes + o % lanes * 4;
        int32_t sums[4] = {0};
        for (int r = 0; r < rows; r++, from += 3 * channels)
            for (int c = 0; c < channels; c += CHANNELS, to += CHANNELS * lanes) {
                const Bytes g0 = LOAD16(from + c), g1 = LOAD16(from + channels + c);
                const Bytes g2 = LOAD16(from + 2 * channels + c), outer = add_bytes(g0, g2);
                const Bytes made[4] = {g0, add_bytes(outer, g1), take_bytes(outer, g1), g2};
                for (int m = 0; m < 4; m++) {
                    int8_t bytes[CHANNELS];
                    STORE16(bytes, made[m]);
                    for (int i = 0; i < CHANNELS; i++) sums[m] += bytes[i];
                    for (int g = 0; g < CHANNELS; g += 4) memcpy(to + m * part + g * lanes, bytes + g, 4);
                }
            }
        for (int m = 0; m < 4; m++) start[m * w.padded_outputs + o] = above[m] * -sums[m];
    }
}

void pack_backward(const int8_t *ternary, Weights w, int lanes, int flat, int8_t *packed, int32_t *start) {
    /* A flat layer sees every tap at one position: its errors are outputs of their own. */
    const ptrdiff_t each = (ptrdiff_t)w.taps * w.padded_inputs;
    const int taps = flat ? 1 : w.taps, outputs = flat ? (int)each : w.padded_inputs;
    const ptrdiff_t vector = (ptrdiff_t)taps * w.padded_outputs * lanes; /* bytes of a vector of outputs */
    memset(start, 0, sizeof *start * (size_t)outputs);
    for (int o = 0; o < w.padded_outputs; o++)
        for (int t = 0; t < taps; t++) {
            const int8_t *from = ternary + o * each + (ptrdiff_t)t * w.padded_inputs;
            for (int i = 0; i < outputs; i++) start[i] -= OFFSET * from[i];
        }
    for (int t = 0; t < taps; t++) {
        const int8_t *tap = ternary + (ptrdiff_t)(taps - 1 - t) * w.padded_inputs; /* the kernel is turned round */
        for (int o = 0; o < w.padded_outputs; o += 4)
            for (int i = 0; i < outputs; i += CHANNELS) {
                Bytes r[4], out[4];
                for (int k = 0; k < 4; k++) r[k] = LOAD16(tap + (o + k) * each + i);
                interleave16(r, out);
                int8_t *to = packed + i / lanes * vector + (ptrdiff_t)(t * w.padded_outputs + o) * lanes;
                for (int k = 0; k < 4; k++) STORE16(to + 4 * k / lanes * vector + 16 * k % (4 * lanes), out[k]);
            }
    }
}

int32_t join_gradient(int32_t *g, ptrdiff_t rows, int inputs, int padded, int parts) {
    int32_t largest = 0;
    for (ptrdiff_t r = 0; r < rows; r++, g += padded)
        for (int i = 0; i < inputs; i++) {
            if (parts) g[i] -= g[inputs + i];
            const int32_t size = g[i] < 0 ? -g[i] : g[i];
            largest = size > largest ? size : largest;
        }
    return largest;
}

/* Steps of mantissa * |g| * 2^-down, a part of which is taken with its own size as probability: where the product fits
   32 bits and the part 24. */
static void take_steps(int16_t *codes, const int32_t *g, const uint32_t *words, int count, uint32_t mantissa, int down,
                       int largest) {
    const uint32_t below = ((uint32_t)1 << down) - 1;
    for (int j = 0; j < count; j++) {
        const uint32_t size = mantissa * (uint32_t)(g[j] < 0 ? -g[j] : g[j]);
        const int up = (size & below) << (PROWD_RANDOM - down) > words[j] >> (32 - PROWD_RANDOM);
        const int32_t steps = (int32_t)(size >> down) + up;
        codes[j] = (int16_t)prowd_clip(codes[j] - (g[j] < 0 ? -steps : steps), -largest, largest);
    }
}

/* The same for any product. */
static void take_any_steps(int16_t *codes, const int32_t *g, const uint32_t *words, int count, uint32_t mantissa,
                           int down, int largest) {
    for (int j = 0; j < count; j++) {
        const uint64_t product = (uint64_t)mantissa * (uint32_t)(g[j] < 0 ? -g[j] : g[j]);
        const int32_t steps = prowd_step_size(product, down, words[j]);
        codes[j] = (int16_t)prowd_clip(codes[j] - (g[j] < 0 ? -steps : steps), -largest, largest);
    }
}

/* Words `first` to `first` + `count`; returns where the first of them is. */
static const uint32_t *words_of(const prowd_draws *draws, uint32_t layer, uint32_t first, int count, uint32_t *room) {
    const uint32_t start = first / 4 * 4;
    for (uint32_t at = start; at < first + (uint32_t)count; at += PROWD_WORDS)
        prowd_words(draws->key, draws->step, layer, at, room + (at - start));
    return room + (first - start);
}

int update_codes(int16_t *codes, Weights w, const int32_t *g, int gradient_inputs, int32_t size, prowd_rate rate,
           const prowd_draws *draws, uint32_t layer, int largest) {
    const int each = w.inputs * w.taps;
    const int down = prowd_shift_exponent((uint32_t)size) - rate.exponent;
    const int small = down >= 0 && down <= PROWD_RANDOM && (int64_t)size * rate.mantissa <= INT32_MAX;
    int32_t *row = malloc(sizeof *row * (2 * (size_t)each + 2 * PROWD_WORDS));
    uint32_t *room = (uint32_t *)row + each;
    if (!row) return -1;
    for (int o = 0; o < w.outputs; o++, codes += each) {
        const int32_t *from = g + (ptrdiff_t)o * w.taps * gradient_inputs;
        const uint32_t *words = words_of(draws, layer, (uint32_t)o * (uint32_t)each, each, room);
        for (int t = 0; t < w.taps; t++)
            for (int i = 0; i < w.inputs; i++) row[i * w.taps + t] = from[(ptrdiff_t)t * gradient_inputs + i];
        (small ? take_steps : take_any_steps)(codes, row, words, each, (uint32_t)rate.mantissa, down, largest);
    }
    free(row);
    return 0;
}

END_TARGET
