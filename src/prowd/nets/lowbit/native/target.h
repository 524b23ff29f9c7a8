/* Compiles what follows for CPUs with AVX2, the least that the kernels need; module.c asks the CPU before it calls. */
#if !defined(__x86_64__) || !defined(__GNUC__)
#error "the integer kernels are for x86-64 and GCC or Clang; prowd works without them"
#endif

#ifndef INSTRUCTIONS
#define INSTRUCTIONS "avx2"
#endif
#define PROWD_TEXT(x) #x
#define PROWD_PRAGMA(x) _Pragma(PROWD_TEXT(x))
#if defined(__clang__)
PROWD_PRAGMA(clang attribute push(__attribute__((target(INSTRUCTIONS))), apply_to = function))
#define END_TARGET _Pragma("clang attribute pop")
#else
PROWD_PRAGMA(GCC target(INSTRUCTIONS))
#define END_TARGET
#endif
#include <immintrin.h>
