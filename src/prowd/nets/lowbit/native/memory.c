/* The memory of a layer: what there is, how large, and what lies in it before anything is computed. */
#include "layer.h"

#include <stdlib.h>
#include <string.h>

enum { PAIRED_POSITIONS = 64 }; /* positions of images that are paired together, at least */

static const char *const purposes[PURPOSES] = {
    "received", "passes", "winners", "given", "given_passes", "ternary", "weights", "start", "room",
    "errors", "received_fours", "error_fours", "gradient", "below", "back_weights", "back_start",
};

/* A dimension of zero ends the shape. */
static int allocate(Layer *layer, enum Purpose purpose, char format, Size a, Size b, Size c, Size d) {
    Memory *memory = &layer->memory[purpose];
    const Size shape[4] = {a, b, c, d};
    Size bytes = format == 'i' ? 4 : 1;
    memory->format = format;
    for (int i = 0; i < 4 && shape[i]; i++) {
        memory->shape[memory->dimensions++] = shape[i];
        if (__builtin_mul_overflow(bytes, shape[i], &bytes)) {
            PyErr_NoMemory();
            return 0;
        }
    }
    PyObject *owner = PyByteArray_FromStringAndSize(NULL, bytes);
    if (!owner) return 0;
    const int failed = PyObject_GetBuffer(owner, &memory->buffer, PyBUF_CONTIG);
    Py_DECREF(owner); /* the buffer holds it */
    if (failed) memory->buffer.obj = NULL; /* nothing to release */
    return !failed;
}

static int allocate_grid(Layer *layer, enum Purpose purpose, Grid *grid, Sides size, Sides before, int channels,
                         int blank) {
    if (!allocate(layer, purpose, 'B', layer->images, size.rows, size.columns, channels)) return 0;
    grid->size = size, grid->channels = channels;
    grid->at.column = channels;
    grid->at.row = size.columns * grid->at.column;
    grid->at.image = size.rows * grid->at.row;
    grid->inside = before.rows * grid->at.row + before.columns * grid->at.column;
    memset(memory_of(layer, purpose), blank, (size_t)layer->memory[purpose].buffer.len);
    return 1;
}

static int allocate_fours(Layer *layer, enum Purpose purpose, Fours *fours, const Grid *grid, Sides before,
                          int channels) {
    const int block = channels < CHANNELS ? channels : CHANNELS;
    const Size area = (Size)grid->size.rows * grid->size.columns, groups = ((Size)layer->images + 3) / 4;
    if (!allocate(layer, purpose, 'B', groups, channels / block, area, 4 * block)) return 0;
    fours->at.column = 4 * block;
    fours->at.row = grid->size.columns * fours->at.column;
    fours->at.image = 4 * area * channels;
    fours->block = area * fours->at.column;
    fours->inside = before.rows * fours->at.row + before.columns * fours->at.column;
    return 1;
}

/* Every image has a border as wide as the padding, which is filled here and never written. */
static int allocate_forward(Layer *layer) {
    const Weights *w = &layer->weights;
    const Sides received = {layer->image.rows + 2 * layer->padding.rows,
                            layer->image.columns + 2 * layer->padding.columns};
    const Size each = (Size)w->taps * w->padded_inputs, parts = layer->paired ? 4 : 1;
    if (!allocate_grid(layer, RECEIVED, &layer->received, received, layer->padding, w->padded_inputs,
                       layer->is_signed ? OFFSET : 0) ||
        !allocate(layer, TERNARY, 'b', w->padded_outputs, each, 0, 0) ||
        !allocate(layer, WEIGHTS, 'b', parts, w->padded_outputs, layer->paired ? each / 3 : each, 0) ||
        !allocate(layer, START, 'i', parts, w->padded_outputs, 0, 0))
        return 0;
    if (!layer->following || layer->following->pooled) {
        if (!allocate_grid(layer, GIVEN, &layer->given, layer->positions, (Sides){0, 0}, w->padded_outputs, 0)) return 0;
    }
    if (!layer->paired) return 1;
    const Size positions = (Size)layer->positions.rows * layer->positions.columns;
    Size together = (PAIRED_POSITIONS + positions - 1) / positions; /* few enough to stay in the caches */
    if (together > layer->images) together = layer->images;
    return allocate(layer, ROOM, 'B', together, layer->positions.rows + layer->kernel.rows - 1,
                    layer->positions.columns / 2, 4 * (Size)w->padded_inputs);
}

static int allocate_backward(Layer *layer) {
    const Weights *w = &layer->weights;
    const Sides image = layer->image, kernel = layer->kernel, one = {1, 1};
    const Sides around = {kernel.rows - 1 - layer->padding.rows, kernel.columns - 1 - layer->padding.columns};
    const Sides before = layer->flat ? (Sides){0, 0} : around;
    const Sides errors = {image.rows + kernel.rows - 1, image.columns + kernel.columns - 1};
    const Sides at_once = layer->flat ? image : one; /* errors that a window gives at once */
    if (!allocate_grid(layer, ERRORS, &layer->errors, layer->flat ? one : errors, before, w->padded_outputs, OFFSET) ||
        !allocate_fours(layer, ERROR_FOURS, &layer->error_fours, &layer->errors, before, w->padded_outputs) ||
        !allocate_fours(layer, RECEIVED_FOURS, &layer->received_fours, &layer->received, (Sides){0, 0},
                        layer->gradient_inputs) ||
        !allocate(layer, GRADIENT, 'i', w->padded_outputs, w->taps, layer->gradient_inputs, 0))
        return 0;
    memset(memory_of(layer, GRADIENT), 0, (size_t)layer->memory[GRADIENT].buffer.len); /* nothing to learn yet */
    if (layer->memory[GIVEN].buffer.buf &&
        !allocate(layer, GIVEN_PASSES, 'B', layer->images, layer->positions.rows, layer->positions.columns,
                  w->padded_outputs))
        return 0;
    if (layer->first) return 1; /* nobody asks for the errors of the images */
    return allocate(layer, PASSES, 'B', layer->images, image.rows, image.columns, w->padded_inputs) &&
           allocate(layer, BELOW, 'i', layer->images, image.rows, image.columns, w->padded_inputs) &&
           allocate(layer, BACK_WEIGHTS, 'b', w->padded_outputs, (Size)w->taps * w->padded_inputs, 0, 0) &&
           allocate(layer, BACK_START, 'i', at_once.rows, at_once.columns, w->padded_inputs, 0) &&
           (!layer->pooled ||
            allocate(layer, WINNERS, 'B', layer->images, image.rows, image.columns, w->padded_inputs));
}

/* Where the rows of a window lie, seen from a position, and the places of a window of four images. */
static int allocate_taps(Layer *layer) {
    const int rows = layer->kernel.rows, columns = layer->kernel.columns;
    layer->rows_of_window = malloc(sizeof(ptrdiff_t) * (2 * (size_t)rows + (size_t)layer->weights.taps));
    if (!layer->rows_of_window) {
        PyErr_NoMemory();
        return 0;
    }
    layer->rows_of_error = layer->rows_of_window + rows;
    layer->taps = layer->rows_of_error + rows;
    const Strides four = layer->received_fours.at;
    for (int y = 0; y < rows; y++) {
        layer->rows_of_window[y] = y * layer->received.at.row;
        layer->rows_of_error[y] = y * layer->errors.at.row;
        for (int x = 0; x < columns; x++) layer->taps[y * columns + x] = y * four.row + x * four.column;
    }
    return 1;
}

int allocate_memory(Layer *layer) {
    return allocate_forward(layer) && (!layer->training || allocate_backward(layer)) && allocate_taps(layer);
}

void free_memory(Layer *layer) {
    for (int i = 0; i < PURPOSES; i++) PyBuffer_Release(&layer->memory[i].buffer);
    free(layer->rows_of_window);
}

PyObject *show_memory(const Layer *layer, const char *name) {
    for (int i = 0; i < PURPOSES; i++) {
        const Memory *memory = &layer->memory[i];
        if (strcmp(purposes[i], name)) continue;
        if (!memory->buffer.buf) Py_RETURN_NONE;
        PyObject *shape = PyTuple_New(memory->dimensions), *bytes = PyMemoryView_FromObject(memory->buffer.obj);
        for (int d = 0; shape && d < memory->dimensions; d++) {
            PyObject *size = PyLong_FromSsize_t(memory->shape[d]);
            if (!size || PyTuple_SetItem(shape, d, size) < 0) Py_CLEAR(shape);
        }
        const char format[2] = {memory->format, 0};
        PyObject *view = shape && bytes ? PyObject_CallMethod(bytes, "cast", "sO", format, shape) : NULL;
        Py_XDECREF(shape);
        Py_XDECREF(bytes);
        return view;
    }
    return PyErr_Format(PyExc_ValueError, "a layer has no memory called '%s'", name);
}
