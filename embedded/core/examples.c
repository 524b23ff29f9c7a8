#include "prowd.h"

#include "numbers.h"

enum { ANGLES = 60, TURN = 15, PLACE = 16, BLEND = 8 };

void prowd_codes(const uint8_t *bytes, size_t count, const int16_t table[256], int16_t *codes) {
    for (size_t i = 0; i < count; i++) codes[i] = table[bytes[i]];
}

void prowd_permutation(const uint32_t key[2], uint32_t epoch, uint32_t *order, uint32_t count) {
    uint32_t words[4] = {0};
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t last = count ? count - 1 : 0; last > 0; last--) {
        if (last == count - 1 || last % 4 == 3) prowd_philox(key, epoch, 0, last / 4, words);
        const uint32_t other = prowd_below(words[last % 4], last + 1), moved = order[last];
        order[last] = order[other];
        order[other] = moved;
    }
}

/* An image, and how one that is varied looks into it. */
typedef struct {
    const uint8_t *plane;
    int32_t rows, columns;
    int is_signed;
} Plane;

static int32_t pixel(const Plane *p, int32_t y, int32_t x) {
    if (y < 0 || y >= p->rows || x < 0 || x >= p->columns) return 0;
    const int32_t found = p->plane[(ptrdiff_t)y * p->columns + x];
    return p->is_signed && found > 127 ? found - 256 : found;
}

/* Pixels around a place given with 16 fraction bits, by their shares of it. */
static uint8_t blended(const Plane *p, int32_t along, int32_t across) {
    const int32_t y = along >> PLACE, x = across >> PLACE;
    const int32_t fy = along >> (PLACE - BLEND) & 255, fx = across >> (PLACE - BLEND) & 255;
    const int32_t top = (256 - fx) * pixel(p, y, x) + fx * pixel(p, y, x + 1);
    const int32_t bottom = (256 - fx) * pixel(p, y + 1, x) + fx * pixel(p, y + 1, x + 1);
    return (uint8_t)(((256 - fy) * top + fy * bottom + ((int32_t)1 << (2 * BLEND - 1))) >> (2 * BLEND));
}

void prowd_augment(const uint8_t *image, int32_t channels, int32_t rows, int32_t columns, int operations,
                   const int16_t (*turns)[2], int is_signed, const uint32_t key[2], uint32_t step, uint32_t number,
                   uint8_t *varied) {
    uint32_t words[4];
    prowd_philox(key, step, 0, number, words);
    const int32_t reach_rows = operations & PROWD_CROP ? rows / 8 : 0;
    const int32_t reach_columns = operations & PROWD_CROP ? columns / 8 : 0;
    const int32_t down = (int32_t)prowd_below(words[0], (uint32_t)(2 * reach_rows + 1)) - reach_rows;
    const int32_t right = (int32_t)prowd_below(words[1], (uint32_t)(2 * reach_columns + 1)) - reach_columns;
    const int32_t side = operations & PROWD_FLIP && words[2] < UINT32_C(0x80000000) ? -1 : 1;
    int32_t cosine = (int32_t)1 << TURN, sine = 0;
    if (operations & PROWD_ROTATE) {
        const int32_t angle = (int32_t)prowd_below(words[3], 2 * ANGLES + 1) - ANGLES;
        cosine = (uint16_t)turns[angle < 0 ? -angle : angle][0]; /* 2^15 itself is the cosine of 0 */
        sine = angle < 0 ? -turns[-angle][1] : turns[angle][1];
    }
    for (int32_t c = 0; c < channels; c++) {
        const Plane plane = {image + (ptrdiff_t)c * rows * columns, rows, columns, is_signed};
        for (int32_t y = 0; y < rows; y++)
            for (int32_t x = 0; x < columns; x++) {
                const int32_t u = side * (2 * x - columns + 1), v = 2 * y - rows + 1; /* half pixels from the centre */
                const int32_t across = cosine * u - sine * v + (2 * right + columns - 1) * ((int32_t)1 << TURN);
                const int32_t along = sine * u + cosine * v + (2 * down + rows - 1) * ((int32_t)1 << TURN);
                *varied++ = blended(&plane, along, across);
            }
    }
}
