/* The memory of a layer: what it wants, how large, and what lies in it before anything is computed. */
#include "layer.h"

#include <stdlib.h>
#include <string.h>

enum { PAIRED_POSITIONS = 64 }; /* positions of images that are paired together, at least */

/* A dimension of zero ends the shape. */
static void want(Layer *layer, enum Purpose purpose, char format, Size a, Size b, Size c, Size d) {
    Memory *memory = &layer->memory[purpose];
    const Size shape[4] = {a, b, c, d};
    Size bytes = format == 'i' ? 4 : 1;
    memory->format = format;
    for (int i = 0; i < 4 && shape[i]; i++) {
        memory->shape[memory->dimensions++] = shape[i];
        if (__builtin_mul_overflow(bytes, shape[i], &bytes)) bytes = PTRDIFF_MAX; /* which nobody has */
    }
    memory->bytes = bytes;
}

static void want_grid(Layer *layer, enum Purpose purpose, Grid *grid, Sides size, Sides before, int channels) {
    want(layer, purpose, 'B', layer->images, size.rows, size.columns, channels);
    grid->size = size, grid->channels = channels;
    grid->at.column = channels;
    grid->at.row = size.columns * grid->at.column;
    grid->at.image = size.rows * grid->at.row;
    grid->inside = before.rows * grid->at.row + before.columns * grid->at.column;
}

static void want_fours(Layer *layer, enum Purpose purpose, Fours *fours, const Grid *grid, Sides before, int channels) {
    const int block = channels < CHANNELS ? channels : CHANNELS;
    const Size area = (Size)grid->size.rows * grid->size.columns, groups = ((Size)layer->images + 3) / 4;
    want(layer, purpose, 'B', groups, channels / block, area, 4 * block);
    fours->at.column = 4 * block;
    fours->at.row = grid->size.columns * fours->at.column;
    fours->at.image = 4 * area * channels;
    fours->block = area * fours->at.column;
    fours->inside = before.rows * fours->at.row + before.columns * fours->at.column;
}

/* Every image has a border as wide as the padding, which is filled once and never written. */
static void want_forward(Layer *layer) {
    const Weights *w = &layer->weights;
    const Sides received = {layer->image.rows + 2 * layer->padding.rows,
                            layer->image.columns + 2 * layer->padding.columns};
    const Size each = (Size)w->taps * w->padded_inputs, parts = layer->paired ? 4 : 1;
    want_grid(layer, RECEIVED, &layer->received, received, layer->padding, w->padded_inputs);
    want(layer, TERNARY, 'b', w->padded_outputs, each, 0, 0);
    want(layer, WEIGHTS, 'b', parts, w->padded_outputs, layer->paired ? each / 3 : each, 0);
    want(layer, START, 'i', parts, w->padded_outputs, 0, 0);
    if (!layer->following || layer->following->pooled)
        want_grid(layer, GIVEN, &layer->given, layer->positions, (Sides){0, 0}, w->padded_outputs);
    if (!layer->paired) return;
    const Size positions = (Size)layer->positions.rows * layer->positions.columns;
    Size together = (PAIRED_POSITIONS + positions - 1) / positions; /* few enough to stay in the caches */
    if (together > layer->images) together = layer->images;
    want(layer, ROOM, 'B', together, layer->positions.rows + layer->kernel.rows - 1, layer->positions.columns / 2,
         4 * (Size)w->padded_inputs);
}

static void want_backward(Layer *layer) {
    const Weights *w = &layer->weights;
    const Sides image = layer->image, kernel = layer->kernel, one = {1, 1};
    const Sides around = {kernel.rows - 1 - layer->padding.rows, kernel.columns - 1 - layer->padding.columns};
    const Sides before = layer->flat ? (Sides){0, 0} : around;
    const Sides errors = {image.rows + kernel.rows - 1, image.columns + kernel.columns - 1};
    const Sides at_once = layer->flat ? image : one; /* errors that a window gives at once */
    want_grid(layer, ERRORS, &layer->errors, layer->flat ? one : errors, before, w->padded_outputs);
    want_fours(layer, ERROR_FOURS, &layer->error_fours, &layer->errors, before, w->padded_outputs);
    want_fours(layer, RECEIVED_FOURS, &layer->received_fours, &layer->received, (Sides){0, 0}, layer->gradient_inputs);
    want(layer, GRADIENT, 'i', w->padded_outputs, w->taps, layer->gradient_inputs, 0);
    if (layer->memory[GIVEN].bytes)
        want(layer, GIVEN_PASSES, 'B', layer->images, layer->positions.rows, layer->positions.columns,
             w->padded_outputs);
    if (layer->first) return; /* nobody asks for the errors of the images */
    want(layer, PASSES, 'B', layer->images, image.rows, image.columns, w->padded_inputs);
    want(layer, BELOW, 'i', layer->images, image.rows, image.columns, w->padded_inputs);
    want(layer, BACK_WEIGHTS, 'b', w->padded_outputs, (Size)w->taps * w->padded_inputs, 0, 0);
    want(layer, BACK_START, 'i', at_once.rows, at_once.columns, w->padded_inputs, 0);
    if (layer->pooled) want(layer, WINNERS, 'B', layer->images, image.rows, image.columns, w->padded_inputs);
}

void want_memory(Layer *layer) {
    want_forward(layer);
    if (layer->training) want_backward(layer);
}

static void fill(const Layer *layer, enum Purpose purpose, int value) {
    const Memory *memory = &layer->memory[purpose];
    if (memory->bytes) memset(memory->data, value, (size_t)memory->bytes);
}

/* Borders, and nothing to learn yet; where the rows of a window lie, seen from a position, and the places of a window
   of four images. */
int prepare(Layer *layer) {
    const int rows = layer->kernel.rows, columns = layer->kernel.columns;
    fill(layer, RECEIVED, layer->is_signed ? OFFSET : 0);
    fill(layer, GIVEN, 0), fill(layer, ERRORS, OFFSET), fill(layer, GRADIENT, 0);
    layer->rows_of_window = malloc(sizeof(ptrdiff_t) * (2 * (size_t)rows + (size_t)layer->weights.taps));
    if (!layer->rows_of_window) return -1;
    layer->rows_of_error = layer->rows_of_window + rows;
    layer->taps = layer->rows_of_error + rows;
    const Strides four = layer->received_fours.at;
    for (int y = 0; y < rows; y++) {
        layer->rows_of_window[y] = y * layer->received.at.row;
        layer->rows_of_error[y] = y * layer->errors.at.row;
        for (int x = 0; x < columns; x++) layer->taps[y * columns + x] = y * four.row + x * four.column;
    }
    return 0;
}

void release(Layer *layer) { free(layer->rows_of_window); }
