/* The parts of rondo-info. */
#ifndef RONDO_TOOLS_INFO_INFO_H
#define RONDO_TOOLS_INFO_INFO_H

#include "base/param.h"

/** The columns of the output: the terminal's, but at least 40; 100 where there is no terminal. */
int info_width(void);
/** Print a text in lines of `width`: `first` begins the first one, `next` the others. */
void info_wrap(const char *first, const char *text, const char *next, int width);
/** Print a JSON string. */
void info_json_text(const char *text);

/* ---- parameters (params.c) ---- */

/** @return the id of the parameter with this name: RONDO_TIMEOUT, TIMEOUT, NCCL_BUFFSIZE; or -1. */
int info_param_find(const char *name);
void info_param_heading(void);
void info_param_print(enum rondo_param_id id);
/** True if the value differs from the default, or was set to it. */
int info_param_changed(enum rondo_param_id id);
/** Print a name that is accepted without effect. */
void info_ignored_print(int i);
void info_markdown(void);
/** A file for /etc/rondo.conf or ~/.rondo.conf. */
void info_conf(void);
/** All parameters, or the changed ones, as JSON: an array, and one of the names without effect that are
 * set. */
void info_params_json(int only_changed);

/* ---- devices (devices.c) ---- */

/** Find the GPUs, net devices, interfaces and cards of this host, and why others are not used. Print them.
 * @return 0, or 1 after a message on stderr */
int info_devices(int json);

#endif
