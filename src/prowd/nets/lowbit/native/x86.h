/* The vectors of vectors.h in AVX2. */
typedef __m128i Bytes;
typedef __m256i Shorts;
typedef __m256i Sums;

#define LOAD16(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE16(p, v) _mm_storeu_si128((__m128i *)(p), v)

static ALWAYS_INLINE Bytes all_bytes(int value) { return _mm_set1_epi8((char)value); }
static ALWAYS_INLINE Bytes add_bytes(Bytes a, Bytes b) { return _mm_add_epi8(a, b); }
static ALWAYS_INLINE Bytes take_bytes(Bytes a, Bytes b) { return _mm_sub_epi8(a, b); }
static ALWAYS_INLINE Bytes flip_bytes(Bytes a, Bytes b) { return _mm_xor_si128(a, b); }
static ALWAYS_INLINE Bytes same_bytes(Bytes a, Bytes b) { return _mm_cmpeq_epi8(a, b); }
static ALWAYS_INLINE Bytes choose_bytes(Bytes mask, Bytes yes, Bytes no) { return _mm_blendv_epi8(no, yes, mask); }

/* Of codes: the larger ones, and what is above and below zero. */
static ALWAYS_INLINE Bytes larger_codes(Bytes a, Bytes b) { return _mm_max_epu8(a, b); }
static ALWAYS_INLINE Bytes positive_part(Bytes a) { return _mm_subs_epu8(a, all_bytes(OFFSET)); }
static ALWAYS_INLINE Bytes negative_part(Bytes a) { return _mm_subs_epu8(all_bytes(OFFSET), a); }

/* Sixteen bytes of each of four images, byte by byte. */
static ALWAYS_INLINE void interleave16(const Bytes *r, Bytes *out) {
    const __m128i low0 = _mm_unpacklo_epi8(r[0], r[1]), low1 = _mm_unpacklo_epi8(r[2], r[3]);
    const __m128i high0 = _mm_unpackhi_epi8(r[0], r[1]), high1 = _mm_unpackhi_epi8(r[2], r[3]);
    out[0] = _mm_unpacklo_epi16(low0, low1), out[1] = _mm_unpackhi_epi16(low0, low1);
    out[2] = _mm_unpacklo_epi16(high0, high1), out[3] = _mm_unpackhi_epi16(high0, high1);
}

static ALWAYS_INLINE Sums no_sums(void) { return _mm256_setzero_si256(); }
static ALWAYS_INLINE Sums sums8(const int32_t *sums) { return _mm256_loadu_si256((const __m256i *)sums); }
static ALWAYS_INLINE void store8(int32_t *to, Sums n) { _mm256_storeu_si256((__m256i *)to, n); }
static ALWAYS_INLINE Sums add8(Sums a, Sums b) { return _mm256_add_epi32(a, b); }
static ALWAYS_INLINE Sums take8(Sums a, Sums b) { return _mm256_sub_epi32(a, b); }
static ALWAYS_INLINE Sums larger8(Sums a, Sums b) { return _mm256_max_epi32(a, b); }
static ALWAYS_INLINE Sums sizes8(Sums a) { return _mm256_abs_epi32(a); }

/* The sums where a mask of eight bytes says so, zero elsewhere. */
static ALWAYS_INLINE Sums where8(const uint8_t *mask, Sums n) {
    return _mm256_and_si256(n, _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)mask)));
}

/* round_half_even(n / 2^shift), shift from 1. */
static ALWAYS_INLINE Sums rounded8(Sums n, int shift) {
    const __m128i by = _mm_cvtsi32_si128(shift);
    const __m256i odd = _mm256_and_si256(_mm256_sra_epi32(n, by), _mm256_set1_epi32(1));
    const __m256i half = _mm256_set1_epi32((1 << (shift - 1)) - 1);
    return _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(n, half), odd), by);
}

/* n * 2^shift. */
static ALWAYS_INLINE Sums raised8(Sums n, int shift) { return _mm256_sll_epi32(n, _mm_cvtsi32_si128(shift)); }

static ALWAYS_INLINE Shorts narrowed(Sums low, Sums high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
}

static ALWAYS_INLINE Shorts clipped16(Shorts r, int least, int largest) {
    return _mm256_max_epi16(_mm256_min_epi16(r, _mm256_set1_epi16((short)largest)), _mm256_set1_epi16((short)least));
}

static ALWAYS_INLINE Shorts same16(Shorts a, Shorts b) { return _mm256_cmpeq_epi16(a, b); }
static ALWAYS_INLINE Shorts at_least16(Shorts a, int least) { return _mm256_max_epi16(a, _mm256_set1_epi16((short)least)); }

/* Two rows of numbers as bytes. */
static ALWAYS_INLINE void bytes_of(Shorts first, Shorts second, Bytes *out) {
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xD8);
    out[0] = _mm256_castsi256_si128(both), out[1] = _mm256_extracti128_si256(both, 1);
}
