/* The client of s = 2..16 bits in portable C99: integers only, no allocation, no operating system.
 *
 * The same integers as docs/numerics.md specifies and tests/reference/integer_client.py computes. The caller describes
 * the network, asks how many bytes a batch needs, and lends that memory. Images and activations are laid out as
 * [image][channel][row][column], weights as [output][input][row][column], both as int16 codes.
 */
#ifndef PROWD_H
#define PROWD_H

#include <stddef.h>
#include <stdint.h>

enum { PROWD_CONV, PROWD_POOL, PROWD_AVERAGE, PROWD_ADD };
enum { PROWD_MOST_LAYERS = 256 };

/* A layer. A linear layer is a convolution of one pixel; flattening changes nothing in memory and is no layer. A layer
 * receives what the layer before it gives; what is not a plain sequence is said by `skip` and `other`. */
typedef struct {
    int32_t kind;
    int32_t inputs, rows, columns;          /* what it receives */
    int32_t outputs, out_rows, out_columns; /* what it gives */
    int32_t kernel_rows, kernel_columns, stride_rows, stride_columns, pad_rows, pad_columns;
    int32_t shift; /* log2 of 2 alpha, a convolution's scale; of the places of an average */
    int32_t relu;
    int32_t groups; /* of a convolution: outputs of one see inputs of the same only; 1 for other layers */
    int32_t skip;   /* so many layers before the last one gave what it receives; 0: the last one */
    int32_t other;  /* an addition: the same of what is added */
} prowd_layer;

typedef struct {
    int32_t bits;
    int32_t count;
    const prowd_layer *layers; /* the last is a convolution of one pixel, its outputs are the classes */
} prowd_net;

/* What the loss needs: tables of 2^30 e^(-d 2^k) and of 2^30 e^(-256 d 2^k), d = 0..255, and k. */
typedef struct {
    const uint32_t *low, *high;
    int32_t exponent;
} prowd_softmax;

/* Where the random words of a step's rounding come from. */
typedef struct {
    uint32_t key[2];
    uint32_t step;
} prowd_draws;

/* A learning rate: mantissa (1 to 255) times 2^exponent. */
typedef struct {
    int32_t mantissa, exponent;
} prowd_rate;

/* 0, or which layer (from 1) has sizes that do not fit together, or whose sums 32 bits can't hold. */
int prowd_check(const prowd_net *net);

/* Bytes that a batch needs, to learn from it or only to compute its logits. */
size_t prowd_memory(const prowd_net *net, int32_t images, int training);

/* Codes of bytes, by a table of 256 entries. */
void prowd_codes(const uint8_t *bytes, size_t count, const int16_t table[256], int16_t *codes);

/* The logits of images whose codes lie at the beginning of `memory`. Returns where in `memory` the logits are. */
const int16_t *prowd_forward(const prowd_net *net, const int16_t *const *weights, int32_t images, void *memory,
                             int training);

/* Cross-entropy of a batch: errors with 30 fraction bits; returns the sum of losses with 16. */
int64_t prowd_cross_entropy(const prowd_softmax *softmax, const int16_t *logits, const int32_t *labels, int32_t images,
                            int32_t classes, int32_t *errors);

/* Half the squared distance to the largest code at the label and 0 elsewhere; the same. */
int64_t prowd_squared_error(int bits, const int16_t *logits, const int32_t *labels, int32_t images, int32_t classes,
                            int32_t *errors);

/* One step of learning after prowd_forward(..., training = 1): the weights change in place. */
void prowd_learn(const prowd_net *net, int16_t *const *weights, int32_t images, void *memory, const int32_t *errors,
                 prowd_rate rate, const prowd_draws *draws);

/* Only the gradients of every convolution, first to last, one after the other; the weights stay. */
void prowd_gradients(const prowd_net *net, const int16_t *const *weights, int32_t images, void *memory,
                     const int32_t *errors, int64_t *gradients);

/* One layer's weights by their gradient: q - Q_stoch(rate g / Shift(max |g|)), clipped. */
void prowd_update(int bits, int16_t *weights, const int64_t *gradient, size_t count, prowd_rate rate,
                  const prowd_draws *draws, uint32_t layer);

/* The order of an epoch: a permutation of 0 to count - 1. */
void prowd_permutation(const uint32_t key[2], uint32_t epoch, uint32_t *order, uint32_t count);

enum { PROWD_CROP = 1, PROWD_FLIP = 2, PROWD_ROTATE = 4 };

/* One image of bytes varied as image `number` of a step's batch. `turns` holds cosine and sine of 0 to 60 quarters of
 * a degree with 15 fraction bits; it may be NULL without PROWD_ROTATE. `is_signed`: bytes are int8, not uint8. */
void prowd_augment(const uint8_t *image, int32_t channels, int32_t rows, int32_t columns, int operations,
                   const int16_t (*turns)[2], int is_signed, const uint32_t key[2], uint32_t step, uint32_t number,
                   uint8_t *varied);

#endif
