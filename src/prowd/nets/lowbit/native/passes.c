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

END_TARGET
