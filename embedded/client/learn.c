/* The local steps of a round, with as little memory as may be; the integers are those of docs/numerics.md.
 *
 * A step goes down through the layers. Of each it must know the largest error of the batch before it can round any of
 * them, so the images pass once for every layer: while the gradient of one is summed up, the errors of the one below are
 * looked at. A gradient that has no room is summed up in slices, twice: once for its largest entry, once to learn. What
 * an image needs is computed again each time unless it has a place of its own. Weights change as soon as their gradient
 * is known; what computes until the end of the step are the ternary ones, two bits each, from its beginning.
 */
#include <string.h>

#include "client.h"
#include "numbers.h"
#include "prowd.h"

typedef const prowd_stage Stage;

enum { PASSES = 0x80, LAST = NET_STAGES - 1, NOBODY = -1 };

/* --- ternary weights ------------------------------------------------------------------------------------------------ */

static void ternarize(prowd_client *c) {
    memset(c->ternary, 0, sizeof c->ternary);
    for (int32_t i = 0; i < NET_WEIGHTS; i++)
        c->ternary[i / 4] |= (uint8_t)((prowd_ternary(c->weights[i], NET_BITS) & 3) << (i % 4 * 2));
}

/* -1, 0 or 1. */
static inline int32_t ternary(const prowd_client *c, int32_t i) {
    const int32_t pattern = c->ternary[i >> 2] >> ((i & 3) * 2) & 3;
    return (pattern ^ 2) - 2; /* of two bits, with a sign */
}

static inline int32_t taps_of(Stage *s) { return s->kernel_rows * s->kernel_columns; }
static inline int32_t each_of(Stage *s) { return s->inputs / s->groups * taps_of(s); } /* weights of an output */
static inline int32_t received_of(Stage *s) { return s->inputs * s->rows * s->columns; }

/* --- forward -------------------------------------------------------------------------------------------------------- */

/* The x from `from` to `to` - 1 whose place x * stride + offset lies in a row of `size`. */
static inline void inside(int32_t offset, int32_t stride, int32_t size, int32_t count, int32_t *from, int32_t *to) {
    *from = offset >= 0 ? 0 : (stride - 1 - offset) / stride;
    *to = offset >= size ? 0 : (size - 1 - offset) / stride + 1;
    *to = *to < count ? *to : count;
}

/* Add a plane of codes, moved by a tap of the kernel, to the sums of an output, or take it away. */
static void add_plane(Stage *s, const prowd_code *plane, int32_t down, int32_t across, int32_t weight, int32_t *sums) {
    int32_t top, bottom, left, right;
    inside(down, s->stride_rows, s->rows, s->conv_rows, &top, &bottom);
    inside(across, s->stride_columns, s->columns, s->conv_columns, &left, &right);
    for (int32_t y = top; y < bottom; y++) {
        const prowd_code *from = plane + (y * s->stride_rows + down) * s->columns + across;
        int32_t *to = sums + y * s->conv_columns;
        if (s->stride_columns > 1)
            for (int32_t x = left; x < right; x++) to[x] += weight * from[x * s->stride_columns];
        else if (weight > 0)
            for (int32_t x = left; x < right; x++) to[x] += from[x];
        else
            for (int32_t x = left; x < right; x++) to[x] -= from[x];
    }
}

/* A sum as a code, and whether an error passes there. */
static inline int32_t rounded(Stage *s, int32_t sum, int *passes) {
    const int32_t largest = prowd_max_code(NET_BITS), code = prowd_round_shift(sum, s->shift);
    *passes = code >= (s->relu ? 1 : -largest) && code <= largest;
    return prowd_clip(code, s->relu ? 0 : -largest, largest);
}

/* The codes of an output from its sums: the first largest one of each window, and where in the window it lies. */
static void pool(Stage *s, const int32_t *sums, prowd_code *given, uint8_t *marks) {
    for (int32_t y = 0; y < s->out_rows; y++)
        for (int32_t x = 0; x < s->out_columns; x++) {
            const int32_t *window = sums + y * s->step_rows * s->conv_columns + x * s->step_columns;
            int32_t largest = INT32_MIN, mark = 0;
            for (int32_t i = 0; i < s->pool_rows; i++, window += s->conv_columns)
                for (int32_t j = 0; j < s->pool_columns; j++) {
                    int passes;
                    const int32_t code = rounded(s, window[j], &passes);
                    if (code > largest) largest = code, mark = (passes ? PASSES : 0) | i << 4 | j;
                }
            *given++ = (prowd_code)largest, *marks++ = (uint8_t)mark;
        }
}

static void forward(prowd_client *c, Stage *s, int32_t place) {
    const prowd_code *inputs = c->values[place] + s->values;
    prowd_code *given = c->values[place] + s->values + received_of(s);
    uint8_t *marks = c->marks[place] + s->marks;
    const int32_t channels = s->inputs / s->groups, plane = s->rows * s->columns;
    int32_t weight = s->weights;
    for (int32_t o = 0; o < s->outputs; o++) {
        const prowd_code *from = inputs + o / (s->outputs / s->groups) * channels * plane;
        memset(c->sums, 0, sizeof *c->sums * (size_t)(s->conv_rows * s->conv_columns));
        if (plane == 1 && taps_of(s) == 1) {
            for (int32_t i = 0; i < channels; i++) c->sums[0] += ternary(c, weight++) * from[i];
        } else {
            for (int32_t i = 0; i < channels; i++, from += plane)
                for (int32_t ky = 0; ky < s->kernel_rows; ky++)
                    for (int32_t kx = 0; kx < s->kernel_columns; kx++) {
                        const int32_t t = ternary(c, weight++);
                        if (t) add_plane(s, from, ky - s->pad_rows, kx - s->pad_columns, t, c->sums);
                    }
        }
        pool(s, c->sums, given, marks);
        given += s->out_rows * s->out_columns, marks += s->out_rows * s->out_columns;
    }
}

/* --- which image has which place ------------------------------------------------------------------------------------ */

static int has_own(int32_t n) { return n < NET_KEPT - 1; }

static int32_t place_of(int32_t n) { return has_own(n) ? n : NET_KEPT - 1; }

/* The codes of an image, varied as image n of the step. */
static void load(prowd_client *c, int32_t n, uint32_t step, prowd_code *codes) {
    const uint8_t *image = c->card.images + c->chosen[n] * (size_t)NET_INPUTS;
#if NET_OPERATIONS
    prowd_augment(image, NET_CHANNELS, NET_IMAGE_ROWS, NET_IMAGE_COLUMNS, NET_OPERATIONS, net_turns, NET_SIGNED,
                  c->variations, step, (uint32_t)n, c->varied);
    image = c->varied;
#else
    (void)step;
#endif
    for (int32_t i = 0; i < NET_INPUTS; i++) codes[i] = net_codes[image[i]];
}

/* See that the place of an image has all its codes and marks up to the first layer of one pixel. */
static void show(prowd_client *c, int32_t n, uint32_t step) {
    if (has_own(n) || c->shown == n) return;
    load(c, n, step, c->values[place_of(n)]);
    for (int32_t i = 0; i < NET_FLAT; i++) forward(c, net_stages + i, place_of(n));
    c->shown = n, c->shown_flat = c->shown_flat == n ? n : NOBODY;
}

/* The same of the layers of one pixel, whose inputs are kept. */
static void show_flat(prowd_client *c, int32_t n) {
    if (has_own(n) || c->shown_flat == n) return;
    if (c->shown != n) {
        prowd_code *inputs = c->values[place_of(n)] + net_stages[NET_FLAT].values;
        memcpy(inputs, c->flat[n - (NET_KEPT - 1)], sizeof *inputs * NET_FLAT_INPUTS);
        c->shown = NOBODY;
    }
    for (int32_t i = NET_FLAT; i < NET_STAGES; i++) forward(c, net_stages + i, place_of(n));
    c->shown_flat = n;
}

/* Both for the first time in a step. */
static void show_first(prowd_client *c, int32_t n, uint32_t step) {
    prowd_code *codes = c->values[place_of(n)];
    load(c, n, step, codes);
    for (int32_t i = 0; i < NET_STAGES; i++) forward(c, net_stages + i, place_of(n));
    if (has_own(n)) return;
    memcpy(c->flat[n - (NET_KEPT - 1)], codes + net_stages[NET_FLAT].values, sizeof *codes * NET_FLAT_INPUTS);
    c->shown = c->shown_flat = n;
}

/* --- backward ------------------------------------------------------------------------------------------------------- */

/* Where the errors of an output lie before the pooling. Returns how many there are. */
static int32_t find_spots(prowd_client *c, Stage *s, const prowd_code *errors, const uint8_t *marks) {
    int32_t found = 0;
    for (int32_t y = 0; y < s->out_rows; y++)
        for (int32_t x = 0; x < s->out_columns; x++, errors++, marks++) {
            if (!*errors) continue;
            c->spots[found].row = (y * s->step_rows + (*marks >> 4 & 7)) * s->stride_rows - s->pad_rows;
            c->spots[found].column = (x * s->step_columns + (*marks & 15)) * s->stride_columns - s->pad_columns;
            c->spots[found++].error = *errors;
        }
    return found;
}

static inline int is_inside(Stage *s, int32_t row, int32_t column) {
    return (uint32_t)row < (uint32_t)s->rows && (uint32_t)column < (uint32_t)s->columns;
}

/* Sums of t e for all places of channels `first` to `last` - 1 that a layer receives. */
static void sum_below(prowd_client *c, Stage *s, const prowd_code *errors, const uint8_t *marks, int32_t first,
                      int32_t last) {
    const int32_t channels = s->inputs / s->groups, outputs = s->outputs / s->groups, positions = s->out_rows * s->out_columns;
    const int32_t plane = s->rows * s->columns, taps = taps_of(s), group = first / channels;
    memset(c->sums, 0, sizeof *c->sums * (size_t)((last - first) * plane));
    for (int32_t o = group * outputs; o < (group + 1) * outputs; o++) {
        const int32_t spots = find_spots(c, s, errors + o * positions, marks + o * positions);
        int32_t weight = s->weights + o * each_of(s) + (first - group * channels) * taps;
        int32_t *to = c->sums;
        for (int32_t i = first; spots && i < last; i++, to += plane)
            for (int32_t ky = 0; ky < s->kernel_rows; ky++)
                for (int32_t kx = 0; kx < s->kernel_columns; kx++) {
                    const int32_t t = ternary(c, weight++);
                    for (int32_t j = 0; t && j < spots; j++) {
                        const int32_t row = c->spots[j].row + ky, column = c->spots[j].column + kx;
                        if (is_inside(s, row, column)) to[row * s->columns + column] += t * c->spots[j].error;
                    }
                }
    }
}

/* A raw error as its code. */
static int32_t normalised(int32_t error, int exponent) {
    const int k = exponent - (NET_BITS - 1), largest = prowd_max_code(NET_BITS);
    return prowd_clip(k > 0 ? prowd_round_shift(error, k) : error * ((int32_t)1 << -k), -largest, largest);
}

/* The errors of layer `i`, of one image, by those of the layer above it. Returns the largest; if `codes` are asked for, they
 * are written. */
static uint32_t errors_below(prowd_client *c, int32_t i, int32_t place, const prowd_code *above, prowd_code *codes) {
    Stage *s = net_stages + i, *next = s + 1;
    const uint8_t *marks = c->marks[place] + s->marks;
    const int32_t plane = next->rows * next->columns, group = next->inputs / next->groups;
    const int32_t most = NET_PLANE / plane < group ? NET_PLANE / plane : group;
    uint32_t largest = 0;
    for (int32_t first = 0, last; first < next->inputs; first = last) {
        const int32_t end = (first / group + 1) * group;
        last = first + most < end ? first + most : end;
        sum_below(c, next, above, c->marks[place] + next->marks, first, last);
        for (int32_t j = 0; j < (last - first) * plane; j++) {
            const int32_t error = *marks++ & PASSES ? c->sums[j] : 0;
            const uint32_t size = (uint32_t)(error < 0 ? -error : error);
            largest = size > largest ? size : largest;
            if (codes) *codes++ = (prowd_code)normalised(error, c->exponents[i]);
        }
    }
    return largest;
}

/* The errors of the logits of an image in the same way; the loss is returned by `loss`. */
static uint32_t errors_of_logits(prowd_client *c, int32_t n, prowd_code *codes, int64_t *loss) {
    Stage *s = net_stages + LAST;
    const prowd_code *given = c->values[place_of(n)] + s->values + received_of(s);
    const uint8_t *marks = c->marks[place_of(n)] + s->marks;
    const int32_t label = c->card.labels[c->chosen[n]];
    int16_t logits[NET_CLASSES];
    int32_t errors[NET_CLASSES];
    uint32_t largest = 0;
    for (int32_t i = 0; i < NET_CLASSES; i++) logits[i] = given[i];
#if NET_SQUARED
    *loss = prowd_squared_error(NET_BITS, logits, &label, 1, NET_CLASSES, errors);
#else
    const prowd_softmax softmax = {net_exponentials[0], net_exponentials[1], NET_LOGIT_EXPONENT};
    *loss = prowd_cross_entropy(&softmax, logits, &label, 1, NET_CLASSES, errors);
#endif
    for (int32_t i = 0; i < NET_CLASSES; i++) {
        const int32_t error = marks[i] & PASSES ? errors[i] : 0;
        const uint32_t size = (uint32_t)(error < 0 ? -error : error);
        largest = size > largest ? size : largest;
        if (codes) codes[i] = (prowd_code)normalised(error, c->exponents[LAST]);
    }
    return largest;
}

/* The error codes of layer `i` of an image: those of layers of one pixel are kept, others follow from them. */
static const prowd_code *error_codes(prowd_client *c, int32_t n, int32_t i) {
    if (i >= NET_FLAT) return c->flat_errors[n] + net_stages[i].errors;
    const prowd_code *above = error_codes(c, n, NET_FLAT);
    for (int32_t j = NET_FLAT - 1; j >= i; j--) {
        errors_below(c, j, place_of(n), above, c->errors[j & 1]);
        above = c->errors[j & 1];
    }
    return above;
}

/* --- gradients and weights ------------------------------------------------------------------------------------------ */

/* Add an image's sums of e a for the weights of outputs `first` to `last` - 1. */
static void add_gradient(prowd_client *c, Stage *s, int32_t place, const prowd_code *errors, int32_t first, int32_t last) {
    const prowd_code *inputs = c->values[place] + s->values;
    const int32_t positions = s->out_rows * s->out_columns, plane = s->rows * s->columns;
    const int32_t channels = s->inputs / s->groups, outputs = s->outputs / s->groups;
    for (int32_t o = first; o < last; o++) {
        const int32_t spots = find_spots(c, s, errors + o * positions, c->marks[place] + s->marks + o * positions);
        const prowd_code *from = inputs + o / outputs * channels * plane;
        prowd_sum *to = c->gradient + (o - first) * each_of(s);
        for (int32_t i = 0; spots && i < channels; i++, from += plane)
            for (int32_t ky = 0; ky < s->kernel_rows; ky++)
                for (int32_t kx = 0; kx < s->kernel_columns; kx++) {
                    prowd_sum sum = 0;
                    for (int32_t j = 0; j < spots; j++) {
                        const int32_t row = c->spots[j].row + ky, column = c->spots[j].column + kx;
                        if (is_inside(s, row, column)) sum += c->spots[j].error * from[row * s->columns + column];
                    }
                    *to++ += sum;
                }
    }
}

static uint64_t largest_of(const prowd_sum *gradient, int32_t count) {
    uint64_t largest = 0;
    for (int32_t i = 0; i < count; i++) {
        const uint64_t size = (uint64_t)(gradient[i] < 0 ? -(int64_t)gradient[i] : gradient[i]);
        largest = size > largest ? size : largest;
    }
    return largest;
}

/* q - Q_stoch(rate g / Shift(max |g|)), clipped, for weights `first` to `first` + `count` - 1 of a layer. */
static void update(prowd_client *c, int32_t layer, int32_t first, int32_t count, uint64_t largest, uint32_t step) {
    const int32_t most = prowd_max_code(NET_BITS);
    const int down = prowd_shift_exponent(largest) - c->task.exponent;
    prowd_code *weights = c->weights + net_stages[layer].weights;
    uint32_t words[4];
    for (int32_t i = first; i < first + count; i++) {
        if (i == first || i % 4 == 0) prowd_philox(c->rounding, step, (uint32_t)layer, (uint32_t)i / 4, words);
        const int64_t g = c->gradient[i - first];
        const int32_t steps = prowd_step_size((uint64_t)(g < 0 ? -g : g) * c->task.mantissa, down, words[i % 4]);
        weights[i] = (prowd_code)prowd_clip(weights[i] + (g < 0 ? steps : -steps), -most, most);
    }
}

/* The largest error of the layer below, of an image whose error codes of this layer are known. */
static uint32_t look_below(prowd_client *c, int32_t n, int32_t layer, const prowd_code *errors, uint32_t step) {
    if (layer == 0) return 0;
    if (layer > NET_FLAT)
        show_flat(c, n);
    else
        show(c, n, step);
    return errors_below(c, layer - 1, place_of(n), errors, NULL);
}

/* The gradient of outputs `first` to `last` - 1 over the batch. If it is asked for, the largest error below is found. */
static void sum_gradient(prowd_client *c, int32_t layer, int32_t first, int32_t last, uint32_t step, uint32_t *below) {
    Stage *s = net_stages + layer;
    memset(c->gradient, 0, sizeof *c->gradient * (size_t)((last - first) * each_of(s)));
    for (int32_t n = 0; n < (int32_t)c->batch; n++) {
        if (layer >= NET_FLAT)
            show_flat(c, n);
        else
            show(c, n, step);
        const prowd_code *errors = error_codes(c, n, layer);
        add_gradient(c, s, place_of(n), errors, first, last);
        if (!below) continue;
        const uint32_t found = look_below(c, n, layer, errors, step);
        *below = found > *below ? found : *below;
    }
}

/* Learn a layer's weights from its error codes. Returns the largest error of the layer below. */
static uint32_t learn_layer(prowd_client *c, int32_t layer, uint32_t step) {
    Stage *s = net_stages + layer;
    const int32_t each = each_of(s), rows = NET_GRADIENT / each < s->outputs ? NET_GRADIENT / each : s->outputs;
    uint64_t largest = 0;
    uint32_t below = 0;
    for (int32_t round = rows < s->outputs ? 0 : 1; round < 2; round++)
        for (int32_t first = 0; first < s->outputs; first += rows) {
            const int32_t last = first + rows < s->outputs ? first + rows : s->outputs;
            sum_gradient(c, layer, first, last, step, round && last == s->outputs ? &below : NULL);
            if (!round || rows == s->outputs) {
                const uint64_t found = largest_of(c->gradient, (last - first) * each);
                largest = found > largest ? found : largest;
            }
            if (round) update(c, layer, first * each, (last - first) * each, largest, step);
        }
    return below;
}

static void take_step(prowd_client *c, uint32_t step) {
    const int32_t batch = (int32_t)c->batch;
    uint32_t largest = 0;
    int64_t loss;
    ternarize(c);
    c->shown = c->shown_flat = NOBODY;
    for (int32_t n = 0; n < batch; n++) {
        show_first(c, n, step);
        const uint32_t found = errors_of_logits(c, n, NULL, &loss);
        largest = found > largest ? found : largest;
        c->loss += loss;
    }
    for (int32_t layer = LAST; layer >= 0; layer--) {
        c->exponents[layer] = prowd_shift_exponent(largest);
        for (int32_t n = 0; layer >= NET_FLAT && n < batch; n++) {
            prowd_code *codes = c->flat_errors[n];
            show_flat(c, n);
            if (layer == LAST)
                errors_of_logits(c, n, codes + net_stages[layer].errors, &loss);
            else
                errors_below(c, layer, place_of(n), codes + net_stages[layer + 1].errors, codes + net_stages[layer].errors);
        }
        largest = learn_layer(c, layer, step);
    }
}

/* --- a round -------------------------------------------------------------------------------------------------------- */

static void choose(prowd_client *c) {
    for (uint32_t n = 0; n < c->batch; n++, c->place++) {
        if (c->place == c->card.count)
            prowd_permutation(c->batches, c->epoch++, c->order, c->card.count), c->place = 0;
        c->chosen[n] = c->order[c->place];
    }
}

/* floor(a / b). */
static int64_t divided(int64_t a, int64_t b) { return a / b - (a % b < 0); }

void prowd_train(prowd_client *c, void (*after)(void *given, uint32_t step), void *given) {
    const prowd_task *t = &c->task;
    prowd_key(t->seed, "batches", t->round, t->client, c->batches);
    prowd_key(t->seed, "augment", t->round, t->client, c->variations);
    prowd_key(t->seed, "rounding", t->round, t->client, c->rounding);
#if NET_REPLY != 0
    memcpy(c->received, c->weights, sizeof c->received);
#endif
    c->loss = 0, c->epoch = 0, c->place = c->card.count;
    for (uint32_t step = 0; step < t->steps; step++) {
        choose(c), take_step(c, step);
        if (after) after(given, step + 1);
    }
    c->loss = divided(c->loss, (int64_t)t->steps * c->batch);
    prowd_seal(c);
}
