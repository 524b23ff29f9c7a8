/* Sums of products of errors and activations: the weight gradients. Included by products.h. */

enum { TILE_OUTPUTS = 4, MOST_POSITIONS = 512 };

/* A block of positions: groups of four images, and rows. */
typedef struct {
    int fours, rows;
} Extent;

/* How the products of a run are summed. */
#if CUT
#define ADD_TO_RUN(s, u, t) MULTIPLY(s, u, t)
#define RUN(s) WIDEN(s)
#else
#define ADD_TO_RUN(s, u, t) DOT(s, u, t)
#define RUN(s) (s)
#endif

/* Add a tile's sums to g. */
static ALWAYS_INLINE void add_to(int32_t *g, ptrdiff_t apart, const int vectors, V (*s)[2], const int narrow) {
    for (int o = 0; o < TILE_OUTPUTS; o++)
        for (int v = 0; v < vectors; v++) {
            int32_t *place = g + o * apart + v * LANES;
            STORE(place, ADD(LOAD(place), narrow ? RUN(s[o][v]) : s[o][v]));
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
                            ADD_TO_RUN(s[o][0], u0, b);
                            if (vectors > 1) ADD_TO_RUN(s[o][1], u1, b);
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

#if CUT
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
#else
static int cut_into_runs(const Gradient *q, const int8_t *e, Extent block, uint16_t *runs) {
    (void)q, (void)e, (void)block, (void)runs;
    return 0;
}
#endif

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
                const int count = cut_into_runs(q, b, block, runs);
                if (count && block.fours * block.rows * q->columns >= 3 * count) /* shorter runs are not worth it */
                    gradient_tiles(q, a, b, block, 1, runs, g);
                else
                    gradient_tiles(q, a, b, block, 0, runs, g);
            }
        }
}
