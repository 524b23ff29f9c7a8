/* Compiles what follows for an instruction set: AVX2 where nothing else is asked for on x86-64, NEON on AArch64. These
   are the least that the kernels need; cpu.c asks the CPU before anything is called. */
#if !(defined(__x86_64__) || defined(__AARCH64EL__)) || !defined(__GNUC__)
#error "the integer kernels are for x86-64 or AArch64 and GCC or Clang; prowd works without them"
#endif

#if defined(__x86_64__) && !defined(INSTRUCTIONS)
#define INSTRUCTIONS "avx2"
#endif
#define PROWD_TEXT(x) #x
#define PROWD_PRAGMA(x) _Pragma(PROWD_TEXT(x))
#if !defined(INSTRUCTIONS) /* what every CPU of this kind has */
#define END_TARGET
#elif defined(__clang__)
PROWD_PRAGMA(clang attribute push(__attribute__((target(INSTRUCTIONS))), apply_to = function))
#define END_TARGET _Pragma("clang attribute pop")
#else
PROWD_PRAGMA(GCC target(INSTRUCTIONS))
#define END_TARGET
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif
