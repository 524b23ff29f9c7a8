/* How a layer is made of Python's objects, and let go. */
#include "object.h"

#include <string.h>

PyTypeObject *layer_type;

static const char *const purposes[PURPOSES] = {
    "received", "passes", "winners", "given", "given_passes", "ternary", "weights", "start", "room",
    "errors", "received_fours", "error_fours", "gradient", "below", "back_weights", "back_start",
};

PyObject *fault_of(const Layer *layer) {
    PyErr_SetString(PyExc_ValueError, layer->fault);
    return NULL;
}

int check_numbers(const char *name, const Py_buffer *buffer, Size count, size_t bytes) {
    const Size all = count * (Size)bytes;
    if (buffer->len == all && (uintptr_t)buffer->buf % bytes == 0) return 1;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes; accepted: %zd, aligned to %zu", name, buffer->len, all, bytes);
    return 0;
}

int begin(Object *object, Object *neighbour) {
    if (object->busy || (neighbour && neighbour->busy)) {
        PyErr_SetString(PyExc_RuntimeError, "another thread computes in this layer");
        return 0;
    }
    object->busy = 1;
    if (neighbour) neighbour->busy = 1;
    return 1;
}

void done(Object *object, Object *neighbour) {
    object->busy = 0;
    if (neighbour) neighbour->busy = 0;
}

static int take_codes(Object *object, PyObject *codes) {
    if (PyObject_GetBuffer(codes, &object->codes, PyBUF_CONTIG) < 0) {
        object->codes.obj = NULL; /* nothing to release */
        return 0;
    }
    object->layer.codes = object->codes.buf;
    return check_numbers("codes", &object->codes, weights_of(&object->layer), sizeof(int16_t));
}

/* A bytearray that can't be resized, because its buffer is held. */
static int take_memory(Object *object, enum Purpose purpose) {
    Memory *memory = &object->layer.memory[purpose];
    PyObject *owner = PyByteArray_FromStringAndSize(NULL, memory->bytes);
    if (!owner) return 0;
    const int failed = PyObject_GetBuffer(owner, &object->memory[purpose], PyBUF_CONTIG);
    Py_DECREF(owner); /* the buffer holds it */
    if (failed) object->memory[purpose].obj = NULL; /* nothing to release */
    memory->data = object->memory[purpose].buf;
    return !failed;
}

static int assemble(Object *object, const char *instructions, PyObject *codes, PyObject *following) {
    Layer *layer = &object->layer;
    if (following != Py_None) {
        if (!PyObject_TypeCheck(following, layer_type)) {
            PyErr_SetString(PyExc_TypeError, "following is not a Layer");
            return 0;
        }
        object->following = object_of(Py_NewRef(following));
        layer->following = &object->following->layer;
    }
    if (!build(layer, instructions)) {
        fault_of(layer);
        return 0;
    }
    if (!take_codes(object, codes)) return 0;
    for (int i = 0; i < PURPOSES; i++)
        if (layer->memory[i].bytes && !take_memory(object, (enum Purpose)i)) return 0;
    if (!prepare(layer)) return 1;
    PyErr_NoMemory();
    return 0;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"instructions", "codes",   "images", "largest", "inputs", "outputs",
                            "image",        "kernel",  "stride", "padding", "pool",   "shift",
                            "flat",         "relu",    "signed", "first",   "training", "following", NULL};
    const char *instructions;
    PyObject *codes, *following;
    const allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Object *object = (Object *)allocate(type, 0); /* all zeros */
    if (!object) return NULL;
    Layer *layer = &object->layer;
    if (PyArg_ParseTupleAndKeywords(
            args, keywords, "sO$iiii(ii)(ii)(ii)(ii)(iiii)ipppppO:Layer", names, &instructions, &codes, &layer->images,
            &layer->largest, &layer->weights.inputs, &layer->weights.outputs, &layer->image.rows,
            &layer->image.columns, &layer->kernel.rows, &layer->kernel.columns, &layer->stride.rows,
            &layer->stride.columns, &layer->padding.rows, &layer->padding.columns, &layer->pool.rows,
            &layer->pool.columns, &layer->pool.step_rows, &layer->pool.step_columns, &layer->shift, &layer->flat,
            &layer->relu, &layer->is_signed, &layer->first, &layer->training, &following) &&
        assemble(object, instructions, codes, following))
        return (PyObject *)object;
    Py_DECREF(object);
    return NULL;
}

/* Without a garbage collector's help: nothing that a layer holds was built after it. */
static void destroy(PyObject *self) {
    Object *object = object_of(self);
    PyTypeObject *type = Py_TYPE(self);
    release(&object->layer);
    for (int i = 0; i < PURPOSES; i++) PyBuffer_Release(&object->memory[i]);
    PyBuffer_Release(&object->codes);
    Py_XDECREF((PyObject *)object->following);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyObject *show_memory(const Object *object, const char *name) {
    for (int i = 0; i < PURPOSES; i++) {
        const Memory *memory = &object->layer.memory[i];
        if (strcmp(purposes[i], name)) continue;
        if (!memory->data) Py_RETURN_NONE;
        PyObject *shape = PyTuple_New(memory->dimensions), *bytes = PyMemoryView_FromObject(object->memory[i].obj);
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

static PyType_Slot slots[] = {
    {Py_tp_doc, "A weight layer and its memory, for so many images. See _native.pyi."},
    {Py_tp_new, make},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, layer_methods},
    {0, NULL},
};

PyType_Spec layer_spec = {
    "prowd.nets.lowbit._native.Layer", sizeof(Object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots,
};
