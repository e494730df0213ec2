/* All of librondo-kernels.so: the image that nvcc made of kernels.cu, in the file RONDO_KERNELS_IMAGE. */
#include "kern/cuda/kernels.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl " RONDO_KERNELS_SYMBOL "\n"
        ".type " RONDO_KERNELS_SYMBOL ", %object\n" RONDO_KERNELS_SYMBOL ":\n"
        ".incbin \"" RONDO_KERNELS_IMAGE "\"\n"
        ".size " RONDO_KERNELS_SYMBOL ", . - " RONDO_KERNELS_SYMBOL "\n"
        ".popsection\n");
