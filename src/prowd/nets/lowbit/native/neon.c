/* NEON as every AArch64 CPU has it (Pi 3 and 4): byte by byte, products are added up in 16 bits and then widened. */
#if defined(__AARCH64EL__)
#include "target.h"

#include "vectors.h"

/* Sums of 8 lanes before they are widened: of each byte of a lane on its own, two lanes a register. */
typedef struct {
    int16x8_t part[4];
} Parts;

static ALWAYS_INLINE Parts multiplied(Parts s, Sums u, Sums t) {
    const int8x16_t u0 = vreinterpretq_s8_s32(u.low), u1 = vreinterpretq_s8_s32(u.high);
    const int8x16_t t0 = vreinterpretq_s8_s32(t.low), t1 = vreinterpretq_s8_s32(t.high);
    return (Parts){{vmlal_s8(s.part[0], vget_low_s8(u0), vget_low_s8(t0)), vmlal_high_s8(s.part[1], u0, t0),
                    vmlal_s8(s.part[2], vget_low_s8(u1), vget_low_s8(t1)), vmlal_high_s8(s.part[3], u1, t1)}};
}

static ALWAYS_INLINE int32x4_t four_lanes(int16x8_t a, int16x8_t b) {
    return vpaddq_s32(vpaddlq_s16(a), vpaddlq_s16(b));
}

static ALWAYS_INLINE Sums widened(Parts s) {
    return (Sums){four_lanes(s.part[0], s.part[1]), four_lanes(s.part[2], s.part[3])};
}

/* Two products of codes of 8 bits stay within 16. */
static ALWAYS_INLINE int32x4_t dot4(int32x4_t s, int32x4_t u, int32x4_t t) {
    const int8x16_t x = vreinterpretq_s8_s32(u), y = vreinterpretq_s8_s32(t);
    return vpadalq_s16(s, vpaddq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)), vmull_high_s8(x, y)));
}

#define SUM Parts
#define NOTHING ((Parts){{vdupq_n_s16(0), vdupq_n_s16(0), vdupq_n_s16(0), vdupq_n_s16(0)}})
#define POSITIONS 2
#define LIMITED 1
#define MULTIPLY(s, u, t) s = multiplied(s, u, t)
#define WIDEN(s) widened(s)
#define KERNELS neon_kernels
#define NAME "neon"
#include "neon.h"
#endif
