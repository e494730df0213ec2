/* A gate: memory that holds up whoever touches it first, for as long as the test wants. Include cmocka.h
 * first. */
#ifndef RONDO_TEST_TENSOR_GATE_H
#define RONDO_TEST_TENSOR_GATE_H

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tensor_world.h"

enum { GATE_BYTES = 256 << 10 };

static struct {
    uint8_t *base;
    _Atomic int reached, open, passed; /* passed: what must come later has come */
    struct sigaction before;
} gate;

static inline void at_gate(int signal, siginfo_t *info, void *context)
{
    const uint8_t *at = info->si_addr;
    (void)signal, (void)context;
    if (at < gate.base || at >= gate.base + GATE_BYTES) {
        sigaction(SIGSEGV, &gate.before, NULL); /* it comes again */
        return;
    }
    gate.reached = 1;
    for (int64_t end = rondo_now_ns() + rondo_ms_to_ns(2 * PATIENCE_MS);
         !gate.open && rondo_now_ns() < end;) {
        usleep(100);
    }
    mprotect(gate.base, GATE_BYTES, PROT_READ | PROT_WRITE);
}

static inline void gate_close(void)
{
    const struct sigaction action = { .sa_sigaction = at_gate, .sa_flags = SA_SIGINFO | SA_NODEFER };
    gate.reached = gate.open = gate.passed = 0;
    gate.base = mmap(NULL, GATE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(gate.base != MAP_FAILED);
    assert_int_equal(sigaction(SIGSEGV, &action, &gate.before), 0);
}

static inline void gate_remove(void)
{
    assert_int_equal(sigaction(SIGSEGV, &gate.before, NULL), 0);
    assert_int_equal(munmap(gate.base, GATE_BYTES), 0);
}

/* @return 0: it took too long */
static inline int await(_Atomic int *flag, int ms)
{
    int64_t end = rondo_now_ns() + rondo_ms_to_ns(ms);
    while (!*flag && rondo_now_ns() < end) {
        usleep(100);
    }
    return *flag;
}

#endif
