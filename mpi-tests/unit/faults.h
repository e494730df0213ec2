/* Tests that inject faults: RONDO_FAULT and RONDO_NET_FAULT work in devel and sanitizer builds only. */
#ifndef RONDO_UNIT_FAULTS_H
#define RONDO_UNIT_FAULTS_H

#ifdef RONDO_FAULTS
enum { has_faults = 1 };
#else
enum { has_faults = 0 };
#endif

/** Skip the test if this build of Rondo has no faults. */
static inline void needs_faults(void)
{
    if (!has_faults) {
        skip();
    }
}

#endif
