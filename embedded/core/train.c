/* One step of a network: where everything lies in the memory that the caller lends, and in which order it is used. */
#include <string.h>

#include "layers.h"
#include "numbers.h"

enum { ALIGN = 64, MOST_SIDE = 1 << 20, MOST_ERROR = 1 << 30 };

/* The values of a network are numbered: 0 is the images, i what layer i - 1 gives. */
static int32_t source_of(const prowd_net *net, int32_t layer) { return layer - net->layers[layer].skip; }

static int32_t other_of(const prowd_net *net, int32_t layer) { return layer - net->layers[layer].other; }

/* Whether a value is asked for by others than the layer that follows it. */
static int is_held(const prowd_net *net, int32_t value) {
    for (int32_t i = value; i < net->count; i++) {
        if (net->layers[i].skip && source_of(net, i) == value) return 1;
        if (net->layers[i].kind == PROWD_ADD && other_of(net, i) == value) return 1;
    }
    return 0;
}

static int32_t first_convolution(const prowd_net *net) {
    int32_t first = 0;
    while (first < net->count && net->layers[first].kind != PROWD_CONV) first++;
    return first;
}

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static size_t numbers_of(const prowd_net *net, int32_t value, int32_t images) {
    const ptrdiff_t each = value ? prowd_given(net->layers + value - 1) : prowd_received(net->layers);
    return (size_t)images * (size_t)each;
}

/* Bytes of where the errors of a layer pass. */
static size_t passes_of(const prowd_net *net, int32_t layer, int32_t images) {
    const int32_t kind = net->layers[layer].kind;
    return kind == PROWD_CONV || kind == PROWD_ADD ? aligned(numbers_of(net, layer + 1, images)) : 0;
}

/* Where a value lies when everything is kept: all of them in order, each followed by the next layer's passes. */
static size_t kept_at(const prowd_net *net, int32_t value, int32_t images) {
    size_t at = 0;
    for (int32_t i = 0; i < value; i++)
        at += aligned(sizeof(int16_t) * numbers_of(net, i, images)) + passes_of(net, i, images);
    return at;
}

/* Bytes of all held values from `from` to `value` - 1, or of their errors. */
static size_t held_bytes(const prowd_net *net, int32_t from, int32_t value, int32_t images, size_t each) {
    size_t bytes = 0;
    for (int32_t i = from; i < value; i++) bytes += is_held(net, i) ? aligned(each * numbers_of(net, i, images)) : 0;
    return bytes;
}

/* Where things lie, in bytes from the beginning of the memory. To learn, every value stays; otherwise those that are
 * held, and two places are used in turn for the others. */
typedef struct {
    size_t first, each;    /* where nothing is kept: the first of the two places, and how large each is */
    size_t held;           /* values that are held; when everything is kept, their errors */
    size_t exponents;      /* of these errors */
    size_t scratch;        /* of a convolution */
    size_t errors, below;  /* sums of errors, two places used in turn */
    size_t codes;          /* error codes of a layer */
    size_t gradient;       /* of a layer */
    size_t end;
} Plan;

static Plan plan_of(const prowd_net *net, int32_t images, int training) {
    Plan p = {0};
    size_t widest = 0, gradient = 0, scratch = 0;
    for (int32_t i = 0; i < net->count; i++) {
        const prowd_layer *l = net->layers + i;
        widest = most(widest, most(numbers_of(net, i, images), numbers_of(net, i + 1, images)));
        if (l->kind != PROWD_CONV) continue;
        gradient = most(gradient, (size_t)prowd_weights(l));
        scratch = most(scratch, (size_t)prowd_conv_scratch(l, images, training));
    }
    if (!training) {
        p.each = aligned(sizeof(int16_t) * widest);
        p.first = is_held(net, 0) ? aligned(sizeof(int16_t) * numbers_of(net, 0, images)) : 0;
        p.held = p.first + 2 * p.each;
        p.scratch = p.held + held_bytes(net, 1, net->count, images, sizeof(int16_t));
        p.end = p.scratch + aligned(sizeof(int16_t) * scratch);
        return p;
    }
    p.scratch = kept_at(net, net->count, images) + aligned(sizeof(int16_t) * numbers_of(net, net->count, images));
    p.errors = p.scratch + aligned(sizeof(int16_t) * scratch);
    p.below = p.errors + aligned(sizeof(int32_t) * widest);
    p.codes = p.below + aligned(sizeof(int32_t) * widest);
    p.gradient = p.codes + aligned(sizeof(int16_t) * widest);
    p.held = p.gradient + aligned(sizeof(int64_t) * gradient);
    const size_t held = held_bytes(net, first_convolution(net) + 1, net->count, images, sizeof(int32_t));
    p.exponents = p.held + held;
    p.end = p.exponents + (held ? aligned(sizeof(int32_t) * (size_t)net->count) : 0);
    return p;
}

size_t prowd_memory(const prowd_net *net, int32_t images, int training) { return plan_of(net, images, training).end; }

/* --- what is refused ----------------------------------------------------------------------------------------------- */

/* Products of a sum over a window of so many channels. */
static int64_t terms_of(const prowd_layer *l, int32_t channels) {
    return (int64_t)l->kernel_rows * l->kernel_columns * channels;
}

/* Whether 32 bits hold the sums of a convolution or an average, and what rounding adds to them. */
static int fits(const prowd_layer *l, int bits) {
    if (l->kind == PROWD_AVERAGE && (l->shift < 0 || l->shift > 30 || terms_of(l, 1) != (int64_t)1 << l->shift))
        return 0;
    if (l->kind == PROWD_CONV && (l->shift < 1 || l->shift > 30)) return 0;
    const int64_t terms = terms_of(l, l->kind == PROWD_CONV ? l->inputs / l->groups : 1);
    return terms <= (INT32_MAX - ((int64_t)1 << l->shift)) / prowd_max_code(bits);
}

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

/* Whether a layer's channels are in whole groups; one that has no weights keeps them. */
static int groups_are_right(const prowd_layer *l) {
    if (l->kind == PROWD_CONV) return l->inputs % l->groups == 0 && l->outputs % l->groups == 0;
    return l->groups == 1 && !l->pad_rows && !l->pad_columns && l->inputs == l->outputs;
}

static int sizes_are_right(const prowd_layer *l) {
    const int32_t sizes[] = {l->inputs,      l->rows,        l->columns,        l->outputs,     l->out_rows,
                             l->out_columns, l->kernel_rows, l->kernel_columns, l->stride_rows, l->stride_columns,
                             l->groups};
    const int32_t pads[] = {l->pad_rows, l->pad_columns};
    if (!are_within(sizes, sizeof sizes / sizeof *sizes, 1) || !are_within(pads, 2, 0) || !groups_are_right(l)) return 0;
    const int32_t down = l->rows + 2 * l->pad_rows - l->kernel_rows;
    const int32_t across = l->columns + 2 * l->pad_columns - l->kernel_columns;
    return down >= 0 && across >= 0 && down / l->stride_rows + 1 == l->out_rows &&
           across / l->stride_columns + 1 == l->out_columns && volume(l->inputs, l->rows, l->columns) <= INT32_MAX &&
           volume(l->outputs, l->out_rows, l->out_columns) <= INT32_MAX;
}

/* Whether a layer receives what is there and of its size; the images must come before all else. */
static int joins(const prowd_net *net, int32_t layer) {
    const prowd_layer *l = net->layers + layer;
    if (l->skip < 0 || l->skip > layer || l->other < 0 || l->other > layer || (l->kind != PROWD_ADD && l->other)) return 0;
    if (layer && (ptrdiff_t)numbers_of(net, source_of(net, layer), 1) != prowd_received(l)) return 0;
    if (l->kind != PROWD_ADD) return 1;
    const int is_plain = l->kernel_rows == 1 && l->kernel_columns == 1 && l->stride_rows == 1 && l->stride_columns == 1;
    return is_plain && numbers_of(net, other_of(net, layer), 1) == numbers_of(net, layer + 1, 1);
}

/* Windows of a pooling that may share a place: so many errors may add up there. */
static int64_t overlap_of(const prowd_layer *l) {
    const int64_t rows = (l->kernel_rows + l->stride_rows - 1) / l->stride_rows;
    return rows * ((l->kernel_columns + l->stride_columns - 1) / l->stride_columns);
}

/* 0, or which layer (from 1) gives so much to those before it on the way back that more than 2^30 may add up. Nobody asks
 * for the errors of what comes before the first convolution. */
static int check_errors(const prowd_net *net) {
    int32_t sums[PROWD_MOST_LAYERS + 1] = {0};
    const int32_t first = first_convolution(net);
    sums[net->count] = MOST_ERROR;
    for (int32_t i = net->count - 1; i > first; i--) {
        const prowd_layer *l = net->layers + i;
        const int is_conv = l->kind == PROWD_CONV;
        const int64_t terms = is_conv ? terms_of(l, l->outputs / l->groups) : overlap_of(l);
        const int64_t each = is_conv ? prowd_max_code(net->bits) : sums[i + 1];
        const int32_t below[] = {source_of(net, i), other_of(net, i)};
        for (int j = 0; j < (l->kind == PROWD_ADD ? 2 : 1); j++) {
            if (below[j] <= first) continue;
            if (terms > (MOST_ERROR - sums[below[j]]) / each) return i + 1;
            sums[below[j]] += (int32_t)(terms * each);
        }
    }
    return 0;
}

int prowd_check(const prowd_net *net) {
    if (net->bits < 2 || net->bits > 16 || net->count < 1 || net->count > PROWD_MOST_LAYERS) return 1;
    for (int32_t i = 0; i < net->count; i++) {
        const prowd_layer *l = net->layers + i;
        if (l->kind < PROWD_CONV || l->kind > PROWD_ADD || !sizes_are_right(l)) return i + 1;
        if ((l->kind == PROWD_CONV || l->kind == PROWD_AVERAGE) && !fits(l, net->bits)) return i + 1;
        if (!joins(net, i)) return i + 1;
    }
    for (int32_t i = 1; i < net->count; i++)
        if (net->layers[i].skip && !is_held(net, i)) return i; /* nobody asks for what it gives */
    const prowd_layer *last = net->layers + net->count - 1;
    if (last->kind != PROWD_CONV || last->out_rows != 1 || last->out_columns != 1) return net->count;
    return check_errors(net);
}

/* --- forward ------------------------------------------------------------------------------------------------------- */

/* A network at work on some images. */
typedef struct {
    const prowd_net *net;
    int32_t images;
    uint8_t *base;
    int training;
    Plan plan;
} Job;

static Job job_of(const prowd_net *net, int32_t images, void *memory, int training) {
    const Job job = {net, images, memory, training, plan_of(net, images, training)};
    return job;
}

static int16_t *codes_at(const Job *job, size_t at) { return (int16_t *)(void *)(job->base + at); }

static int32_t *sums_at(const Job *job, size_t at) { return (int32_t *)(void *)(job->base + at); }

/* Where a value is found that is kept or held. */
static int16_t *stored(const Job *job, int32_t value) {
    if (job->training) return codes_at(job, kept_at(job->net, value, job->images));
    const size_t at = job->plan.held + held_bytes(job->net, 1, value, job->images, sizeof(int16_t));
    return codes_at(job, value ? at : 0);
}

/* Where a value goes that is made from the one at `from`. */
static int16_t *place_for(const Job *job, int32_t value, const int16_t *from) {
    if (job->training || is_held(job->net, value)) return stored(job, value);
    int16_t *one = codes_at(job, job->plan.first);
    return from == one ? codes_at(job, job->plan.first + job->plan.each) : one;
}

/* Where the errors of a layer pass. */
static uint8_t *passes_at(const Job *job, int32_t layer) {
    const size_t before = aligned(sizeof(int16_t) * numbers_of(job->net, layer, job->images));
    return job->training ? job->base + kept_at(job->net, layer, job->images) + before : NULL;
}

const int16_t *prowd_forward(const prowd_net *net, const int16_t *const *weights, int32_t images, void *memory,
                             int training) {
    const Job job = job_of(net, images, memory, training);
    int16_t *scratch = codes_at(&job, job.plan.scratch);
    const int16_t *codes = memory;
    for (int32_t i = 0; i < net->count; i++) {
        const prowd_layer *l = net->layers + i;
        if (l->skip) codes = stored(&job, source_of(net, i));
        int16_t *next = place_for(&job, i + 1, codes);
        if (l->kind == PROWD_POOL)
            prowd_pool_forward(l, codes, images, next);
        else if (l->kind == PROWD_AVERAGE)
            prowd_average_forward(l, codes, images, next);
        else if (l->kind == PROWD_ADD)
            prowd_add_forward(l, net->bits, codes, stored(&job, other_of(net, i)), images, next, passes_at(&job, i));
        else
            prowd_conv_forward(l, net->bits, *weights++, codes, images, next, passes_at(&job, i), scratch);
        codes = next;
    }
    return codes;
}

/* --- backward ------------------------------------------------------------------------------------------------------ */

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

/* Codes of Q_s(n / Shift(max|n|)) of sums n, which are 0 where they do not pass. Returns log2 of what a code stands for. */
static int normalise(int bits, const int32_t *sums, const uint8_t *passes, size_t count, int16_t *codes) {
    const int32_t largest = prowd_max_code(bits);
    const int k = prowd_shift_exponent(largest_sum(sums, passes, count)) - (bits - 1);
    if (k > 0)
        round_errors(sums, passes, count, k, largest, codes);
    else
        raise_errors(sums, passes, count, -k, largest, codes);
    return k;
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

enum { UNKNOWN = INT32_MIN }; /* the exponent of an error that nobody has given yet */

static int32_t *held_error(const Job *job, int32_t value) {
    const int32_t first = first_convolution(job->net) + 1;
    return sums_at(job, job->plan.held + held_bytes(job->net, first, value, job->images, sizeof(int32_t)));
}

static int is_zero(const int32_t *sums, size_t count) {
    int32_t any = 0;
    for (size_t i = 0; i < count; i++) any |= sums[i];
    return !any;
}

/* Add an error, sums times 2^exponent, to what others gave for a held value: the finer is rounded to the scale of the
 * coarser; one that is 0 everywhere has no scale. */
static void hold(const Job *job, int32_t value, const int32_t *sums, int32_t exponent) {
    int32_t *held = held_error(job, value), *known = sums_at(job, job->plan.exponents) + value;
    const size_t count = numbers_of(job->net, value, job->images);
    if (*known != UNKNOWN && is_zero(sums, count)) return;
    if (*known == UNKNOWN || is_zero(held, count)) {
        memcpy(held, sums, sizeof *held * count);
        *known = exponent;
        return;
    }
    const int32_t coarser = *known > exponent ? *known : exponent;
    prowd_add_errors(held, coarser - *known, sums, coarser - exponent, count);
    *known = coarser;
}

/* An error on its way back: what it stands for is sums times 2^exponent. */
typedef struct {
    int32_t *sums;
    int32_t exponent;
} Error;

/* The error of what a convolution received, and its gradient; `number` counts convolutions. */
static void learn_layer(const Job *job, const Use *use, const int16_t *weights, int32_t layer, int32_t number,
                        Error *error, int32_t *below) {
    const prowd_layer *l = job->net->layers + layer;
    const int bits = job->net->bits;
    int16_t *codes = codes_at(job, job->plan.codes), *scratch = codes_at(job, job->plan.scratch);
    int64_t *gradient = (int64_t *)(void *)(job->base + job->plan.gradient);
    const size_t count = numbers_of(job->net, layer + 1, job->images);
    const int32_t source = source_of(job->net, layer);
    error->exponent += normalise(bits, error->sums, passes_at(job, layer), count, codes) - l->shift;
    prowd_conv_gradient(l, bits, stored(job, source), codes, job->images, gradient, scratch);
    if (source > first_convolution(job->net)) prowd_conv_backward(l, bits, weights, codes, job->images, below, scratch);
    use_gradient(job->net, use, l, number, gradient);
    error->sums = below;
}

/* The error of what a layer without weights received. */
static void pass_layer(const Job *job, int32_t layer, Error *error, int32_t *below) {
    const prowd_layer *l = job->net->layers + layer;
    const int32_t source = source_of(job->net, layer);
    if (l->kind == PROWD_ADD) {
        const uint8_t *passes = passes_at(job, layer);
        const size_t count = numbers_of(job->net, layer + 1, job->images);
        for (size_t i = 0; i < count; i++) error->sums[i] &= -(int32_t)passes[i];
        return;
    }
    if (source <= first_convolution(job->net)) return; /* nobody asks */
    if (l->kind == PROWD_POOL) {
        prowd_pool_backward(l, stored(job, source), error->sums, job->images, below);
    } else {
        prowd_average_backward(l, error->sums, job->images, below);
        error->exponent -= l->shift;
    }
    error->sums = below;
}

static void backward(const prowd_net *net, const int16_t *const *weights, int32_t images, void *memory,
                     const int32_t *errors, const Use *use) {
    const Job job = job_of(net, images, memory, 1);
    const int32_t first = first_convolution(net);
    int32_t *exponents = sums_at(&job, job.plan.exponents), number = 0;
    Error error = {sums_at(&job, job.plan.errors), 0};
    for (int32_t i = 0; i < net->count; i++) {
        number += net->layers[i].kind == PROWD_CONV;
        if (i > first && is_held(net, i)) exponents[i] = UNKNOWN;
    }
    memcpy(error.sums, errors, sizeof *errors * numbers_of(net, net->count, images));
    for (int32_t i = net->count - 1; i >= first; i--) {
        const prowd_layer *l = net->layers + i;
        const size_t place = error.sums == sums_at(&job, job.plan.errors) ? job.plan.below : job.plan.errors;
        if (l->kind == PROWD_CONV)
            number--, learn_layer(&job, use, weights[number], i, number, &error, sums_at(&job, place));
        else
            pass_layer(&job, i, &error, sums_at(&job, place));
        const int32_t below[] = {source_of(net, i), other_of(net, i)};
        for (int j = 0; j < (l->kind == PROWD_ADD ? 2 : 1); j++)
            if (below[j] > first && is_held(net, below[j])) hold(&job, below[j], error.sums, error.exponent);
        if (i > first && is_held(net, i)) error.sums = held_error(&job, i), error.exponent = exponents[i];
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
