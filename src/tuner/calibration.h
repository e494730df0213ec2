/*
 * Calibration: numbers of this host's memory that replace the cost model's. They are measured once
 * (init/calibrate.c), kept in a file of the user's cache, and sent to all ranks in round "done", so that all
 * ranks choose alike.
 *
 * They never change a result. They choose only among ways that give the same bits: ways of copying, what
 * carries a call of two ranks or one that reduces nothing, and otherwise among algorithms that reduce in rank
 * order (rondo_bits_fixed in tuner/tuner.h).
 */
#ifndef RONDO_TUNER_CALIBRATION_H
#define RONDO_TUNER_CALIBRATION_H

#include <stdio.h>

#include "base/status.h"
#include "layout/layout.h"
#include "tuner/calibration.def"

/* 0: unknown. */
struct rondo_calibration {
#define RONDO_CALIBRATION_FIELD_(ctx, name, ...) uint32_t name;
    RONDO_CALIBRATION_TABLE(RONDO_CALIBRATION_FIELD_, )
#undef RONDO_CALIBRATION_FIELD_
};

/** Is it complete enough for the model? The kernel's numbers may be missing. */
int rondo_calibration_known(const struct rondo_calibration *c);
/** Are all numbers unknown, or within the limits of the table? */
int rondo_calibration_valid(const struct rondo_calibration *c);
/**
 * Replace the model's numbers of copies, of two ranks' messages, of conns and of direct access. Call it after
 * rondo_model_machine; rondo_model_handover must then be called with the numbers' own placement, and changes
 * latencies only. Nothing changes if the numbers are not known, or the ranks share cores.
 */
void rondo_model_calibrate(struct rondo_model *model, const struct rondo_calibration *c);
/** Write "sum in place 18300 MB/s, .." in one line, without what is unknown. @return text */
const char *rondo_calibration_text(const struct rondo_calibration *c, char *text, size_t size);

/* ---- the file ---- */

enum { RONDO_CALIBRATION_KEY = 256, RONDO_CALIBRATION_CPU = 128 };
/** Write which CPU a text like that of /proc/cpuinfo is of. */
void rondo_calibration_cpu(FILE *cpuinfo, char cpu[RONDO_CALIBRATION_CPU]);
/** What the numbers depend on: CPU, cores, kernel, the library's version, and `placement`, "near" or "far".
 * @return key */
const char *rondo_calibration_key(const char *placement, char key[RONDO_CALIBRATION_KEY]);
/**
 * Read the file of a key from $XDG_CACHE_HOME/rondo or ~/.cache/rondo. @return 1: *c is filled in. A file
 * that is damaged, of another user, writable for others or no plain file is ignored with a sentence.
 */
int rondo_calibration_read(const char *key, struct rondo_calibration *c);
/** Write it: under a name of its own first, so that readers and other writers see a whole file. A home that
 * is full or read-only is no error; a sentence goes to the log at INFO. */
void rondo_calibration_write(const char *key, const struct rondo_calibration *c);
/** The same with a file's content: 1, or 0 and *why. */
int rondo_calibration_parse(const char *text, const char *key, struct rondo_calibration *c, const char **why);

#endif
