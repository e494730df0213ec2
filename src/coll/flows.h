/* All schedules: what the rows of coll.def are expanded with (coll/algo.c, kern/block.h). */
#ifndef RONDO_COLL_FLOWS_H
#define RONDO_COLL_FLOWS_H

#include "coll/direct.h"
#include "coll/exchange.h"
#include "coll/nested.h"
#include "coll/ordered.h"
#include "coll/ring.h"
#include "coll/tree.h"
#include "coll/twoshot.h"

#endif
