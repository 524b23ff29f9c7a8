/* NEON with dot products (Pi 5, Apple): one instruction multiplies four bytes a lane and adds them up in 32 bits. */
#if defined(__AARCH64EL__)
#if defined(__clang__)
#define INSTRUCTIONS "dotprod"
#else
#define INSTRUCTIONS "arch=armv8.2-a+dotprod"
#endif
#include "target.h"

#include "vectors.h"

static ALWAYS_INLINE int32x4_t dot4(int32x4_t s, int32x4_t u, int32x4_t t) {
    return vdotq_s32(s, vreinterpretq_s8_s32(u), vreinterpretq_s8_s32(t));
}

#define SUM V
#define NOTHING ZERO
#define POSITIONS 4
#define LIMITED 0
#define MULTIPLY(s, u, t) DOT(s, u, t)
#define WIDEN(s) (s)
#define KERNELS neondot_kernels
#define NAME "neondot"
#include "neon.h"
#endif
