/* The facts of a layer, checked once: every size and stride is derived from them. */
#include "layer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST = 1 << 24,                    /* of any fact: products of two and a few more stay far below 2^63 */
    COUNTED = INT_MAX / 2,             /* what the kernels count in an int, in steps of up to 64 */
    TERMS = INT_MAX / (2 * UINT8_MAX), /* of a sum: twice the sum stays within 32 bits */
    LAYERS = 1000,                     /* of a network: the last reference to the first frees them one in the other */
};

static int padded(int channels, int multiple) { return (channels + multiple - 1) / multiple * multiple; }

static int check_facts(Layer *layer) {
    const Sides image = layer->image, kernel = layer->kernel, stride = layer->stride, padding = layer->padding;
    const Window pool = layer->pool;
    if (!within(layer, "images", layer->images, 1, MOST) || !within(layer, "largest", layer->largest, 1, INT8_MAX) ||
        !within(layer, "inputs", layer->weights.inputs, 1, MOST) ||
        !within(layer, "outputs", layer->weights.outputs, 1, MOST) ||
        !within(layer, "image rows", image.rows, 1, MOST) || !within(layer, "image columns", image.columns, 1, MOST) ||
        !within(layer, "padding rows", padding.rows, 0, MOST) ||
        !within(layer, "padding columns", padding.columns, 0, MOST) ||
        !within(layer, "kernel rows", kernel.rows, padding.rows + 1, image.rows + 2 * padding.rows) ||
        !within(layer, "kernel columns", kernel.columns, padding.columns + 1, image.columns + 2 * padding.columns) ||
        !within(layer, "stride rows", stride.rows, 1, MOST) ||
        !within(layer, "stride columns", stride.columns, 1, MOST) ||
        !within(layer, "pool rows", pool.rows, 1, MOST) || !within(layer, "pool columns", pool.columns, 1, MOST) ||
        !within(layer, "pool places", (Size)pool.rows * pool.columns, 1, UINT8_MAX) ||
        !within(layer, "pool step rows", pool.step_rows, pool.rows, MOST) ||
        !within(layer, "pool step columns", pool.step_columns, pool.columns, MOST) ||
        !within(layer, "shift", layer->shift, 1, 30))
        return 0;
    if (layer->largest & (layer->largest + 1))
        return refuse(layer, "largest is wrong; accepted: a power of two less one");
    if (layer->flat && (kernel.rows != image.rows || kernel.columns != image.columns || stride.rows != 1 ||
                        stride.columns != 1 || padding.rows || padding.columns))
        return refuse(layer, "kernel of a flat layer is not its image");
    if (layer->first && (!layer->is_signed || layer->pooled))
        return refuse(layer, "first layer is not signed, or is pooled");
    return 1;
}

static int check_products(Layer *layer) {
    const Size taps = (Size)layer->kernel.rows * layer->kernel.columns;
    const Size image = (Size)layer->image.rows * layer->image.columns;
    const Size positions = (Size)layer->positions.rows * layer->positions.columns;
    const int inputs = layer->weights.inputs, outputs = layer->weights.outputs;
    return within(layer, "places of a window", taps, 1, TERMS) &&
           within(layer, "places of an image", image, 1, COUNTED) &&
           within(layer, "positions of an image", positions, 1, COUNTED) &&
           within(layer, "weights of an output", taps * inputs, 1, TERMS) &&
           within(layer, "weights of an input", (layer->flat ? 1 : taps) * outputs, 1, TERMS) &&
           within(layer, "places of all images", image * layer->images, 1, COUNTED) &&
           within(layer, "positions of all images", positions * layer->images, 1, COUNTED);
}

static int pooled_side(int side, int window, int step) { return side < window ? 0 : (side - window) / step + 1; }

/* What a layer gives lies where the following one receives it. */
static int check_following(Layer *layer) {
    const Layer *next = layer->following;
    if (!next) return 1;
    if (next->weights.inputs != layer->weights.outputs || next->first ||
        next->image.rows != pooled_side(layer->positions.rows, next->pool.rows, next->pool.step_rows) ||
        next->image.columns != pooled_side(layer->positions.columns, next->pool.columns, next->pool.step_columns))
        return refuse(layer, "following receives images of another shape");
    if (next->images != layer->images || next->training != layer->training || next->largest != layer->largest ||
        next->is_signed == layer->relu || next->kernels != layer->kernels)
        return refuse(layer, "following differs in images, training, largest, signs or instructions");
    return 1;
}

static int take_instructions(Layer *layer, const char *name) {
    for (int i = 0; (layer->kernels = kernels_at(i)); i++)
        if (!strcmp(layer->kernels->name, name)) return 1;
    snprintf(layer->fault, FAULT, "instructions '%.40s' are not of this CPU", name);
    return 0;
}

static void derive(Layer *layer) {
    Weights *w = &layer->weights;
    w->taps = layer->kernel.rows * layer->kernel.columns;
    w->padded_outputs = padded(w->outputs, CHANNELS);
    w->padded_inputs = padded(w->inputs, layer->first ? 4 : CHANNELS);
    /* Two columns at a time, with four products in place of six (see pairs.h). */
    layer->paired = !layer->flat && !layer->is_signed && layer->kernel.columns == 3 && layer->stride.rows == 1 &&
                    layer->stride.columns == 1 && layer->positions.columns % 2 == 0;
    /* Signed codes come in two parts, and a block may be one vector. */
    const int both = 2 * w->padded_inputs;
    layer->gradient_inputs = !layer->is_signed             ? w->padded_inputs
                             : both == layer->kernels->lanes ? both
                                                             : padded(both, CHANNELS);
}

int build(Layer *layer, const char *instructions) {
    layer->depth = layer->following ? layer->following->depth + 1 : 1;
    if (!within(layer, "layers from here to the last", layer->depth, 1, LAYERS)) return 0;
    const Window p = layer->pool;
    layer->pooled = p.rows != 1 || p.columns != 1 || p.step_rows != 1 || p.step_columns != 1;
    if (!take_instructions(layer, instructions) || !check_facts(layer)) return 0;
    const Sides over = {layer->image.rows + 2 * layer->padding.rows - layer->kernel.rows,
                        layer->image.columns + 2 * layer->padding.columns - layer->kernel.columns};
    layer->positions = (Sides){over.rows / layer->stride.rows + 1, over.columns / layer->stride.columns + 1};
    if (!check_products(layer)) return 0;
    derive(layer);
    if (!check_following(layer)) return 0;
    want_memory(layer);
    return 1;
}
