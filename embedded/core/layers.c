/* A convolution as sums over rows of numbers that lie side by side, which compilers turn into vector instructions.
 *
 * Forward: the windows of some positions are laid out as rows [tap][input], the ternary weights likewise, and every
 * pair of rows is multiplied and summed. Backward is the same over errors, spread by the stride, with the kernel turned
 * round. A gradient sums over positions: rows [position] of one weight's inputs and of one output's errors. The groups
 * of a convolution are convolutions by themselves, one after the other.
 */
#include "layers.h"

#include <string.h>

#include "numbers.h"

enum { ROWS = 4 }; /* of weights, or of errors, that are multiplied at once */

/* Sums of products of 4 rows of w and 4 rows of a, from row i on. */
static inline void products(const int16_t *w, const int16_t *a, ptrdiff_t terms, ptrdiff_t i,
                            int32_t sums[ROWS][PROWD_BLOCK]) {
    const int16_t *w0 = w, *w1 = w + terms, *w2 = w1 + terms, *w3 = w2 + terms;
    const int16_t *a0 = a + i * terms, *a1 = a0 + terms, *a2 = a1 + terms, *a3 = a2 + terms;
    int32_t p0 = 0, p1 = 0, p2 = 0, p3 = 0, q0 = 0, q1 = 0, q2 = 0, q3 = 0;
    int32_t r0 = 0, r1 = 0, r2 = 0, r3 = 0, s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (ptrdiff_t k = 0; k < terms / PROWD_LANES * PROWD_LANES; k++) {
        p0 += w0[k] * a0[k], p1 += w0[k] * a1[k], p2 += w0[k] * a2[k], p3 += w0[k] * a3[k];
        q0 += w1[k] * a0[k], q1 += w1[k] * a1[k], q2 += w1[k] * a2[k], q3 += w1[k] * a3[k];
        r0 += w2[k] * a0[k], r1 += w2[k] * a1[k], r2 += w2[k] * a2[k], r3 += w2[k] * a3[k];
        s0 += w3[k] * a0[k], s1 += w3[k] * a1[k], s2 += w3[k] * a2[k], s3 += w3[k] * a3[k];
    }
    sums[0][i] = p0, sums[0][i + 1] = p1, sums[0][i + 2] = p2, sums[0][i + 3] = p3;
    sums[1][i] = q0, sums[1][i + 1] = q1, sums[1][i + 2] = q2, sums[1][i + 3] = q3;
    sums[2][i] = r0, sums[2][i + 1] = r1, sums[2][i + 2] = r2, sums[2][i + 3] = r3;
    sums[3][i] = s0, sums[3][i + 1] = s1, sums[3][i + 2] = s2, sums[3][i + 3] = s3;
}

/* The same of 4 rows of w and up to PROWD_BLOCK rows of a. */
static inline void all_products(const int16_t *w, const int16_t *a, ptrdiff_t count, ptrdiff_t terms,
                                int32_t sums[ROWS][PROWD_BLOCK]) {
    for (ptrdiff_t i = 0; i < count; i += ROWS) products(w, a, terms, i, sums);
}

/* Zeros for the rows that are wanting to make whole groups of ROWS. */
static inline void complete(int16_t *rows, ptrdiff_t count, ptrdiff_t terms) {
    memset(rows + count * terms, 0, sizeof *rows * (size_t)((prowd_up(count, ROWS) - count) * terms));
}

/* Copy a row in whole units: up to PROWD_UNIT - 1 numbers more are read and written, and what comes next in the row is
 * written over them. */
static inline void copy(const int16_t *from, ptrdiff_t count, int16_t *to) {
    for (ptrdiff_t k = 0; k < count; k += PROWD_UNIT) memcpy(to + k, from + k, sizeof *to * PROWD_UNIT);
}

static inline void clear(ptrdiff_t count, int16_t *to) {
    for (ptrdiff_t k = 0; k < count; k += PROWD_UNIT) memset(to + k, 0, sizeof *to * PROWD_UNIT);
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

/* A convolution of stride 1 or more over an image [row][column][channel] that has its padding. */
typedef struct {
    ptrdiff_t channels, rows, columns;       /* of the padded image */
    ptrdiff_t window_rows, window_columns;   /* of the kernel */
    ptrdiff_t out_rows, out_columns;         /* of what it gives */
    ptrdiff_t step_rows, step_columns;       /* of the windows */
    ptrdiff_t terms;                         /* of a row of weights with its zeros */
} Sweep;

static Sweep forward_sweep(const prowd_layer *l) {
    const Sweep s = {l->inputs, l->rows + 2 * (ptrdiff_t)l->pad_rows, l->columns + 2 * (ptrdiff_t)l->pad_columns,
                     l->kernel_rows, l->kernel_columns, l->out_rows, l->out_columns, l->stride_rows, l->stride_columns,
                     prowd_up(prowd_taps(l) * l->inputs, PROWD_LANES)};
    return s;
}

static Sweep backward_sweep(const prowd_layer *l) {
    const Sweep s = {l->outputs, l->rows + (ptrdiff_t)l->kernel_rows - 1, l->columns + (ptrdiff_t)l->kernel_columns - 1,
                     l->kernel_rows, l->kernel_columns, l->rows, l->columns, 1, 1,
                     prowd_up(prowd_taps(l) * l->outputs, PROWD_LANES)};
    return s;
}

/* Positions whose windows are laid out at once: few enough to stay in a small cache. */
static ptrdiff_t block_of(const Sweep *s) {
    const ptrdiff_t most = PROWD_ROOM / s->terms / ROWS * ROWS;
    return most < 8 ? 8 : most < PROWD_BLOCK ? most : PROWD_BLOCK;
}

/* Where sums go: [image][channel][position], as they are or as codes. */
typedef struct {
    int32_t *sums;   /* as they are; or */
    int16_t *codes;  /* rounded and clipped, */
    uint8_t *passes; /* and where errors pass */
    int32_t shift, least, largest;
    ptrdiff_t channels, positions;
    ptrdiff_t each; /* from an image to the next */
} Sink;

static inline void round_sums(const int32_t *restrict sums, ptrdiff_t count, int shift, int32_t least, int32_t largest,
                              int16_t *restrict codes) {
    for (ptrdiff_t i = 0; i < count; i++)
        codes[i] = (int16_t)prowd_clip(prowd_round_shift(sums[i], shift), least, largest);
}

static inline void find_passes(const int32_t *restrict sums, ptrdiff_t count, int shift, int32_t least, int32_t largest,
                               uint8_t *restrict passes) {
    for (ptrdiff_t i = 0; i < count; i++) {
        const int32_t code = prowd_round_shift(sums[i], shift);
        passes[i] = (uint8_t)((code >= least) & (code <= largest));
    }
}

/* Sums of positions that lie side by side. */
static inline void give(const Sink *to, ptrdiff_t at, const int32_t *sums, ptrdiff_t count) {
    if (to->sums) {
        memcpy(to->sums + at, sums, sizeof *sums * (size_t)count);
        return;
    }
    round_sums(sums, count, to->shift, to->least, to->largest, to->codes + at);
    if (to->passes)
        find_passes(sums, count, to->shift, to->least ? to->least : 1, to->largest, to->passes + at);
}

/* Multiply the windows of `count` positions, from one of an image on, with all rows of weights. */
PROWD_CLONES static void multiply(ptrdiff_t terms, const int16_t *rows, ptrdiff_t image, ptrdiff_t position,
                                  ptrdiff_t count, const int16_t *weights, const Sink *to) {
    int32_t sums[ROWS][PROWD_BLOCK];
    for (ptrdiff_t channel = 0; channel < to->channels; channel += ROWS) {
        all_products(weights + channel * terms, rows, count, terms, sums);
        ptrdiff_t first = image * to->each + channel * to->positions, at = position;
        for (ptrdiff_t done = 0, some; done < count; done += some) {
            some = count - done < to->positions - at ? count - done : to->positions - at;
            for (ptrdiff_t j = 0; j < ROWS && channel + j < to->channels; j++)
                give(to, first + j * to->positions + at, sums[j] + done, some);
            first += to->each, at = 0;
        }
    }
}

/* Where the numbers of a plane come to lie in a padded image. */
typedef struct {
    ptrdiff_t rows, columns, first_row, first_column, step_rows, step_columns;
    ptrdiff_t each; /* from an image to the next */
} Placement;

/* Planes [channel][row][column] to an image [row][column][channel]; what falls outside is left out. */
static void spread(const Sweep *s, const int16_t *from, const Placement *at, int16_t *image) {
    ptrdiff_t start = 0, stop = at->columns;
    while (start < stop && at->first_column + start * at->step_columns < 0) start++;
    while (start < stop && at->first_column + (stop - 1) * at->step_columns >= s->columns) stop--;
    for (ptrdiff_t y = 0; y < at->rows; y++) {
        const ptrdiff_t v = at->first_row + y * at->step_rows, step = at->step_columns * s->channels;
        if (v < 0 || v >= s->rows) continue;
        int16_t *row = image + (v * s->columns + at->first_column) * s->channels;
        for (ptrdiff_t c = 0; c < s->channels; c++) {
            const int16_t *codes = from + (c * at->rows + y) * at->columns;
            for (ptrdiff_t x = start; x < stop; x++) row[x * step + c] = codes[x];
        }
    }
}

/* The window at a place of an image as one row, with zeros at its end. */
static inline void lay_out(const Sweep *s, const int16_t *from, int16_t *row) {
    const ptrdiff_t width = s->window_columns * s->channels;
    for (ptrdiff_t i = 0; i < s->window_rows; i++) copy(from + i * s->columns * s->channels, width, row + i * width);
    clear(s->terms - s->window_rows * width, row + s->window_rows * width);
}

/* The windows of a row of positions from column `x` on, as many as there is room for. */
PROWD_CLONES static ptrdiff_t lay_out_some(const Sweep *s, const int16_t *image, ptrdiff_t y, ptrdiff_t x, ptrdiff_t room,
                                           int16_t *rows) {
    const ptrdiff_t count = s->out_columns - x < room ? s->out_columns - x : room;
    const int16_t *from = image + (y * s->step_rows * s->columns + x * s->step_columns) * s->channels;
    for (ptrdiff_t i = 0; i < count; i++) lay_out(s, from + i * s->step_columns * s->channels, rows + i * s->terms);
    return count;
}

static ptrdiff_t sweep_scratch(const Sweep *s, ptrdiff_t channels) {
    return (prowd_up(channels, ROWS) + block_of(s)) * s->terms + s->rows * s->columns * s->channels + 2 * PROWD_UNIT;
}

/* A whole sweep: packed weights at the beginning of the scratch, then the windows of some positions, then an image. */
static void sweep(const Sweep *s, const int16_t *from, int32_t images, const Placement *at, const Sink *to,
                  int16_t *scratch) {
    const ptrdiff_t block = block_of(s);
    int16_t *rows = scratch + prowd_up(to->channels, ROWS) * s->terms, *image = rows + block * s->terms + PROWD_UNIT;
    ptrdiff_t held = 0, first_image = 0, first_position = 0;
    memset(image, 0, sizeof *image * (size_t)(s->rows * s->columns * s->channels));
    for (ptrdiff_t n = 0; n < images; n++) {
        spread(s, from + n * at->each, at, image);
        for (ptrdiff_t y = 0; y < s->out_rows; y++)
            for (ptrdiff_t x = 0; x < s->out_columns;) {
                if (!held) first_image = n, first_position = y * s->out_columns + x;
                const ptrdiff_t some = lay_out_some(s, image, y, x, block - held, rows + held * s->terms);
                held += some, x += some;
                if (held < block) continue;
                multiply(s->terms, rows, first_image, first_position, held, scratch, to);
                held = 0;
            }
    }
    complete(rows, held, s->terms);
    if (held) multiply(s->terms, rows, first_image, first_position, held, scratch, to);
}

/* The convolution that each group is. */
static prowd_layer part_of(const prowd_layer *l) {
    prowd_layer part = *l;
    part.inputs /= l->groups, part.outputs /= l->groups, part.groups = 1;
    return part;
}

/* Ternary weights as rows [tap][input] of an output. */
static void pack_forward(const prowd_layer *l, int bits, const int16_t *weights, ptrdiff_t terms, int16_t *packed) {
    const ptrdiff_t taps = prowd_taps(l);
    memset(packed, 0, sizeof *packed * (size_t)(prowd_up(l->outputs, ROWS) * terms));
    for (ptrdiff_t o = 0; o < l->outputs; o++, packed += terms)
        for (ptrdiff_t c = 0; c < l->inputs; c++)
            for (ptrdiff_t t = 0; t < taps; t++) packed[t * l->inputs + c] = prowd_ternary(*weights++, bits);
}

/* Ternary weights as rows [tap, the last first][output] of an input. */
static void pack_backward(const prowd_layer *l, int bits, const int16_t *weights, ptrdiff_t terms, int16_t *packed) {
    const ptrdiff_t taps = prowd_taps(l);
    memset(packed, 0, sizeof *packed * (size_t)(prowd_up(l->inputs, ROWS) * terms));
    for (ptrdiff_t o = 0; o < l->outputs; o++)
        for (ptrdiff_t c = 0; c < l->inputs; c++)
            for (ptrdiff_t t = 0; t < taps; t++)
                packed[c * terms + (taps - 1 - t) * l->outputs + o] = prowd_ternary(*weights++, bits);
}

void prowd_conv_forward(const prowd_layer *l, int bits, const int16_t *weights, const int16_t *inputs, int32_t images,
                        int16_t *given, uint8_t *passes, int16_t *scratch) {
    const prowd_layer part = part_of(l);
    const Sweep s = forward_sweep(&part);
    const int32_t largest = prowd_max_code(bits);
    const Placement at = {l->rows, l->columns, l->pad_rows, l->pad_columns, 1, 1, prowd_received(l)};
    Sink to = {NULL, given, passes, l->shift, l->relu ? 0 : -largest, largest, part.outputs,
               s.out_rows * s.out_columns, prowd_given(l)};
    for (int32_t g = 0; g < l->groups; g++) {
        pack_forward(&part, bits, weights + g * prowd_weights(&part), s.terms, scratch);
        sweep(&s, inputs + g * prowd_received(&part), images, &at, &to, scratch);
        to.codes += prowd_given(&part);
        if (passes) to.passes += prowd_given(&part);
    }
}

void prowd_conv_backward(const prowd_layer *l, int bits, const int16_t *weights, const int16_t *errors, int32_t images,
                         int32_t *below, int16_t *scratch) {
    const prowd_layer part = part_of(l);
    const Sweep s = backward_sweep(&part);
    const Placement at = {l->out_rows, l->out_columns, (ptrdiff_t)l->kernel_rows - 1 - l->pad_rows,
                          (ptrdiff_t)l->kernel_columns - 1 - l->pad_columns, l->stride_rows, l->stride_columns,
                          prowd_given(l)};
    Sink to = {below, NULL, NULL, 0, 0, 0, part.inputs, s.out_rows * s.out_columns, prowd_received(l)};
    for (int32_t g = 0; g < l->groups; g++) {
        pack_backward(&part, bits, weights + g * prowd_weights(&part), s.terms, scratch);
        sweep(&s, errors + g * prowd_given(&part), images, &at, &to, scratch);
        to.sums += prowd_received(&part);
    }
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* Positions that are summed at once: some columns of some rows of some images. */
typedef struct {
    const prowd_layer *l;
    const int16_t *inputs, *errors; /* of the first image */
    ptrdiff_t received, given;      /* from an image to the next, in both */
    ptrdiff_t images, first_row, rows, first_column, columns;
    ptrdiff_t terms; /* how many, with zeros at their end */
} Chunk;

static ptrdiff_t least_of(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

/* The largest chunk: whole rows where they are short enough, whole images where these are small enough. */
static Chunk largest_chunk(const prowd_layer *l, int32_t images) {
    Chunk c = {l, NULL, NULL, 0, 0, 1, 0, 1, 0, least_of(l->out_columns, PROWD_TERMS), 0};
    if (c.columns == l->out_columns) c.rows = least_of(l->out_rows, PROWD_TERMS / c.columns);
    if (c.rows == l->out_rows && c.columns == l->out_columns)
        c.images = least_of(images, PROWD_TERMS / (c.rows * c.columns));
    c.terms = prowd_up(c.images * c.rows * c.columns, PROWD_LANES);
    return c;
}

/* The first x of 0 to `count` whose place x * stride + across is at least `least`. */
static ptrdiff_t first_from(ptrdiff_t least, ptrdiff_t across, ptrdiff_t stride, ptrdiff_t count) {
    const ptrdiff_t x = least <= across ? 0 : (least - across + stride - 1) / stride;
    return least_of(x, count);
}

/* What weight `k` of an output is multiplied with. */
static inline void lay_out_inputs(const Chunk *c, ptrdiff_t k, int16_t *row) {
    const prowd_layer *l = c->l;
    const ptrdiff_t taps = prowd_taps(l), tap = k % taps, stride = l->stride_columns;
    const ptrdiff_t down = tap / l->kernel_columns - l->pad_rows + c->first_row * l->stride_rows;
    const ptrdiff_t across = tap % l->kernel_columns - l->pad_columns + c->first_column * stride;
    const ptrdiff_t start = first_from(0, across, stride, c->columns);
    const ptrdiff_t stop = first_from(l->columns, across, stride, c->columns), count = stop - start;
    const int16_t *plane = c->inputs + k / taps * l->rows * l->columns;
    for (ptrdiff_t n = 0; n < c->images; n++, plane += c->received)
        for (ptrdiff_t y = 0, v = down; y < c->rows; y++, v += l->stride_rows, row += c->columns) {
            if (v < 0 || v >= l->rows || count <= 0) {
                clear(c->columns, row);
                continue;
            }
            const int16_t *from = plane + v * l->columns + start * stride + across;
            clear(start, row);
            if (stride == 1)
                copy(from, count, row + start);
            else
                for (ptrdiff_t x = 0; x < count; x++) row[start + x] = from[x * stride];
            clear(c->columns - stop, row + stop);
        }
}

/* Errors of all outputs as rows [output][position]; in two parts, low and high, where codes are wide: e = low + 256 high,
 * both of 8 bits. */
static void lay_out_errors(const Chunk *c, int parts, int16_t *rows) {
    const prowd_layer *l = c->l;
    const ptrdiff_t part = prowd_up(l->outputs, ROWS) * c->terms, whole = c->columns == l->out_columns;
    const ptrdiff_t runs = whole ? 1 : c->rows, run = whole ? c->rows * c->columns : c->columns;
    memset(rows, 0, sizeof *rows * (size_t)(parts * part));
    for (ptrdiff_t o = 0; o < l->outputs; o++) {
        int16_t *to = rows + o * c->terms;
        for (ptrdiff_t n = 0; n < c->images * runs; n++, to += run) {
            const int16_t *from = c->errors + n / runs * c->given +
                                  (o * l->out_rows + c->first_row + n % runs) * l->out_columns + c->first_column;
            if (parts == 1)
                memcpy(to, from, sizeof *to * (size_t)run);
            else
                for (ptrdiff_t i = 0; i < run; i++) {
                    const int high = (from[i] + 128) >> 8;
                    to[i] = (int16_t)(from[i] - 256 * high), to[part + i] = (int16_t)high;
                }
        }
    }
}

/* Add sums for weights `k` to `k` + `count` of every output. */
PROWD_CLONES static void add_products(const Chunk *c, int parts, const int16_t *errors, ptrdiff_t k, ptrdiff_t count,
                                      int16_t *rows, int64_t *gradient) {
    const ptrdiff_t outputs = c->l->outputs, each = c->l->inputs * prowd_taps(c->l);
    const ptrdiff_t part = prowd_up(outputs, ROWS) * c->terms;
    int32_t low[ROWS][PROWD_BLOCK], high[ROWS][PROWD_BLOCK];
    for (ptrdiff_t i = 0; i < count; i++) lay_out_inputs(c, k + i, rows + i * c->terms);
    complete(rows, count, c->terms);
    for (ptrdiff_t o = 0; o < outputs; o += ROWS) {
        all_products(errors + o * c->terms, rows, count, c->terms, low);
        if (parts > 1) all_products(errors + part + o * c->terms, rows, count, c->terms, high);
        for (ptrdiff_t j = 0; j < ROWS && o + j < outputs; j++) {
            int64_t *to = gradient + (o + j) * each + k;
            for (ptrdiff_t i = 0; i < count; i++) to[i] += low[j][i];
            for (ptrdiff_t i = 0; parts > 1 && i < count; i++) to[i] += 256 * (int64_t)high[j][i];
        }
    }
}

/* Add the sums over a chunk to the gradient. */
static void add_gradient(const Chunk *c, int bits, int64_t *gradient, int16_t *scratch) {
    const ptrdiff_t each = c->l->inputs * prowd_taps(c->l);
    const int parts = bits > PROWD_WHOLE_BITS ? 2 : 1;
    int16_t *errors = scratch + PROWD_GROUP * c->terms + PROWD_LANES;
    lay_out_errors(c, parts, errors);
    for (ptrdiff_t k = 0; k < each; k += PROWD_GROUP)
        add_products(c, parts, errors, k, least_of(each - k, PROWD_GROUP), scratch, gradient);
}

/* Add the sums over all images to the gradient of a group. */
static void add_gradients(const prowd_layer *whole, const prowd_layer *l, int bits, const int16_t *inputs,
                          const int16_t *errors, int32_t images, int64_t *gradient, int16_t *scratch) {
    const Chunk most = largest_chunk(l, images);
    const ptrdiff_t received = prowd_received(whole), given = prowd_given(whole);
    for (ptrdiff_t n = 0; n < images; n += most.images)
        for (ptrdiff_t y = 0; y < l->out_rows; y += most.rows)
            for (ptrdiff_t x = 0; x < l->out_columns; x += most.columns) {
                Chunk c = {l, inputs + n * received, errors + n * given, received, given,
                           least_of(images - n, most.images), y, least_of(l->out_rows - y, most.rows), x,
                           least_of(l->out_columns - x, most.columns), 0};
                c.terms = prowd_up(c.images * c.rows * c.columns, PROWD_LANES);
                add_gradient(&c, bits, gradient, scratch);
            }
}

void prowd_conv_gradient(const prowd_layer *l, int bits, const int16_t *inputs, const int16_t *errors, int32_t images,
                         int64_t *gradient, int16_t *scratch) {
    const prowd_layer part = part_of(l);
    memset(gradient, 0, sizeof *gradient * (size_t)prowd_weights(l));
    for (int32_t g = 0; g < l->groups; g++)
        add_gradients(l, &part, bits, inputs + g * prowd_received(&part), errors + g * prowd_given(&part), images,
                      gradient + g * prowd_weights(&part), scratch);
}

ptrdiff_t prowd_conv_scratch(const prowd_layer *l, int32_t images, int training) {
    const prowd_layer part = part_of(l);
    const Sweep forward = forward_sweep(&part), backward = backward_sweep(&part);
    ptrdiff_t most = sweep_scratch(&forward, part.outputs);
    if (!training) return most;
    const ptrdiff_t other = sweep_scratch(&backward, part.inputs);
    const ptrdiff_t rows = PROWD_GROUP + 2 * prowd_up(part.outputs, ROWS);
    const ptrdiff_t gradient = rows * largest_chunk(&part, images).terms + PROWD_LANES;
    most = other > most ? other : most;
    return gradient > most ? gradient : most;
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

enum { WINDOWS = 32 }; /* of a row that are looked at at once */

/* The largest code of each of some windows, and how far after the first it lies. */
typedef struct {
    int32_t codes[WINDOWS], places[WINDOWS];
} Winners;

/* Windows of 2 x 2 codes that lie side by side, which compilers make vectors of. */
static inline void compare_squares(const int16_t *top, const int16_t *bottom, int32_t below, ptrdiff_t count,
                                   Winners *w) {
    for (ptrdiff_t x = 0; x < count; x++) {
        const int32_t a = top[2 * x], b = top[2 * x + 1], c = bottom[2 * x], d = bottom[2 * x + 1];
        const int32_t upper = b > a ? b : a, lower = d > c ? d : c;
        w->codes[x] = lower > upper ? lower : upper;
        w->places[x] = lower > upper ? below + (d > c) : b > a;
    }
}

/* Any window. */
static inline void compare(const prowd_layer *l, const int16_t *window, int32_t *largest, int32_t *place) {
    *largest = window[0], *place = 0;
    for (int32_t i = 0; i < l->kernel_rows; i++)
        for (int32_t j = 0; j < l->kernel_columns; j++) {
            const int32_t at = i * l->columns + j, code = window[at];
            *place = code > *largest ? at : *place;
            *largest = code > *largest ? code : *largest;
        }
}

/* Winners of windows whose first codes lie from `corner` on; of equals the first, row by row. */
PROWD_CLONES static void find_winners(const prowd_layer *l, const int16_t *corner, ptrdiff_t count, Winners *w) {
    if (l->kernel_rows == 2 && l->kernel_columns == 2 && l->stride_columns == 2)
        compare_squares(corner, corner + l->columns, l->columns, count, w);
    else
        for (ptrdiff_t x = 0; x < count; x++) compare(l, corner + x * l->stride_columns, w->codes + x, w->places + x);
}

/* Windows of a row from column x on, at most WINDOWS. */
static ptrdiff_t windows_from(const prowd_layer *l, ptrdiff_t x) { return least_of(l->out_columns - x, WINDOWS); }

void prowd_pool_forward(const prowd_layer *l, const int16_t *inputs, int32_t images, int16_t *given) {
    Winners w;
    for (ptrdiff_t n = 0; n < (ptrdiff_t)images * l->inputs; n++, inputs += (ptrdiff_t)l->rows * l->columns)
        for (ptrdiff_t y = 0; y < l->out_rows; y++)
            for (ptrdiff_t x = 0; x < l->out_columns; x += WINDOWS) {
                const ptrdiff_t count = windows_from(l, x);
                find_winners(l, inputs + y * l->stride_rows * l->columns + x * l->stride_columns, count, &w);
                for (ptrdiff_t i = 0; i < count; i++) *given++ = (int16_t)w.codes[i];
            }
}

void prowd_pool_backward(const prowd_layer *l, const int16_t *inputs, const int32_t *errors, int32_t images,
                         int32_t *below) {
    const ptrdiff_t plane = (ptrdiff_t)l->rows * l->columns;
    Winners w;
    memset(below, 0, sizeof *below * (size_t)(images * prowd_received(l)));
    for (ptrdiff_t n = 0; n < (ptrdiff_t)images * l->inputs; n++, inputs += plane, below += plane)
        for (ptrdiff_t y = 0; y < l->out_rows; y++)
            for (ptrdiff_t x = 0; x < l->out_columns; x += WINDOWS) {
                const ptrdiff_t corner = y * l->stride_rows * l->columns + x * l->stride_columns;
                const ptrdiff_t count = windows_from(l, x);
                find_winners(l, inputs + corner, count, &w);
                for (ptrdiff_t i = 0; i < count; i++) below[corner + i * l->stride_columns + w.places[i]] += *errors++;
            }
}

void prowd_average_forward(const prowd_layer *l, const int16_t *inputs, int32_t images, int16_t *given) {
    for (ptrdiff_t n = 0; n < (ptrdiff_t)images * l->inputs; n++, inputs += (ptrdiff_t)l->rows * l->columns)
        for (ptrdiff_t y = 0; y < l->out_rows; y++)
            for (ptrdiff_t x = 0; x < l->out_columns; x++) {
                const int16_t *window = inputs + y * l->stride_rows * l->columns + x * l->stride_columns;
                int32_t sum = 0;
                for (int32_t i = 0; i < l->kernel_rows; i++, window += l->columns)
                    for (int32_t j = 0; j < l->kernel_columns; j++) sum += window[j];
                *given++ = (int16_t)(l->shift ? prowd_round_shift(sum, l->shift) : sum);
            }
}

void prowd_average_backward(const prowd_layer *l, const int32_t *errors, int32_t images, int32_t *below) {
    memset(below, 0, sizeof *below * (size_t)(images * prowd_received(l)));
    for (ptrdiff_t n = 0; n < (ptrdiff_t)images * l->inputs; n++, below += (ptrdiff_t)l->rows * l->columns)
        for (ptrdiff_t y = 0; y < l->out_rows; y++)
            for (ptrdiff_t x = 0; x < l->out_columns; x++, errors++) {
                int32_t *window = below + y * l->stride_rows * l->columns + x * l->stride_columns;
                for (int32_t i = 0; i < l->kernel_rows; i++, window += l->columns)
                    for (int32_t j = 0; j < l->kernel_columns; j++) window[j] += *errors;
            }
}

/* --- additions ---------------------------------------------------------------------------------------------------- */

PROWD_CLONES void prowd_add_forward(const prowd_layer *l, int bits, const int16_t *inputs, const int16_t *others,
                                    int32_t images, int16_t *given, uint8_t *passes) {
    const int32_t largest = prowd_max_code(bits), least = l->relu ? 0 : -largest, lowest = l->relu ? 1 : -largest;
    const ptrdiff_t count = images * prowd_given(l);
    for (ptrdiff_t i = 0; i < count; i++)
        given[i] = (int16_t)prowd_clip((int32_t)inputs[i] + others[i], least, largest);
    for (ptrdiff_t i = 0; passes && i < count; i++) {
        const int32_t sum = (int32_t)inputs[i] + others[i];
        passes[i] = (uint8_t)((sum >= lowest) & (sum <= largest));
    }
}

/* round_half_even(n / 2^k), k from 0, |n| up to 2^30: of that nothing is left from 31 on. */
static inline int32_t rounded(int32_t n, int k) { return k > 30 ? 0 : k ? prowd_round_shift(n, k) : n; }

PROWD_CLONES void prowd_add_errors(int32_t *to, int down_to, const int32_t *from, int down_from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = rounded(to[i], down_to) + rounded(from[i], down_from);
}
