/* The passes over memory between the products: everything that is not a sum of products. */
#ifndef PROWD_PASSES_H
#define PROWD_PASSES_H

#include "layout.h"
#include "prowd.h"

/* The values of images without their borders. */
typedef struct {
    int images, rows, columns, channels;
    Strides at;
} Box;

/* A pooling window. */
typedef struct {
    int rows, columns, step_rows, step_columns;
} Window;

/* The weights of a layer: codes lie as [output][input][tap], ternary weights as [output][tap][input], padded. */
typedef struct {
    int outputs, inputs, taps, padded_outputs, padded_inputs;
} Weights;

/* How bytes are interleaved: as they are; as signed codes; or as their positive and negative parts. */
enum { PLAIN = 0, SIGNED = 1, PARTS = 2 };

/* Codes of images of bytes, from a table of 256, out of [image][channel][row][column]. */
void load_images(const uint8_t *images, int channels, const uint8_t *table, uint8_t *codes, Box box);

/* Maxima of windows, which place of the window was the first to be largest, and whether gradients pass there; without
   passes, the maxima alone. */
void pool(const uint8_t *codes, const uint8_t *passes, Strides from, Window window, uint8_t *out, Box box,
          uint8_t *out_passes, uint8_t *winners);

/* Bytes of the error codes clip(round_half_even(e * 2^up)); up may be negative. */
void spread_errors(const int32_t *errors, int up, int largest, uint8_t *out, Box box);

/* The same, sent to the winners of windows; the errors of the other places are zero. */
void spread_pooled(const int32_t *errors, int up, int largest, const uint8_t *winners, Window window, uint8_t *out,
                   Box box);

/* [image][pixel][channel] into [image / 4][block][pixel][channel][4], in blocks of 16 channels (8 where there are only
   8); images that are wanting to make four count as zero. -1: no memory. */
int interleave(const uint8_t *from, int images, ptrdiff_t pixels, int channels, int padded, int how, uint8_t *to);

/* Weights in {-1, 0, 1}: 1 where twice the code is above `limit`, -1 below its negative. */
void ternarize(const int16_t *codes, Weights w, int limit, int8_t *ternary);

/* Ternary weights as the products take them, and where their sums start, so that offsets cancel. */
void pack_forward(const int8_t *ternary, Weights w, int lanes, int offset, int8_t *packed, int32_t *start);
/* The same for pairs, part by part: `largest` is what their bytes are shifted by. */
void pack_pairs(const int8_t *ternary, Weights w, int lanes, int largest, int8_t *packed, int32_t *start);
void pack_backward(const int8_t *ternary, Weights w, int lanes, int flat, int8_t *packed, int32_t *start);

/* Take the negative part of a gradient [row][input] away, where it came in two parts; return the largest magnitude. */
int32_t join_gradient(int32_t *g, ptrdiff_t rows, int inputs, int padded, int parts);

/* q <- clip(q - Q_stoch(rate * g / Shift(size))), with g as [output][tap][input], `size` the largest of them. -1: no
   memory. */
int update_codes(int16_t *codes, Weights w, const int32_t *g, int gradient_inputs, int32_t size, prowd_rate rate,
           const prowd_draws *draws, uint32_t layer, int largest);

#endif
