/* A convolution as sums over rows of numbers that lie side by side, which compilers turn into vector instructions.
 *
 * Forward: the windows of some positions are laid out as rows [tap][input], the ternary weights likewise, and every
 * pair of rows is multiplied and summed. Backward is the same over errors, spread by the stride, with the kernel turned
 * round. A gradient sums over positions: rows [position] of one weight's inputs and of one output's errors.
 */
#include "layers.h"

#include <string.h>

#include "numbers.h"

/* Sums of products of 4 rows of w and 2 rows of a. */
static inline void products(const int16_t *w, ptrdiff_t w_row, const int16_t *a, ptrdiff_t a_row, ptrdiff_t terms,
                            int32_t out[2][4]) {
    const int16_t *w0 = w, *w1 = w + w_row, *w2 = w1 + w_row, *w3 = w2 + w_row, *a0 = a, *a1 = a + a_row;
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, r0 = 0, r1 = 0, r2 = 0, r3 = 0;
    for (ptrdiff_t k = 0; k < terms; k++) {
        s0 += w0[k] * a0[k], s1 += w1[k] * a0[k], s2 += w2[k] * a0[k], s3 += w3[k] * a0[k];
        r0 += w0[k] * a1[k], r1 += w1[k] * a1[k], r2 += w2[k] * a1[k], r3 += w3[k] * a1[k];
    }
    out[0][0] = s0, out[0][1] = s1, out[0][2] = s2, out[0][3] = s3;
    out[1][0] = r0, out[1][1] = r1, out[1][2] = r2, out[1][3] = r3;
}

/* A convolution of stride 1 or more over an image [row][column][channel] that has its padding. */
typedef struct {
    ptrdiff_t channels, columns;             /* of the padded image */
    ptrdiff_t window_rows, window_columns;   /* of the kernel */
    ptrdiff_t out_columns, positions;        /* of what it gives */
    ptrdiff_t step_rows, step_columns;       /* of the windows */
    ptrdiff_t size, terms;                   /* of the padded image; of a row of weights with its zeros */
} Sweep;

static Sweep forward_sweep(const prowd_layer *l) {
    const ptrdiff_t rows = l->rows + 2 * l->pad_rows, columns = l->columns + 2 * l->pad_columns;
    const Sweep s = {l->inputs, columns, l->kernel_rows, l->kernel_columns, l->out_columns,
                     (ptrdiff_t)l->out_rows * l->out_columns, l->stride_rows, l->stride_columns,
                     rows * columns * l->inputs, prowd_up(prowd_taps(l) * l->inputs, PROWD_LANES)};
    return s;
}

static Sweep backward_sweep(const prowd_layer *l) {
    const ptrdiff_t rows = l->rows + l->kernel_rows - 1, columns = l->columns + l->kernel_columns - 1;
    const Sweep s = {l->outputs, columns, l->kernel_rows, l->kernel_columns, l->columns,
                     (ptrdiff_t)l->rows * l->columns, 1, 1,
                     rows * columns * l->outputs, prowd_up(prowd_taps(l) * l->outputs, PROWD_LANES)};
    return s;
}

/* The window of a position as one row, with zeros at its end. */
static void lay_out(const Sweep *s, const int16_t *image, ptrdiff_t position, int16_t *row) {
    const ptrdiff_t y = position / s->out_columns * s->step_rows, x = position % s->out_columns * s->step_columns;
    const ptrdiff_t width = s->window_columns * s->channels;
    const int16_t *from = image + (y * s->columns + x) * s->channels;
    for (ptrdiff_t i = 0; i < s->window_rows; i++, from += s->columns * s->channels, row += width)
        memcpy(row, from, sizeof *row * (size_t)width);
    memset(row, 0, sizeof *row * (size_t)(s->terms - s->window_rows * width));
}

/* Where sums go: [image][channel][position], as they are or as codes. */
typedef struct {
    int32_t *sums;   /* as they are; or */
    int16_t *codes;  /* rounded and clipped, */
    uint8_t *passes; /* and where errors pass */
    int32_t shift, least, largest;
    ptrdiff_t channels, positions;
} Sink;

/* Sums of positions that lie side by side. */
static inline void give(const Sink *to, ptrdiff_t at, const int32_t *sums, ptrdiff_t count) {
    const int32_t least = to->least, largest = to->largest, open = least ? least : 1, shift = to->shift;
    if (to->sums) {
        for (ptrdiff_t i = 0; i < count; i++) to->sums[at + i] = sums[i];
        return;
    }
    for (ptrdiff_t i = 0; i < count; i++)
        to->codes[at + i] = (int16_t)prowd_clip(prowd_round_shift(sums[i], shift), least, largest);
    if (!to->passes) return;
    for (ptrdiff_t i = 0; i < count; i++) {
        const int32_t code = prowd_round_shift(sums[i], shift);
        to->passes[at + i] = (uint8_t)((code >= open) & (code <= largest));
    }
}

/* Multiply the windows of `count` positions, numbered through all images from `first`, with all rows of weights. */
PROWD_CLONES static void multiply(ptrdiff_t terms, const int16_t *rows, ptrdiff_t first, ptrdiff_t count,
                                  const int16_t *weights, const Sink *to) {
    int32_t found[2][4], sums[4][PROWD_BLOCK];
    for (ptrdiff_t channel = 0; channel < to->channels; channel += 4) {
        for (ptrdiff_t i = 0; i < count; i += 2) {
            products(weights + channel * terms, terms, rows + i * terms, terms, terms, found);
            for (ptrdiff_t j = 0; j < 4; j++) sums[j][i] = found[0][j], sums[j][i + 1] = found[1][j];
        }
        for (ptrdiff_t done = 0; done < count;) {
            const ptrdiff_t image = (first + done) / to->positions, position = (first + done) % to->positions;
            const ptrdiff_t left = to->positions - position, some = count - done < left ? count - done : left;
            for (ptrdiff_t j = 0; j < 4 && channel + j < to->channels; j++)
                give(to, (image * to->channels + channel + j) * to->positions + position, sums[j] + done, some);
            done += some;
        }
    }
}

/* Numbers [channel][rows * columns] to [place][channel], each place given by its row and column in a padded image. */
static void spread(const int16_t *from, ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t first_row,
                   ptrdiff_t first_column, ptrdiff_t step_rows, ptrdiff_t step_columns, const Sweep *s, int16_t *image) {
    const ptrdiff_t image_rows = s->size / (s->columns * s->channels);
    memset(image, 0, sizeof *image * (size_t)s->size);
    for (ptrdiff_t y = 0; y < rows; y++) {
        const ptrdiff_t v = first_row + y * step_rows;
        if (v < 0 || v >= image_rows) continue;
        for (ptrdiff_t x = 0; x < columns; x++) {
            const ptrdiff_t u = first_column + x * step_columns;
            if (u < 0 || u >= s->columns) continue;
            int16_t *to = image + (v * s->columns + u) * channels;
            const int16_t *code = from + y * columns + x;
            for (ptrdiff_t c = 0; c < channels; c++) to[c] = code[c * rows * columns];
        }
    }
}

/* Scratch of a sweep: weights, windows of some positions, an image. */
static int16_t *windows_in(const Sweep *s, ptrdiff_t channels, int16_t *scratch) {
    return scratch + prowd_up(channels, 4) * s->terms;
}

static ptrdiff_t sweep_scratch(const Sweep *s, ptrdiff_t channels) {
    return (prowd_up(channels, 4) + PROWD_BLOCK) * s->terms + s->size;
}

typedef struct {
    ptrdiff_t rows, columns, first_row, first_column, step_rows, step_columns;
} Placement;

/* A whole sweep: `packed` weights at the beginning of the scratch, all images, some positions at a time. */
static void sweep(const Sweep *s, const int16_t *from, int32_t images, Placement at, const Sink *to, int16_t *scratch) {
    const ptrdiff_t total = images * s->positions, each = s->channels * at.rows * at.columns;
    int16_t *rows = windows_in(s, to->channels, scratch), *image = rows + PROWD_BLOCK * s->terms;
    ptrdiff_t held = 0;
    for (ptrdiff_t position = 0; position < total; position++) {
        if (position % s->positions == 0)
            spread(from + position / s->positions * each, s->channels, at.rows, at.columns, at.first_row,
                   at.first_column, at.step_rows, at.step_columns, s, image);
        lay_out(s, image, position % s->positions, rows + held * s->terms);
        if (++held < PROWD_BLOCK && position + 1 < total) continue;
        if (held % 2) memset(rows + held * s->terms, 0, sizeof *rows * (size_t)s->terms); /* two at a time */
        multiply(s->terms, rows, position + 1 - held, held, scratch, to);
        held = 0;
    }
}

/* Ternary weights as rows [tap][input] of an output. */
static void pack_forward(const prowd_layer *l, int bits, const int16_t *weights, ptrdiff_t terms, int16_t *packed) {
    const ptrdiff_t taps = prowd_taps(l);
    memset(packed, 0, sizeof *packed * (size_t)(prowd_up(l->outputs, 4) * terms));
    for (ptrdiff_t o = 0; o < l->outputs; o++, packed += terms)
        for (ptrdiff_t c = 0; c < l->inputs; c++)
            for (ptrdiff_t t = 0; t < taps; t++) packed[t * l->inputs + c] = prowd_ternary(*weights++, bits);
}

/* Ternary weights as rows [tap, the last first][output] of an input. */
static void pack_backward(const prowd_layer *l, int bits, const int16_t *weights, ptrdiff_t terms, int16_t *packed) {
    const ptrdiff_t taps = prowd_taps(l);
    memset(packed, 0, sizeof *packed * (size_t)(prowd_up(l->inputs, 4) * terms));
    for (ptrdiff_t o = 0; o < l->outputs; o++)
        for (ptrdiff_t c = 0; c < l->inputs; c++)
            for (ptrdiff_t t = 0; t < taps; t++)
                packed[c * terms + (taps - 1 - t) * l->outputs + o] = prowd_ternary(*weights++, bits);
}

void prowd_conv_forward(const prowd_layer *l, int bits, const int16_t *weights, const int16_t *inputs, int32_t images,
                        int16_t *given, uint8_t *passes, int16_t *scratch) {
    const Sweep s = forward_sweep(l);
    const int32_t largest = prowd_max_code(bits);
    const Sink to = {NULL, given, passes, l->shift, l->relu ? 0 : -largest, largest, l->outputs, s.positions};
    const Placement at = {l->rows, l->columns, l->pad_rows, l->pad_columns, 1, 1};
    pack_forward(l, bits, weights, s.terms, scratch);
    sweep(&s, inputs, images, at, &to, scratch);
}

void prowd_conv_backward(const prowd_layer *l, int bits, const int16_t *weights, const int16_t *errors, int32_t images,
                         int32_t *below, int16_t *scratch) {
    const Sweep s = backward_sweep(l);
    const Sink to = {below, NULL, NULL, 0, 0, 0, l->inputs, s.positions};
    const Placement at = {l->out_rows, l->out_columns, l->kernel_rows - 1 - l->pad_rows,
                          l->kernel_columns - 1 - l->pad_columns, l->stride_rows, l->stride_columns};
    pack_backward(l, bits, weights, s.terms, scratch);
    sweep(&s, errors, images, at, &to, scratch);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* Rows of an image whose positions are summed at once. */
static ptrdiff_t rows_together(const prowd_layer *l) {
    const ptrdiff_t most = PROWD_TERMS / l->out_columns;
    return most < l->out_rows ? most : l->out_rows;
}

/* Images whose positions are summed at once. */
static int32_t images_together(const prowd_layer *l, int32_t images) {
    const ptrdiff_t most = PROWD_TERMS / ((ptrdiff_t)l->out_rows * l->out_columns);
    return most < 1 ? 1 : most < images ? (int32_t)most : images;
}

/* The first x of 0 to `count` whose place x * stride + across is at least `least`. */
static ptrdiff_t first_from(ptrdiff_t least, ptrdiff_t across, ptrdiff_t stride, ptrdiff_t count) {
    const ptrdiff_t x = least <= across ? 0 : (least - across + stride - 1) / stride;
    return x < count ? x : count;
}

/* What one weight is multiplied with in a row of positions of one image. */
static inline void lay_out_row(const int16_t *from, ptrdiff_t across, ptrdiff_t stride, ptrdiff_t columns,
                               ptrdiff_t count, int16_t *row) {
    const ptrdiff_t start = first_from(0, across, stride, count), stop = first_from(columns, across, stride, count);
    for (ptrdiff_t x = 0; x < start; x++) row[x] = 0;
    if (stride == 1)
        for (ptrdiff_t x = start; x < stop; x++) row[x] = from[x + across];
    else
        for (ptrdiff_t x = start; x < stop; x++) row[x] = from[x * stride + across];
    for (ptrdiff_t x = stop; x < count; x++) row[x] = 0;
}

/* The same in rows `first` to `first` + `rows`. */
static void lay_out_inputs(const prowd_layer *l, const int16_t *plane, ptrdiff_t tap, ptrdiff_t first, ptrdiff_t rows,
                           int16_t *row) {
    const ptrdiff_t down = tap / l->kernel_columns - l->pad_rows, across = tap % l->kernel_columns - l->pad_columns;
    for (ptrdiff_t y = first; y < first + rows; y++, row += l->out_columns) {
        const ptrdiff_t v = y * l->stride_rows + down;
        const int outside = v < 0 || v >= l->rows;
        lay_out_row(plane + (outside ? 0 : v) * l->columns, across, l->stride_columns, outside ? 0 : l->columns,
                    l->out_columns, row);
    }
}

/* Errors of all outputs at some positions as rows [output][position]; in two parts, low and high, where codes are
 * wide: e = low + 256 high, both of 8 bits. Returns how many parts. */
static int lay_out_errors(const prowd_layer *l, int bits, const int16_t *errors, int32_t images, ptrdiff_t first,
                          ptrdiff_t count, ptrdiff_t terms, int16_t *rows) {
    const ptrdiff_t positions = (ptrdiff_t)l->out_rows * l->out_columns, part = prowd_up(l->outputs, 4) * terms;
    const int parts = bits > PROWD_WHOLE_BITS ? 2 : 1;
    memset(rows, 0, sizeof *rows * (size_t)(parts * part));
    for (ptrdiff_t o = 0; o < l->outputs; o++)
        for (int32_t n = 0; n < images; n++) {
            const int16_t *from = errors + (n * l->outputs + o) * positions + first;
            int16_t *to = rows + o * terms + n * count;
            if (parts == 1) {
                memcpy(to, from, sizeof *to * (size_t)count);
                continue;
            }
            for (ptrdiff_t i = 0; i < count; i++) {
                const int high = (from[i] + 128) >> 8;
                to[i] = (int16_t)(from[i] - 256 * high), to[part + i] = (int16_t)high;
            }
        }
    return parts;
}

/* Sums of an output's errors with two weights' inputs, for all outputs. */
PROWD_CLONES static void add_products(const int16_t *errors, ptrdiff_t outputs, const int16_t *inputs, ptrdiff_t terms,
                                      int64_t factor, ptrdiff_t count, ptrdiff_t each, int64_t *gradient) {
    int32_t sums[2][4];
    for (ptrdiff_t o = 0; o < outputs; o += 4) {
        products(errors + o * terms, terms, inputs, terms, terms, sums);
        for (ptrdiff_t j = 0; j < 4 && o + j < outputs; j++)
            for (ptrdiff_t i = 0; i < count; i++) gradient[(o + j) * each + i] += sums[i][j] * factor;
    }
}

/* Add sums over some rows of some images to the gradient. */
static void add_gradient(const prowd_layer *l, int bits, const int16_t *inputs, const int16_t *errors, int32_t images,
                         ptrdiff_t first, ptrdiff_t rows, int64_t *gradient, int16_t *scratch) {
    const ptrdiff_t count = rows * l->out_columns, terms = prowd_up(images * count, PROWD_LANES);
    const ptrdiff_t plane = (ptrdiff_t)l->rows * l->columns, part = prowd_up(l->outputs, 4) * terms;
    const ptrdiff_t taps = prowd_taps(l), each = l->inputs * taps;
    int16_t *spread_errors = scratch + 2 * terms;
    const int parts = lay_out_errors(l, bits, errors, images, first * l->out_columns, count, terms, spread_errors);
    memset(scratch, 0, sizeof *scratch * (size_t)(2 * terms));
    for (ptrdiff_t k = 0; k < each; k += 2) {
        const ptrdiff_t some = each - k < 2 ? 1 : 2;
        for (ptrdiff_t i = 0; i < some; i++)
            for (int32_t n = 0; n < images; n++)
                lay_out_inputs(l, inputs + (n * l->inputs + (k + i) / taps) * plane, (k + i) % taps, first, rows,
                               scratch + i * terms + n * count);
        for (int p = 0; p < parts; p++)
            add_products(spread_errors + p * part, l->outputs, scratch, terms, p ? 256 : 1, some, each, gradient + k);
    }
}

void prowd_conv_gradient(const prowd_layer *l, int bits, const int16_t *inputs, const int16_t *errors, int32_t images,
                         int64_t *gradient, int16_t *scratch) {
    const ptrdiff_t rows = rows_together(l);
    const int32_t some = images_together(l, images);
    memset(gradient, 0, sizeof *gradient * (size_t)prowd_weights(l));
    for (int32_t n = 0; n < images; n += some)
        for (ptrdiff_t first = 0; first < l->out_rows; first += rows)
            add_gradient(l, bits, inputs + n * prowd_received(l), errors + n * prowd_given(l),
                         images - n < some ? images - n : some, first,
                         l->out_rows - first < rows ? l->out_rows - first : rows, gradient, scratch);
}

ptrdiff_t prowd_conv_scratch(const prowd_layer *l, int32_t images, int training) {
    const Sweep forward = forward_sweep(l), backward = backward_sweep(l);
    ptrdiff_t most = sweep_scratch(&forward, l->outputs);
    if (!training) return most;
    const ptrdiff_t count = images_together(l, images) * rows_together(l) * l->out_columns;
    const ptrdiff_t other = sweep_scratch(&backward, l->inputs);
    const ptrdiff_t gradient = (2 + 2 * prowd_up(l->outputs, 4)) * prowd_up(count, PROWD_LANES);
    most = other > most ? other : most;
    return gradient > most ? gradient : most;
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

/* The first largest code of a window, row by row. */
static ptrdiff_t winner(const prowd_layer *l, const int16_t *plane, ptrdiff_t y, ptrdiff_t x) {
    const ptrdiff_t corner = y * l->stride_rows * l->columns + x * l->stride_columns;
    ptrdiff_t best = corner;
    for (ptrdiff_t i = 0; i < l->kernel_rows; i++)
        for (ptrdiff_t j = 0; j < l->kernel_columns; j++) {
            const ptrdiff_t at = corner + i * l->columns + j;
            best = plane[at] > plane[best] ? at : best;
        }
    return best;
}

void prowd_pool_forward(const prowd_layer *l, const int16_t *inputs, int32_t images, int16_t *given) {
    const ptrdiff_t plane = (ptrdiff_t)l->rows * l->columns;
    for (ptrdiff_t n = 0; n < (ptrdiff_t)images * l->inputs; n++, inputs += plane)
        for (ptrdiff_t y = 0; y < l->out_rows; y++)
            for (ptrdiff_t x = 0; x < l->out_columns; x++) *given++ = inputs[winner(l, inputs, y, x)];
}

void prowd_pool_backward(const prowd_layer *l, const int16_t *inputs, const int32_t *errors, int32_t images,
                         int32_t *below) {
    const ptrdiff_t plane = (ptrdiff_t)l->rows * l->columns;
    memset(below, 0, sizeof *below * (size_t)(images * prowd_received(l)));
    for (ptrdiff_t n = 0; n < (ptrdiff_t)images * l->inputs; n++, inputs += plane, below += plane)
        for (ptrdiff_t y = 0; y < l->out_rows; y++)
            for (ptrdiff_t x = 0; x < l->out_columns; x++) below[winner(l, inputs, y, x)] += *errors++;
}
