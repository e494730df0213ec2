/* The phases of creation, in order. A split begins with "colors" and then goes on like any other creation. */
#include "base/types.h"
#include "init/phases.h"

const struct rondo_phase *const rondo_phases[] = {
    &rondo_phase_colors,      &rondo_phase_open,    &rondo_phase_peers,     &rondo_phase_params,
    &rondo_phase_graphs,      &rondo_phase_shapes,  &rondo_phase_p2p_check, &rondo_phase_p2p_modes,
    &rondo_phase_connections, &rondo_phase_connect, &rondo_phase_ready,     &rondo_phase_hello,
    &rondo_phase_done,
};
_Static_assert(RONDO_COUNTOF(rondo_phases) <= RONDO_MAX_PHASES, "RONDO_MAX_PHASES is too small");
const int rondo_num_phases = RONDO_COUNTOF(rondo_phases);
