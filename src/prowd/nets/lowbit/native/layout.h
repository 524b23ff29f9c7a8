/* What the kernels compute on, in every instruction set alike.

   Images lie as [image][row][column][channel], one byte a value, channels padded to a multiple of 16 (4 for the images
   of the first layer) and the borders filled, so that no kernel asks where an image ends. A byte is a code as it is
   where codes are never negative (after a ReLU), else OFFSET + code. Weights are ternary.

   Four images (or four input channels) at a time go into one 32-bit lane: that is what the dot-product instructions of
   a CPU take, four bytes times four with a sign. Those of x86-64 want the first four without a sign, those of AArch64
   with one, so a code lies as it is there. */
#ifndef PROWD_LAYOUT_H
#define PROWD_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define OFFSET 128 /* what is added to a signed code to make it a byte */
typedef uint8_t Factor; /* a byte, as it is multiplied */
#else
#define OFFSET 0
typedef int8_t Factor;
#endif
#define CHANNELS 16 /* channels are padded to a multiple of this */

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Where the values of an image lie: bytes between images, rows and columns. */
typedef struct {
    ptrdiff_t image, row, column;
} Strides;

/* Sums of products of ternary weights and bytes: n[position][output] = start[output] + sum t * x. */
typedef struct {
    const uint8_t *x;
    Strides at;
    int images, rows, columns; /* output positions */
    const ptrdiff_t *taps;     /* where the rows of a window lie, seen from an output position */
    int tap_count, groups;     /* a row is so many groups of four bytes: columns and channels lie side by side */
    int run;                   /* how many products of pairs a 16-bit sum can hold */
    const int8_t *weights;     /* [outputs / lanes][tap][group][lane][4] */
    const int32_t *start;
    int outputs;
} Products;

/* Room in which the inputs of some images are paired (see pairs.h). */
typedef struct {
    uint8_t *room;
    int images, channels;
} Pairing;

/* What becomes of the sums in a forward pass: code = clip(round_half_even(n / 2^shift)), and where gradients pass. */
typedef struct {
    uint8_t *codes;
    Strides at;
    uint8_t *passes; /* [position][output], 255 or 0 */
    int shift, largest, relu;
    int pool; /* whether the codes are the largest of windows of two by two (of pairs only, and without passes) */
} Forward;

/* And in a backward pass: the sums where gradients pass, zero elsewhere, and the largest magnitude. */
typedef struct {
    int32_t *errors; /* [position][output] */
    const uint8_t *passes;
    int32_t largest;
} Backward;

/* g[output][tap][input] += sum over images and positions of e * a, four images at a time. Both lie in blocks of 16
   channels, [image / 4][block][row][column][channel][4], so that a tile reads memory in one stream. */
typedef struct {
    const uint8_t *a;
    Strides a_at;
    ptrdiff_t a_block; /* bytes from block to block */
    const int8_t *e;
    Strides e_at;
    ptrdiff_t e_block;
    int fours, rows, columns; /* groups of four images, positions of e */
    const ptrdiff_t *taps;
    int tap_count, inputs, outputs;
    int largest; /* code of a */
    int32_t *g;
} Gradient;

/* One instruction set's share. */
typedef struct {
    const char *name;
    int lanes; /* 32-bit lanes of a vector */
    void (*forward)(const Products *, const Forward *);
    void (*forward_pairs)(const Products *, const Forward *, const Pairing *);
    void (*backward)(const Products *, Backward *);
    void (*gradient)(const Gradient *);
} Kernels;

/* Those that can be compiled for this kind of CPU. */
extern const Kernels avx512vnni_kernels, avx2_kernels, neondot_kernels, neon_kernels, portable_kernels;

#endif
