/* An update as bytes: made anew whenever some of them are asked for, so that none has to be kept. */
#include <string.h>

#include "client.h"
#include "numbers.h"

enum { HEAD = 32, LIMBS = 6, TRITS = 5, RANDOM = 24, RATE_BITS = 8 };

static uint32_t weights_of(uint32_t tensor) {
    const int32_t end = tensor + 1 < NET_STAGES ? net_stages[tensor + 1].weights : NET_WEIGHTS;
    return (uint32_t)(end - net_stages[tensor].weights);
}

static int bits_of(uint64_t x) {
    int bits = 0;
    for (; x; x >>= 1) bits++;
    return bits;
}

/* The bits of the double m 2^exponent, m below 2^53. */
static uint64_t as_double(uint64_t m, int exponent, int is_negative) {
    const int bits = bits_of(m);
    if (!m) return 0;
    return (uint64_t)is_negative << 63 | (uint64_t)(1023 + exponent + bits - 1) << 52 |
           (m << (53 - bits) & ((UINT64_C(1) << 52) - 1));
}

/* --- how far the weights moved -------------------------------------------------------------------------------------- */

#if NET_REPLY != 0
static int32_t moved(const prowd_client *c, uint32_t place) { return (int32_t)c->weights[place] - c->received[place]; }

static uint32_t size_of(const prowd_client *c, uint32_t place) {
    const int32_t n = moved(c, place);
    return (uint32_t)(n < 0 ? -n : n);
}
#endif

#if NET_REPLY == 1
/* By which power of two a movement is divided so that it fits the codes that are sent. */
static void prepare(prowd_client *c, uint32_t tensor) {
    const uint32_t first = (uint32_t)net_stages[tensor].weights;
    uint32_t largest = 0;
    int exponent = 0;
    if (!tensor) prowd_key(c->task.seed, "movement", c->task.round, c->task.client, c->movement);
    for (uint32_t i = 0; i < weights_of(tensor); i++) {
        const uint32_t size = size_of(c, first + i);
        largest = size > largest ? size : largest;
    }
    while (largest > (uint32_t)prowd_max_code(NET_REPLY_BITS) << exponent) exponent++;
    c->moved[tensor].exponent = exponent;
}

static uint64_t scale_of(const prowd_client *c, uint32_t tensor) {
    return as_double(1, c->moved[tensor].exponent + NET_REPLY_BITS - NET_BITS, 0);
}

static int32_t code_of(const prowd_client *c, uint32_t tensor, uint32_t i) {
    const int exponent = c->moved[tensor].exponent;
    const int32_t n = moved(c, (uint32_t)net_stages[tensor].weights + i);
    if (!exponent) return n;
    uint32_t words[4];
    prowd_philox(c->movement, 0, tensor, i / 4, words);
    const int64_t chance = (int64_t)(words[i % 4] >> (32 - RANDOM)) << exponent;
    return (int32_t)((n * ((int64_t)1 << RANDOM) + chance) >> (RANDOM + exponent));
}

#elif NET_REPLY == 2
/* x times a number of 64 bits. */
static void times(uint32_t x[LIMBS], uint64_t by) {
    uint32_t found[LIMBS] = {0};
    for (int half = 0; half < 2; half++) {
        uint64_t carry = 0;
        for (int i = 0; i + half < LIMBS; i++) {
            carry += (uint64_t)x[i] * (uint32_t)(by >> (32 * half)) + found[i + half];
            found[i + half] = (uint32_t)carry, carry >>= 32;
        }
    }
    memcpy(x, found, sizeof found);
}

/* Whether a^2 b >= c^2 d. */
static int is_as_good(uint64_t a, uint32_t b, uint64_t c, uint32_t d) {
    uint32_t one[LIMBS] = {1}, two[LIMBS] = {1};
    times(one, a), times(one, a), times(one, b);
    times(two, c), times(two, c), times(two, d);
    for (int i = LIMBS - 1; i >= 0; i--)
        if (one[i] != two[i]) return one[i] > two[i];
    return 1;
}

/* The nearest m 2^exponent to a / b, m of 8 bits and odd; of two that are as near, the one with an even last bit. */
static void nearest(uint64_t a, uint64_t b, uint32_t *mantissa, int32_t *exponent) {
    int e = bits_of(a) - bits_of(b) - RATE_BITS;
    e += a << (e < 0 ? -e : 0) >= b << (e > 0 ? e : 0) << RATE_BITS;
    a <<= e < 0 ? -e : 0, b <<= e > 0 ? e : 0;
    const uint64_t rest = a % b;
    uint64_t m = a / b;
    m += 2 * rest > b || (2 * rest == b && m % 2 == 1);
    for (; m % 2 == 0; m /= 2) e++;
    *mantissa = (uint32_t)m, *exponent = e;
}

/* From which size on entries become a level, and the level: sizes are tried from the largest down, as they come. */
static void prepare(prowd_client *c, uint32_t tensor) {
    const uint32_t first = (uint32_t)net_stages[tensor].weights, count = weights_of(tensor);
    const uint64_t furthest = 2 * (uint64_t)prowd_max_code(NET_BITS);
    uint32_t kept = 0, best_kept = 0, threshold = 0, above = UINT32_MAX;
    uint64_t along = 0, best_along = 0, square = 0;
    for (;;) {
        uint32_t size = 0, found = 0;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t n = size_of(c, first + i);
            if (n >= above || n < size) continue;
            found = n > size ? 1 : found + 1, size = n;
        }
        if (!size) break;
        kept += found, along += (uint64_t)found * size, square += (uint64_t)found * size * size, above = size;
        if (is_as_good(along, best_kept, best_along, kept)) threshold = size, best_kept = kept, best_along = along;
    }
    c->moved[tensor].threshold = threshold;
    if (!threshold) return;
    const int is_far = square > furthest * best_along;
    nearest(is_far ? furthest : square, is_far ? 1 : best_along, &c->moved[tensor].mantissa, &c->moved[tensor].exponent);
}

static uint64_t scale_of(const prowd_client *c, uint32_t tensor) {
    if (!c->moved[tensor].threshold) return as_double(1, 0, 0);
    return as_double(c->moved[tensor].mantissa, c->moved[tensor].exponent + 2 - NET_BITS, 0);
}

static int32_t code_of(const prowd_client *c, uint32_t tensor, uint32_t i) {
    const uint32_t place = (uint32_t)net_stages[tensor].weights + i, least = c->moved[tensor].threshold;
    if (!least || size_of(c, place) < least) return 0;
    return moved(c, place) < 0 ? -1 : 1;
}

#else
static void prepare(prowd_client *c, uint32_t tensor) { (void)c, (void)tensor; }

static uint64_t scale_of(const prowd_client *c, uint32_t tensor) {
    (void)c, (void)tensor;
    return as_double(1, 0, 0);
}

static int32_t code_of(const prowd_client *c, uint32_t tensor, uint32_t i) {
    const int32_t code = c->weights[(uint32_t)net_stages[tensor].weights + i];
    return NET_REPLY_BITS < NET_BITS ? prowd_ternary(code, NET_BITS) : code;
}
#endif

/* --- bytes, one after the other ------------------------------------------------------------------------------------- */

/* Where bytes go: those from `from` on, `count` of them, are written; of all the checksum is kept. */
typedef struct {
    uint32_t at, from, count, crc;
    uint8_t *bytes;
} Sink;

static void put(Sink *s, const uint8_t *bytes, uint32_t count) {
    if (!s->bytes) s->crc = prowd_crc(s->crc, bytes, count);
    for (uint32_t i = 0; s->bytes && i < count; i++)
        if (s->at + i - s->from < s->count) s->bytes[s->at + i - s->from] = bytes[i];
    s->at += count;
}

static void put_byte(Sink *s, uint32_t byte) {
    const uint8_t one = (uint8_t)byte;
    put(s, &one, 1);
}

static int is_done(const Sink *s) { return s->bytes && s->at >= s->from + s->count; }

static int is_before(const Sink *s, uint32_t count) { return s->bytes && s->at + count <= s->from; }

static void put_rows(const prowd_client *c, Sink *s) {
    uint32_t at = 0;
    for (uint32_t tensor = 0; tensor < NET_STAGES; tensor++) {
        uint8_t scale[8];
        prowd_put64(scale, scale_of(c, tensor));
        put(s, net_reply_rows + at, net_scales[tensor] - at), put(s, scale, sizeof scale);
        at = net_scales[tensor] + (uint32_t)sizeof scale;
    }
    put(s, net_reply_rows + at, NET_REPLY_ROWS - at);
}

static void put_codes(const prowd_client *c, Sink *s, uint32_t tensor) {
    const uint32_t count = weights_of(tensor);
    const int32_t largest = prowd_max_code(NET_REPLY_BITS);
    uint32_t held = 0;
    int bits = 0;
    for (uint32_t i = 0; i < count && !is_done(s); i++) {
        if (NET_REPLY_BITS == 2) {
            static const uint8_t places[TRITS] = {1, 3, 9, 27, 81};
            held += places[i % TRITS] * (uint32_t)(code_of(c, tensor, i) + largest);
            if (i % TRITS == TRITS - 1 || i == count - 1) put_byte(s, held), held = 0;
            continue;
        }
        held |= (uint32_t)(code_of(c, tensor, i) + largest) << bits, bits += NET_REPLY_BITS;
        for (; bits >= 8; bits -= 8, held >>= 8) put_byte(s, held);
    }
    if (bits && !is_done(s)) put_byte(s, held);
}

static void put_body(const prowd_client *c, Sink *s) {
    put_rows(c, s);
    for (uint32_t tensor = 0; tensor < NET_STAGES; tensor++) {
        const uint32_t count = weights_of(tensor);
        const uint32_t size = NET_REPLY_BITS == 2 ? (count + TRITS - 1) / TRITS : (count * NET_REPLY_BITS + 7) / 8;
        if (is_before(s, size))
            s->at += size;
        else
            put_codes(c, s, tensor);
    }
}

static void put_head(const prowd_client *c, Sink *s) {
    uint8_t head[24 + HEAD] = "PRWD\2\2\0";
    const int64_t mean = c->loss; /* with 16 fraction bits */
    head[7] = 0;
    prowd_put32(head + 8, HEAD), prowd_put64(head + 12, 4 + NET_REPLY_ROWS + NET_REPLY_PAYLOADS);
    prowd_put32(head + 24, c->task.round), prowd_put32(head + 28, c->task.client);
    head[32] = NET_BITS, prowd_put64(head + 33, c->card.count);
    memcpy(head + 41, "\1\0\4loss", 7);
    prowd_put64(head + 48, as_double((uint64_t)(mean < 0 ? -mean : mean), -16, mean < 0));
    prowd_put32(head + 20, prowd_crc(prowd_crc(0, head, 20), head + 24, HEAD));
    put(s, head, sizeof head);
}

void prowd_seal(prowd_client *c) {
    Sink s = {0, 0, 0, 0, NULL};
    for (uint32_t tensor = 0; tensor < NET_STAGES; tensor++) prepare(c, tensor);
    put_body(c, &s);
    c->update_crc = s.crc;
}

void prowd_give(const prowd_client *c, uint32_t offset, uint32_t count, uint8_t *bytes) {
    Sink s = {0, offset, count, 0, bytes};
    uint8_t crc[4];
    prowd_put32(crc, c->update_crc);
    put_head(c, &s), put(&s, crc, 4), put_body(c, &s);
}
