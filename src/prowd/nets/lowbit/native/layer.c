/* The facts of a layer, checked once: every size and stride is derived from them. */
#include "layer.h"

#include <limits.h>
#include <string.h>

enum {
    MOST = 1 << 24,                    /* of any fact: products of two and a few more stay far below 2^63 */
    COUNTED = INT_MAX / 2,             /* what the kernels count in an int, in steps of up to 64 */
    TERMS = INT_MAX / (2 * UINT8_MAX), /* of a sum: twice the sum stays within 32 bits */
    LAYERS = 1000,                     /* of a network: the last reference to the first frees them one in the other */
};

PyTypeObject *layer_type;

static int padded(int channels, int multiple) { return (channels + multiple - 1) / multiple * multiple; }

static int check_facts(const Layer *layer) {
    const Sides image = layer->image, kernel = layer->kernel, stride = layer->stride, padding = layer->padding;
    const Window pool = layer->pool;
    if (!within("images", layer->images, 1, MOST) || !within("largest", layer->largest, 1, OFFSET - 1) ||
        !within("inputs", layer->weights.inputs, 1, MOST) || !within("outputs", layer->weights.outputs, 1, MOST) ||
        !within("image rows", image.rows, 1, MOST) || !within("image columns", image.columns, 1, MOST) ||
        !within("padding rows", padding.rows, 0, MOST) || !within("padding columns", padding.columns, 0, MOST) ||
        !within("kernel rows", kernel.rows, padding.rows + 1, image.rows + 2 * padding.rows) ||
        !within("kernel columns", kernel.columns, padding.columns + 1, image.columns + 2 * padding.columns) ||
        !within("stride rows", stride.rows, 1, MOST) || !within("stride columns", stride.columns, 1, MOST) ||
        !within("pool rows", pool.rows, 1, MOST) || !within("pool columns", pool.columns, 1, MOST) ||
        !within("pool places", (Size)pool.rows * pool.columns, 1, UINT8_MAX) ||
        !within("pool step rows", pool.step_rows, pool.rows, MOST) ||
        !within("pool step columns", pool.step_columns, pool.columns, MOST) || !within("shift", layer->shift, 1, 30))
        return 0;
    if (layer->largest & (layer->largest + 1)) return refuse("largest is wrong; accepted: a power of two less one");
    if (layer->flat && (kernel.rows != image.rows || kernel.columns != image.columns || stride.rows != 1 ||
                        stride.columns != 1 || padding.rows || padding.columns))
        return refuse("kernel of a flat layer is not its image");
    if (layer->first && (!layer->is_signed || layer->pooled)) return refuse("first layer is not signed, or is pooled");
    return 1;
}

static int check_products(const Layer *layer) {
    const Size taps = (Size)layer->kernel.rows * layer->kernel.columns;
    const Size image = (Size)layer->image.rows * layer->image.columns;
    const Size positions = (Size)layer->positions.rows * layer->positions.columns;
    const int inputs = layer->weights.inputs, outputs = layer->weights.outputs;
    return within("places of a window", taps, 1, TERMS) && within("places of an image", image, 1, COUNTED) &&
           within("positions of an image", positions, 1, COUNTED) &&
           within("weights of an output", taps * inputs, 1, TERMS) &&
           within("weights of an input", (layer->flat ? 1 : taps) * outputs, 1, TERMS) &&
           within("places of all images", image * layer->images, 1, COUNTED) &&
           within("positions of all images", positions * layer->images, 1, COUNTED);
}

static int pooled_side(int side, int window, int step) { return side < window ? 0 : (side - window) / step + 1; }

/* What a layer gives lies where the following one receives it. */
static int check_following(const Layer *layer) {
    const Layer *next = layer->following;
    if (!next) return 1;
    if (next->weights.inputs != layer->weights.outputs || next->first ||
        next->image.rows != pooled_side(layer->positions.rows, next->pool.rows, next->pool.step_rows) ||
        next->image.columns != pooled_side(layer->positions.columns, next->pool.columns, next->pool.step_columns))
        return refuse("following receives images of another shape");
    if (next->images != layer->images || next->training != layer->training || next->largest != layer->largest ||
        next->is_signed == layer->relu || next->kernels != layer->kernels)
        return refuse("following differs in images, training, largest, signs or instructions");
    return 1;
}

static int take_codes(Layer *layer, PyObject *codes) {
    if (PyObject_GetBuffer(codes, &layer->codes, PyBUF_CONTIG) < 0) {
        layer->codes.obj = NULL; /* nothing to release */
        return 0;
    }
    return check_numbers("codes", &layer->codes, weights_of(layer), sizeof(int16_t));
}

static int take_instructions(Layer *layer, const char *name) {
    for (int i = 0; (layer->kernels = kernels_at(i)); i++)
        if (!strcmp(layer->kernels->name, name)) return 1;
    PyErr_Format(PyExc_ValueError, "instructions '%s' are not of this CPU", name);
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

static int build(Layer *layer, const char *instructions, PyObject *codes, PyObject *following) {
    if (following != Py_None) {
        if (!PyObject_TypeCheck(following, layer_type)) {
            PyErr_SetString(PyExc_TypeError, "following is not a Layer");
            return 0;
        }
        layer->following = (Layer *)Py_NewRef(following);
    }
    layer->depth = layer->following ? layer->following->depth + 1 : 1;
    if (!within("layers from here to the last", layer->depth, 1, LAYERS)) return 0;
    const Window p = layer->pool;
    layer->pooled = p.rows != 1 || p.columns != 1 || p.step_rows != 1 || p.step_columns != 1;
    if (!take_instructions(layer, instructions) || !check_facts(layer)) return 0;
    const Sides over = {layer->image.rows + 2 * layer->padding.rows - layer->kernel.rows,
                        layer->image.columns + 2 * layer->padding.columns - layer->kernel.columns};
    layer->positions = (Sides){over.rows / layer->stride.rows + 1, over.columns / layer->stride.columns + 1};
    if (!check_products(layer)) return 0;
    derive(layer);
    return check_following(layer) && take_codes(layer, codes) && allocate_memory(layer);
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"instructions", "codes",   "images", "largest", "inputs", "outputs",
                            "image",        "kernel",  "stride", "padding", "pool",   "shift",
                            "flat",         "relu",    "signed", "first",   "training", "following", NULL};
    const char *instructions;
    PyObject *codes, *following;
    const allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Layer *layer = (Layer *)allocate(type, 0); /* all zeros */
    if (!layer) return NULL;
    if (PyArg_ParseTupleAndKeywords(
            args, keywords, "sO$iiii(ii)(ii)(ii)(ii)(iiii)ipppppO:Layer", names, &instructions, &codes, &layer->images,
            &layer->largest, &layer->weights.inputs, &layer->weights.outputs, &layer->image.rows,
            &layer->image.columns, &layer->kernel.rows, &layer->kernel.columns, &layer->stride.rows,
            &layer->stride.columns, &layer->padding.rows, &layer->padding.columns, &layer->pool.rows,
            &layer->pool.columns, &layer->pool.step_rows, &layer->pool.step_columns, &layer->shift, &layer->flat,
            &layer->relu, &layer->is_signed, &layer->first, &layer->training, &following) &&
        build(layer, instructions, codes, following))
        return (PyObject *)layer;
    Py_DECREF(layer);
    return NULL;
}

/* Without a garbage collector's help: nothing that a layer holds was built after it. */
static void destroy(PyObject *self) {
    Layer *layer = (Layer *)self;
    PyTypeObject *type = Py_TYPE(self);
    free_memory(layer);
    PyBuffer_Release(&layer->codes);
    Py_XDECREF((PyObject *)layer->following);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "A weight layer and its memory, for so many images. See _native.pyi."},
    {Py_tp_new, make},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, layer_methods},
    {0, NULL},
};

PyType_Spec layer_spec = {
    "prowd.nets.lowbit._native.Layer", sizeof(Layer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots,
};
