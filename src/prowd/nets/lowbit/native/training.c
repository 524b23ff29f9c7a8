/* What a layer computes when it learns: errors, gradients, and the update of its codes. */
#include "layer.h"

#include <string.h>

static Products backward_products(const Layer *layer, int n) {
    const Weights *w = &layer->weights;
    const int outputs = layer->flat ? w->taps * w->padded_inputs : w->padded_inputs;
    return (Products){
        .x = memory_of(layer, ERRORS),
        .at = layer->errors.at,
        .images = n,
        .rows = layer->flat ? 1 : layer->image.rows,
        .columns = layer->flat ? 1 : layer->image.columns,
        .taps = layer->rows_of_error,
        .tap_count = layer->flat ? 1 : layer->kernel.rows,
        .groups = (layer->flat ? 1 : layer->kernel.columns) * w->padded_outputs / 4,
        .run = run_of(layer, OFFSET),
        .weights = memory_of(layer, BACK_WEIGHTS),
        .start = memory_of(layer, BACK_START),
        .outputs = outputs,
    };
}

int may_backward(Layer *layer, int n) {
    if (layer->first) return refuse(layer, "the first layer has no errors below");
    return (layer->training || untrained(layer)) && within(layer, "n", n, 1, layer->images);
}

int32_t backward(const Layer *layer, int n) {
    const Products p = backward_products(layer, n);
    Backward b = {memory_of(layer, BELOW), memory_of(layer, PASSES), 0};
    layer->kernels->backward(&p, &b);
    return b.largest;
}

int may_spread(Layer *layer, int n, int up, const Layer *before) {
    return may_backward(layer, n) && within(layer, "up", up, -31, 31) &&
           (before->following == layer || refuse(layer, "before is not the layer that this one follows"));
}

void spread(const Layer *layer, int n, int up, const Layer *before) {
    const Strides at = every(before->errors.at, before->stride);
    const Box box = {n, layer->image.rows, layer->image.columns, layer->weights.padded_inputs, at};
    uint8_t *out = (uint8_t *)memory_of(before, ERRORS) + before->errors.inside;
    const int32_t *errors = memory_of(layer, BELOW);
    if (layer->pooled)
        spread_pooled(errors, up, layer->largest, memory_of(layer, WINNERS), layer->pool, out, box);
    else
        spread_errors(errors, up, layer->largest, out, box);
}

/* Of some images, the first of which is a multiple of four. -1: no memory. */
static int add_gradient(const Layer *layer, int from, int n) {
    const Weights *w = &layer->weights;
    const Size pixels = (Size)layer->errors.size.rows * layer->errors.size.columns;
    const uint8_t *errors = (const uint8_t *)memory_of(layer, ERRORS) + from * layer->errors.at.image;
    const Fours *a = &layer->received_fours, *e = &layer->error_fours;
    const Gradient q = {
        .a = (const uint8_t *)memory_of(layer, RECEIVED_FOURS) + from / 4 * a->at.image,
        .a_at = every(a->at, layer->stride),
        .a_block = a->block,
        .e = (const int8_t *)memory_of(layer, ERROR_FOURS) + e->inside,
        .e_at = every(e->at, layer->stride),
        .e_block = e->block,
        .fours = (n + 3) / 4,
        .rows = layer->positions.rows,
        .columns = layer->positions.columns,
        .taps = layer->taps,
        .tap_count = w->taps,
        .inputs = layer->gradient_inputs,
        .outputs = w->padded_outputs,
        .largest = layer->largest,
        .g = memory_of(layer, GRADIENT),
    };
    if (interleave(errors, n, pixels, w->padded_outputs, w->padded_outputs, SIGNED, memory_of(layer, ERROR_FOURS)))
        return -1;
    layer->kernels->gradient(&q);
    return 0;
}

int may_gradient(Layer *layer, int from, int n) {
    const Size each = (Size)layer->positions.rows * layer->positions.columns * layer->largest * layer->largest;
    return (layer->training || untrained(layer)) && within(layer, "from", from, 0, layer->recorded) &&
           within(layer, "n", n, 1, layer->recorded - from) && within(layer, "n", n, 1, INT32_MAX / each) &&
           (from % 4 == 0 || refuse(layer, "from is wrong; accepted: a multiple of four"));
}

int32_t gradient(const Layer *layer, int from, int n) {
    const Weights w = layer->weights;
    int32_t *g = memory_of(layer, GRADIENT);
    memset(g, 0, (size_t)layer->memory[GRADIENT].bytes);
    if (add_gradient(layer, from, n)) return -1;
    return join_gradient(g, (ptrdiff_t)w.padded_outputs * w.taps, w.padded_inputs, layer->gradient_inputs,
                         layer->is_signed);
}

int may_update(Layer *layer, prowd_rate rate, int size) {
    return (layer->training || untrained(layer)) && within(layer, "mantissa", rate.mantissa, 1, UINT8_MAX) &&
           within(layer, "exponent", rate.exponent, INT16_MIN, INT16_MAX) && within(layer, "size", size, 0, INT32_MAX);
}

int update(const Layer *layer, prowd_rate rate, int size, const prowd_draws *draws, uint32_t number) {
    return update_codes(layer->codes, layer->weights, memory_of(layer, GRADIENT), layer->gradient_inputs, size, rate,
                        draws, number, layer->largest);
}
