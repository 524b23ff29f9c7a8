#include "target.h"

#include "passes.h"
#include "vectors.h"

#include <stdlib.h>
#include <string.h>

static ALWAYS_INLINE uint8_t *pixel(uint8_t *p, Strides at, int image, int row, int column) {
    return p + image * at.image + row * at.row + column * at.column;
}

void load_images(const uint8_t *images, int channels, const uint8_t *table, uint8_t *codes, Box box) {
    const ptrdiff_t plane = (ptrdiff_t)box.rows * box.columns;
    for (int n = 0; n < box.images; n++)
        for (int y = 0; y < box.rows; y++)
            for (int c = 0; c < channels; c++) {
                const uint8_t *from = images + (n * (ptrdiff_t)channels + c) * plane + (ptrdiff_t)y * box.columns;
                uint8_t *to = pixel(codes, box.at, n, y, 0) + c;
                for (int x = 0; x < box.columns; x++) to[x * box.at.column] = table[from[x]];
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
                    Bytes most = LOAD16(codes + corner + c), won = all_bytes(0);
                    Bytes open = passes ? LOAD16(passes + corner + c) : won;
                    for (int i = 1; i < window.rows * window.columns; i++) {
                        const ptrdiff_t at = corner + i / window.columns * from.row + i % window.columns * from.column;
                        const Bytes next = larger_codes(most, LOAD16(codes + at + c));
                        const Bytes same = same_bytes(next, most);
                        most = next;
                        if (!passes) continue;
                        open = choose_bytes(same, open, LOAD16(passes + at + c));
                        won = choose_bytes(same, won, all_bytes(i));
                    }
                    STORE16(best + c, most);
                    if (!passes) continue;
                    STORE16(out_passes + place + c, open);
                    STORE16(winners + place + c, won);
                }
            }
}

/* Bytes of 16 error codes. */
static ALWAYS_INLINE Bytes codes_of(const int32_t *errors, int up, int largest) {
    const Sums low = sums8(errors), high = sums8(errors + 8);
    const Shorts n = up < 0 ? narrowed(rounded8(low, -up), rounded8(high, -up)) : narrowed(raised8(low, up), raised8(high, up));
    const Shorts code = clipped16(n, -largest, largest);
    Bytes both[2];
    bytes_of(code, code, both);
    return flip_bytes(both[0], all_bytes(OFFSET));
}

void spread_errors(const int32_t *errors, int up, int largest, uint8_t *out, Box box) {
    for (int n = 0; n < box.images; n++)
        for (int y = 0; y < box.rows; y++)
            for (int x = 0; x < box.columns; x++)
                for (int c = 0; c < box.channels; c += CHANNELS, errors += CHANNELS)
                    STORE16(pixel(out, box.at, n, y, x) + c, codes_of(errors, up, largest));
}

void spread_pooled(const int32_t *errors, int up, int largest, const uint8_t *winners, Window window, uint8_t *out,
                   Box box) {
    const Bytes zero = all_bytes(OFFSET);
    for (int n = 0; n < box.images; n++)
        for (int y = 0; y < box.rows; y++)
            for (int x = 0; x < box.columns; x++) {
                uint8_t *corner = pixel(out, box.at, n, y * window.step_rows, x * window.step_columns);
                for (int c = 0; c < box.channels; c += CHANNELS, errors += CHANNELS, winners += CHANNELS) {
                    const Bytes code = codes_of(errors, up, largest), winner = LOAD16(winners);
                    for (int i = 0; i < window.rows * window.columns; i++) {
                        const Bytes here = same_bytes(winner, all_bytes(i));
                        const ptrdiff_t at = i / window.columns * box.at.row + i % window.columns * box.at.column;
                        STORE16(corner + at + c, choose_bytes(here, code, zero));
                    }
                }
            }
}

static void interleave_plain(const uint8_t *const *from, ptrdiff_t pixels, int channels, uint8_t flip, uint8_t *to) {
    const Bytes flips = all_bytes(flip);
    for (int c = 0; c < channels; c += CHANNELS)
        for (ptrdiff_t pixel = 0; pixel < pixels; pixel++, to += 4 * CHANNELS) {
            Bytes r[4], out[4];
            for (int k = 0; k < 4; k++) r[k] = flip_bytes(LOAD16(from[k] + pixel * channels + c), flips);
            interleave16(r, out);
            for (int k = 0; k < 4; k++) STORE16(to + 16 * k, out[k]);
        }
}

/* The images of the first layer: four pixels of four channels at a time; the parts lie side by side. */
static ptrdiff_t interleave_four_channels(const uint8_t *const *from, ptrdiff_t pixels, int padded, uint8_t *to) {
    ptrdiff_t pixel = 0;
    for (; pixel + 4 <= pixels; pixel += 4) {
        Bytes positive[4], negative[4], out[4];
        for (int k = 0; k < 4; k++) {
            const Bytes r = LOAD16(from[k] + 4 * pixel);
            positive[k] = positive_part(r), negative[k] = negative_part(r);
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
                    const int code = part < 2 ? (int8_t)(from[k][pixel * channels + c % channels] - OFFSET) : 0;
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
