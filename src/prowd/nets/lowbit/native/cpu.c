/* The instruction sets of this CPU. */
#include "layer.h"

#if defined(__x86_64__)
static const Kernels *const all_kernels[] = {&avx512vnni_kernels, &avx2_kernels, &portable_kernels};

static int supported(const Kernels *kernels) {
    __builtin_cpu_init();
    if (kernels == &avx512vnni_kernels)
        return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl");
    return __builtin_cpu_supports("avx2") != 0; /* of all: the passes are compiled for it */
}
#else
static const Kernels *const all_kernels[] = {&neondot_kernels, &neon_kernels, &portable_kernels};

#if defined(__linux__)
#include <sys/auxv.h>
enum { DOT_PRODUCTS = 1 << 20 }; /* HWCAP_ASIMDDP, which older headers lack */

static int supported(const Kernels *kernels) {
    return kernels != &neondot_kernels || (getauxval(AT_HWCAP) & DOT_PRODUCTS) != 0;
}
#else
/* Every Mac with an Arm CPU has dot products, and the compiler knows it. */
static int supported(const Kernels *kernels) {
#if defined(__ARM_FEATURE_DOTPROD)
    (void)kernels;
    return 1;
#else
    return kernels != &neondot_kernels;
#endif
}
#endif
#endif

enum { KERNEL_COUNT = sizeof all_kernels / sizeof *all_kernels };

const Kernels *kernels_at(int number) {
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (supported(all_kernels[i]) && number-- == 0) return all_kernels[i];
    return NULL;
}
