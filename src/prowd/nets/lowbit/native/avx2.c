/* AVX2: pairs of products summed in 16 bits, then widened. Codes of at most 8 bits keep every pair within 16 bits. */
#if defined(__x86_64__)
#include "target.h"

#define V __m256i
#define SUM V
#define LANES 8
#define POSITIONS 4
#define LIMITED 1
#define CUT 1
#define GRADIENT_BLOCK 128
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define BROADCAST(p) _mm256_set1_epi32(four(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define ZERO _mm256_setzero_si256()
#define NOTHING ZERO
#define ADD(a, b) _mm256_add_epi32(a, b)
#define WIDEN(s) _mm256_madd_epi16(s, _mm256_set1_epi16(1))
/* Sums are added to in place by name of the instruction: left to itself the compiler copies them about and spills. */
#define MULTIPLY(s, u, t) __asm__("vpaddw %1, %0, %0" : "+x"(s) : "x"(_mm256_maddubs_epi16(u, t)))
#define DOT(s, u, t) __asm__("vpaddd %1, %0, %0" : "+x"(s) : "x"(WIDEN(_mm256_maddubs_epi16(u, t))))
#define KERNELS avx2_kernels
#define NAME "avx2"
#include "products.h"
#endif
