/*
 * A profiler plugin that checks how it is called (prof_check.c), for the tests. It is built once for each
 * version of the interface: libprofcheck1.so to libprofcheck7.so. A test loads them by RONDO_PROFILER_PLUGIN,
 * and reads what they have counted through their variable `prof_check`.
 *
 * PROF_CHECK_MASK      the events that it asks for (default: all)
 * PROF_CHECK_INIT      "fail": init gives an error
 * PROF_CHECK_CRASH     RANK: the plugin of this rank ends its process at the 500th event
 * PROF_CHECK_REPORT    1: finalize prints how many events are open, and how many rules were violated
 * PROF_CHECK_DECLINE   1: it gives no handle for any event
 * PROF_CHECK_PARTIAL   1: operations may end before all of their steps (a test with deaths)
 */
#ifndef RONDO_TESTS_PROF_CHECK_H
#define RONDO_TESTS_PROF_CHECK_H

#include "base/net_event.h"
#include "prof/prof_abi.h"

enum { PROF_CHECK_RANKS = 64 };
/* Who defines NetPlugin events: verbs, sockets, the tests' net plugin. */
enum { PROF_CHECK_VERBS, PROF_CHECK_SOCKET, PROF_CHECK_PLUGIN, PROF_CHECK_NETS };
enum { PROF_CHECK_KIND = 0x7e57 << 16 | 3 /* of that plugin's events; their data is its negative */ };

struct prof_check {
    int version;
    int inits, finalizes, open; /* open: events that have started and not stopped */
    int bad;                    /* violations of the interface's rules; text: the first one */
    char text[200];
    uint64_t started[RONDO_PROF_NUM_TYPES], stopped;
    uint64_t channels; /* that Coll and P2p announced */
    /* Steps and bytes of proxy steps, by peer: to it, and from it. Bytes from version 4 on. */
    uint64_t sent[PROF_CHECK_RANKS], received[PROF_CHECK_RANKS];
    /* From version 3 on: NetPlugin events by who defined them, and steps that ended without any. */
    uint64_t net[PROF_CHECK_NETS], sends_without, receives_without;
    int most_open; /* steps of an operation at once */
    uint64_t sent_bytes[PROF_CHECK_RANKS], received_bytes[PROF_CHECK_RANKS];
    /* Of the last Coll: its algorithm and protocol (from version 2 on), and the most steps that an operation
     * of it announced. */
    char algo[32], proto[32], func[32];
    int most_steps;
};

#endif
