/* The Python module: arguments in, every buffer checked against what its shape needs, the interpreter let go meanwhile.

   Shapes are given as tuples: strides (image, row, column) in bytes, positions (images, rows, columns), kernel
   (rows, columns). See int8.py, the only caller. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "passes.h"

#include <stdlib.h>

typedef Py_ssize_t Size;

static const Kernels *const all_kernels[] = {
    &avx512vnni_kernels,
    &avx2_kernels,
    &portable_kernels,
};
enum { KERNEL_COUNT = sizeof all_kernels / sizeof *all_kernels };

static int supported(int kernel) {
    __builtin_cpu_init();
    if (all_kernels[kernel] == &avx512vnni_kernels)
        return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl");
    return __builtin_cpu_supports("avx2") != 0; /* of all: the passes are compiled for it */
}

static int fits(const Py_buffer *buffer, Size bytes, const char *name) {
    if (bytes >= 0 && buffer->len >= bytes) return 1;
    if (bytes < 0)
        PyErr_Format(PyExc_ValueError, "wrong shape or strides of %s", name);
    else
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes; accepted: %zd or more", name, buffer->len, bytes);
    return 0;
}

/* The same of a buffer that may be None. */
static int given(const Py_buffer *buffer, Size bytes, const char *name) {
    if (buffer->buf) return fits(buffer, bytes, name);
    PyErr_Format(PyExc_ValueError, "%s is None; accepted: %zd bytes or more", name, bytes);
    return 0;
}

/* Bytes from the first to the last position's last channel, past an offset. */
static Size extent(Size offset, Strides at, Size images, Size rows, Size columns, Size channels) {
    if (offset < 0 || images < 1 || rows < 1 || columns < 1 || channels < 1) return -1;
    if (at.image < 0 || at.row < 0 || at.column < 0) return -1;
    return offset + (images - 1) * at.image + (rows - 1) * at.row + (columns - 1) * at.column + channels;
}

static ptrdiff_t *taps_of(int rows, int columns, ptrdiff_t row, ptrdiff_t column) {
    ptrdiff_t *taps = malloc(sizeof *taps * (size_t)rows * (size_t)columns);
    if (!taps) {
        PyErr_NoMemory();
        return NULL;
    }
    for (int i = 0; i < rows * columns; i++) taps[i] = i / columns * row + i % columns * column;
    return taps;
}

static const Kernels *kernels_at(int kernel) {
    if (kernel >= 0 && kernel < KERNEL_COUNT && supported(kernel)) return all_kernels[kernel];
    PyErr_Format(PyExc_ValueError, "kernel %d is not one of this CPU", kernel);
    return NULL;
}

/* For "O&": a buffer to write to, or None. */
static int buffer_or_none(PyObject *object, void *place) {
    Py_buffer *buffer = place;
    if (!object) { /* another argument was wrong */
        if (buffer->buf) PyBuffer_Release(buffer);
        return 0;
    }
    buffer->buf = NULL;
    if (object == Py_None) return Py_CLEANUP_SUPPORTED;
    return PyObject_GetBuffer(object, buffer, PyBUF_CONTIG) < 0 ? 0 : Py_CLEANUP_SUPPORTED;
}

static PyObject *done(int ok) {
    if (ok) Py_RETURN_NONE;
    return NULL;
}

static PyObject *py_kernels(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    PyObject *found = PyList_New(0);
    for (int i = 0; found && i < KERNEL_COUNT; i++) {
        if (!supported(i)) continue;
        const Kernels *k = all_kernels[i];
        PyObject *item = Py_BuildValue("(sii)", k->name, i, k->lanes);
        if (!item || PyList_Append(found, item) < 0) Py_CLEAR(found);
        Py_XDECREF(item);
    }
    return found;
}

/* The part that both passes share: (kernel, x, strides, positions, rows of a window, bytes between them, bytes of a
   row, run, weights, start, outputs). */
#define PRODUCTS_FORMAT "iy*(nnn)(iii)iniiy*y*i"
typedef struct {
    Py_buffer x, weights, start;
    Products p;
    const Kernels *kernels;
    ptrdiff_t *taps;
    int kernel, rows, row_bytes, pairs;
    Size apart;
} Shared;
#define PRODUCTS_ARGUMENTS(s)                                                                                     \
    &(s).kernel, &(s).x, &(s).p.at.image, &(s).p.at.row, &(s).p.at.column, &(s).p.images, &(s).p.rows,            \
        &(s).p.columns, &(s).rows, &(s).apart, &(s).row_bytes, &(s).p.run, &(s).weights, &(s).start, &(s).p.outputs

static int prepare(Shared *s) {
    Products *p = &s->p;
    s->taps = NULL;
    if (!(s->kernels = kernels_at(s->kernel))) return 0;
    if (s->rows < 1 || s->apart < 0 || s->row_bytes < 1 || s->row_bytes % 4 || p->outputs < 1 || p->outputs % CHANNELS || p->run < 1) {
        PyErr_SetString(PyExc_ValueError, "wrong window, outputs or run");
        return 0;
    }
    const Size window = (s->rows - 1) * s->apart + s->row_bytes;
    const Size weights = (Size)s->rows * s->row_bytes * p->outputs;
    if (!fits(&s->x, extent(0, p->at, p->images, p->rows, p->columns, window), "x") ||
        !fits(&s->weights, s->pairs ? weights / 3 * 4 : weights, "weights") ||
        !fits(&s->start, (s->pairs ? 16 : 4) * (Size)p->outputs, "start"))
        return 0;
    if (!(s->taps = taps_of(s->rows, 1, s->apart, 0))) return 0;
    p->x = s->x.buf, p->weights = s->weights.buf, p->start = s->start.buf;
    p->taps = s->taps, p->tap_count = s->rows, p->groups = s->row_bytes / 4;
    return 1;
}

static void dismiss(Shared *s) {
    free(s->taps);
    PyBuffer_Release(&s->x);
    PyBuffer_Release(&s->weights);
    PyBuffer_Release(&s->start);
}

/* Whether windows can be paired in the room there is; says how many images at a time. */
static int can_pair(const Shared *s, const Py_buffer *room, int largest, Pairing *q) {
    const Products *p = &s->p;
    const Size channels = s->row_bytes / 3;
    if (s->row_bytes % (3 * CHANNELS) || p->at.column != channels || p->at.row != s->apart || p->columns % 2 ||
        p->run < 3 || largest < 1 || largest > 127) {
        PyErr_SetString(PyExc_ValueError, "windows that can't be paired");
        return 0;
    }
    const Size bytes = (Size)(p->rows + s->rows - 1) * (p->columns / 2) * 4 * channels; /* of an image */
    if (!fits(room, bytes, "room")) return 0;
    const Size images = room->len / bytes;
    q->room = room->buf, q->images = images < p->images ? (int)images : p->images, q->channels = (int)channels;
    return 1;
}

static int can_shift(int shift) {
    if (shift >= 1 && shift <= 30) return 1;
    PyErr_Format(PyExc_ValueError, "shift is %d; accepted: 1 to 30", shift);
    return 0;
}

static int can_pool(const Shared *s, const Py_buffer *passes) {
    if (s->pairs && !passes->buf && s->p.rows % 2 == 0) return 1;
    PyErr_SetString(PyExc_ValueError, "windows that can't be pooled");
    return 0;
}

/* passes: None where no backward pass follows; room: None where windows are not paired; pool: whether the largest
   codes of windows of two by two are asked for. */
static PyObject *py_forward(PyObject *self, PyObject *args) {
    (void)self;
    Shared s;
    Forward f;
    Pairing q;
    Py_buffer codes, passes, room;
    Size offset;
    if (!PyArg_ParseTuple(args, PRODUCTS_FORMAT "w*n(nnn)O&iiiO&i", PRODUCTS_ARGUMENTS(s), &codes, &offset, &f.at.image,
                          &f.at.row, &f.at.column, buffer_or_none, &passes, &f.shift, &f.largest, &f.relu,
                          buffer_or_none, &room, &f.pool))
        return NULL;
    const Products *p = &s.p;
    const int side = f.pool ? 2 : 1;
    s.pairs = room.buf != NULL;
    const int ok = prepare(&s) && can_shift(f.shift) && (!s.pairs || can_pair(&s, &room, f.largest, &q)) &&
                   (!f.pool || can_pool(&s, &passes)) &&
                   fits(&codes, extent(offset, f.at, p->images, p->rows / side, p->columns / side, p->outputs),
                        "codes") &&
                   (!passes.buf || fits(&passes, (Size)p->images * p->rows * p->columns * p->outputs, "passes"));
    if (ok) {
        f.codes = (uint8_t *)codes.buf + offset, f.passes = passes.buf;
        Py_BEGIN_ALLOW_THREADS
        if (s.pairs)
            s.kernels->forward_pairs(p, &f, &q);
        else
            s.kernels->forward(p, &f);
        Py_END_ALLOW_THREADS
    }
    dismiss(&s);
    PyBuffer_Release(&codes);
    if (passes.buf) PyBuffer_Release(&passes);
    if (room.buf) PyBuffer_Release(&room);
    return done(ok);
}

static PyObject *py_backward(PyObject *self, PyObject *args) {
    (void)self;
    Shared s;
    Backward b = {0};
    Py_buffer errors, passes;
    if (!PyArg_ParseTuple(args, PRODUCTS_FORMAT "w*y*", PRODUCTS_ARGUMENTS(s), &errors, &passes)) return NULL;
    const Products *p = &s.p;
    const Size values = (Size)p->images * p->rows * p->columns * p->outputs;
    s.pairs = 0;
    const int ok = prepare(&s) && fits(&errors, 4 * values, "errors") && fits(&passes, values, "passes");
    if (ok) {
        b.errors = errors.buf, b.passes = passes.buf;
        Py_BEGIN_ALLOW_THREADS
        s.kernels->backward(p, &b);
        Py_END_ALLOW_THREADS
    }
    dismiss(&s);
    PyBuffer_Release(&errors);
    PyBuffer_Release(&passes);
    return ok ? PyLong_FromLong(b.largest) : NULL;
}

static PyObject *py_gradient(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer a, e, g;
    Gradient q;
    int kernel, rows, columns;
    Size offset, tap_row, tap_column;
    if (!PyArg_ParseTuple(args, "iy*(nnn)ny*n(nnn)n(iii)(ii)(nn)iiiw*", &kernel, &a, &q.a_at.image, &q.a_at.row,
                          &q.a_at.column, &q.a_block, &e, &offset, &q.e_at.image, &q.e_at.row, &q.e_at.column,
                          &q.e_block, &q.fours, &q.rows, &q.columns, &rows, &columns, &tap_row, &tap_column,
                          &q.inputs, &q.outputs, &q.largest, &g))
        return NULL;
    const Kernels *k = kernels_at(kernel);
    ptrdiff_t *taps = NULL;
    int ok = k != NULL;
    if (ok && (q.inputs < 1 || q.inputs % k->lanes || q.outputs < 1 || q.outputs % CHANNELS || rows < 1 ||
               columns < 1 || tap_row < 0 || tap_column < 0 || q.a_block < 0 || q.e_block < 0 || q.largest < 1 ||
               (q.inputs % CHANNELS && q.inputs != CHANNELS / 2))) {
        PyErr_SetString(PyExc_ValueError, "wrong inputs, outputs or kernel size");
        ok = 0;
    }
    const Size block = 4 * (Size)(q.inputs < CHANNELS ? q.inputs : CHANNELS);
    const Size window = (rows - 1) * tap_row + (columns - 1) * tap_column + block;
    const Size a_more = (q.inputs - 1) / CHANNELS * q.a_block, e_more = (q.outputs / CHANNELS - 1) * q.e_block;
    ok = ok && fits(&a, extent(a_more, q.a_at, q.fours, q.rows, q.columns, window), "a") &&
         fits(&e, extent(offset + e_more, q.e_at, q.fours, q.rows, q.columns, 4 * CHANNELS), "e") &&
         fits(&g, 4 * (Size)rows * columns * q.inputs * q.outputs, "g") &&
         (taps = taps_of(rows, columns, tap_row, tap_column)) != NULL;
    if (ok) {
        q.a = a.buf, q.e = (const int8_t *)e.buf + offset, q.g = g.buf, q.taps = taps, q.tap_count = rows * columns;
        Py_BEGIN_ALLOW_THREADS
        k->gradient(&q);
        Py_END_ALLOW_THREADS
    }
    free(taps);
    PyBuffer_Release(&a);
    PyBuffer_Release(&e);
    PyBuffer_Release(&g);
    return done(ok);
}

static PyObject *py_load_images(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer images, codes;
    Box box;
    Size offset;
    int channels, steps;
    if (!PyArg_ParseTuple(args, "y*iiw*n(nnn)(iii)", &images, &channels, &steps, &codes, &offset, &box.at.image,
                          &box.at.row, &box.at.column, &box.images, &box.rows, &box.columns))
        return NULL;
    const Size pixels = (Size)box.images * box.rows * box.columns;
    if (steps < 2 || steps > OFFSET) PyErr_SetString(PyExc_ValueError, "wrong steps");
    const int ok = steps >= 2 && steps <= OFFSET && fits(&images, 4 * pixels * channels, "images") &&
                   fits(&codes, extent(offset, box.at, box.images, box.rows, box.columns, channels), "codes");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        load_images(images.buf, channels, (float)steps, (uint8_t *)codes.buf + offset, box);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&images);
    PyBuffer_Release(&codes);
    return done(ok);
}

/* passes, out_passes, winners: None where no backward pass follows. */
static PyObject *py_pool(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer codes, passes, out, out_passes, winners;
    Strides from;
    Window window;
    Box box;
    Size offset;
    if (!PyArg_ParseTuple(args, "y*z*(nnn)(iiii)w*n(nnn)(iiii)O&O&", &codes, &passes, &from.image, &from.row,
                          &from.column, &window.rows, &window.columns, &window.step_rows, &window.step_columns, &out,
                          &offset, &box.at.image, &box.at.row, &box.at.column, &box.images, &box.rows, &box.columns,
                          &box.channels, buffer_or_none, &out_passes, buffer_or_none, &winners))
        return NULL;
    const Size values = (Size)box.images * box.rows * box.columns * box.channels;
    const Strides steps = {from.image, from.row * window.step_rows, from.column * window.step_columns};
    const Size reach = (window.rows - 1) * from.row + (window.columns - 1) * from.column + box.channels;
    const Size from_bytes = extent(0, steps, box.images, box.rows, box.columns, reach);
    if (box.channels % CHANNELS) PyErr_SetString(PyExc_ValueError, "wrong channels");
    const int ok = box.channels % CHANNELS == 0 && fits(&codes, from_bytes, "codes") &&
                   fits(&out, extent(offset, box.at, box.images, box.rows, box.columns, box.channels), "out") &&
                   (!passes.buf || (fits(&passes, from_bytes, "passes") && given(&out_passes, values, "out_passes") &&
                                    given(&winners, values, "winners")));
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        pool(codes.buf, passes.buf, from, window, (uint8_t *)out.buf + offset, box, out_passes.buf, winners.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&codes);
    if (passes.buf) PyBuffer_Release(&passes);
    PyBuffer_Release(&out);
    if (out_passes.buf) PyBuffer_Release(&out_passes);
    if (winners.buf) PyBuffer_Release(&winners);
    return done(ok);
}

/* winners: None where no pooling comes between. */
static PyObject *py_spread(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer errors, out, winners;
    Window window;
    Box box;
    Size offset;
    int up, largest;
    if (!PyArg_ParseTuple(args, "y*iiz*(iiii)w*n(nnn)(iiii)", &errors, &up, &largest, &winners, &window.rows,
                          &window.columns, &window.step_rows, &window.step_columns, &out, &offset, &box.at.image,
                          &box.at.row, &box.at.column, &box.images, &box.rows, &box.columns, &box.channels))
        return NULL;
    const Size values = (Size)box.images * box.rows * box.columns * box.channels;
    const Strides steps = {box.at.image, box.at.row * window.step_rows, box.at.column * window.step_columns};
    const Size reach = (window.rows - 1) * box.at.row + (window.columns - 1) * box.at.column + box.channels;
    int ok = fits(&errors, 4 * values, "errors") &&
             fits(&out, extent(offset, steps, box.images, box.rows, box.columns, reach), "out") &&
             (!winners.buf || fits(&winners, values, "winners"));
    if (ok && (box.channels % CHANNELS || up < -31 || up > 31)) {
        PyErr_SetString(PyExc_ValueError, "wrong channels or shift");
        ok = 0;
    }
    if (ok) {
        uint8_t *to = (uint8_t *)out.buf + offset;
        Py_BEGIN_ALLOW_THREADS
        if (winners.buf)
            spread_pooled(errors.buf, up, largest, winners.buf, window, to, box);
        else
            spread(errors.buf, up, largest, to, box);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&errors);
    PyBuffer_Release(&out);
    if (winners.buf) PyBuffer_Release(&winners);
    return done(ok);
}

static PyObject *py_interleave(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer from, to;
    Size pixels;
    int images, channels, padded, how, failed = 0;
    if (!PyArg_ParseTuple(args, "y*iniiiw*", &from, &images, &pixels, &channels, &padded, &how, &to)) return NULL;
    int ok = channels >= 1 && (how == PLAIN || how == SIGNED || how == PARTS) && (padded % CHANNELS == 0 || padded == CHANNELS / 2) &&
             (how == PARTS ? padded >= 2 * channels : padded == channels && padded % CHANNELS == 0);
    if (!ok) PyErr_SetString(PyExc_ValueError, "wrong channels");
    ok = ok && fits(&from, images * pixels * channels, "from") &&
         fits(&to, ((Size)images + 3) / 4 * 4 * pixels * padded, "to");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failed = interleave(from.buf, images, pixels, channels, padded, how, to.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    if (failed) return PyErr_NoMemory();
    return done(ok);
}

static int sound(const Weights *w) {
    if (w->outputs >= 1 && w->inputs >= 1 && w->taps >= 1 && w->padded_outputs >= w->outputs &&
        w->padded_inputs >= w->inputs && w->padded_outputs % CHANNELS == 0 && w->padded_inputs % 4 == 0)
        return 1;
    PyErr_SetString(PyExc_ValueError, "wrong shape of weights");
    return 0;
}

/* backward weights: None for the first layer, whose errors nobody asks for. */
static PyObject *py_pack(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer codes, ternary, there, there_start, back, back_start;
    Weights w;
    int kernel, limit, offset, flat, pairs;
    if (!PyArg_ParseTuple(args, "iy*(iiiii)iiiiw*w*w*O&O&", &kernel, &codes, &w.outputs, &w.inputs, &w.taps,
                          &w.padded_outputs, &w.padded_inputs, &limit, &offset, &flat, &pairs, &ternary, &there,
                          &there_start,
                          buffer_or_none, &back, buffer_or_none, &back_start))
        return NULL;
    const Kernels *k = kernels_at(kernel);
    int ok = k && sound(&w);
    const Size all = ok ? (Size)w.padded_outputs * w.taps * w.padded_inputs : 0;
    const Size below = ok ? (Size)w.padded_inputs * (flat ? w.taps : 1) : 0;
    ok = ok && fits(&codes, 2 * (Size)w.outputs * w.inputs * w.taps, "codes") && fits(&ternary, all, "ternary") &&
         fits(&there, pairs ? all / 3 * 4 : all, "forward weights") &&
         fits(&there_start, (pairs ? 16 : 4) * (Size)w.padded_outputs, "forward start") &&
         (!back.buf || (fits(&back, all, "backward weights") && given(&back_start, 4 * below, "backward start")));
    if (ok && back.buf && w.padded_inputs % CHANNELS) {
        PyErr_SetString(PyExc_ValueError, "wrong channels for a backward pass");
        ok = 0;
    }
    if (ok && pairs && (w.padded_inputs % CHANNELS || w.taps % 3)) {
        PyErr_SetString(PyExc_ValueError, "windows that can't be paired");
        ok = 0;
    }
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        ternarize(codes.buf, w, limit, ternary.buf);
        if (pairs)
            pack_pairs(ternary.buf, w, k->lanes, offset, there.buf, there_start.buf);
        else
            pack_forward(ternary.buf, w, k->lanes, offset, there.buf, there_start.buf);
        if (back.buf) pack_backward(ternary.buf, w, k->lanes, flat, back.buf, back_start.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&codes);
    PyBuffer_Release(&ternary);
    PyBuffer_Release(&there);
    PyBuffer_Release(&there_start);
    if (back.buf) PyBuffer_Release(&back);
    if (back_start.buf) PyBuffer_Release(&back_start);
    return done(ok);
}

static PyObject *py_join_gradient(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer g;
    Size rows;
    int inputs, padded, parts;
    if (!PyArg_ParseTuple(args, "w*niii", &g, &rows, &inputs, &padded, &parts)) return NULL;
    int32_t largest = 0;
    int ok = fits(&g, 4 * rows * padded, "g");
    if (ok && padded < inputs * (parts ? 2 : 1)) {
        PyErr_SetString(PyExc_ValueError, "wrong inputs");
        ok = 0;
    }
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        largest = join_gradient(g.buf, rows, inputs, padded, parts);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&g);
    return ok ? PyLong_FromLong(largest) : NULL;
}

static PyObject *py_update(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer codes, g, uniform;
    Weights w;
    int gradient_inputs, mantissa, exponent, largest, failed = 0;
    if (!PyArg_ParseTuple(args, "w*(iiiii)y*i(ii)y*i", &codes, &w.outputs, &w.inputs, &w.taps, &w.padded_outputs,
                          &w.padded_inputs, &g, &gradient_inputs, &mantissa, &exponent, &uniform, &largest))
        return NULL;
    int ok = sound(&w);
    const Size all = ok ? (Size)w.outputs * w.inputs * w.taps : 0;
    ok = ok && fits(&codes, 2 * all, "codes") && fits(&uniform, 4 * all, "uniform") &&
         fits(&g, gradient_inputs < w.inputs ? -1 : 4 * (Size)w.outputs * w.taps * gradient_inputs, "g");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        failed = update(codes.buf, w, g.buf, gradient_inputs, mantissa, exponent, uniform.buf, largest);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&codes);
    PyBuffer_Release(&g);
    PyBuffer_Release(&uniform);
    if (failed) return PyErr_NoMemory();
    return done(ok);
}

static PyMethodDef methods[] = {
    {"kernels", py_kernels, METH_NOARGS, "Instruction sets of this CPU, fastest first: (name, number, lanes)."},
    {"forward", py_forward, METH_VARARGS, "Codes of a layer's outputs, and where gradients pass."},
    {"backward", py_backward, METH_VARARGS, "Errors of a layer's inputs; returns the largest magnitude."},
    {"gradient", py_gradient, METH_VARARGS, "Add the gradient of a layer's weights."},
    {"load_images", py_load_images, METH_VARARGS, "Codes of float images."},
    {"pool", py_pool, METH_VARARGS, "Maxima of windows."},
    {"spread", py_spread, METH_VARARGS, "Error codes, through pooling windows where there are any."},
    {"interleave", py_interleave, METH_VARARGS, "Four images a lane."},
    {"pack", py_pack, METH_VARARGS, "Ternary weights in the order in which they are multiplied."},
    {"join_gradient", py_join_gradient, METH_VARARGS, "Positive less negative part; returns the largest magnitude."},
    {"update", py_update, METH_VARARGS, "The integer update rule."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Integer kernels of s-bit training (s up to 8).", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
