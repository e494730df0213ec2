/* Compiled once per collective, with -DPERF_COLL=all_reduce and so on. */
#include "perf.h"

#define PERF_TEXT_(name) #name
#define PERF_TEXT(name) PERF_TEXT_(name)

int main(int argc, char **argv) { return perf_main(argc, argv, PERF_TEXT(PERF_COLL)); }
