/* The methods of the type: arguments are asked for, the interpreter is let go, and the layer computes. */
#include "object.h"

static PyObject *method_load(PyObject *self, PyObject *args) {
    Object *object = object_of(self);
    Layer *layer = &object->layer;
    Py_buffer images, table;
    int n;
    if (!PyArg_ParseTuple(args, "y*y*i", &images, &table, &n)) return NULL;
    const Size values = (Size)layer->weights.inputs * layer->image.rows * layer->image.columns;
    const int ok = (may_load(layer, n) || fault_of(layer)) &&
                   check_numbers("images", &images, n * values, sizeof(uint8_t)) &&
                   check_numbers("table", &table, UINT8_MAX + 1, sizeof(uint8_t)) && begin(object, NULL);
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        load(layer, images.buf, table.buf, n);
        Py_END_ALLOW_THREADS
        done(object, NULL);
    }
    PyBuffer_Release(&images);
    PyBuffer_Release(&table);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyObject *method_pack(PyObject *self, PyObject *args) {
    (void)args;
    Object *object = object_of(self);
    if (!begin(object, NULL)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    pack(&object->layer);
    Py_END_ALLOW_THREADS
    done(object, NULL);
    Py_RETURN_NONE;
}

static PyObject *method_forward(PyObject *self, PyObject *args) {
    Object *object = object_of(self);
    Layer *layer = &object->layer;
    int n, record, failed;
    if (!PyArg_ParseTuple(args, "ip", &n, &record)) return NULL;
    if (!may_forward(layer, n, record)) return fault_of(layer);
    if (!begin(object, object->following)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = forward(layer, n, record);
    Py_END_ALLOW_THREADS
    done(object, object->following);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *method_gradient(PyObject *self, PyObject *args) {
    Object *object = object_of(self);
    Layer *layer = &object->layer;
    int from, n;
    int32_t largest;
    if (!PyArg_ParseTuple(args, "ii", &from, &n)) return NULL;
    if (!may_gradient(layer, from, n)) return fault_of(layer);
    if (!begin(object, NULL)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    largest = gradient(layer, from, n);
    Py_END_ALLOW_THREADS
    done(object, NULL);
    return largest < 0 ? PyErr_NoMemory() : PyLong_FromLong(largest);
}

static PyObject *method_backward(PyObject *self, PyObject *args) {
    Object *object = object_of(self);
    Layer *layer = &object->layer;
    int n;
    int32_t largest;
    if (!PyArg_ParseTuple(args, "i", &n)) return NULL;
    if (!may_backward(layer, n)) return fault_of(layer);
    if (!begin(object, NULL)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    largest = backward(layer, n);
    Py_END_ALLOW_THREADS
    done(object, NULL);
    return PyLong_FromLong(largest);
}

static PyObject *method_spread(PyObject *self, PyObject *args) {
    Object *object = object_of(self), *before;
    Layer *layer = &object->layer;
    PyObject *other;
    int n, up;
    if (!PyArg_ParseTuple(args, "iiO!", &n, &up, layer_type, &other)) return NULL;
    before = object_of(other);
    if (!may_spread(layer, n, up, &before->layer)) return fault_of(layer);
    if (!begin(object, before)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    spread(layer, n, up, &before->layer);
    Py_END_ALLOW_THREADS
    done(object, before);
    Py_RETURN_NONE;
}

static PyObject *method_update(PyObject *self, PyObject *args) {
    Object *object = object_of(self);
    Layer *layer = &object->layer;
    prowd_rate rate;
    prowd_draws draws;
    unsigned int number;
    int size, failed;
    if (!PyArg_ParseTuple(args, "iiiIIII", &rate.mantissa, &rate.exponent, &size, &draws.key[0], &draws.key[1],
                          &draws.step, &number))
        return NULL;
    if (!may_update(layer, rate, size)) return fault_of(layer);
    if (!begin(object, NULL)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = update(layer, rate, size, &draws, number);
    Py_END_ALLOW_THREADS
    done(object, NULL);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *method_memory(PyObject *self, PyObject *args) {
    const char *name;
    return PyArg_ParseTuple(args, "s", &name) ? show_memory(object_of(self), name) : NULL;
}

PyMethodDef layer_methods[] = {
    {"load", method_load, METH_VARARGS, "load(images, table, n): codes of images of bytes, from a table of 256."},
    {"pack", method_pack, METH_NOARGS, "pack(): ternary weights in the order in which they are multiplied."},
    {"forward", method_forward, METH_VARARGS, "forward(n, record): codes of the outputs, and where gradients pass."},
    {"gradient", method_gradient, METH_VARARGS, "gradient(from, n): of the weights; returns the largest magnitude."},
    {"backward", method_backward, METH_VARARGS, "backward(n): errors of the inputs; returns the largest magnitude."},
    {"spread", method_spread, METH_VARARGS, "spread(n, up, before): their codes, as the errors of the layer before."},
    {"update", method_update, METH_VARARGS, "update(mantissa, exponent, size, key0, key1, step, number): the integer update rule."},
    {"memory", method_memory, METH_VARARGS, "memory(name): a view of a part of the memory, None where there is none."},
    {NULL, NULL, 0, NULL},
};
