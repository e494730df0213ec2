/* Private header of the interpreter (ptx.h): ptx_parse.c makes a program of a kernel's text, ptx_registers.c
 * places its registers, ptx_run.c runs it. */
#ifndef RONDO_PTX_PTX_IMPL_H
#define RONDO_PTX_PTX_IMPL_H

#include <stdarg.h>

#include "ptx.h"

enum {
    PTX_OPERANDS = 6,
    PTX_NAME = 256,
    PTX_MOST_PARAMETERS = 16,
    PTX_MOST_REGISTERS = 30000,
    PTX_MOST_CONSTANTS = 4096,
    PTX_MOST_PLACES = 3000
}; /* of a thread, on its stack */

/* Instructions in the order of ptx.def. Those that are written out have names. */
enum ptx_special {
    PTX_SPECIAL_NONE,
#define OP1(...)
#define OP2(...)
#define OP3(...)
#define OP4(...)
#define LOAD(...)
#define STORE(...)
#define RED(...)
#define SPECIAL(text, name, ...) PTX_##name,
#include "ptx.def"
};

/* What is known of a row. */
struct ptx_form {
    const char *text, *shape; /* o: an operand; { , } | [ ] as written */
    uint8_t results, operands;
    uint8_t bits[PTX_OPERANDS]; /* of a register; 0: any. Results come first, an address last */
    uint8_t atleast;            /* registers may have more bits: loads and stores */
    uint8_t space;              /* enum ptx_space of an address */
    enum ptx_special special;
};
enum ptx_space { PTX_NO_SPACE, PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_PARAM };
extern const struct ptx_form ptx_form_table[];
extern const int ptx_form_count;
/** The row of an instruction that is written out. */
int ptx_row_of(enum ptx_special special);

struct ptx_insn {
    uint16_t op;              /* row of ptx.def */
    uint16_t r[PTX_OPERANDS]; /* places in a thread's registers: results, then operands */
    int32_t at;               /* added to an address; of a branch or UNLESS: the predicate that it needs */
    uint32_t to;              /* index of the instruction that a branch goes to */
};

/* Every thread has `places` words: the special registers, the constants, then the registers. Registers that
 * are never alive at once share a place. */
enum ptx_first_places { PTX_TID_X, PTX_NTID_X, PTX_CTAID_X, PTX_NCTAID_X, PTX_FIRST_CONSTANT };
struct ptx_program {
    char name[PTX_NAME];
    struct ptx_insn *insn;
    uint32_t *line; /* of each, in the text */
    uint32_t ninsns;
    uint64_t *constant;
    uint32_t nconstants, nregisters, places;
    size_t shared_bytes, argument_bytes;
    struct ptx_parameter parameter[PTX_MOST_PARAMETERS];
    int nparameters;
    uint32_t most_threads;
    uint64_t runs; /* begun; atomic */
};

/* While a program is made, operands are numbers of registers, or of other words from here on. */
enum { PTX_OTHER = 40000 };

/** Replace numbers of registers by places. @return 0: no memory. */
int ptx_place_registers(struct ptx_program *program);

#endif
