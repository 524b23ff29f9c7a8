/* The vectors that the passes between the products are written in, as this CPU has them:

   Bytes    16 bytes: codes as they lie in memory, or masks
   Shorts   16 numbers of 16 bits
   Sums     8 numbers of 32 bits

   Arithmetic wraps around; narrowing saturates. A mask is 255 or 0 in every byte, all ones or zero in every number. */
#ifndef PROWD_VECTORS_H
#define PROWD_VECTORS_H

#include "layout.h"

#if defined(__x86_64__)
#include "x86.h"
#else
#include "arm.h"
#endif

#endif
