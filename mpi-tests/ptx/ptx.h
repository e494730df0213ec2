/*
 * Runs PTX, the code that nvcc makes of the kernels, on the simulated machine (sim/machine_sim.h): what a
 * GPU's assembler gets is what the tests run. It knows the instructions of ptx.def, which are those of our
 * kernels and of nccl-tests' (scripts/nccl-programs), with the meaning that the PTX ISA gives them. Whatever
 * else a kernel has (an instruction, a modifier, a type, a directive) is an error that names the line;
 * nothing is ignored. A module's variables and functions are unknown names for its kernels.
 *
 * Each thread of a block is a fiber that interprets the program, so threads of a warp diverge and meet as
 * they like. Relaxed and acquire accesses, weak ones of 16 bytes, fences, barriers, votes and shuffles are
 * those of the machine, with its seeds and its delays; smaller weak ones are plain. A loop that only reads
 * gives way to other fibers.
 *
 * Besides the machine's errors, a run ends as RONDO_SIM_BROKEN with the line of the instruction where an
 * address is not a multiple of the access's size, lies outside the block's shared memory or the arguments, or
 * is of another state space, where an integer is divided by 0, and where a warp operation names less than all
 * lanes.
 *
 * A module may be used by several threads at once.
 */
#ifndef RONDO_PTX_PTX_H
#define RONDO_PTX_PTX_H

#include <stddef.h>

#include "sim/machine_sim.h"

struct ptx_module;
struct ptx_program;

/** Find the kernels of a PTX text, which must stay until the module is closed, and end with a 0.
 * @return NULL with a sentence in why[whybytes]: no memory, or something that is neither a kernel nor a known
 * directive. */
struct ptx_module *ptx_open(const char *text, char *why, size_t whybytes);
/** The same for a file. */
struct ptx_module *ptx_open_file(const char *path, char *why, size_t whybytes);
void ptx_close(struct ptx_module *module);

/** Number of kernels, and the name of one. */
int ptx_count(const struct ptx_module *module);
const char *ptx_name(const struct ptx_module *module, int i);

/** Is there a kernel of this name? */
int ptx_has(const struct ptx_module *module, const char *name);
/** A kernel by name, decoded at its first use. It belongs to the module. @return NULL with a sentence. */
struct ptx_program *ptx_find(struct ptx_module *module, const char *name, char *why, size_t whybytes);
/** How often a kernel has begun to run. */
uint64_t ptx_runs(const struct ptx_module *module, int i);

/** Bytes of its arguments; most threads of a block (.maxntid; 0: not given). */
size_t ptx_argument_bytes(const struct ptx_program *program);
uint32_t ptx_most_threads(const struct ptx_program *program);
/* Where each of its parameters stands in these bytes. */
struct ptx_parameter {
    size_t at, bytes;
};
/** Their number, and the list in *parameter. */
int ptx_parameters(const struct ptx_program *program, const struct ptx_parameter **parameter);

/* A kernel and its arguments. */
struct ptx_run {
    struct ptx_program *program;
    const void *argument; /* ptx_argument_bytes() */
    /* A word that threads see as 1 once the machine wants them to leave (rondo_sim_breath); or NULL */
    const uint32_t *abort;
    uint32_t first, blocks; /* The grid is the blocks from `first` on of one of so many; 0: of its own. */
};
/** Its grid, for rondo_sim_run(). run must stay until that ends. */
struct rondo_sim_grid ptx_grid(struct ptx_run *run, uint32_t blocks, uint32_t threads);

/** Instructions of ptx.def, for tests: their number, the text of one, and how many of them a program has. */
int ptx_forms(void);
const char *ptx_form(int form);
size_t ptx_uses(const struct ptx_program *program, int form);

#endif
