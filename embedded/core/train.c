/* One step of a network: where everything lies in the memory that the caller lends, and in which order it is used. */
#include <string.h>

#include "layers.h"
#include "numbers.h"

enum { ALIGN = 64, MOST_SIDE = 1 << 20, MOST_ERROR = 1 << 30 };

/* Where things lie, in bytes from the beginning of the memory. To learn, the inputs of every layer stay; otherwise two
 * places are used in turn. */
typedef struct {
    size_t inputs, each;   /* inputs of the first layer; of each of two places where nothing is kept */
    size_t scratch;        /* of a convolution */
    size_t errors, below;  /* sums of errors, two places used in turn */
    size_t codes;          /* error codes of a layer */
    size_t gradient;       /* of a layer */
    size_t end;
} Plan;

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static Plan plan_of(const prowd_net *net, int32_t images, int training) {
    Plan p = {0};
    size_t kept = 0, widest = 0, gradient = 0, scratch = 0;
    for (int32_t i = 0; i < net->count; i++) {
        const prowd_layer *l = net->layers + i;
        const size_t received = (size_t)images * (size_t)prowd_received(l);
        const size_t given = (size_t)images * (size_t)prowd_given(l);
        kept += aligned(sizeof(int16_t) * received);
        widest = most(widest, most(received, given));
        if (l->kind != PROWD_CONV) continue;
        kept += aligned(given); /* where errors pass */
        gradient = most(gradient, (size_t)prowd_weights(l));
        scratch = most(scratch, (size_t)prowd_conv_scratch(l, images, training));
    }
    p.each = aligned(sizeof(int16_t) * widest);
    const size_t logits = aligned(sizeof(int16_t) * (size_t)images * (size_t)prowd_given(net->layers + net->count - 1));
    p.scratch = training ? kept + logits : 2 * p.each;
    p.end = p.errors = p.scratch + aligned(sizeof(int16_t) * scratch);
    if (!training) return p;
    p.below = p.errors + aligned(sizeof(int32_t) * widest);
    p.codes = p.below + aligned(sizeof(int32_t) * widest);
    p.gradient = p.codes + aligned(sizeof(int16_t) * widest);
    p.end = p.gradient + aligned(sizeof(int64_t) * gradient);
    return p;
}

size_t prowd_memory(const prowd_net *net, int32_t images, int training) { return plan_of(net, images, training).end; }

/* Products of a sum over a window of so many channels. */
static int64_t terms_of(const prowd_layer *l, int32_t channels) {
    return (int64_t)l->kernel_rows * l->kernel_columns * channels;
}

/* Whether 32 bits hold the sums of a convolution, and what rounding adds to them. */
static int fits(const prowd_layer *l, int bits) {
    if (l->shift < 1 || l->shift > 30) return 0;
    return terms_of(l, l->inputs) <= (INT32_MAX - ((int64_t)1 << l->shift)) / prowd_max_code(bits);
}

static int joins(const prowd_layer *l, const prowd_layer *next) { return prowd_given(l) == prowd_received(next); }

/* Whether every size is from `least` to MOST_SIDE. */
static int are_within(const int32_t *sizes, int count, int32_t least) {
    for (int i = 0; i < count; i++)
        if (sizes[i] < least || sizes[i] > MOST_SIDE) return 0;
    return 1;
}

static int64_t volume(int32_t channels, int32_t rows, int32_t columns) {
    const int64_t plane = (int64_t)rows * columns;
    return plane > INT32_MAX ? plane : plane * channels;
}

static int sizes_are_right(const prowd_layer *l) {
    const int32_t sizes[] = {l->inputs,      l->rows,        l->columns,     l->outputs,        l->out_rows,
                             l->out_columns, l->kernel_rows, l->kernel_columns, l->stride_rows, l->stride_columns};
    const int32_t pads[] = {l->pad_rows, l->pad_columns};
    if (!are_within(sizes, sizeof sizes / sizeof *sizes, 1) || !are_within(pads, 2, 0)) return 0;
    if (l->kind == PROWD_POOL && (l->pad_rows || l->pad_columns || l->inputs != l->outputs)) return 0;
    const int32_t down = l->rows + 2 * l->pad_rows - l->kernel_rows;
    const int32_t across = l->columns + 2 * l->pad_columns - l->kernel_columns;
    return down >= 0 && across >= 0 && down / l->stride_rows + 1 == l->out_rows &&
           across / l->stride_columns + 1 == l->out_columns && volume(l->inputs, l->rows, l->columns) <= INT32_MAX &&
           volume(l->outputs, l->out_rows, l->out_columns) <= INT32_MAX;
}

/* Windows of a pooling that may share a place: so many errors may add up there. */
static int64_t overlap_of(const prowd_layer *l) {
    const int64_t rows = (l->kernel_rows + l->stride_rows - 1) / l->stride_rows;
    return rows * ((l->kernel_columns + l->stride_columns - 1) / l->stride_columns);
}

/* 0, or which layer (from 1) gives more than 2^30 to the one before it on the way back. Nobody asks for the errors before
 * the first convolution. */
static int check_errors(const prowd_net *net) {
    int64_t most = MOST_ERROR;
    int32_t first = 0;
    while (net->layers[first].kind == PROWD_POOL) first++;
    for (int32_t i = net->count - 1; i > first; i--) {
        const prowd_layer *l = net->layers + i;
        const int64_t terms = l->kind == PROWD_POOL ? overlap_of(l) : terms_of(l, l->outputs);
        const int64_t each = l->kind == PROWD_POOL ? most : prowd_max_code(net->bits);
        if (terms > MOST_ERROR / each) return i + 1;
        most = terms * each;
    }
    return 0;
}

int prowd_check(const prowd_net *net) {
    if (net->bits < 2 || net->bits > 16 || net->count < 1) return 1;
    for (int32_t i = 0; i < net->count; i++) {
        const prowd_layer *l = net->layers + i;
        if ((l->kind != PROWD_CONV && l->kind != PROWD_POOL) || !sizes_are_right(l)) return i + 1;
        if (l->kind == PROWD_CONV && !fits(l, net->bits)) return i + 1;
        if (i > 0 && !joins(l - 1, l)) return i + 1;
    }
    const prowd_layer *last = net->layers + net->count - 1;
    if (last->kind != PROWD_CONV || last->out_rows != 1 || last->out_columns != 1) return net->count;
    return check_errors(net);
}

/* A layer's inputs, and where its errors pass, when everything is kept. */
typedef struct {
    int16_t *inputs;
    uint8_t *passes;
    int16_t *next;
} Kept;

static Kept kept_of(const prowd_layer *l, int32_t images, int16_t *inputs) {
    uint8_t *after = (uint8_t *)inputs + aligned(sizeof(int16_t) * (size_t)images * (size_t)prowd_received(l));
    const size_t passes = l->kind == PROWD_CONV ? aligned((size_t)images * (size_t)prowd_given(l)) : 0;
    const Kept kept = {inputs, after, (int16_t *)(void *)(after + passes)};
    return kept;
}

const int16_t *prowd_forward(const prowd_net *net, const int16_t *const *weights, int32_t images, void *memory,
                             int training) {
    const Plan p = plan_of(net, images, training);
    uint8_t *base = memory;
    int16_t *codes = memory, *scratch = (int16_t *)(void *)(base + p.scratch);
    int place = 0;
    for (int32_t i = 0; i < net->count; i++) {
        const prowd_layer *l = net->layers + i;
        const Kept kept = kept_of(l, images, codes);
        int16_t *next = training ? kept.next : (int16_t *)(void *)(base + (place ? 0 : p.each));
        if (l->kind == PROWD_POOL)
            prowd_pool_forward(l, codes, images, next);
        else
            prowd_conv_forward(l, net->bits, *weights++, codes, images, next, training ? kept.passes : NULL, scratch);
        codes = next, place = !place;
    }
    return codes;
}

/* The largest size of a sum that passes. */
PROWD_CLONES static uint32_t largest_sum(const int32_t *sums, const uint8_t *passes, size_t count) {
    int32_t largest = 0, least = 0;
    for (size_t i = 0; i < count; i++) {
        const int32_t n = sums[i] & -(int32_t)passes[i];
        largest = n > largest ? n : largest;
        least = n < least ? n : least;
    }
    return (uint32_t)(largest > -least ? largest : -least);
}

/* Codes round_half_even(n / 2^k) of sums n, clipped; 0 where they do not pass. */
PROWD_CLONES static void round_errors(const int32_t *restrict sums, const uint8_t *restrict passes, size_t count, int k,
                                      int32_t largest, int16_t *restrict codes) {
    for (size_t i = 0; i < count; i++)
        codes[i] = (int16_t)prowd_clip(prowd_round_shift(sums[i] & -(int32_t)passes[i], k), -largest, largest);
}

/* The same for k = -up, up to 0. */
PROWD_CLONES static void raise_errors(const int32_t *restrict sums, const uint8_t *restrict passes, size_t count, int up,
                                      int32_t largest, int16_t *restrict codes) {
    for (size_t i = 0; i < count; i++)
        codes[i] = (int16_t)prowd_clip((sums[i] & -(int32_t)passes[i]) * ((int32_t)1 << up), -largest, largest);
}

/* Codes of Q_s(n / Shift(max|n|)) of sums n, which are 0 where they do not pass. */
static void normalise(int bits, const int32_t *sums, const uint8_t *passes, size_t count, int16_t *codes) {
    const int32_t largest = prowd_max_code(bits);
    const int k = prowd_shift_exponent(largest_sum(sums, passes, count)) - (bits - 1);
    if (k > 0)
        round_errors(sums, passes, count, k, largest, codes);
    else
        raise_errors(sums, passes, count, -k, largest, codes);
}

/* What is done with a convolution's gradient. */
typedef struct {
    int16_t *const *weights;
    prowd_rate rate;
    const prowd_draws *draws; /* or NULL, and the gradients are kept instead: */
    int64_t *gradients;
} Use;

static void use_gradient(const prowd_net *net, const Use *use, const prowd_layer *l, int32_t number, int64_t *found) {
    const size_t count = (size_t)prowd_weights(l);
    if (use->draws) {
        prowd_update(net->bits, use->weights[number], found, count, use->rate, use->draws, (uint32_t)number);
        return;
    }
    size_t before = 0;
    for (const prowd_layer *other = net->layers; other < l; other++)
        before += other->kind == PROWD_CONV ? (size_t)prowd_weights(other) : 0;
    memcpy(use->gradients + before, found, sizeof *found * count);
}

static void backward(const prowd_net *net, const int16_t *const *weights, int32_t images, void *memory,
                     const int32_t *errors, const Use *use) {
    const Plan p = plan_of(net, images, 1);
    uint8_t *base = memory;
    int16_t *scratch = (int16_t *)(void *)(base + p.scratch), *codes = (int16_t *)(void *)(base + p.codes);
    int32_t *sums = (int32_t *)(void *)(base + p.errors), *below = (int32_t *)(void *)(base + p.below), number = 0;
    int64_t *gradient = (int64_t *)(void *)(base + p.gradient);
    int16_t *inputs = memory;
    for (int32_t i = 0; i < net->count; i++) number += net->layers[i].kind == PROWD_CONV;
    memcpy(sums, errors, sizeof *sums * (size_t)images * (size_t)prowd_given(net->layers + net->count - 1));
    for (int32_t i = net->count - 1; i >= 0; i--) {
        const prowd_layer *l = net->layers + i;
        inputs = memory;
        for (int32_t j = 0; j < i; j++) inputs = kept_of(net->layers + j, images, inputs).next;
        if (l->kind == PROWD_POOL) {
            prowd_pool_backward(l, inputs, sums, images, below);
        } else {
            const Kept kept = kept_of(l, images, inputs);
            normalise(net->bits, sums, kept.passes, (size_t)images * (size_t)prowd_given(l), codes);
            prowd_conv_gradient(l, net->bits, inputs, codes, images, gradient, scratch);
            number--;
            if (number > 0) prowd_conv_backward(l, net->bits, weights[number], codes, images, below, scratch);
            use_gradient(net, use, l, number, gradient);
            if (number == 0) return; /* nobody asks for the error of the images */
        }
        int32_t *swap = sums;
        sums = below, below = swap;
    }
}

void prowd_learn(const prowd_net *net, int16_t *const *weights, int32_t images, void *memory, const int32_t *errors,
                 prowd_rate rate, const prowd_draws *draws) {
    const Use use = {weights, rate, draws, NULL};
    backward(net, (const int16_t *const *)weights, images, memory, errors, &use);
}

void prowd_gradients(const prowd_net *net, const int16_t *const *weights, int32_t images, void *memory,
                     const int32_t *errors, int64_t *gradients) {
    const Use use = {NULL, {1, 0}, NULL, gradients};
    backward(net, weights, images, memory, errors, &use);
}

/* --- the update ---------------------------------------------------------------------------------------------------- */

PROWD_CLONES static uint64_t largest_size(const int64_t *gradient, size_t count) {
    uint64_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t size = (uint64_t)(gradient[i] < 0 ? -gradient[i] : gradient[i]);
        largest = size > largest ? size : largest;
    }
    return largest;
}

PROWD_CLONES void prowd_update(int bits, int16_t *weights, const int64_t *gradient, size_t count, prowd_rate rate,
                               const prowd_draws *draws, uint32_t layer) {
    const int32_t largest = prowd_max_code(bits);
    const int down = prowd_shift_exponent(largest_size(gradient, count)) - rate.exponent;
    for (size_t i = 0; i < count; i += PROWD_WORDS) {
        uint32_t words[PROWD_WORDS];
        prowd_words(draws->key, draws->step, layer, (uint32_t)i, words);
        for (size_t j = i; j < i + PROWD_WORDS && j < count; j++) {
            const int64_t g = gradient[j];
            const uint64_t product = (uint64_t)(g < 0 ? -g : g) * (uint64_t)rate.mantissa;
            const int32_t steps = prowd_step_size(product, down, words[j - i]);
            weights[j] = (int16_t)prowd_clip(weights[j] + (g < 0 ? steps : -steps), -largest, largest);
        }
    }
}
