/* The layers of the int8 kernel without Python: whole steps of a network, asked and answered in whole numbers.
 *
 * Without an argument it prints the names of this CPU's instruction sets; with one of them it reads, until there is no
 * more, a number of layers, bits, room for images, the facts of each layer (see `read_layer`), the codes of all weights,
 * the rate (mantissa, exponent), the key of the random words, the table of codes, a number of steps, and for each the
 * number of images, their bytes and the errors of their logits. A line of the answer has, for each step, logits (of a
 * forward pass that keeps nothing, then of one that does), gradients and new codes. Every piece of memory has exactly
 * the size that a layer asks for, and is full of rubbish. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"
#include "numbers.h"

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

static void print(int64_t value) { printf("%" PRId64 " ", value); }

static Sides sides(void) {
    const int rows = (int)number();
    return (Sides){rows, (int)number()};
}

static void read_layer(Layer *l) {
    l->weights.inputs = (int)number(), l->weights.outputs = (int)number();
    l->image = sides(), l->kernel = sides(), l->stride = sides(), l->padding = sides();
    const Sides window = sides(), step = sides();
    l->pool = (Window){window.rows, window.columns, step.rows, step.columns};
    l->shift = (int)number(), l->flat = (int)number(), l->relu = (int)number();
    l->is_signed = (int)number(), l->first = (int)number(), l->training = 1;
}

/* Last first: each writes what it gives to where the following receives it. */
static void build_layers(Layer *layers, int count, const char *instructions) {
    for (int i = count - 1; i >= 0; i--) {
        Layer *l = layers + i;
        l->following = i + 1 < count ? l + 1 : NULL;
        if (!build(l, instructions)) {
            fprintf(stderr, "layer %d: %s\n", i, l->fault);
            exit(4);
        }
        for (int p = 0; p < PURPOSES; p++)
            if (l->memory[p].bytes) l->memory[p].data = memory((size_t)l->memory[p].bytes);
        l->codes = memory(sizeof *l->codes * (size_t)weights_of(l));
        if (prepare(l)) exit(3);
    }
}

static void expect(const Layer *layer, int asked) {
    if (asked) return;
    fprintf(stderr, "%s\n", layer->fault);
    exit(4);
}

static void infer(Layer *layers, int count, const uint8_t *images, const uint8_t *table, int n, int record) {
    expect(layers, may_load(layers, n));
    load(layers, images, table, n);
    for (Layer *l = layers; l < layers + count; l++) {
        expect(l, may_forward(l, n, record));
        if (forward(l, n, record)) exit(3);
    }
    const Layer *last = layers + count - 1;
    const uint8_t *given = memory_of(last, GIVEN);
    for (int i = 0; i < n; i++)
        for (int o = 0; o < last->weights.outputs; o++)
            print((int8_t)(given[i * last->weights.padded_outputs + o] - OFFSET));
}

/* The codes of the errors of the logits, where they pass, as the last layer's errors. */
static void give_errors(const Layer *last, int n, int64_t *errors, int bits) {
    const uint8_t *passes = memory_of(last, GIVEN_PASSES);
    const int outputs = last->weights.outputs, padded = last->weights.padded_outputs;
    uint8_t *to = memory_of(last, ERRORS);
    uint64_t largest = 0;
    for (int i = 0; i < n * outputs; i++) {
        if (!passes[i / outputs * padded + i % outputs]) errors[i] = 0;
        const uint64_t size = (uint64_t)(errors[i] < 0 ? -errors[i] : errors[i]);
        if (size > largest) largest = size;
    }
    const int down = prowd_shift_exponent(largest) - (bits - 1);
    for (int i = 0; i < n * outputs; i++) {
        int64_t code = down < 0 ? errors[i] * ((int64_t)1 << -down) : errors[i];
        if (down > 0) code = (code + (((int64_t)1 << (down - 1)) - 1) + ((code >> down) & 1)) >> down;
        code = code < -last->largest ? -last->largest : code > last->largest ? last->largest : code;
        to[i / outputs * padded + i % outputs] = (uint8_t)(code + OFFSET);
    }
}

/* From the last layer to the first; what the largest magnitudes are. */
static void back(Layer *layers, int count, int n, int bits, int32_t *sizes) {
    for (int i = count - 1; i >= 0; i--) {
        Layer *l = layers + i;
        expect(l, may_gradient(l, 0, n));
        if ((sizes[i] = gradient(l, 0, n)) < 0) exit(3);
        if (i == 0) return;
        expect(l, may_backward(l, n));
        const int up = bits - 1 - prowd_shift_exponent((uint64_t)backward(l, n));
        expect(l, may_spread(l, n, up, l - 1));
        spread(l, n, up, l - 1);
    }
}

/* As the weights lie: [output][input][tap]. */
static void print_gradient(const Layer *l) {
    const int32_t *g = memory_of(l, GRADIENT);
    for (int o = 0; o < l->weights.outputs; o++)
        for (int i = 0; i < l->weights.inputs; i++)
            for (int t = 0; t < l->weights.taps; t++)
                print(g[((ptrdiff_t)o * l->weights.taps + t) * l->gradient_inputs + i]);
}

static void learn(Layer *layers, int count, prowd_rate rate, const prowd_draws *draws, const int32_t *sizes) {
    for (int i = 0; i < count; i++) {
        Layer *l = layers + i;
        print_gradient(l);
        expect(l, may_update(l, rate, sizes[i]));
        if (update(l, rate, sizes[i], draws, (uint32_t)i)) exit(3);
    }
    for (Layer *l = layers; l < layers + count; l++)
        for (Size j = 0; j < weights_of(l); j++) print(l->codes[j]);
}

static void run(int count, const char *instructions) {
    const int bits = (int)number(), room = (int)number();
    Layer *layers = calloc((size_t)count, sizeof *layers);
    int32_t *sizes = memory(sizeof *sizes * (size_t)count);
    if (!layers) exit(3);
    for (Layer *l = layers; l < layers + count; l++) {
        l->images = room, l->largest = prowd_max_code(bits);
        read_layer(l);
    }
    build_layers(layers, count, instructions);
    for (Layer *l = layers; l < layers + count; l++)
        for (Size j = 0; j < weights_of(l); j++) l->codes[j] = (int16_t)number();
    prowd_rate rate;
    prowd_draws draws;
    uint8_t table[256];
    rate.mantissa = (int32_t)number(), rate.exponent = (int32_t)number();
    draws.key[0] = (uint32_t)number(), draws.key[1] = (uint32_t)number();
    for (int i = 0; i < 256; i++) table[i] = (uint8_t)(number() + OFFSET);
    const int steps = (int)number(), classes = layers[count - 1].weights.outputs;
    const size_t each = (size_t)(layers->weights.inputs * layers->image.rows * layers->image.columns);
    for (int step = 0; step < steps; step++) {
        const int n = (int)number();
        uint8_t *images = memory(each * (size_t)n);
        int64_t *errors = memory(sizeof *errors * (size_t)(n * classes));
        for (size_t i = 0; i < each * (size_t)n; i++) images[i] = (uint8_t)number();
        for (int i = 0; i < n * classes; i++) errors[i] = number();
        draws.step = (uint32_t)step;
        for (Layer *l = layers; l < layers + count; l++) pack(l);
        infer(layers, count, images, table, n, 0);
        infer(layers, count, images, table, n, 1);
        give_errors(layers + count - 1, n, errors, bits);
        back(layers, count, n, bits, sizes);
        learn(layers, count, rate, &draws, sizes);
        free(images), free(errors);
    }
    for (Layer *l = layers; l < layers + count; l++) {
        release(l), free(l->codes);
        for (int p = 0; p < PURPOSES; p++) free(l->memory[p].data);
    }
    free(layers), free(sizes);
    putchar('\n');
}

int main(int count, char **arguments) {
    int layers;
    if (count < 2) {
        for (int i = 0; kernels_at(i); i++) puts(kernels_at(i)->name);
        return 0;
    }
    while (scanf("%d", &layers) == 1) run(layers, arguments[1]);
    return 0;
}
