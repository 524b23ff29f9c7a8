/* Forward sums of windows three columns wide, two columns of outputs at a time: four products in place of six.

   Of four neighbouring inputs d and three weights g (Winograd 1980, F(2, 3)):
     y0 = d0 g0 + d1 g1 + d2 g2 = m0 + (m1 + m2) / 2      m0 = (d0 - d2) g0     m1 = (d1 + d2) (g0 + g1 + g2)
     y1 = d1 g0 + d2 g1 + d3 g2 = (m1 - m2) / 2 - m3      m3 = (d1 - d3) g2     m2 = (d2 - d1) (g0 - g1 + g2)
   Codes after a ReLU lie in 0..127, so these sums and differences are bytes again: the differences plus the largest
   code where bytes have no sign, the sums less it where they have one. All is exact: what is summed and rounded is
   2 y. Included by products.h. */

enum { PARTS_OF_PAIR = 4, PAIRS = 32 };

/* Inputs [image][row][column][channel] as [image][pair][part][row][channel]: a window of a part lies in one piece. */
static void pair_up(const uint8_t *x, Strides at, int images, int rows, int pairs, Pairing q, int largest) {
    const Bytes up = all_bytes(OFFSET ? largest : 0), down = all_bytes(OFFSET ? 0 : largest);
    const ptrdiff_t part = (ptrdiff_t)rows * q.channels;
    for (int n = 0; n < images; n++)
        for (int y = 0; y < rows; y++) {
            const uint8_t *from = x + n * at.image + y * at.row;
            uint8_t *to = q.room + n * pairs * PARTS_OF_PAIR * part + (ptrdiff_t)y * q.channels;
            for (int j = 0; j < pairs; j++, from += 2 * at.column, to += PARTS_OF_PAIR * part)
                for (int c = 0; c < q.channels; c += CHANNELS) {
                    const Bytes d0 = LOAD16(from + c), d1 = LOAD16(from + at.column + c);
                    const Bytes d2 = LOAD16(from + 2 * at.column + c), d3 = LOAD16(from + 3 * at.column + c);
                    STORE16(to + c, add_bytes(take_bytes(d0, d2), up));
                    STORE16(to + part + c, take_bytes(add_bytes(d1, d2), down));
                    STORE16(to + 2 * part + c, add_bytes(take_bytes(d2, d1), up));
                    STORE16(to + 3 * part + c, add_bytes(take_bytes(d1, d3), up));
                }
        }
}

/* Twice the sums of both positions of a pair, eight outputs. */
static ALWAYS_INLINE void positions_of(const int32_t (*sums)[PAIRS][2 * LANES], int pair, int o, Sums *y) {
    const Sums m0 = sums8(sums[0][pair] + o), m1 = sums8(sums[1][pair] + o);
    const Sums m2 = sums8(sums[2][pair] + o), m3 = sums8(sums[3][pair] + o);
    y[0] = add8(add8(m0, m0), add8(m1, m2));
    y[1] = take8(take8(m1, m2), add8(m3, m3));
}

/* The codes of both positions of a pair, sixteen outputs. */
static ALWAYS_INLINE void finish_pair(const int32_t (*sums)[PAIRS][2 * LANES], int pair, int o, uint8_t *codes,
                                      uint8_t *passes, ptrdiff_t outputs, Forward f) {
    Sums low[2], high[2];
    positions_of(sums, pair, o, low);
    positions_of(sums, pair, o + 8, high);
    finish_forward(low[0], high[0], codes, passes, f);
    finish_forward(low[1], high[1], codes + f.at.column, passes ? passes + outputs : NULL, f);
}

/* The largest code of a window of two pairs: rounding and clipping leave the order as it is. */
static ALWAYS_INLINE void finish_window(const int32_t (*sums)[PAIRS][2 * LANES], int pair, int o, uint8_t *codes,
                                        Forward f) {
    Sums most[2];
    for (int half = 0; half < 2; half++) {
        Sums upper[2], lower[2];
        positions_of(sums, pair, o + 8 * half, upper);
        positions_of(sums, pair + 1, o + 8 * half, lower);
        most[half] = larger8(larger8(upper[0], upper[1]), larger8(lower[0], lower[1]));
    }
    finish_forward(most[0], most[1], codes, NULL, f);
}

/* The sums of one part for a block of pairs and one or two vectors of outputs. */
static ALWAYS_INLINE void multiply_part(const Products *p, const uint8_t *const *x, int count, ptrdiff_t shift, int v,
                                        ptrdiff_t apart, int32_t (*sums)[2 * LANES]) {
    const int8_t *w = p->weights + v * apart;
    const int32_t *start = p->start + v * LANES;
    const int two = p->outputs - v * LANES > LANES, written_out = p->groups == SECOND_GROUPS && p->run >= SECOND_GROUPS;
    for (int j = 0; j < count; j += POSITIONS)
        if (two && written_out)
            short_tile(p, x + j, shift, w, apart, 1, SECOND_GROUPS, start, sums + j);
        else if (two)
            tile(p, x + j, shift, w, apart, 2, start, sums + j);
        else
            tile(p, x + j, shift, w, apart, 1, start, sums + j);
}

/* All pairs of some images, in blocks; p is as of the pairs, in which a part has so many bytes. Where windows are
   pooled, a position is a window, of two pairs one below the other. */
static ALWAYS_INLINE void multiply_pairs(const Products *p, const Forward f, ptrdiff_t bytes) {
    const int high = f.pool ? 2 : 1, wide = f.pool ? 1 : 2; /* pairs of a position; columns of codes of a position */
    const int total = p->images * p->rows * p->columns, vectors = p->outputs / LANES;
    const ptrdiff_t apart = (ptrdiff_t)p->groups * 4 * LANES;
    const Strides from = {p->at.image, high * p->at.row, p->at.column};
    const Strides to = {f.at.image, f.at.row, wide * f.at.column};
    Products part[PARTS_OF_PAIR];
    for (int m = 0; m < PARTS_OF_PAIR; m++) {
        part[m] = *p;
        part[m].weights += m * vectors * apart, part[m].start += m * p->outputs;
        if (m == 1 || m == 2) part[m].run /= 3; /* sums of three ternary weights */
    }
    Place here = {0, 0, 0};
    for (int first = 0; first < total; first += PAIRS / high) {
        const uint8_t *x[PAIRS + POSITIONS];
        uint8_t *codes[PAIRS];
        const int count = total - first < PAIRS / high ? total - first : PAIRS / high;
        for (int j = 0; j < count; j++) {
            for (int k = 0; k < high; k++) x[j * high + k] = p->x + bytes_to(here, from) + k * p->at.row;
            codes[j] = f.codes + bytes_to(here, to);
            step(&here, p);
        }
        for (int j = count * high; j < count * high + POSITIONS; j++) x[j] = x[count * high - 1];
        for (int v = 0; v < vectors; v += 2) {
            const int output = v * LANES, some = vectors - v > 1 ? 2 * LANES : LANES;
            int32_t sums[PARTS_OF_PAIR][PAIRS][2 * LANES];
            for (int m = 0; m < PARTS_OF_PAIR; m++)
                multiply_part(&part[m], x, count * high, m * bytes, v, apart, sums[m]);
            const int32_t(*all)[PAIRS][2 * LANES] = (const int32_t(*)[PAIRS][2 * LANES])sums;
            for (int j = 0; j < count; j++)
                for (int o = 0; o < some; o += CHANNELS) {
                    uint8_t *code = codes[j] + output + o;
                    const ptrdiff_t place = 2 * (ptrdiff_t)(first + j) * p->outputs + output + o;
                    if (f.pool)
                        finish_window(all, 2 * j, o, code, f);
                    else
                        finish_pair(all, j, o, code, f.passes ? f.passes + place : NULL, p->outputs, f);
                }
        }
    }
}

/* p is as of a plain forward pass, but for weights and start, which come part by part. */
static void forward_pairs(const Products *p, const Forward *forward, const Pairing *q) {
    const int rows = p->rows + p->tap_count - 1, pairs = p->columns / 2;
    const ptrdiff_t part = (ptrdiff_t)rows * q->channels, here = 0;
    Products each = *p;
    each.at = (Strides){pairs * PARTS_OF_PAIR * part, q->channels, PARTS_OF_PAIR * part};
    each.x = q->room, each.rows = forward->pool ? p->rows / 2 : p->rows, each.columns = pairs;
    each.taps = &here, each.tap_count = 1, each.groups = p->tap_count * q->channels / 4;
    for (int n = 0; n < p->images; n += q->images) {
        each.images = p->images - n < q->images ? p->images - n : q->images;
        pair_up(p->x + n * p->at.image, p->at, each.images, rows, pairs, *q, forward->largest);
        Forward f = *forward; /* what the compiler knows it need not ask at every value */
        f.shift++;            /* twice the sums */
        f.codes += n * f.at.image;
        if (f.passes) f.passes += (ptrdiff_t)n * p->rows * p->columns * p->outputs;
        if (f.pool && f.relu)
            f.relu = 1, f.pool = 1, f.passes = NULL, multiply_pairs(&each, f, part);
        else if (f.pool)
            f.relu = 0, f.pool = 1, f.passes = NULL, multiply_pairs(&each, f, part);
        else if (f.relu && f.passes)
            f.relu = 1, f.pool = 0, multiply_pairs(&each, f, part);
        else
            f.pool = 0, multiply_pairs(&each, f, part);
    }
}
