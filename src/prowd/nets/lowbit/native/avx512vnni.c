/* AVX512-VNNI: one instruction multiplies four bytes a lane and adds them up in 32 bits. */
#if defined(__x86_64__)
#define INSTRUCTIONS "avx2,avx512f,avx512bw,avx512vl,avx512vnni"
#include "target.h"

#define V __m512i
#define SUM V
#define LANES 16
#define POSITIONS 8
#define LIMITED 0
#define CUT 0
#define GRADIENT_BLOCK 128
#define LOAD(p) _mm512_loadu_si512((const void *)(p))
#define BROADCAST(p) _mm512_set1_epi32(four(p))
#define STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define ZERO _mm512_setzero_si512()
#define NOTHING ZERO
#define ADD(a, b) _mm512_add_epi32(a, b)
#define MULTIPLY(s, u, t) s = _mm512_dpbusd_epi32(s, u, t)
#define WIDEN(s) (s)
#define DOT(s, u, t) s = _mm512_dpbusd_epi32(s, u, t)
#define KERNELS avx512vnni_kernels
#define NAME "avx512vnni"
#include "products.h"
#endif
