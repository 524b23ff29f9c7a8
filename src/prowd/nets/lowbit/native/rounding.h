/* Sixteen sums at a time to sixteen bytes, the way Q_s rounds and clips; and bytes of four images side by side. */
#ifndef PROWD_ROUNDING_H
#define PROWD_ROUNDING_H

#include "layout.h"

#define LOAD16(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE16(p, v) _mm_storeu_si128((__m128i *)(p), v)

/* round_half_even(n / 2^shift) of 8 sums, shift from 1. */
static ALWAYS_INLINE __m256i rounded8(__m256i n, int shift) {
    const __m128i by = _mm_cvtsi32_si128(shift);
    const __m256i odd = _mm256_and_si256(_mm256_sra_epi32(n, by), _mm256_set1_epi32(1));
    const __m256i half = _mm256_set1_epi32((1 << (shift - 1)) - 1);
    return _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(n, half), odd), by);
}

/* Two rows of 8 sums as 16-bit numbers; what does not fit is far beyond any clip and saturates. */
static ALWAYS_INLINE __m256i narrowed(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
}

static ALWAYS_INLINE __m256i sums8(const int32_t *sums) { return _mm256_loadu_si256((const __m256i *)sums); }

static ALWAYS_INLINE __m256i divided16(const int32_t *sums, int shift) {
    return narrowed(rounded8(sums8(sums), shift), rounded8(sums8(sums + 8), shift));
}

static ALWAYS_INLINE __m256i multiplied16(const int32_t *sums, int shift) {
    const __m128i by = _mm_cvtsi32_si128(shift);
    return narrowed(_mm256_sll_epi32(sums8(sums), by), _mm256_sll_epi32(sums8(sums + 8), by));
}

static ALWAYS_INLINE __m256i clipped16(__m256i r, int least, int largest) {
    return _mm256_max_epi16(_mm256_min_epi16(r, _mm256_set1_epi16((short)largest)), _mm256_set1_epi16((short)least));
}

/* Two rows of 16-bit numbers as bytes: the first in the lower half, the second in the upper. */
static ALWAYS_INLINE __m256i bytes_of(__m256i first, __m256i second) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xD8);
}

/* Sixteen bytes of each of four images, byte by byte. */
static ALWAYS_INLINE void interleave16(const __m128i *r, __m128i *out) {
    const __m128i low0 = _mm_unpacklo_epi8(r[0], r[1]), low1 = _mm_unpacklo_epi8(r[2], r[3]);
    const __m128i high0 = _mm_unpackhi_epi8(r[0], r[1]), high1 = _mm_unpackhi_epi8(r[2], r[3]);
    out[0] = _mm_unpacklo_epi16(low0, low1), out[1] = _mm_unpackhi_epi16(low0, low1);
    out[2] = _mm_unpacklo_epi16(high0, high1), out[3] = _mm_unpackhi_epi16(high0, high1);
}

#endif
