/* What both kinds of NEON share: a vector is two registers. The file that includes this defines dot4. */
#define V Sums
#define LANES 8
#define CUT 0
#define GRADIENT_BLOCK 128
#define LOAD(p) sums8((const int32_t *)(const void *)(p))
#define BROADCAST(p) ((V){vdupq_n_s32(four(p)), vdupq_n_s32(four(p))})
#define STORE(p, v) store8(p, v)
#define ZERO no_sums()
#define ADD(a, b) add8(a, b)
#define DOT(s, u, t) s = ((V){dot4((s).low, (u).low, (t).low), dot4((s).high, (u).high, (t).high)})
#include "products.h"
