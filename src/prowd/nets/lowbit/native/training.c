/* What a layer computes when it learns: errors, gradients, and the update of its codes. */
#include "layer.h"

#include <float.h>
#include <string.h>

static int check_below(const Layer *layer) {
    return layer->first ? refuse("the first layer has no errors below") : check_training(layer);
}

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

PyObject *layer_backward(PyObject *self, PyObject *args) {
    Layer *layer = self_of(self);
    int n;
    if (!PyArg_ParseTuple(args, "i", &n)) return NULL;
    if (!check_below(layer) || !check_images(layer, n) || !begin(layer, NULL)) return NULL;
    const Products p = backward_products(layer, n);
    Backward b = {memory_of(layer, BELOW), memory_of(layer, PASSES), 0};
    Py_BEGIN_ALLOW_THREADS
    layer->kernels->backward(&p, &b);
    Py_END_ALLOW_THREADS
    done(layer, NULL);
    return PyLong_FromLong(b.largest);
}

PyObject *layer_spread(PyObject *self, PyObject *args) {
    Layer *layer = self_of(self);
    PyObject *object;
    int n, up;
    if (!PyArg_ParseTuple(args, "iiO!", &n, &up, layer_type, &object)) return NULL;
    Layer *before = self_of(object);
    if (!check_below(layer) || !check_images(layer, n) || !within("up", up, -31, 31)) return NULL;
    if (before->following != layer && !refuse("before is not the layer that this one follows")) return NULL;
    if (!begin(layer, before)) return NULL;
    const Strides at = every(before->errors.at, before->stride);
    const Box box = {n, layer->image.rows, layer->image.columns, layer->weights.padded_inputs, at};
    uint8_t *out = (uint8_t *)memory_of(before, ERRORS) + before->errors.inside;
    const int32_t *errors = memory_of(layer, BELOW);
    Py_BEGIN_ALLOW_THREADS
    if (layer->pooled)
        spread_pooled(errors, up, layer->largest, memory_of(layer, WINNERS), layer->pool, out, box);
    else
        spread(errors, up, layer->largest, out, box);
    Py_END_ALLOW_THREADS
    done(layer, before);
    Py_RETURN_NONE;
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

PyObject *layer_gradient(PyObject *self, PyObject *args) {
    Layer *layer = self_of(self);
    int from, n, failed;
    int32_t largest = 0;
    if (!PyArg_ParseTuple(args, "ii", &from, &n)) return NULL;
    const Size each = (Size)layer->positions.rows * layer->positions.columns * layer->largest * layer->largest;
    if (!check_training(layer) || !within("from", from, 0, layer->recorded) ||
        !within("n", n, 1, layer->recorded - from) || !within("n", n, 1, INT32_MAX / each))
        return NULL;
    if (from % 4) return PyErr_Format(PyExc_ValueError, "from is %d; accepted: a multiple of four", from);
    if (!begin(layer, NULL)) return NULL;
    const Weights w = layer->weights;
    int32_t *g = memory_of(layer, GRADIENT);
    Py_BEGIN_ALLOW_THREADS
    memset(g, 0, (size_t)layer->memory[GRADIENT].buffer.len);
    failed = add_gradient(layer, from, n);
    largest = join_gradient(g, (ptrdiff_t)w.padded_outputs * w.taps, w.padded_inputs, layer->gradient_inputs,
                            layer->is_signed);
    Py_END_ALLOW_THREADS
    done(layer, NULL);
    return failed ? PyErr_NoMemory() : PyLong_FromLong(largest);
}

PyObject *layer_update(PyObject *self, PyObject *args) {
    Layer *layer = self_of(self);
    Py_buffer uniform;
    int mantissa, exponent, failed = 0;
    if (!PyArg_ParseTuple(args, "iiy*", &mantissa, &exponent, &uniform)) return NULL;
    /* No factor is so large that its product with nothing is not nothing. */
    const int ok = check_training(layer) && within("mantissa", mantissa, 1, UINT8_MAX) &&
                   within("exponent", exponent, INT16_MIN, DBL_MAX_EXP - 9) &&
                   check_numbers("uniform", &uniform, weights_of(layer), sizeof(float)) && begin(layer, NULL);
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failed = update(layer->codes.buf, layer->weights, memory_of(layer, GRADIENT), layer->gradient_inputs, mantissa, exponent,
                        uniform.buf, layer->largest);
        Py_END_ALLOW_THREADS
        done(layer, NULL);
    }
    PyBuffer_Release(&uniform);
    if (failed) return PyErr_NoMemory();
    if (!ok) return NULL;
    Py_RETURN_NONE;
}
