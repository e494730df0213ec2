/* The ids of meetings. */
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/bootstrap/meeting.h"

enum { ID_MAGIC = 0x7465656d };

static uint64_t id_check(const struct rondo_meeting_id *id)
{
    return rondo_hash(id, offsetof(struct rondo_meeting_id, check), ID_MAGIC);
}

rondo_status rondo_meeting_check(const struct rondo_meeting_id *id)
{
    if (id->magic != ID_MAGIC || id->check != id_check(id)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "these 128 bytes are not a unique id of this library: take them from one process, "
                          "and carry them as bytes (an id as a C string is cut at its first zero)");
    }
    if (id->version != RONDO_VERSION_CODE) {
        return rondo_fail(RONDO_INVALID_USAGE,
                          "the unique id was made on %.*s by version %u of Rondo, this process on %s has %d: "
                          "use one version in all processes",
                          RONDO_MEETING_HOST, id->host, id->version, rondo_log_host(), RONDO_VERSION_CODE);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_meeting_name(struct rondo_meeting_id *id)
{
    id->magic = ID_MAGIC;
    id->version = RONDO_VERSION_CODE;
    id->pid = getpid();
    snprintf(id->host, sizeof(id->host), "%.*s", RONDO_MEETING_HOST - 1, rondo_log_host());
    RONDO_TRY(rondo_random(&id->name, sizeof(id->name)));
    RONDO_TRY(rondo_random(id->secret, sizeof(id->secret)));
    id->check = id_check(id);
    return RONDO_SUCCESS;
}
