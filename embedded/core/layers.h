/* The products of a convolution and the passes around them; see layers.c. */
#ifndef PROWD_LAYERS_H
#define PROWD_LAYERS_H

#include "prowd.h"

enum {
    PROWD_LANES = 32,     /* sums have a multiple of this many terms, the rest zeros */
    PROWD_UNIT = 16,      /* numbers that are copied at once */
    PROWD_BLOCK = 32,     /* positions whose windows are laid out at once, at most, */
    PROWD_ROOM = 12288,   /* and how many numbers these should not exceed */
    PROWD_GROUP = 16,     /* weights of an output whose gradients are summed at once */
    PROWD_TERMS = 512,    /* positions that are summed in 32 bits at once for a gradient */
    PROWD_WHOLE_BITS = 12 /* wider error codes are summed in two parts of 8 bits */
};

static inline ptrdiff_t prowd_up(ptrdiff_t size, ptrdiff_t multiple) {
    return (size + multiple - 1) / multiple * multiple;
}

static inline ptrdiff_t prowd_taps(const prowd_layer *l) { return (ptrdiff_t)l->kernel_rows * l->kernel_columns; }
static inline ptrdiff_t prowd_received(const prowd_layer *l) { return (ptrdiff_t)l->inputs * l->rows * l->columns; }
static inline ptrdiff_t prowd_given(const prowd_layer *l) {
    return (ptrdiff_t)l->outputs * l->out_rows * l->out_columns;
}
static inline ptrdiff_t prowd_weights(const prowd_layer *l) {
    return (ptrdiff_t)l->outputs * (l->inputs / l->groups) * prowd_taps(l);
}

/* What a convolution works with: int16 and int32 numbers that nothing needs afterwards. */
ptrdiff_t prowd_conv_scratch(const prowd_layer *l, int32_t images, int training);

/* Codes that a convolution gives, and where its error will pass (NULL: nobody asks). */
void prowd_conv_forward(const prowd_layer *l, int bits, const int16_t *weights, const int16_t *inputs, int32_t images,
                        int16_t *given, uint8_t *passes, int16_t *scratch);

/* Sums of t e for every input. */
void prowd_conv_backward(const prowd_layer *l, int bits, const int16_t *weights, const int16_t *errors, int32_t images,
                         int32_t *below, int16_t *scratch);

/* Sums of e a for every weight. */
void prowd_conv_gradient(const prowd_layer *l, int bits, const int16_t *inputs, const int16_t *errors, int32_t images,
                         int64_t *gradient, int16_t *scratch);

void prowd_pool_forward(const prowd_layer *l, const int16_t *inputs, int32_t images, int16_t *given);

/* Each sum goes to the first largest code of its window; windows that overlap add up. */
void prowd_pool_backward(const prowd_layer *l, const int16_t *inputs, const int32_t *errors, int32_t images,
                         int32_t *below);

/* round_half_even(sum / 2^shift) of the 2^shift codes of each window. */
void prowd_average_forward(const prowd_layer *l, const int16_t *inputs, int32_t images, int16_t *given);

/* Each sum goes to every place of its window; windows that overlap add up. */
void prowd_average_backward(const prowd_layer *l, const int32_t *errors, int32_t images, int32_t *below);

/* Codes added and clipped, and where the error will pass (NULL: nobody asks). */
void prowd_add_forward(const prowd_layer *l, int bits, const int16_t *inputs, const int16_t *others, int32_t images,
                       int16_t *given, uint8_t *passes);

/* Adds an error that stands for `from` times 2^-down_from to one that stands for `to` times 2^-down_to. */
void prowd_add_errors(int32_t *to, int down_to, const int32_t *from, int down_from, size_t count);

#endif
