/* The vectors of vectors.h in NEON, two registers where AVX2 has one. */
typedef uint8x16_t Bytes;
typedef struct {
    int16x8_t low, high;
} Shorts;
typedef struct {
    int32x4_t low, high;
} Sums;

#define LOAD16(p) vld1q_u8((const uint8_t *)(p))
#define STORE16(p, v) vst1q_u8((uint8_t *)(p), v)
#define BOTH(type, f, a, b) ((type){f((a).low, (b).low), f((a).high, (b).high)})

static ALWAYS_INLINE Bytes all_bytes(int value) { return vdupq_n_u8((uint8_t)value); }
static ALWAYS_INLINE Bytes add_bytes(Bytes a, Bytes b) { return vaddq_u8(a, b); }
static ALWAYS_INLINE Bytes take_bytes(Bytes a, Bytes b) { return vsubq_u8(a, b); }
static ALWAYS_INLINE Bytes flip_bytes(Bytes a, Bytes b) { return veorq_u8(a, b); }
static ALWAYS_INLINE Bytes same_bytes(Bytes a, Bytes b) { return vceqq_u8(a, b); }
static ALWAYS_INLINE Bytes choose_bytes(Bytes mask, Bytes yes, Bytes no) { return vbslq_u8(mask, yes, no); }

/* Of codes, which lie as they are: the larger ones, and what is above and below zero. */
static ALWAYS_INLINE Bytes larger_codes(Bytes a, Bytes b) {
    return vreinterpretq_u8_s8(vmaxq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
}
static ALWAYS_INLINE Bytes positive_part(Bytes a) { return larger_codes(a, all_bytes(0)); }
static ALWAYS_INLINE Bytes negative_part(Bytes a) {
    return larger_codes(vreinterpretq_u8_s8(vnegq_s8(vreinterpretq_s8_u8(a))), all_bytes(0));
}

/* Sixteen bytes of each of four images, byte by byte. */
static ALWAYS_INLINE void interleave16(const Bytes *r, Bytes *out) {
    const uint16x8_t low0 = vreinterpretq_u16_u8(vzip1q_u8(r[0], r[1])), low1 = vreinterpretq_u16_u8(vzip1q_u8(r[2], r[3]));
    const uint16x8_t high0 = vreinterpretq_u16_u8(vzip2q_u8(r[0], r[1]));
    const uint16x8_t high1 = vreinterpretq_u16_u8(vzip2q_u8(r[2], r[3]));
    out[0] = vreinterpretq_u8_u16(vzip1q_u16(low0, low1)), out[1] = vreinterpretq_u8_u16(vzip2q_u16(low0, low1));
    out[2] = vreinterpretq_u8_u16(vzip1q_u16(high0, high1)), out[3] = vreinterpretq_u8_u16(vzip2q_u16(high0, high1));
}

static ALWAYS_INLINE Sums no_sums(void) { return (Sums){vdupq_n_s32(0), vdupq_n_s32(0)}; }
static ALWAYS_INLINE Sums sums8(const int32_t *sums) { return (Sums){vld1q_s32(sums), vld1q_s32(sums + 4)}; }
static ALWAYS_INLINE void store8(int32_t *to, Sums n) { vst1q_s32(to, n.low), vst1q_s32(to + 4, n.high); }
static ALWAYS_INLINE Sums add8(Sums a, Sums b) { return BOTH(Sums, vaddq_s32, a, b); }
static ALWAYS_INLINE Sums take8(Sums a, Sums b) { return BOTH(Sums, vsubq_s32, a, b); }
static ALWAYS_INLINE Sums larger8(Sums a, Sums b) { return BOTH(Sums, vmaxq_s32, a, b); }
static ALWAYS_INLINE Sums sizes8(Sums a) { return (Sums){vabsq_s32(a.low), vabsq_s32(a.high)}; }

/* The sums where a mask of eight bytes says so, zero elsewhere. */
static ALWAYS_INLINE Sums where8(const uint8_t *mask, Sums n) {
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_u8(vld1_u8(mask)));
    const Sums pass = {vmovl_s16(vget_low_s16(wide)), vmovl_high_s16(wide)};
    return BOTH(Sums, vandq_s32, n, pass);
}

/* n * 2^shift; down, towards minus infinity, where shift is negative. */
static ALWAYS_INLINE Sums raised8(Sums n, int shift) {
    const int32x4_t by = vdupq_n_s32(shift);
    return (Sums){vshlq_s32(n.low, by), vshlq_s32(n.high, by)};
}

/* round_half_even(n / 2^shift), shift from 1. */
static ALWAYS_INLINE Sums rounded8(Sums n, int shift) {
    const int32x4_t one = vdupq_n_s32(1), below = vdupq_n_s32((1 << (shift - 1)) - 1);
    const Sums ones = {one, one}, half = {below, below}, whole = raised8(n, -shift);
    const Sums odd = BOTH(Sums, vandq_s32, whole, ones);
    return raised8(add8(add8(n, half), odd), -shift);
}

static ALWAYS_INLINE Shorts narrowed(Sums low, Sums high) {
    return (Shorts){vqmovn_high_s32(vqmovn_s32(low.low), low.high), vqmovn_high_s32(vqmovn_s32(high.low), high.high)};
}

static ALWAYS_INLINE Shorts clipped16(Shorts r, int least, int largest) {
    const int16x8_t low = vdupq_n_s16((int16_t)least), high = vdupq_n_s16((int16_t)largest);
    return (Shorts){vmaxq_s16(vminq_s16(r.low, high), low), vmaxq_s16(vminq_s16(r.high, high), low)};
}

static ALWAYS_INLINE Shorts same16(Shorts a, Shorts b) {
    return (Shorts){vreinterpretq_s16_u16(vceqq_s16(a.low, b.low)), vreinterpretq_s16_u16(vceqq_s16(a.high, b.high))};
}

static ALWAYS_INLINE Shorts at_least16(Shorts a, int least) {
    const int16x8_t low = vdupq_n_s16((int16_t)least);
    return (Shorts){vmaxq_s16(a.low, low), vmaxq_s16(a.high, low)};
}

/* Two rows of numbers as bytes. */
static ALWAYS_INLINE void bytes_of(Shorts first, Shorts second, Bytes *out) {
    out[0] = vreinterpretq_u8_s8(vqmovn_high_s16(vqmovn_s16(first.low), first.high));
    out[1] = vreinterpretq_u8_s8(vqmovn_high_s16(vqmovn_s16(second.low), second.high));
}
