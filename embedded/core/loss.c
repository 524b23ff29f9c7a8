#include "prowd.h"

#include "numbers.h"

enum { ONE = 30, LOSS = 16, LN2 = 45426 };

/* floor(x 2^by), by from -63 to 47. */
static int64_t shifted(int64_t x, int by) { return by >= 0 ? x * ((int64_t)1 << by) : x >> (by < -63 ? 63 : -by); }

/* log2 with 16 fraction bits, each found by squaring a number of 32 bits. */
static int64_t log2_fixed(uint64_t z) {
    int b = 0;
    for (uint64_t y = z; y >>= 1;) b++;
    uint64_t y = b <= 31 ? z << (31 - b) : z >> (b - 31);
    int64_t found = b;
    for (int i = 0; i < LOSS; i++) {
        y = y * y >> 31;
        const int carry = (int)(y >> 32);
        found = 2 * found + carry;
        y >>= carry;
    }
    return found;
}

static int32_t largest_of(const int16_t *codes, int32_t count) {
    int32_t largest = codes[0];
    for (int32_t i = 1; i < count; i++) largest = codes[i] > largest ? codes[i] : largest;
    return largest;
}

int64_t prowd_cross_entropy(const prowd_softmax *softmax, const int16_t *logits, const int32_t *labels, int32_t images,
                            int32_t classes, int32_t *errors) {
    int64_t loss = 0;
    for (int32_t n = 0; n < images; n++, logits += classes, errors += classes) {
        const int32_t largest = largest_of(logits, classes);
        uint64_t total = 0;
        for (int32_t i = 0; i < classes; i++) {
            const uint32_t gap = (uint32_t)(largest - logits[i]);
            errors[i] = (int32_t)((uint64_t)softmax->low[gap & 255] * softmax->high[gap >> 8] >> ONE);
            total += (uint64_t)errors[i];
        }
        const uint64_t inverse = ((uint64_t)1 << 62) / total;
        for (int32_t i = 0; i < classes; i++) errors[i] = (int32_t)((uint64_t)errors[i] * inverse >> 32);
        errors[labels[n]] -= (int32_t)1 << ONE;
        loss += (log2_fixed(total) - ((int64_t)ONE << LOSS)) * LN2 >> LOSS;
        loss += shifted(largest - logits[labels[n]], LOSS + softmax->exponent);
    }
    return loss;
}

int64_t prowd_squared_error(int bits, const int16_t *logits, const int32_t *labels, int32_t images, int32_t classes,
                            int32_t *errors) {
    int64_t loss = 0;
    for (int32_t n = 0; n < images; n++, logits += classes, errors += classes) {
        int64_t total = 0;
        for (int32_t i = 0; i < classes; i++) {
            errors[i] = logits[i] - (i == labels[n] ? prowd_max_code(bits) : 0);
            total += (int64_t)errors[i] * errors[i];
        }
        loss += shifted(total, LOSS - 2 * (bits - 1) - 1);
    }
    return loss;
}
