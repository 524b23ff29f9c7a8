/* One weight layer of a network and all the memory it computes in; nothing here knows of Python.

   A layer is built once, from the facts of its shape. Its memory is given to it in the sizes that it asks for, which
   follow from facts that were checked, so a call needs no more than the number of images. A call is asked for first
   (`may_...`, which says in `fault` why not), and then made. */
#ifndef PROWD_LAYER_H
#define PROWD_LAYER_H

#include "passes.h"

typedef ptrdiff_t Size;

typedef struct {
    int rows, columns;
} Sides;

/* What a layer computes in. BELOW are the errors of its inputs, ROOM is where inputs are paired. */
enum Purpose {
    RECEIVED, PASSES, WINNERS, GIVEN, GIVEN_PASSES, TERNARY, WEIGHTS, START, ROOM,
    ERRORS, RECEIVED_FOURS, ERROR_FOURS, GRADIENT, BELOW, BACK_WEIGHTS, BACK_START, PURPOSES
};

typedef struct {
    void *data;
    Size bytes;
    char format; /* 'B' and 'b' are bytes, 'i' is 32 bits */
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

enum { FAULT = 160 };

typedef struct Layer {
    const Kernels *kernels;
    struct Layer *following; /* NULL for the last */
    int16_t *codes;          /* the weights q */
    int images;              /* how many there is memory for */
    int recorded;            /* how many the last forward pass kept for a backward pass */
    int depth;               /* how many layers there are from here to the last */
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
    char fault[FAULT];
} Layer;

static inline void *memory_of(const Layer *layer, enum Purpose purpose) { return layer->memory[purpose].data; }

static inline Size weights_of(const Layer *layer) {
    return (Size)layer->weights.inputs * layer->weights.taps * layer->weights.outputs;
}

/* Bytes between positions where only every stride-th row and column counts. */
static inline Strides every(Strides at, Sides stride) {
    return (Strides){at.image, at.row * stride.rows, at.column * stride.columns};
}

/* How many pairs of products with ternary weights a 16-bit sum can hold, of bytes so much above the codes. */
static inline int run_of(const Layer *layer, int above) { return INT16_MAX / (2 * (layer->largest + above)); }

/* 0 with a fault where a number is out of bounds, or anyway. */
int within(Layer *layer, const char *name, Size value, Size least, Size most);
int refuse(Layer *layer, const char *what);
int untrained(Layer *layer);

/* The instruction sets of this CPU, fastest first; NULL past the last. */
const Kernels *kernels_at(int number);

/* Build a layer from the facts before `paired` (all but `recorded`, `depth` and what is named next), its weights'
   `inputs` and `outputs`, and what it is followed by. 0: a fault. Then it wants memory: for each purpose with bytes,
   `data` is to be set, aligned to 4. Then prepare: -1 where there is no memory. */
int build(Layer *layer, const char *instructions);
void want_memory(Layer *layer); /* build does */
int prepare(Layer *layer);
void release(Layer *layer);

/* Codes of images of bytes, from a table of 256. */
int may_load(Layer *layer, int n);
void load(const Layer *layer, const uint8_t *images, const uint8_t *table, int n);
/* Ternary weights in the order in which they are multiplied. */
void pack(const Layer *layer);
/* Codes of the outputs, and where gradients pass. -1: no memory. */
int may_forward(Layer *layer, int n, int record);
int forward(Layer *layer, int n, int record);
/* Gradients of the weights by some images, the first of which is a multiple of four; the largest magnitude. -1: no
   memory. */
int may_gradient(Layer *layer, int from, int n);
int32_t gradient(const Layer *layer, int from, int n);
/* Errors of the inputs; the largest magnitude. */
int may_backward(Layer *layer, int n);
int32_t backward(const Layer *layer, int n);
/* Their codes, as the errors of the layer before. */
int may_spread(Layer *layer, int n, int up, const Layer *before);
void spread(const Layer *layer, int n, int up, const Layer *before);
/* The integer update rule, with the largest magnitude of the gradient. -1: no memory. */
int may_update(Layer *layer, prowd_rate rate, int size);
int update(const Layer *layer, prowd_rate rate, int size, const prowd_draws *draws, uint32_t number);

#endif
