/* What a layer computes. Its memory fits its facts, so a call checks no more than the number of images. */
#include "layer.h"

#include <float.h>
#include <string.h>

static Layer *self_of(PyObject *self) { return (Layer *)self; }

static int check_images(const Layer *layer, int n) { return within("n", n, 1, layer->images); }

static int check_training(const Layer *layer) {
    return layer->training || refuse("the layer was built without training");
}

static int check_below(const Layer *layer) {
    return layer->first ? refuse("the first layer has no errors below") : check_training(layer);
}

/* Take a layer, and a neighbour where there is one, for this thread alone; done() gives them back. Both are called
   with the interpreter held, which makes them safe. */
static int begin(Layer *layer, Layer *neighbour) {
    if (layer->busy || (neighbour && neighbour->busy)) {
        PyErr_SetString(PyExc_RuntimeError, "another thread computes in this layer");
        return 0;
    }
    layer->busy = 1;
    if (neighbour) neighbour->busy = 1;
    return 1;
}

static void done(Layer *layer, Layer *neighbour) {
    layer->busy = 0;
    if (neighbour) neighbour->busy = 0;
}

/* How many pairs of products with ternary weights a 16-bit sum can hold, of bytes so much above the codes. */
static int run_of(const Layer *layer, int above) { return INT16_MAX / (2 * (layer->largest + above)); }

/* What the bytes that are multiplied are above the codes. */
static int offset_of(const Layer *layer) { return layer->paired ? layer->largest : layer->is_signed ? OFFSET : 0; }

static PyObject *load(PyObject *self, PyObject *args) {
    Layer *layer = self_of(self);
    Py_buffer images;
    int n;
    if (!PyArg_ParseTuple(args, "y*i", &images, &n)) return NULL;
    const Size values = (Size)layer->weights.inputs * layer->image.rows * layer->image.columns;
    const int ok = (layer->first || refuse("images are for the first layer")) && check_images(layer, n) &&
                   check_numbers("images", &images, n * values, sizeof(float)) && begin(layer, NULL);
    if (ok) {
        const Box box = {n, layer->image.rows, layer->image.columns, layer->weights.inputs, layer->received.at};
        uint8_t *codes = (uint8_t *)memory_of(layer, RECEIVED) + layer->received.inside;
        Py_BEGIN_ALLOW_THREADS
        load_images(images.buf, box.channels, (float)(layer->largest + 1), codes, box);
        Py_END_ALLOW_THREADS
        done(layer, NULL);
    }
    PyBuffer_Release(&images);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyObject *pack(PyObject *self, PyObject *args) {
    (void)args;
    Layer *layer = self_of(self);
    const Weights w = layer->weights;
    const int lanes = layer->kernels->lanes, limit = (layer->largest + 1) / 2; /* Q_Int2, halves to even */
    int8_t *ternary = memory_of(layer, TERNARY), *back = memory_of(layer, BACK_WEIGHTS);
    if (!begin(layer, NULL)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    ternarize(layer->codes.buf, w, limit, ternary);
    (layer->paired ? pack_pairs : pack_forward)(ternary, w, lanes, offset_of(layer), memory_of(layer, WEIGHTS),
                                                memory_of(layer, START));
    if (back) pack_backward(ternary, w, lanes, layer->flat, back, memory_of(layer, BACK_START));
    Py_END_ALLOW_THREADS
    done(layer, NULL);
    Py_RETURN_NONE;
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

static PyObject *forward(PyObject *self, PyObject *args) {
    Layer *layer = self_of(self);
    int n, record, failed = 0;
    if (!PyArg_ParseTuple(args, "ip", &n, &record)) return NULL;
    if (!check_images(layer, n) || (record && !check_training(layer))) return NULL;
    const int at_once = !record && can_pool(layer);
    if (!begin(layer, layer->following)) return NULL;
    layer->recorded = 0;
    Py_BEGIN_ALLOW_THREADS
    if (record) failed = keep_received(layer, n);
    multiply(layer, n, record, at_once);
    if (layer->following && layer->following->pooled && !at_once) pool_into(layer, layer->following, n, record);
    Py_END_ALLOW_THREADS
    done(layer, layer->following);
    if (failed) return PyErr_NoMemory();
    if (record) layer->recorded = n;
    Py_RETURN_NONE;
}

static PyObject *backward(PyObject *self, PyObject *args) {
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

static PyObject *spread_errors(PyObject *self, PyObject *args) {
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

static PyObject *gradient(PyObject *self, PyObject *args) {
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

static PyObject *update_codes(PyObject *self, PyObject *args) {
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

static PyObject *memory(PyObject *self, PyObject *args) {
    const char *name;
    return PyArg_ParseTuple(args, "s", &name) ? show_memory(self_of(self), name) : NULL;
}

PyMethodDef layer_methods[] = {
    {"load", load, METH_VARARGS, "load(images, n): codes of float images."},
    {"pack", pack, METH_NOARGS, "pack(): ternary weights in the order in which they are multiplied."},
    {"forward", forward, METH_VARARGS, "forward(n, record): codes of the outputs, and where gradients pass."},
    {"gradient", gradient, METH_VARARGS, "gradient(from, n): of the weights; returns the largest magnitude."},
    {"backward", backward, METH_VARARGS, "backward(n): errors of the inputs; returns the largest magnitude."},
    {"spread", spread_errors, METH_VARARGS, "spread(n, up, before): their codes, as the errors of the layer before."},
    {"update", update_codes, METH_VARARGS, "update(mantissa, exponent, uniform): the integer update rule."},
    {"memory", memory, METH_VARARGS, "memory(name): a view of a part of the memory, None where there is none."},
    {NULL, NULL, 0, NULL},
};
