/* The three sums of products, written once for all instruction sets.

   The file that includes this defines V, a vector of LANES 32-bit lanes, and
     LOAD(p), BROADCAST(p)   a vector from memory; four bytes of memory in every lane
     ZERO, ADD(a, b)         of 32-bit lanes
     MULTIPLY(s, u, t)       adds to s the products of u (bytes without a sign) and ternary t, in whatever s counts in
     WIDEN(s)                that sum as 32-bit lanes
     DOT(s, u, t)            adds to s the products of u and signed bytes t, in 32 bits
     STORE(p, v)
     LIMITED                 1 where MULTIPLY counts pairs in 16 bits
     GRADIENT_BLOCK          positions of which the sums of a weight gradient are kept in registers
     POSITIONS               output positions computed together
     KERNELS, NAME           the name of the table made at the end
*/
#include "rounding.h"

#include <string.h>

enum { BLOCK = 64, TILE_OUTPUTS = 4, MOST_POSITIONS = 512 };

/* A block of positions: groups of four images, and rows. */
typedef struct {
    int fours, rows;
} Extent;

/* Keeps the compiler from gathering all loads of a tile first, for which it has not enough registers. */
#define IN_ORDER __asm__ __volatile__("" ::: "memory")

static ALWAYS_INLINE int32_t four(const void *p) {
    int32_t value;
    memcpy(&value, p, 4);
    return value;
}

/* Sums for POSITIONS positions and `vectors` (1 or 2) vectors of outputs, into sums[position][2 * LANES]. */
static ALWAYS_INLINE void tile(const Products *p, const uint8_t *const *x, const int8_t *w, ptrdiff_t apart,
                               const int vectors, const int32_t *start, int32_t (*sums)[2 * LANES]) {
    V s[POSITIONS][2];
    for (int j = 0; j < POSITIONS; j++) s[j][0] = s[j][1] = ZERO;
    int room = p->run;
    const int32_t *so_far = start; /* the same for every position at first, then their own sums */
    ptrdiff_t next = 0;
    for (int t = 0; t < p->tap_count; t++) {
        const ptrdiff_t tap = p->taps[t];
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
                        s[j][v] = ZERO;
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
static ALWAYS_INLINE void finish_forward(const int32_t *n, uint8_t *codes, uint8_t *passes, Forward f) {
    const __m256i r = divided16(n, f.shift), code = clipped16(r, f.relu ? 0 : -f.largest, f.largest);
    const __m256i pass = _mm256_cmpeq_epi16(r, f.relu ? _mm256_max_epi16(code, _mm256_set1_epi16(1)) : code);
    const __m256i both = bytes_of(code, pass);
    const __m128i offset = _mm_set1_epi8((char)(f.relu ? 0 : OFFSET));
    STORE16(codes, _mm_xor_si128(_mm256_castsi256_si128(both), offset));
    if (f.passes) STORE16(passes, _mm256_extracti128_si256(both, 1));
}

/* 16 errors where gradients pass, zero elsewhere; the largest magnitudes are kept lane by lane. */
static ALWAYS_INLINE void finish_backward(const int32_t *n, const uint8_t *passes, int32_t *errors, __m256i *largest) {
    for (int half = 0; half < 2; half++) {
        const __m256i pass = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(passes + 8 * half)));
        const __m256i e = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(n + 8 * half)), pass);
        _mm256_storeu_si256((__m256i *)(errors + 8 * half), e);
        *largest = _mm256_max_epi32(*largest, _mm256_abs_epi32(e));
    }
}

/* All positions in blocks, so that a block's inputs stay near while every output's weights pass over them. */
static ALWAYS_INLINE void multiply(const Products *p, const Forward *forward, Backward *b) {
    const Forward f = forward ? *forward : (Forward){0};
    const int total = p->images * p->rows * p->columns;
    int image = 0, row = 0, column = 0;
    const ptrdiff_t apart = (ptrdiff_t)p->tap_count * p->groups * 4 * LANES; /* from vector to vector of weights */
    const int vectors = p->outputs / LANES;
    __m256i largest = _mm256_setzero_si256();
    for (int first = 0; first < total; first += BLOCK) {
        const uint8_t *x[BLOCK + POSITIONS];
        uint8_t *codes[BLOCK];
        const int count = total - first < BLOCK ? total - first : BLOCK;
        for (int j = 0; j < count; j++) {
            x[j] = p->x + image * p->at.image + row * p->at.row + column * p->at.column;
            if (forward) codes[j] = f.codes + image * f.at.image + row * f.at.row + column * f.at.column;
            if (++column == p->columns) {
                column = 0;
                if (++row == p->rows) row = 0, image++;
            }
        }
        for (int j = count; j < count + POSITIONS; j++) x[j] = x[count - 1];
        for (int v = 0; v < vectors; v += 2) {
            const int some = vectors - v > 1 ? 2 : 1, output = v * LANES;
            for (int j = 0; j < count; j += POSITIONS) {
                int32_t sums[POSITIONS][2 * LANES];
                if (some > 1)
                    tile(p, x + j, p->weights + v * apart, apart, 2, p->start + output, sums);
                else
                    tile(p, x + j, p->weights + v * apart, apart, 1, p->start + output, sums);
                const int real = count - j < POSITIONS ? count - j : POSITIONS;
                for (int i = 0; i < real; i++) {
                    const ptrdiff_t place = (ptrdiff_t)(first + j + i) * p->outputs + output;
                    for (int o = 0; o < some * LANES; o += CHANNELS)
                        if (forward)
                            finish_forward(sums[i] + o, codes[j + i] + output + o, f.passes ? f.passes + place + o : NULL, f);
                        else
                            finish_backward(sums[i] + o, b->passes + place + o, b->errors + place + o, &largest);
                }
            }
        }
    }
    if (b) {
        int32_t lanes[8];
        _mm256_storeu_si256((__m256i *)lanes, largest);
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

/* Add a tile's sums to g. */
static ALWAYS_INLINE void add_to(int32_t *g, ptrdiff_t apart, const int vectors, V (*s)[2], const int narrow) {
    for (int o = 0; o < TILE_OUTPUTS; o++)
        for (int v = 0; v < vectors; v++) {
            int32_t *place = g + o * apart + v * LANES;
            STORE(place, ADD(LOAD(place), narrow ? WIDEN(s[o][v]) : s[o][v]));
            s[o][v] = ZERO;
        }
}

/* Sums of TILE_OUTPUTS outputs and `vectors` (1 or 2) vectors of inputs over a block of positions; where `narrow`, the
   positions of a run are summed in 16 bits before they are widened. */
static ALWAYS_INLINE void gradient_tile(const Gradient *q, const uint8_t *a, const int8_t *e, Extent block,
                                        const int vectors, const int narrow, const uint16_t *runs, int32_t *g,
                                        ptrdiff_t apart) {
    V s[TILE_OUTPUTS][2];
    for (int o = 0; o < TILE_OUTPUTS; o++) s[o][0] = s[o][1] = ZERO;
    const ptrdiff_t a_step = q->a_at.column, e_step = q->e_at.column;
    const ptrdiff_t second = LANES < CHANNELS ? 4 * LANES : q->a_block;
    int room = narrow ? *runs++ : 0;
    for (int n = 0; n < block.fours; n++)
        for (int y = 0; y < block.rows; y++) {
            const uint8_t *u = a + n * q->a_at.image + y * q->a_at.row;
            const int8_t *t = e + n * q->e_at.image + y * q->e_at.row;
            for (int x = q->columns; x;) {
                const int some = narrow && x > room ? room : x;
                x -= some, room -= some;
                for (int i = some; i; i--, u += a_step, t += e_step) {
                    const V u0 = LOAD(u), u1 = vectors > 1 ? LOAD(u + second) : ZERO;
                    for (int o = 0; o < TILE_OUTPUTS; o++) {
                        const V b = BROADCAST(t + 4 * o);
                        if (narrow) {
                            MULTIPLY(s[o][0], u0, b);
                            if (vectors > 1) MULTIPLY(s[o][1], u1, b);
                        } else {
                            DOT(s[o][0], u0, b);
                            if (vectors > 1) DOT(s[o][1], u1, b);
                        }
                        IN_ORDER;
                    }
                }
                if (narrow && room == 0) {
                    add_to(g, apart, vectors, s, 1);
                    room = *runs++;
                }
            }
        }
    if (!narrow) add_to(g, apart, vectors, s, 0);
}

/* Cut a block into runs of positions whose products, for TILE_OUTPUTS outputs, can be summed in 16 bits: their errors
   times the largest code stay within them. Returns how many runs there are; none where the block is too long. */
static int cut_into_runs(const Gradient *q, const int8_t *e, Extent block, uint16_t *runs) {
    if (block.fours * block.rows * q->columns > MOST_POSITIONS) return 0;
    const __m128i limit = _mm_set1_epi16((short)(INT16_MAX / q->largest)), ones = _mm_set1_epi8(1);
    __m128i sums = _mm_setzero_si128(); /* of the magnitudes of pairs of images */
    int count = 0, length = 0;
    for (int n = 0; n < block.fours; n++)
        for (int y = 0; y < block.rows; y++) {
            const int8_t *t = e + n * q->e_at.image + y * q->e_at.row;
            for (int x = 0; x < q->columns; x++, t += q->e_at.column) {
                const __m128i more = _mm_maddubs_epi16(_mm_abs_epi8(LOAD16(t)), ones);
                sums = _mm_add_epi16(sums, more);
                if (length && _mm_movemask_epi8(_mm_cmpgt_epi16(sums, limit))) {
                    runs[count++] = (uint16_t)length;
                    length = 0, sums = more;
                }
                length++;
            }
        }
    runs[count++] = (uint16_t)length;
    runs[count] = 0; /* read when the last run is done */
    return count;
}

static ALWAYS_INLINE void gradient_tiles(const Gradient *q, const uint8_t *a, const int8_t *e, Extent block,
                                         const int narrow, const uint16_t *runs, int32_t *g) {
    const int vectors = q->inputs / LANES;
    const ptrdiff_t apart = (ptrdiff_t)q->tap_count * q->inputs;
    for (int v = 0; v < vectors; v += 2)
        for (int t = 0; t < q->tap_count; t++) {
            int32_t *place = g + (ptrdiff_t)t * q->inputs + v * LANES;
            const uint8_t *u = a + q->taps[t] + v * LANES / CHANNELS * q->a_block;
            if (vectors - v > 1)
                gradient_tile(q, u, e, block, 2, narrow, runs, place, apart);
            else
                gradient_tile(q, u, e, block, 1, narrow, runs, place, apart);
        }
}

static void gradient(const Gradient *q) {
    /* Blocks that stay in the first-level cache, yet long enough that adding their sums to g costs little. */
    int rows = (GRADIENT_BLOCK + q->columns - 1) / q->columns;
    if (rows > q->rows) rows = q->rows;
    int fours = rows < q->rows ? 1 : GRADIENT_BLOCK / (q->rows * q->columns);
    if (fours < 1) fours = 1;
    for (int n = 0; n < q->fours; n += fours)
        for (int y = 0; y < q->rows; y += rows) {
            const Extent block = {q->fours - n < fours ? q->fours - n : fours, q->rows - y < rows ? q->rows - y : rows};
            const uint8_t *a = q->a + n * q->a_at.image + y * q->a_at.row;
            const int8_t *e = q->e + n * q->e_at.image + y * q->e_at.row;
            for (int o = 0; o < q->outputs; o += TILE_OUTPUTS) {
                const int8_t *b = e + o / CHANNELS * q->e_block + 4 * (o % CHANNELS);
                int32_t *g = q->g + (ptrdiff_t)o * q->tap_count * q->inputs;
                uint16_t runs[MOST_POSITIONS + 1];
                const int count = LIMITED ? cut_into_runs(q, b, block, runs) : 0;
                if (count && block.fours * block.rows * q->columns >= 3 * count) /* shorter runs are not worth it */
                    gradient_tiles(q, a, b, block, 1, runs, g);
                else
                    gradient_tiles(q, a, b, block, 0, runs, g);
            }
        }
}

const Kernels KERNELS = {NAME, LANES, forward, backward, gradient};
END_TARGET
