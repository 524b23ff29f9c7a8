/* What is refused, and why. */
#include "layer.h"

int within(const char *name, Size value, Size least, Size most) {
    if (value >= least && value <= most) return 1;
    PyErr_Format(PyExc_ValueError, "%s is %zd; accepted: %zd to %zd", name, value, least, most);
    return 0;
}

int refuse(const char *what) {
    PyErr_SetString(PyExc_ValueError, what);
    return 0;
}

int check_numbers(const char *name, const Py_buffer *buffer, Size count, size_t bytes) {
    const Size all = count * (Size)bytes;
    if (buffer->len == all && (uintptr_t)buffer->buf % bytes == 0) return 1;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes; accepted: %zd, aligned to %zu", name, buffer->len, all, bytes);
    return 0;
}

int check_images(const Layer *layer, int n) { return within("n", n, 1, layer->images); }

int check_training(const Layer *layer) {
    return layer->training || refuse("the layer was built without training");
}

int begin(Layer *layer, Layer *neighbour) {
    if (layer->busy || (neighbour && neighbour->busy)) {
        PyErr_SetString(PyExc_RuntimeError, "another thread computes in this layer");
        return 0;
    }
    layer->busy = 1;
    if (neighbour) neighbour->busy = 1;
    return 1;
}

void done(Layer *layer, Layer *neighbour) {
    layer->busy = 0;
    if (neighbour) neighbour->busy = 0;
}
