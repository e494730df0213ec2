/*
 * What ranks tell each other when a creation fails: messages on the program's communicator, with a tag at the
 * end of the range. None is sent before a deadline has passed or a rank has failed.
 *
 * Rank 0 is the judge; if it is known to have died, the lowest rank that is not. A rank that fails mails the
 * judge its last word, and the judge mails its own, or the one that it has heard, to all. So all ranks end
 * with one status and one sentence. For a rank that is missing see rondo_mail_ask.
 */
#ifndef RONDO_MPI_MAIL_H
#define RONDO_MPI_MAIL_H

#include <mpi.h>
#include "net/bootstrap/watch.h"

enum rondo_mail_kind {
    RONDO_MAIL_HERE = 1, /* to the judge: my deadline has passed, or: I have your question */
    RONDO_MAIL_QUERY,    /* from rank 0: who is here? */
    RONDO_MAIL_LAST      /* creation has failed */
};

enum { RONDO_MAIL_TAGS = 16 };  /* creations that follow each other have different tags */
enum { RONDO_MAIL_RANKS = 16 }; /* missing ranks that a last word names */
struct rondo_letter {
    int32_t kind;    /* enum rondo_mail_kind */
    int32_t attempt; /* counts the creations on the communicator */
    int32_t status;  /* of a last word */
    int32_t begun;   /* rounds that the sender has begun on the communicator */
    int32_t n, ranks[RONDO_MAIL_RANKS];
    rondo_round_text text; /* empty: the reader makes its own sentence */
};

struct rondo_mail {
    MPI_Comm comm;
    int rank, nranks;
    int tag, attempt;
    int begun;      /* rounds begun, for letters */
    int queried;    /* rank 0 has asked: it is here */
    int told;       /* another rank's deadline has passed, or it has failed */
    int told_begun; /* the most rounds that a rank that told so had begun */
    uint8_t *here;  /* on rank 0: which ranks answered */
    int nhere;
    struct rondo_letter last; /* the last word that has come; kind 0: none */
    int last_from;
    struct rondo_letter incoming, ask, say;
    MPI_Request incoming_request, *requests;
    int nrequests;
};

/* The functions never block, and return MPI's error code. */

/** Set up the mail of one creation, and throw away what an earlier one has left. */
int rondo_mail_open(struct rondo_mail *mail, MPI_Comm comm, int attempt);
/** Take in all letters that have come: `told`, `here` and `last` say what they said. */
int rondo_mail_take(struct rondo_mail *mail);
/** After a deadline: rank 0 asks all ranks who is here, the others tell rank 0 that they are. */
int rondo_mail_ask(struct rondo_mail *mail);
/** Mail a last word, as judge to all ranks, else to the judge. */
int rondo_mail_last(struct rondo_mail *mail, const struct rondo_letter *letter, int judge);
/** Set *rest to 1 if no letter is on its way to or from this rank. */
int rondo_mail_test(struct rondo_mail *mail, int *rest);
void rondo_mail_close(struct rondo_mail *mail);

#endif
