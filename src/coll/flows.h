/* All schedules: what the rows of coll.def are expanded with (coll/algo.c, kern/cuda/block.h). */
#ifndef RONDO_COLL_FLOWS_H
#define RONDO_COLL_FLOWS_H

#include "coll/oneshot.h"
#include "coll/doubling.h"
#include "coll/hierarchical.h"
#include "coll/ordered.h"
#include "coll/ring.h"
#include "coll/tree.h"
#include "coll/twoshot.h"

#endif
