/* What a layer computes when it infers. Its memory fits its facts, so a call checks no more than the number of images. */
#include "layer.h"

/* What the bytes that are multiplied are above the codes. */
static int offset_of(const Layer *layer) { return layer->paired ? layer->largest : layer->is_signed ? OFFSET : 0; }

int may_load(Layer *layer, int n) {
    return (layer->first || refuse(layer, "images are for the first layer")) && within(layer, "n", n, 1, layer->images);
}

void load(const Layer *layer, const uint8_t *images, const uint8_t *table, int n) {
    const Box box = {n, layer->image.rows, layer->image.columns, layer->weights.inputs, layer->received.at};
    load_images(images, box.channels, table, (uint8_t *)memory_of(layer, RECEIVED) + layer->received.inside, box);
}

void pack(const Layer *layer) {
    const Weights w = layer->weights;
    const int lanes = layer->kernels->lanes, limit = (layer->largest + 1) / 2; /* Q_Int2, halves to even */
    int8_t *ternary = memory_of(layer, TERNARY), *back = memory_of(layer, BACK_WEIGHTS);
    ternarize(layer->codes, w, limit, ternary);
    (layer->paired ? pack_pairs : pack_forward)(ternary, w, lanes, offset_of(layer), memory_of(layer, WEIGHTS),
                                                memory_of(layer, START));
    if (back) pack_backward(ternary, w, lanes, layer->flat, back, memory_of(layer, BACK_START));
}

static Products forward_products(const Layer *layer, int n) {
    const Weights *w = &layer->weights;
    const int row = layer->flat ? w->taps : layer->kernel.columns; /* places of a window that lie in one piece */
    return (Products){
        .x = memory_of(layer, RECEIVED),
        .at = every(layer->received.at, layer->stride),
        .images = n,
        .rows = layer->positions.rows,
        .columns = layer->positions.columns,
        .taps = layer->rows_of_window,
        .tap_count = layer->flat ? 1 : layer->kernel.rows,
        .groups = row * w->padded_inputs / 4,
        .run = run_of(layer, offset_of(layer)),
        .weights = memory_of(layer, WEIGHTS),
        .start = memory_of(layer, START),
        .outputs = w->padded_outputs,
    };
}

/* Whether the products can give the largest codes of windows at once: of pairs, two by two. */
static int can_pool(const Layer *layer) {
    const Window w = layer->following ? layer->following->pool : (Window){0};
    return layer->paired && layer->positions.rows % 2 == 0 && w.rows == 2 && w.columns == 2 && w.step_rows == 2 &&
           w.step_columns == 2;
}

static void multiply(const Layer *layer, int n, int record, int pool) {
    const Products p = forward_products(layer, n);
    const Layer *next = layer->following, *into = next && (pool || !next->pooled) ? next : NULL;
    const Grid *grid = into ? &into->received : &layer->given;
    const Forward f = {
        .codes = (uint8_t *)memory_of(into ? into : layer, into ? RECEIVED : GIVEN) + grid->inside,
        .at = grid->at,
        .passes = record ? memory_of(into ? into : layer, into ? PASSES : GIVEN_PASSES) : NULL,
        .shift = layer->shift,
        .largest = layer->largest,
        .relu = layer->relu,
        .pool = pool,
    };
    if (layer->paired) {
        const Pairing q = {memory_of(layer, ROOM), (int)layer->memory[ROOM].shape[0], layer->weights.padded_inputs};
        layer->kernels->forward_pairs(&p, &f, &q);
    } else {
        layer->kernels->forward(&p, &f);
    }
}

static void pool_into(const Layer *layer, const Layer *next, int n, int record) {
    const Box box = {n, next->image.rows, next->image.columns, next->weights.padded_inputs, next->received.at};
    pool(memory_of(layer, GIVEN), record ? memory_of(layer, GIVEN_PASSES) : NULL, layer->given.at, next->pool,
         (uint8_t *)memory_of(next, RECEIVED) + next->received.inside, box, memory_of(next, PASSES),
         memory_of(next, WINNERS));
}

/* The weight gradients need four images a lane. -1: no memory. */
static int keep_received(const Layer *layer, int n) {
    const Size pixels = (Size)layer->received.size.rows * layer->received.size.columns;
    return interleave(memory_of(layer, RECEIVED), n, pixels, layer->weights.padded_inputs, layer->gradient_inputs,
                      layer->is_signed ? PARTS : PLAIN, memory_of(layer, RECEIVED_FOURS));
}

int may_forward(Layer *layer, int n, int record) {
    return within(layer, "n", n, 1, layer->images) && (!record || layer->training || untrained(layer));
}

int forward(Layer *layer, int n, int record) {
    const int at_once = !record && can_pool(layer);
    layer->recorded = 0;
    if (record && keep_received(layer, n)) return -1;
    multiply(layer, n, record, at_once);
    if (layer->following && layer->following->pooled && !at_once) pool_into(layer, layer->following, n, record);
    if (record) layer->recorded = n;
    return 0;
}
