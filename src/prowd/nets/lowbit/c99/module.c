/* The Python module over embedded/core: a network with its memory, and the smaller functions for tests. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "numbers.h"
#include "prowd.h"

enum { FACTS = sizeof(prowd_layer) / sizeof(int32_t), MOST_SIDE = 1 << 20, MOST_ERROR = 1 << 30 };

typedef struct {
    PyObject_HEAD
    prowd_net net;
    prowd_layer *layers;
    Py_buffer *weights; /* of every convolution */
    int16_t **codes;
    int convolutions;
    int32_t images, loaded;
    int training, recorded, busy;
    void *block, *memory; /* as allocated, and aligned */
} Net;

static int refuse(const char *what) {
    PyErr_SetString(PyExc_ValueError, what);
    return 0;
}

/* A contiguous, aligned buffer of `count` numbers of `size` bytes. */
static int take(PyObject *object, Py_buffer *view, const char *name, size_t count, size_t size, int writable) {
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO) < 0) {
        view->obj = NULL;
        return 0;
    }
    if (view->itemsize == (Py_ssize_t)size && (size_t)view->len == count * size && (uintptr_t)view->buf % size == 0)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: %zd bytes of items of %zd; accepted: %zu items of %zu, aligned", name, view->len,
                 view->itemsize, count, size);
    PyBuffer_Release(view);
    return 0;
}

/* Whether all numbers of a buffer are from `least` to `most`; otherwise the error is set. */
static int are_within(const Py_buffer *view, const char *name, int32_t least, int32_t most) {
    for (Py_ssize_t i = 0; i < view->len / view->itemsize; i++) {
        const int32_t number = view->itemsize == 2 ? ((const int16_t *)view->buf)[i] : ((const int32_t *)view->buf)[i];
        if (number >= least && number <= most) continue;
        PyErr_Format(PyExc_ValueError, "%s: %d; accepted: %d to %d", name, number, least, most);
        return 0;
    }
    return 1;
}

static int read_layer(PyObject *facts, prowd_layer *layer) {
    int32_t *to = (int32_t *)layer;
    if (!PyTuple_Check(facts) || PyTuple_Size(facts) != FACTS) return refuse("layers: accepted: tuples of 18 numbers");
    for (int i = 0; i < FACTS; i++) {
        const long value = PyLong_AsLong(PyTuple_GetItem(facts, i));
        if (value == -1 && PyErr_Occurred()) return 0;
        if (value < 0 || value > MOST_SIDE) return refuse("layers: a number is out of range");
        to[i] = (int32_t)value;
    }
    return 1;
}

/* Sizes whose products with the images stay far below 2^62. */
static int is_small(const prowd_layer *l, int32_t images) {
    const int64_t most = (int64_t)1 << 31;
    const int64_t received = (int64_t)l->rows * l->columns, given = (int64_t)l->out_rows * l->out_columns;
    const int64_t taps = (int64_t)l->kernel_rows * l->kernel_columns;
    if (received > most / l->inputs || given > most / l->outputs || taps > most / l->inputs) return 0;
    if (taps * l->inputs > most / l->outputs || l->pad_rows > 1024 || l->pad_columns > 1024) return 0;
    return received * l->inputs <= most * 64 / images && given * l->outputs <= most * 64 / images;
}

static int read_layers(Net *self, PyObject *layers) {
    if (!PyTuple_Check(layers)) return refuse("layers: accepted: a tuple");
    const Py_ssize_t count = PyTuple_Size(layers);
    if (count < 1 || count > PROWD_MOST_LAYERS) return refuse("layers: accepted: 1 to 256");
    self->layers = PyMem_Calloc((size_t)count, sizeof *self->layers);
    if (!self->layers) return PyErr_NoMemory() != NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!read_layer(PyTuple_GetItem(layers, i), self->layers + i)) return 0;
    self->net.count = (int32_t)count;
    self->net.layers = self->layers;
    const int wrong = prowd_check(&self->net);
    for (int32_t i = 0; !wrong && i < self->net.count; i++)
        if (!is_small(self->layers + i, self->images)) return refuse("layers: too large");
    if (!wrong) return 1;
    PyErr_Format(PyExc_ValueError, "layer %d: its sizes do not fit, or its sums do not fit 32 bits", wrong);
    return 0;
}

static int take_weights(Net *self, PyObject *weights) {
    int count = 0;
    for (int32_t i = 0; i < self->net.count; i++) count += self->layers[i].kind == PROWD_CONV;
    if (!PyTuple_Check(weights) || PyTuple_Size(weights) != count) return refuse("weights: accepted: one a convolution");
    self->weights = PyMem_Calloc((size_t)count, sizeof *self->weights);
    self->codes = PyMem_Calloc((size_t)count, sizeof *self->codes);
    if (!self->weights || !self->codes) return PyErr_NoMemory() != NULL;
    for (int32_t i = 0; i < self->net.count; i++) {
        const prowd_layer *l = self->layers + i;
        if (l->kind != PROWD_CONV) continue;
        const size_t size = (size_t)l->outputs * (size_t)(l->inputs / l->groups) * (size_t)l->kernel_rows *
                            (size_t)l->kernel_columns;
        Py_buffer *view = self->weights + self->convolutions;
        if (!take(PyTuple_GetItem(weights, self->convolutions), view, "weights", size, sizeof(int16_t), 1)) return 0;
        self->codes[self->convolutions++] = view->buf;
    }
    return 1;
}

static int build(Net *self, PyObject *layers, PyObject *weights) {
    if (self->images < 1 || self->images > 1 << 20) return refuse("images: accepted: 1 to 1048576");
    if (!read_layers(self, layers) || !take_weights(self, weights)) return 0;
    const size_t size = prowd_memory(&self->net, self->images, self->training);
    self->block = PyMem_Malloc(size + 64);
    if (!self->block) return PyErr_NoMemory() != NULL;
    self->memory = (char *)self->block + (64 - (uintptr_t)self->block % 64);
    return 1;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"bits", "layers", "weights", "images", "training", NULL};
    const allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *layers, *weights;
    Net *self = (Net *)allocate(type, 0); /* all zeros */
    if (!self) return NULL;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "iOOip:Net", names, &self->net.bits, &layers, &weights,
                                    &self->images, &self->training) &&
        build(self, layers, weights))
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void destroy(PyObject *object) {
    Net *self = (Net *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < self->convolutions; i++) PyBuffer_Release(self->weights + i);
    PyMem_Free(self->weights);
    PyMem_Free(self->codes);
    PyMem_Free(self->layers);
    PyMem_Free(self->block);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* One thread at a time: the memory is one. */
static int enter(Net *self) {
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is using this network");
        return 0;
    }
    return self->busy = 1;
}

static PyObject *leave(Net *self, int fine) {
    self->busy = 0;
    return fine ? Py_NewRef(Py_None) : NULL;
}

static size_t classes(const Net *self) { return (size_t)self->layers[self->net.count - 1].outputs; }

static PyObject *forward(PyObject *object, PyObject *args) {
    Net *self = (Net *)object;
    PyObject *images, *table, *logits;
    Py_buffer bytes = {0}, codes = {0}, out = {0};
    int n;
    if (!PyArg_ParseTuple(args, "OOiO:forward", &images, &table, &n, &logits) || !enter(self)) return NULL;
    const prowd_layer *first = self->layers;
    const size_t size = (size_t)first->inputs * (size_t)first->rows * (size_t)first->columns;
    int fine = n >= 1 && n <= self->images ? 1 : refuse("images: more than there is memory for, or none");
    fine = fine && take(images, &bytes, "images", (size_t)n * size, 1, 0);
    const int32_t largest = prowd_max_code(self->net.bits);
    fine = fine && take(table, &codes, "table", 256, sizeof(int16_t), 0) &&
           are_within(&codes, "table", -largest, largest);
    fine = fine && take(logits, &out, "logits", (size_t)n * classes(self), sizeof(int16_t), 1);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        prowd_codes(bytes.buf, (size_t)n * size, codes.buf, self->memory);
        memcpy(out.buf,
               prowd_forward(&self->net, (const int16_t *const *)self->codes, n, self->memory, self->training),
               sizeof(int16_t) * (size_t)n * classes(self));
        Py_END_ALLOW_THREADS
        self->loaded = n;
        self->recorded = self->training;
    }
    if (bytes.obj) PyBuffer_Release(&bytes);
    if (codes.obj) PyBuffer_Release(&codes);
    if (out.obj) PyBuffer_Release(&out);
    return leave(self, fine);
}

static int take_errors(Net *self, PyObject *errors, Py_buffer *view) {
    if (!self->recorded) return refuse("a step follows a forward pass that was recorded");
    return take(errors, view, "errors", (size_t)self->loaded * classes(self), sizeof(int32_t), 0) &&
           are_within(view, "errors", -MOST_ERROR, MOST_ERROR);
}

static PyObject *learn(PyObject *object, PyObject *args) {
    Net *self = (Net *)object;
    PyObject *errors;
    Py_buffer view = {0};
    prowd_rate rate;
    prowd_draws draws;
    if (!PyArg_ParseTuple(args, "OiiIII:learn", &errors, &rate.mantissa, &rate.exponent, &draws.key[0], &draws.key[1],
                          &draws.step) ||
        !enter(self))
        return NULL;
    int fine = rate.mantissa >= 1 && rate.mantissa <= 255 && rate.exponent >= -256 && rate.exponent <= 256
                   ? 1
                   : refuse("rate: accepted: a mantissa of 1 to 255, an exponent of -256 to 256");
    fine = fine && take_errors(self, errors, &view);
    if (fine) {
        self->recorded = 0;
        Py_BEGIN_ALLOW_THREADS
        prowd_learn(&self->net, self->codes, self->loaded, self->memory, view.buf, rate, &draws);
        Py_END_ALLOW_THREADS
    }
    if (view.obj) PyBuffer_Release(&view);
    return leave(self, fine);
}

static PyObject *gradients(PyObject *object, PyObject *args) {
    Net *self = (Net *)object;
    PyObject *errors, *out;
    Py_buffer view = {0}, found = {0};
    size_t total = 0;
    if (!PyArg_ParseTuple(args, "OO:gradients", &errors, &out) || !enter(self)) return NULL;
    for (int i = 0; i < self->convolutions; i++) total += (size_t)self->weights[i].len / sizeof(int16_t);
    int fine = take_errors(self, errors, &view);
    fine = fine && take(out, &found, "gradients", total, sizeof(int64_t), 1);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        prowd_gradients(&self->net, (const int16_t *const *)self->codes, self->loaded, self->memory, view.buf,
                        found.buf);
        Py_END_ALLOW_THREADS
    }
    if (view.obj) PyBuffer_Release(&view);
    if (found.obj) PyBuffer_Release(&found);
    return leave(self, fine);
}

static PyMethodDef methods[] = {
    {"forward", forward, METH_VARARGS, "forward(images, table, n, logits): the logit codes of n images of bytes."},
    {"learn", learn, METH_VARARGS, "learn(errors, mantissa, exponent, key0, key1, step): one step of the weights."},
    {"gradients", gradients, METH_VARARGS, "gradients(errors, out): of all convolutions, first to last."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, make},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A network of s bits with the memory for so many images."},
    {0, NULL},
};

static PyType_Spec spec = {"prowd.nets.lowbit._core.Net", sizeof(Net), 0, Py_TPFLAGS_DEFAULT, slots};

static PyObject *cross_entropy(PyObject *module, PyObject *args) {
    PyObject *objects[5];
    Py_buffer low = {0}, high = {0}, logits = {0}, labels = {0}, errors = {0};
    int exponent, images, classes_;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOiOOiiO:cross_entropy", objects, objects + 1, &exponent, objects + 2, objects + 3,
                          &images, &classes_, objects + 4))
        return NULL;
    PyObject *sum = NULL;
    if ((images < 1 || classes_ < 1 || exponent < -31 || exponent > 31) && !refuse("images, classes or exponent"))
        return NULL;
    const size_t count = (size_t)images * (size_t)classes_;
    if (take(objects[0], &low, "low", 256, 4, 0) && take(objects[1], &high, "high", 256, 4, 0) &&
        take(objects[2], &logits, "logits", count, 2, 0) && take(objects[3], &labels, "labels", (size_t)images, 4, 0) &&
        are_within(&labels, "labels", 0, classes_ - 1) && take(objects[4], &errors, "errors", count, 4, 1)) {
        const prowd_softmax softmax = {low.buf, high.buf, exponent};
        sum = PyLong_FromLongLong(
            prowd_cross_entropy(&softmax, logits.buf, labels.buf, images, classes_, errors.buf));
    }
    Py_buffer *views[] = {&low, &high, &logits, &labels, &errors};
    for (int i = 0; i < 5; i++)
        if (views[i]->obj) PyBuffer_Release(views[i]);
    return sum;
}

static PyObject *permutation(PyObject *module, PyObject *args) {
    uint32_t key[2], epoch;
    PyObject *object;
    Py_buffer order = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "IIIO:permutation", key, key + 1, &epoch, &object)) return NULL;
    if (PyObject_GetBuffer(object, &order, PyBUF_CONTIG) < 0) return NULL;
    if (order.itemsize == 4) prowd_permutation(key, epoch, order.buf, (uint32_t)(order.len / 4));
    else refuse("order: accepted: items of 4 bytes");
    PyBuffer_Release(&order);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *augment(PyObject *module, PyObject *args) {
    PyObject *image, *turns, *out;
    Py_buffer from = {0}, table = {0}, to = {0};
    int channels, rows, columns, operations, is_signed;
    uint32_t key[2], step, number;
    (void)module;
    if (!PyArg_ParseTuple(args, "OiiiiOpIIIIO:augment", &image, &channels, &rows, &columns, &operations, &turns,
                          &is_signed, key, key + 1, &step, &number, &out))
        return NULL;
    const size_t size = (size_t)channels * (size_t)rows * (size_t)columns;
    const int is_image = channels > 0 && rows > 0 && columns > 0 && rows < 1 << 12 && columns < 1 << 12;
    int fine = is_image ? 1 : refuse("image: accepted: 1 to 4095 rows and columns");
    fine = fine && take(image, &from, "image", size, 1, 0) && take(turns, &table, "turns", 122, 2, 0) &&
           take(out, &to, "varied", size, 1, 1);
    if (fine)
        prowd_augment(from.buf, channels, rows, columns, operations, (const int16_t(*)[2])table.buf, is_signed, key, step,
                      number, to.buf);
    if (from.obj) PyBuffer_Release(&from);
    if (table.obj) PyBuffer_Release(&table);
    if (to.obj) PyBuffer_Release(&to);
    return fine ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef functions[] = {
    {"cross_entropy", cross_entropy, METH_VARARGS, "Fills the errors of a batch and returns the sum of its losses."},
    {"permutation", permutation, METH_VARARGS, "Fills the order of an epoch."},
    {"augment", augment, METH_VARARGS, "Fills a varied image."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "The client of s = 2..16 bits in portable C99.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = PyModule_Create(&definition), *type = module ? PyType_FromSpec(&spec) : NULL;
    if (!type || PyModule_AddObjectRef(module, "Net", type) < 0) Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
