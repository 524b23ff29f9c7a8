/* The three sums of products, written once for all instruction sets.

   The file that includes this defines V, a vector of LANES 32-bit lanes, and
     LOAD(p), BROADCAST(p)   a vector from memory; four bytes of memory in every lane
     ZERO, ADD(a, b)         of 32-bit lanes
     SUM, NOTHING            the type that MULTIPLY adds to, and its zero
     MULTIPLY(s, u, t)       adds to s the products of u (bytes as they lie) and ternary t, in whatever s counts in
     WIDEN(s)                that sum as 32-bit lanes
     DOT(s, u, t)            adds to s the products of u and signed bytes t, in 32 bits
     STORE(p, v)
     LIMITED                 1 where MULTIPLY counts in 16 bits
     CUT                     1 where that pays for weight gradients, by pairs of products; SUM is V then
     GRADIENT_BLOCK          positions of which the sums of a weight gradient are kept in registers
     POSITIONS               output positions computed together
     KERNELS, NAME           the name of the table made at the end
*/
#include "vectors.h"

#include <string.h>

enum { BLOCK = 64 };

/* Keeps the compiler from gathering all loads of a tile first, for which it has not enough registers. */
#define IN_ORDER __asm__ __volatile__("" ::: "memory")

static ALWAYS_INLINE int32_t four(const void *p) {
    int32_t value;
    memcpy(&value, p, 4);
    return value;
}

/* The sizes of windows that are short enough to be written out, and common: those of the first two layers. */
enum { FIRST_TAPS = 3, FIRST_GROUPS = 3, SECOND_GROUPS = 12 };

/* Sums over a window of so many taps and groups, known when compiled and few enough for a 16-bit sum. */
static ALWAYS_INLINE void short_tile(const Products *p, const uint8_t *const *x, ptrdiff_t shift, const int8_t *w,
                                     ptrdiff_t apart, const int taps, const int groups, const int32_t *start,
                                     int32_t (*sums)[2 * LANES]) {
    SUM s[POSITIONS][2];
    for (int j = 0; j < POSITIONS; j++) s[j][0] = s[j][1] = NOTHING;
    for (int t = 0; t < taps; t++) {
        const ptrdiff_t tap = p->taps[t] + shift;
        for (int g = 0; g < groups; g++, w += 4 * LANES) {
            const V t0 = LOAD(w), t1 = LOAD(w + apart);
            for (int j = 0; j < POSITIONS; j++) {
                const V u = BROADCAST(x[j] + tap + 4 * g);
                MULTIPLY(s[j][0], u, t0);
                MULTIPLY(s[j][1], u, t1);
            }
            IN_ORDER;
        }
    }
    for (int j = 0; j < POSITIONS; j++)
        for (int v = 0; v < 2; v++) STORE(&sums[j][v * LANES], ADD(LOAD(start + v * LANES), WIDEN(s[j][v])));
}

/* Sums for POSITIONS positions and `vectors` (1 or 2) vectors of outputs, into sums[position][2 * LANES]; x is read
   `shift` bytes further on. */
static ALWAYS_INLINE void tile(const Products *p, const uint8_t *const *x, ptrdiff_t shift, const int8_t *w,
                               ptrdiff_t apart, const int vectors, const int32_t *start, int32_t (*sums)[2 * LANES]) {
    SUM s[POSITIONS][2];
    for (int j = 0; j < POSITIONS; j++) s[j][0] = s[j][1] = NOTHING;
    int room = p->run;
    const int32_t *so_far = start; /* the same for every position at first, then their own sums */
    ptrdiff_t next = 0;
    for (int t = 0; t < p->tap_count; t++) {
        const ptrdiff_t tap = p->taps[t] + shift;
        int g = 0;
        while (g < p->groups) {
            int end = p->groups;
            if (LIMITED && end - g > room) end = g + room;
            room -= end - g;
            for (; g < end; g++, w += 4 * LANES) {
                const V t0 = LOAD(w), t1 = vectors > 1 ? LOAD(w + apart) : ZERO;
                for (int j = 0; j < POSITIONS; j++) {
                    const V u = BROADCAST(x[j] + tap + 4 * g);
                    MULTIPLY(s[j][0], u, t0);
                    if (vectors > 1) MULTIPLY(s[j][1], u, t1);
                }
            }
            if (LIMITED && room == 0) {
                for (int j = 0; j < POSITIONS; j++)
                    for (int v = 0; v < vectors; v++) {
                        STORE(&sums[j][v * LANES], ADD(LOAD(so_far + j * next + v * LANES), WIDEN(s[j][v])));
                        s[j][v] = NOTHING;
                    }
                room = p->run, so_far = sums[0], next = 2 * LANES;
            }
        }
    }
    for (int j = 0; j < POSITIONS; j++)
        for (int v = 0; v < vectors; v++)
            STORE(&sums[j][v * LANES], ADD(LOAD(so_far + j * next + v * LANES), WIDEN(s[j][v])));
}

/* Codes of 16 outputs and where gradients pass: where clip and ReLU changed nothing, and ReLU gave more than 0. */
static ALWAYS_INLINE void finish_forward(Sums low, Sums high, uint8_t *codes, uint8_t *passes, Forward f) {
    const Shorts r = narrowed(rounded8(low, f.shift), rounded8(high, f.shift));
    const Shorts code = clipped16(r, f.relu ? 0 : -f.largest, f.largest);
    Bytes both[2];
    bytes_of(code, same16(r, f.relu ? at_least16(code, 1) : code), both);
    STORE16(codes, flip_bytes(both[0], all_bytes(f.relu ? 0 : OFFSET)));
    if (f.passes) STORE16(passes, both[1]);
}

/* 16 errors where gradients pass, zero elsewhere; the largest magnitudes are kept lane by lane. */
static ALWAYS_INLINE void finish_backward(const int32_t *n, const uint8_t *passes, int32_t *errors, Sums *largest) {
    for (int half = 0; half < 2; half++) {
        const Sums e = where8(passes + 8 * half, sums8(n + 8 * half));
        store8(errors + 8 * half, e);
        *largest = larger8(*largest, sizes8(e));
    }
}

/* A position. */
typedef struct {
    int image, row, column;
} Place;

static ALWAYS_INLINE ptrdiff_t bytes_to(Place here, Strides at) {
    return here.image * at.image + here.row * at.row + here.column * at.column;
}

static ALWAYS_INLINE void step(Place *here, const Products *p) {
    if (++here->column < p->columns) return;
    here->column = 0;
    if (++here->row < p->rows) return;
    here->row = 0, here->image++;
}

/* All positions in blocks, so that a block's inputs stay near while every output's weights pass over them. */
static ALWAYS_INLINE void multiply(const Products *p, const Forward *forward, Backward *b) {
    const Forward f = forward ? *forward : (Forward){0};
    const int total = p->images * p->rows * p->columns;
    Place here = {0, 0, 0};
    const ptrdiff_t apart = (ptrdiff_t)p->tap_count * p->groups * 4 * LANES; /* from vector to vector of weights */
    const int vectors = p->outputs / LANES;
    const int written_out =
        p->tap_count == FIRST_TAPS && p->groups == FIRST_GROUPS && p->run >= FIRST_TAPS * FIRST_GROUPS;
    Sums largest = no_sums();
    for (int first = 0; first < total; first += BLOCK) {
        const uint8_t *x[BLOCK + POSITIONS];
        uint8_t *codes[BLOCK];
        const int count = total - first < BLOCK ? total - first : BLOCK;
        for (int j = 0; j < count; j++) {
            x[j] = p->x + bytes_to(here, p->at);
            if (forward) codes[j] = f.codes + bytes_to(here, f.at);
            step(&here, p);
        }
        for (int j = count; j < count + POSITIONS; j++) x[j] = x[count - 1];
        for (int v = 0; v < vectors; v += 2) {
            const int some = vectors - v > 1 ? 2 : 1, output = v * LANES;
            const int8_t *w = p->weights + v * apart;
            for (int j = 0; j < count; j += POSITIONS) {
                int32_t sums[POSITIONS][2 * LANES];
                if (some > 1 && written_out)
                    short_tile(p, x + j, 0, w, apart, FIRST_TAPS, FIRST_GROUPS, p->start + output, sums);
                else if (some > 1)
                    tile(p, x + j, 0, w, apart, 2, p->start + output, sums);
                else
                    tile(p, x + j, 0, w, apart, 1, p->start + output, sums);
                const int real = count - j < POSITIONS ? count - j : POSITIONS;
                for (int i = 0; i < real; i++) {
                    const ptrdiff_t place = (ptrdiff_t)(first + j + i) * p->outputs + output;
                    for (int o = 0; o < some * LANES; o += CHANNELS)
                        if (forward)
                            finish_forward(sums8(sums[i] + o), sums8(sums[i] + o + 8), codes[j + i] + output + o,
                                           f.passes ? f.passes + place + o : NULL, f);
                        else
                            finish_backward(sums[i] + o, b->passes + place + o, b->errors + place + o, &largest);
                }
            }
        }
    }
    if (b) {
        int32_t lanes[8];
        store8(lanes, largest);
        for (int i = 0; i < 8; i++)
            if (lanes[i] > b->largest) b->largest = lanes[i];
    }
}

static void forward(const Products *p, const Forward *f) {
    Forward known = *f; /* what the compiler knows it need not ask at every value */
    if (f->relu && f->passes) {
        known.relu = 1;
        multiply(p, &known, NULL);
    } else if (f->relu) {
        known.relu = 1, known.passes = NULL;
        multiply(p, &known, NULL);
    } else {
        known.relu = 0;
        multiply(p, &known, NULL);
    }
}

static void backward(const Products *p, Backward *b) { multiply(p, NULL, b); }

#include "pairs.h"
#include "gradients.h"

const Kernels KERNELS = {NAME, LANES, forward, forward_pairs, backward, gradient};
END_TARGET
