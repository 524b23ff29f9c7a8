#include "target.h"

#include "passes.h"
#include "rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ALWAYS_INLINE uint8_t *pixel(uint8_t *p, Strides at, int image, int row, int column) {
    return p + image * at.image + row * at.row + column * at.column;
}

void load_images(const float *images, int channels, float steps, uint8_t *codes, Box box) {
    const float largest = steps - 1;
    const ptrdiff_t plane = (ptrdiff_t)box.rows * box.columns;
    for (int n = 0; n < box.images; n++)
        for (int y = 0; y < box.rows; y++)
            for (int c = 0; c < channels; c++) {
                const float *from = images + (n * (ptrdiff_t)channels + c) * plane + (ptrdiff_t)y * box.columns;
                uint8_t *to = pixel(codes, box.at, n, y, 0) + c;
                for (int x = 0; x < box.columns; x++) {
                    float code = rintf(from[x] * steps);
                    code = code > largest ? largest : code < -largest ? -largest : code;
                    to[x * box.at.column] = (uint8_t)(OFFSET + (int)code);
                }
            }
}

void pool(const uint8_t *codes, const uint8_t *passes, Strides from, Window window, uint8_t *out, Box box,
          uint8_t *out_passes, uint8_t *winners) {
    const int channels = box.channels;
    for (int n = 0; n < box.images; n++)
        for (int y = 0; y < box.rows; y++)
            for (int x = 0; x < box.columns; x++) {
                const ptrdiff_t down = y * window.step_rows * from.row, across = x * window.step_columns * from.column;
                const ptrdiff_t corner = n * from.image + down + across;
                const ptrdiff_t place = (((ptrdiff_t)n * box.rows + y) * box.columns + x) * channels;
                uint8_t *best = pixel(out, box.at, n, y, x);
                for (int c = 0; c < channels; c += CHANNELS) {
                    __m128i most = LOAD16(codes + corner + c), won = _mm_setzero_si128();
                    __m128i open = passes ? LOAD16(passes + corner + c) : won;
                    for (int i = 1; i < window.rows * window.columns; i++) {
                        const ptrdiff_t at = corner + i / window.columns * from.row + i % window.columns * from.column;
                        const __m128i next = _mm_max_epu8(most, LOAD16(codes + at + c));
                        const __m128i same = _mm_cmpeq_epi8(next, most);
                        most = next;
                        if (!passes) continue;
                        open = _mm_blendv_epi8(LOAD16(passes + at + c), open, same);
                        won = _mm_blendv_epi8(_mm_set1_epi8((char)i), won, same);
                    }
                    STORE16(best + c, most);
                    if (!passes) continue;
                    STORE16(out_passes + place + c, open);
                    STORE16(winners + place + c, won);
                }
            }
}

/* Bytes of 16 error codes. */
static ALWAYS_INLINE __m128i codes_of(const int32_t *errors, int up, int largest) {
    const __m256i code = clipped16(up < 0 ? divided16(errors, -up) : multiplied16(errors, up), -largest, largest);
    return _mm_xor_si128(_mm256_castsi256_si128(bytes_of(code, code)), _mm_set1_epi8((char)OFFSET));
}

void spread(const int32_t *errors, int up, int largest, uint8_t *out, Box box) {
    for (int n = 0; n < box.images; n++)
        for (int y = 0; y < box.rows; y++)
            for (int x = 0; x < box.columns; x++)
                for (int c = 0; c < box.channels; c += CHANNELS, errors += CHANNELS)
                    STORE16(pixel(out, box.at, n, y, x) + c, codes_of(errors, up, largest));
}

void spread_pooled(const int32_t *errors, int up, int largest, const uint8_t *winners, Window window, uint8_t *out,
                   Box box) {
    const __m128i zero = _mm_set1_epi8((char)OFFSET);
    for (int n = 0; n < box.images; n++)
        for (int y = 0; y < box.rows; y++)
            for (int x = 0; x < box.columns; x++) {
                uint8_t *corner = pixel(out, box.at, n, y * window.step_rows, x * window.step_columns);
                for (int c = 0; c < box.channels; c += CHANNELS, errors += CHANNELS, winners += CHANNELS) {
                    const __m128i code = codes_of(errors, up, largest), winner = LOAD16(winners);
                    for (int i = 0; i < window.rows * window.columns; i++) {
                        const __m128i here = _mm_cmpeq_epi8(winner, _mm_set1_epi8((char)i));
                        const ptrdiff_t at = i / window.columns * box.at.row + i % window.columns * box.at.column;
                        STORE16(corner + at + c, _mm_blendv_epi8(zero, code, here));
                    }
                }
            }
}

/* Sixteen bytes of each of four images, byte by byte. */
static ALWAYS_INLINE void interleave16(const __m128i *r, __m128i *out) {
    const __m128i low0 = _mm_unpacklo_epi8(r[0], r[1]), low1 = _mm_unpacklo_epi8(r[2], r[3]);
    const __m128i high0 = _mm_unpackhi_epi8(r[0], r[1]), high1 = _mm_unpackhi_epi8(r[2], r[3]);
    out[0] = _mm_unpacklo_epi16(low0, low1), out[1] = _mm_unpackhi_epi16(low0, low1);
    out[2] = _mm_unpacklo_epi16(high0, high1), out[3] = _mm_unpackhi_epi16(high0, high1);
}

static void interleave_plain(const uint8_t *const *from, ptrdiff_t pixels, int channels, uint8_t flip, uint8_t *to) {
    const __m128i flips = _mm_set1_epi8((char)flip);
    for (int c = 0; c < channels; c += CHANNELS)
        for (ptrdiff_t pixel = 0; pixel < pixels; pixel++, to += 4 * CHANNELS) {
            __m128i r[4], out[4];
            for (int k = 0; k < 4; k++) r[k] = _mm_xor_si128(LOAD16(from[k] + pixel * channels + c), flips);
            interleave16(r, out);
            for (int k = 0; k < 4; k++) STORE16(to + 16 * k, out[k]);
        }
}

/* The images of the first layer: four pixels of four channels at a time; the parts lie side by side. */
static ptrdiff_t interleave_four_channels(const uint8_t *const *from, ptrdiff_t pixels, int padded, uint8_t *to) {
    const __m128i zero = _mm_set1_epi8((char)OFFSET);
    ptrdiff_t pixel = 0;
    for (; pixel + 4 <= pixels; pixel += 4) {
        __m128i positive[4], negative[4], out[4];
        for (int k = 0; k < 4; k++) {
            const __m128i r = LOAD16(from[k] + 4 * pixel);
            positive[k] = _mm_subs_epu8(r, zero), negative[k] = _mm_subs_epu8(zero, r);
        }
        interleave16(positive, out);
        for (int k = 0; k < 4; k++) STORE16(to + 4 * (pixel + k) * padded, out[k]);
        interleave16(negative, out);
        for (int k = 0; k < 4; k++) STORE16(to + 4 * (pixel + k) * padded + 16, out[k]);
    }
    return pixel;
}

/* Channels c of a pixel become c (positive part) and channels + c (negative part). */
static void interleave_parts(const uint8_t *const *from, ptrdiff_t pixels, int channels, int padded, uint8_t *to) {
    const int block = padded < CHANNELS ? padded : CHANNELS;
    ptrdiff_t done = 0;
    if (channels == 4 && padded == block) {
        memset(to, 0, (size_t)(4 * pixels * padded));
        done = interleave_four_channels(from, pixels, padded, to);
    }
    for (int first = 0; first < padded; first += block)
        for (ptrdiff_t pixel = done; pixel < pixels; pixel++)
            for (int c = first; c < first + block; c++) {
                uint8_t *place = to + 4 * (first * pixels + pixel * block + c - first);
                for (int k = 0; k < 4; k++) {
                    const int part = c / channels;
                    const int code = part < 2 ? (int)from[k][pixel * channels + c % channels] - OFFSET : 0;
                    place[k] = (uint8_t)(part == 0 && code > 0 ? code : part == 1 && code < 0 ? -code : 0);
                }
            }
}

int interleave(const uint8_t *from, int images, ptrdiff_t pixels, int channels, int padded, int how, uint8_t *to) {
    const uint8_t blank = how == PLAIN ? 0 : OFFSET;
    const ptrdiff_t bytes = pixels * channels;
    uint8_t *nothing = NULL;
    if (images % 4) {
        if (!(nothing = malloc((size_t)bytes))) return -1;
        memset(nothing, blank, (size_t)bytes);
    }
    for (int n = 0; n < images; n += 4, to += 4 * pixels * padded) {
        const uint8_t *four[4];
        for (int k = 0; k < 4; k++) four[k] = n + k < images ? from + (n + k) * bytes : nothing;
        if (how == PARTS)
            interleave_parts(four, pixels, channels, padded, to);
        else
            interleave_plain(four, pixels, channels, how == SIGNED ? OFFSET : 0, to);
    }
    free(nothing);
    return 0;
}

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
    for (int o = 0; o < w.padded_outputs; o++) {
        const int8_t *from = ternary + 3 * o * each;
        int8_t *to = packed + o / lanes * each * lanes + o % lanes * 4;
        int32_t sums[4] = {0};
        for (int r = 0; r < rows; r++, from += 3 * channels)
            for (int c = 0; c < channels; c += CHANNELS, to += CHANNELS * lanes) {
                const __m128i g0 = LOAD16(from + c), g1 = LOAD16(from + channels + c);
                const __m128i g2 = LOAD16(from + 2 * channels + c), outer = _mm_add_epi8(g0, g2);
                const __m128i made[4] = {g0, _mm_add_epi8(outer, g1), _mm_sub_epi8(outer, g1), g2};
                for (int m = 0; m < 4; m++) {
                    int8_t bytes[CHANNELS];
                    STORE16(bytes, made[m]);
                    for (int i = 0; i < CHANNELS; i++) sums[m] += bytes[i];
                    for (int g = 0; g < CHANNELS; g += 4) memcpy(to + m * part + g * lanes, bytes + g, 4);
                }
            }
        for (int m = 0; m < 4; m++) start[m * w.padded_outputs + o] = m == 1 ? 0 : -largest * sums[m];
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
                __m128i r[4], out[4];
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

/* Steps of magnitude * 2^-shift, a part of which is taken with its own size as probability. */
static void take_steps(int16_t *codes, const int32_t *g, const float *uniform, int count, int shift, int largest) {
    const int32_t below = (1 << shift) - 1;
    const float unit = 1.0f / (float)(1 << shift);
    for (int j = 0; j < count; j++) {
        const int32_t size = g[j] < 0 ? -g[j] : g[j];
        const int32_t steps = (size >> shift) + ((float)(size & below) * unit > uniform[j]);
        int32_t code = codes[j] - (g[j] < 0 ? -steps : steps);
        code = code > largest ? largest : code;
        codes[j] = (int16_t)(code < -largest ? -largest : code);
    }
}

/* The same for any factor: the product of a factor of at most 8 bits and a gradient is exact in a double. */
static void take_any_steps(int16_t *codes, const int32_t *g, const float *uniform, int count, double factor,
                           int largest) {
    for (int j = 0; j < count; j++) {
        const double size = fabs(g[j] * factor), whole = floor(size);
        const double steps = whole + (size - whole > (double)uniform[j] ? 1.0 : 0.0);
        double code = codes[j] - (g[j] < 0 ? -steps : steps);
        code = code > largest ? largest : code;
        codes[j] = (int16_t)(code < -largest ? -largest : code);
    }
}

int update(int16_t *codes, Weights w, const int32_t *g, int gradient_inputs, int mantissa, int exponent,
           const float *uniform, int largest) {
    const int each = w.inputs * w.taps;
    int32_t *row = malloc(sizeof *row * (size_t)each);
    if (!row) return -1;
    for (int o = 0; o < w.outputs; o++, codes += each, uniform += each) {
        const int32_t *from = g + (ptrdiff_t)o * w.taps * gradient_inputs;
        for (int t = 0; t < w.taps; t++)
            for (int i = 0; i < w.inputs; i++) row[i * w.taps + t] = from[(ptrdiff_t)t * gradient_inputs + i];
        if (mantissa == 1 && exponent <= 0 && exponent >= -24)
            take_steps(codes, row, uniform, each, -exponent, largest);
        else
            take_any_steps(codes, row, uniform, each, ldexp(mantissa, exponent), largest);
    }
    free(row);
    return 0;
}

END_TARGET
