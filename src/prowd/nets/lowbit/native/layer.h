/* One weight layer of a network and all the memory it computes in.

   A layer is built once, from the facts of its shape. It allocates its memory itself, so every size follows from facts
   that were checked, and a call needs no more than the number of images. While the interpreter is let go, a layer and
   the neighbour it writes to are marked as busy: a second thread is refused. */
#ifndef PROWD_LAYER_H
#define PROWD_LAYER_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "passes.h"

typedef Py_ssize_t Size;

typedef struct {
    int rows, columns;
} Sides;

/* What a layer computes in. `below` are the errors of its inputs, `room` is where inputs are paired. */
enum Purpose {
    RECEIVED, PASSES, WINNERS, GIVEN, GIVEN_PASSES, TERNARY, WEIGHTS, START, ROOM,
    ERRORS, RECEIVED_FOURS, ERROR_FOURS, GRADIENT, BELOW, BACK_WEIGHTS, BACK_START, PURPOSES
};

/* A bytearray that can't be resized, because its buffer is held. */
typedef struct {
    Py_buffer buffer;
    char format;
    int dimensions;
    Size shape[4];
} Memory;

/* Images with borders, [image][row][column][channel], and where their inside lies. */
typedef struct {
    Strides at;
    Size inside;
    Sides size;
    int channels;
} Grid;

/* The images of a grid, four a lane: [image / 4][block][row][column][channel][4], in blocks of 16 channels. */
typedef struct {
    Strides at;
    Size block, inside;
} Fours;

typedef struct Layer {
    PyObject_HEAD
    const Kernels *kernels;
    struct Layer *following; /* NULL for the last */
    Py_buffer codes;         /* the weights q, int16 */
    int images;              /* how many there is memory for */
    int recorded;            /* how many the last forward pass kept for a backward pass */
    int depth;               /* how many layers there are from here to the last */
    int busy;                /* whether a thread computes in its memory */
    int largest, shift;
    int flat, relu, is_signed, first, training, paired, pooled;
    Sides image, positions, kernel, stride, padding;
    Window pool; /* before the layer */
    Weights weights;
    int gradient_inputs;
    Grid received, given, errors;
    Fours received_fours, error_fours;
    ptrdiff_t *rows_of_window, *rows_of_error, *taps; /* one allocation, of which the first is the start */
    Memory memory[PURPOSES];
} Layer;

static inline void *memory_of(const Layer *layer, enum Purpose purpose) { return layer->memory[purpose].buffer.buf; }

static inline Size weights_of(const Layer *layer) {
    return (Size)layer->weights.inputs * layer->weights.taps * layer->weights.outputs;
}

/* Bytes between positions where only every stride-th row and column counts. */
static inline Strides every(Strides at, Sides stride) {
    return (Strides){at.image, at.row * stride.rows, at.column * stride.columns};
}

static inline Layer *self_of(PyObject *self) { return (Layer *)self; }

/* How many pairs of products with ternary weights a 16-bit sum can hold, of bytes so much above the codes. */
static inline int run_of(const Layer *layer, int above) { return INT16_MAX / (2 * (layer->largest + above)); }

/* ValueError where a number is out of bounds. */
int within(const char *name, Size value, Size least, Size most);
int refuse(const char *what);
/* ValueError where a buffer does not hold so many numbers of so many bytes, at a place for them. */
int check_numbers(const char *name, const Py_buffer *buffer, Size count, size_t bytes);
int check_images(const Layer *layer, int n);
int check_training(const Layer *layer);
/* Take a layer, and a neighbour where there is one, for this thread alone; done() gives them back. Both are called
   with the interpreter held, which makes them safe. */
int begin(Layer *layer, Layer *neighbour);
void done(Layer *layer, Layer *neighbour);
/* The instruction sets of this CPU, fastest first; NULL past the last. */
const Kernels *kernels_at(int number);
/* Give a layer its memory; its facts are checked. */
int allocate_memory(Layer *layer);
void free_memory(Layer *layer);
PyObject *show_memory(const Layer *layer, const char *name);

extern PyType_Spec layer_spec;
extern PyTypeObject *layer_type;
extern PyMethodDef layer_methods[];
PyObject *layer_backward(PyObject *self, PyObject *args);
PyObject *layer_spread(PyObject *self, PyObject *args);
PyObject *layer_gradient(PyObject *self, PyObject *args);
PyObject *layer_update(PyObject *self, PyObject *args);

#endif
