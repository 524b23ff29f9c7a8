/* Runs what is asked for on standard input and prints what it gives, all as whole numbers: a client without an operating
 * system's help but for reading and printing. Every piece of memory has exactly the size that the core asks for, and is
 * full of rubbish, so that a sanitizer sees what goes too far and a comparison what is read before it is written.
 *
 *   check  bits, layers                                       -> which layer is wrong, or 0
 *   shift  x                                                  -> round(log2 x)
 *   step   product, down, word                                -> steps
 *   update bits, mantissa, exponent, key, step, layer, count, gradient, codes -> new codes
 *   loss   exponent, classes, tables, logits, label           -> loss, errors
 *   vary   channels, rows, columns, operations, signed, turns, key, step, number, image -> image
 *   round  see Round below                                    -> logits, gradients of the first step, new codes, loss
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "prowd.h"

static int64_t number(void) {
    int64_t found;
    if (scanf("%" SCNd64, &found) == 1) return found;
    fputs("a number is missing\n", stderr);
    exit(2);
}

static void *memory(size_t bytes) {
    void *found = malloc(bytes);
    if (!found) exit(3);
    return memset(found, 0x81, bytes);
}

#define READ(type, name)                                            \
    static type *name(size_t count) {                               \
        type *to = memory(sizeof *to * count);                      \
        for (size_t i = 0; i < count; i++) to[i] = (type)number();  \
        return to;                                                  \
    }
READ(uint8_t, bytes)
READ(int16_t, shorts)
READ(int32_t, ints)
READ(uint32_t, words)
READ(int64_t, longs)

static void print(int64_t value) { printf("%" PRId64 " ", value); }

/* --- a network ---------------------------------------------------------------------------------------------------- */

typedef struct {
    prowd_net net;
    int16_t **weights;
    size_t *sizes, convolutions, inputs, classes;
} Client;

static void read_layers(prowd_net *net) {
    net->bits = (int32_t)number(), net->count = (int32_t)number();
    net->layers = (prowd_layer *)ints(sizeof(prowd_layer) / sizeof(int32_t) * (size_t)net->count);
}

static Client read_client(void) {
    Client c = {{0}, NULL, NULL, 0, 0, 0};
    read_layers(&c.net);
    const prowd_layer *first = c.net.layers, *last = first + c.net.count - 1;
    if (prowd_check(&c.net)) exit(4);
    c.weights = memory(sizeof *c.weights * (size_t)c.net.count), c.sizes = memory(sizeof *c.sizes * (size_t)c.net.count);
    for (const prowd_layer *l = first; l <= last; l++) {
        if (l->kind != PROWD_CONV) continue;
        c.sizes[c.convolutions] = (size_t)(l->outputs * (l->inputs / l->groups) * l->kernel_rows * l->kernel_columns);
        c.weights[c.convolutions] = shorts(c.sizes[c.convolutions]), c.convolutions++;
    }
    c.inputs = (size_t)(first->inputs * first->rows * first->columns), c.classes = (size_t)last->outputs;
    return c;
}

static void release(Client *c) {
    for (size_t i = 0; i < c->convolutions; i++) free(c->weights[i]);
    free(c->weights), free(c->sizes), free((void *)c->net.layers);
}

/* --- a round ------------------------------------------------------------------------------------------------------ */

/* In the order in which they are read, after the client: examples, steps, batch, mantissa, exponent, operations, whether
 * bytes are signed, whether the loss is squared, its exponent, channels, rows and columns of an image, keys of batches,
 * augmentation and rounding; then the tables of codes, turns and exponentials, the images and the labels. */
typedef struct {
    int32_t examples, steps, batch;
    prowd_rate rate;
    int32_t operations, is_signed, squared;
    int32_t *shape;
    uint32_t *keys;
    int16_t *table, *turns;
    uint32_t *low, *high;
    prowd_softmax softmax;
    uint8_t *images;
    int32_t *labels;
} Round;

static Round read_round(const Client *c) {
    Round r;
    r.examples = (int32_t)number(), r.steps = (int32_t)number(), r.batch = (int32_t)number();
    r.rate.mantissa = (int32_t)number(), r.rate.exponent = (int32_t)number();
    r.operations = (int32_t)number(), r.is_signed = (int32_t)number(), r.squared = (int32_t)number();
    r.softmax.exponent = (int32_t)number(), r.shape = ints(3);
    r.keys = words(6), r.table = shorts(256), r.turns = shorts(122), r.low = words(256), r.high = words(256);
    r.softmax.low = r.low, r.softmax.high = r.high;
    r.images = bytes((size_t)r.examples * c->inputs), r.labels = ints((size_t)r.examples);
    return r;
}

/* Logits of all examples at once, in the memory that is enough to know them. */
static void infer(const Client *c, const Round *r) {
    int16_t *room = memory(prowd_memory(&c->net, r->examples, 0));
    prowd_codes(r->images, (size_t)r->examples * c->inputs, r->table, room);
    const int16_t *logits = prowd_forward(&c->net, (const int16_t *const *)c->weights, r->examples, room, 0);
    for (size_t i = 0; i < (size_t)r->examples * c->classes; i++) print(logits[i]);
    free(room);
}

/* A batch of codes at the beginning of the memory, and its labels. */
static void load(const Client *c, const Round *r, const uint32_t *chosen, uint32_t step, int16_t *room,
                 int32_t *labels) {
    uint8_t *varied = memory(c->inputs);
    for (int32_t n = 0; n < r->batch; n++) {
        const uint8_t *image = r->images + chosen[n] * c->inputs;
        if (r->operations) {
            prowd_augment(image, r->shape[0], r->shape[1], r->shape[2], r->operations,
                          (const int16_t(*)[2])(void *)r->turns, r->is_signed, r->keys + 2, step, (uint32_t)n, varied);
            image = varied;
        }
        prowd_codes(image, c->inputs, r->table, room + (size_t)n * c->inputs);
        labels[n] = r->labels[chosen[n]];
    }
    free(varied);
}

static void print_gradients(const Client *c, int32_t images, void *room, const int32_t *errors) {
    size_t total = 0;
    for (size_t i = 0; i < c->convolutions; i++) total += c->sizes[i];
    int64_t *gradients = memory(sizeof *gradients * total);
    prowd_gradients(&c->net, (const int16_t *const *)c->weights, images, room, errors, gradients);
    for (size_t i = 0; i < total; i++) print(gradients[i]);
    free(gradients);
}

static int64_t take_step(const Client *c, const Round *r, const uint32_t *chosen, uint32_t step) {
    int16_t *room = memory(prowd_memory(&c->net, r->batch, 1));
    int32_t *labels = memory(sizeof *labels * (size_t)r->batch);
    int32_t *errors = memory(sizeof *errors * (size_t)r->batch * c->classes);
    const prowd_draws draws = {{r->keys[4], r->keys[5]}, step};
    load(c, r, chosen, step, room, labels);
    const int16_t *logits = prowd_forward(&c->net, (const int16_t *const *)c->weights, r->batch, room, 1);
    const int32_t classes = (int32_t)c->classes;
    const int64_t loss = r->squared ? prowd_squared_error(c->net.bits, logits, labels, r->batch, classes, errors)
                                    : prowd_cross_entropy(&r->softmax, logits, labels, r->batch, classes, errors);
    if (step == 0) print_gradients(c, r->batch, room, errors);
    prowd_learn(&c->net, c->weights, r->batch, room, errors, r->rate, &draws);
    free(room), free(labels), free(errors);
    return loss;
}

static void run_round(void) {
    Client c = read_client();
    Round r = read_round(&c);
    const uint32_t count = (uint32_t)r.examples;
    uint32_t *order = memory(sizeof *order * count), *chosen = memory(sizeof *chosen * (size_t)r.batch), place = count;
    uint32_t epoch = 0;
    int64_t loss = 0;
    infer(&c, &r);
    for (int32_t step = 0; step < r.steps; step++) {
        for (int32_t n = 0; n < r.batch; n++, place++) {
            if (place == count) prowd_permutation(r.keys, epoch++, order, count), place = 0;
            chosen[n] = order[place];
        }
        loss += take_step(&c, &r, chosen, (uint32_t)step);
    }
    for (size_t i = 0; i < c.convolutions; i++)
        for (size_t j = 0; j < c.sizes[i]; j++) print(c.weights[i][j]);
    print(loss / (r.steps * r.batch));
    free(order), free(chosen), free(r.keys), free(r.table), free(r.turns), free(r.low), free(r.high), free(r.images);
    free(r.shape), free(r.labels), release(&c);
}

/* --- parts of it -------------------------------------------------------------------------------------------------- */

static void check(void) {
    prowd_net net;
    read_layers(&net);
    print(prowd_check(&net));
    free((void *)net.layers);
}

static void shift(void) { print(prowd_shift_exponent((uint64_t)number())); }

static void step(void) {
    const uint64_t product = (uint64_t)number();
    const int down = (int)number();
    print(prowd_step_size(product, down, (uint32_t)number()));
}

static void update(void) {
    const int bits = (int)number();
    prowd_rate rate;
    rate.mantissa = (int32_t)number(), rate.exponent = (int32_t)number();
    uint32_t *facts = words(5);
    const prowd_draws draws = {{facts[0], facts[1]}, facts[2]};
    int64_t *gradient = longs(facts[4]);
    int16_t *codes = shorts(facts[4]);
    prowd_update(bits, codes, gradient, facts[4], rate, &draws, facts[3]);
    for (uint32_t i = 0; i < facts[4]; i++) print(codes[i]);
    free(facts), free(gradient), free(codes);
}

static void loss(void) {
    const int32_t exponent = (int32_t)number(), classes = (int32_t)number();
    uint32_t *low = words(256), *high = words(256);
    int16_t *logits = shorts((size_t)classes);
    int32_t *label = ints(1), *errors = memory(sizeof *errors * (size_t)classes);
    const prowd_softmax softmax = {low, high, exponent};
    print(prowd_cross_entropy(&softmax, logits, label, 1, classes, errors));
    for (int32_t i = 0; i < classes; i++) print(errors[i]);
    free(low), free(high), free(logits), free(label), free(errors);
}

static void vary(void) {
    int32_t *facts = ints(5);
    const size_t size = (size_t)(facts[0] * facts[1] * facts[2]);
    int16_t *turns = shorts(122);
    uint32_t *key = words(4);
    uint8_t *image = bytes(size), *varied = memory(size);
    prowd_augment(image, facts[0], facts[1], facts[2], facts[3], (const int16_t(*)[2])(void *)turns, facts[4], key,
                  key[2], key[3], varied);
    for (size_t i = 0; i < size; i++) print(varied[i]);
    free(facts), free(turns), free(key), free(image), free(varied);
}

int main(void) {
    static const struct {
        const char *name;
        void (*run)(void);
    } commands[] = {{"check", check}, {"shift", shift}, {"step", step},     {"update", update},
                    {"loss", loss},   {"vary", vary},   {"round", run_round}};
    char name[16];
    while (scanf("%15s", name) == 1) {
        size_t i = 0;
        while (i < sizeof commands / sizeof *commands && strcmp(name, commands[i].name)) i++;
        if (i == sizeof commands / sizeof *commands) return 1;
        commands[i].run();
        putchar('\n');
    }
    return 0;
}
