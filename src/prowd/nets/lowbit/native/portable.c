/* Plain C with the lanes of AVX512-VNNI: slow, for tests of what the wide kernels do around their instructions. */
#include "target.h"

#include "layout.h"

#include <string.h>

#define LANES 16
#define POSITIONS 8
#define LIMITED 0
#define CUT 0
#define GRADIENT_BLOCK 128

typedef struct {
    int32_t lane[LANES];
} V;

static V load(const void *p) {
    V v;
    memcpy(v.lane, p, sizeof v.lane);
    return v;
}

static void store(void *p, V v) { memcpy(p, v.lane, sizeof v.lane); }

static V broadcast(int32_t value) {
    V v;
    for (int i = 0; i < LANES; i++) v.lane[i] = value;
    return v;
}

/* Sums wrap around, as those of vectors do. */
static V add(V a, V b) {
    for (int i = 0; i < LANES; i++) a.lane[i] = (int32_t)((uint32_t)a.lane[i] + (uint32_t)b.lane[i]);
    return a;
}

static V dot4(V s, V u, V t) {
    const Factor *x = (const Factor *)u.lane;
    const int8_t *w = (const int8_t *)t.lane;
    for (int i = 0; i < 4 * LANES; i++) s.lane[i / 4] = (int32_t)((uint32_t)s.lane[i / 4] + (uint32_t)(x[i] * w[i]));
    return s;
}

#define SUM V
#define NOTHING ZERO
#define LOAD(p) load(p)
#define BROADCAST(p) broadcast(four(p))
#define STORE(p, v) store(p, v)
#define ZERO broadcast(0)
#define ADD(a, b) add(a, b)
#define MULTIPLY(s, u, t) s = dot4(s, u, t)
#define WIDEN(s) (s)
#define DOT(s, u, t) s = dot4(s, u, t)
#define KERNELS portable_kernels
#define NAME "portable"
#include "products.h"
