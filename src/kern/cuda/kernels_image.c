/* All there is in librondo-kernels.so: the image that nvcc's tools made of kernels.cu (RONDO_KERNELS_IMAGE:
 * its file). */
#include "kern/cuda/kernels.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl " RONDO_KERNELS_SYMBOL "\n"
        ".type " RONDO_KERNELS_SYMBOL ", %object\n" RONDO_KERNELS_SYMBOL ":\n"
        ".incbin \"" RONDO_KERNELS_IMAGE "\"\n"
        ".size " RONDO_KERNELS_SYMBOL ", . - " RONDO_KERNELS_SYMBOL "\n"
        ".popsection\n");
