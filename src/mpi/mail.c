#include "mpi/mail.h"

#include <string.h>

#include "base/mem.h"

enum { TAG_BELOW = 0x52 };

#define TRY(call)                                 \
    do {                                          \
        int rc_ = (call);                         \
        if (RONDO_UNLIKELY(rc_ != MPI_SUCCESS)) { \
            return rc_;                           \
        }                                         \
    } while (0)

static int tag_of(int attempt)
{
    int found = 0, *tag_ub = NULL;
    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &found);
    return (found ? *tag_ub : 32767) - TAG_BELOW -
           attempt % RONDO_MAIL_TAGS; /* 32767: what every MPI allows */
}

int rondo_mail_open(struct rondo_mail *mail, MPI_Comm comm, int attempt)
{
    mail->comm = comm;
    mail->attempt = attempt;
    PMPI_Comm_rank(comm, &mail->rank);
    PMPI_Comm_size(comm, &mail->nranks);
    mail->incoming_request = MPI_REQUEST_NULL;
    if (mail->rank == 0) {
        if (RONDO_NEW_ARRAY(mail->here, mail->nranks, "the list of ranks") != RONDO_SUCCESS) {
            return MPI_ERR_NO_MEM;
        }
        mail->here[0] = 1;
        mail->nhere = 1;
    }
    mail->tag = tag_of(attempt - 1);
    TRY(rondo_mail_take(mail)); /* letters of an earlier attempt are not kept */
    mail->tag = tag_of(attempt);
    return MPI_SUCCESS;
}

static void letter_read(struct rondo_mail *mail, int from)
{
    const struct rondo_letter *letter = &mail->incoming;
    if (letter->attempt != mail->attempt) {
        return;
    }
    mail->told = 1;
    mail->queried |= letter->kind == RONDO_MAIL_QUERY;
    mail->told_begun = letter->begun > mail->told_begun ? letter->begun : mail->told_begun;
    if (letter->kind == RONDO_MAIL_LAST && mail->last.kind == 0) {
        mail->last = *letter;
        mail->last.text[sizeof(mail->last.text) - 1] = '\0';
        mail->last_from = from;
    } else if (mail->here != NULL && from >= 0 && from < mail->nranks && !mail->here[from]) {
        mail->here[from] = 1;
        mail->nhere++;
    }
}

int rondo_mail_take(struct rondo_mail *mail)
{
    for (;;) {
        MPI_Status status;
        int flag = 0, bytes = 0;
        if (mail->incoming_request != MPI_REQUEST_NULL) {
            TRY(PMPI_Test(&mail->incoming_request, &flag, &status));
            if (!flag) {
                return MPI_SUCCESS;
            }
            letter_read(mail, status.MPI_SOURCE);
        }
        TRY(PMPI_Iprobe(MPI_ANY_SOURCE, mail->tag, mail->comm, &flag, &status));
        if (!flag) {
            return MPI_SUCCESS;
        }
        TRY(PMPI_Get_count(&status, MPI_BYTE, &bytes));
        if (bytes != (int)sizeof(mail->incoming)) {
            return MPI_SUCCESS; /* a message of the program's own */
        }
        TRY(PMPI_Irecv(&mail->incoming, bytes, MPI_BYTE, status.MPI_SOURCE, mail->tag, mail->comm,
                       &mail->incoming_request));
    }
}

/* An error is no news: MPI may be unable to reach the rank that has died. */
static void letter_send(struct rondo_mail *mail, const struct rondo_letter *letter, int to)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (PMPI_Isend(letter, (int)sizeof(*letter), MPI_BYTE, to, mail->tag, mail->comm, &request) ==
        MPI_SUCCESS) {
        mail->requests[mail->nrequests++] = request;
    }
}

/* Room for a letter to every rank, twice: a question and the last word. */
static int requests_reserve(struct rondo_mail *mail)
{
    if (mail->requests == NULL &&
        RONDO_NEW_ARRAY(mail->requests, 2 * mail->nranks, "requests of MPI") != RONDO_SUCCESS) {
        return MPI_ERR_NO_MEM;
    }
    return MPI_SUCCESS;
}

/* First to the ranks that are here: MPI may take seconds to find that it cannot reach another one. Not to the
 * rank whose last word it is: that has ended, and the program would find the letter. */
static void letter_send_all(struct rondo_mail *mail, const struct rondo_letter *letter)
{
    for (int absent = 0; absent < 2; absent++) {
        for (int to = 0; to < mail->nranks; to++) {
            int is_its = mail->last.kind != 0 && to == mail->last_from;
            if (to != mail->rank && !is_its && (mail->here != NULL && !mail->here[to]) == absent) {
                letter_send(mail, letter, to);
            }
        }
    }
}

static void letter_mail(struct rondo_mail *mail, const struct rondo_letter *letter, int to_all, int to)
{
    if (to_all) {
        letter_send_all(mail, letter);
    } else {
        letter_send(mail, letter, to);
    }
}

int rondo_mail_ask(struct rondo_mail *mail)
{
    int is_root = mail->rank == 0;
    TRY(requests_reserve(mail));
    mail->ask = (struct rondo_letter){ .kind = is_root ? RONDO_MAIL_QUERY : RONDO_MAIL_HERE,
                                       .attempt = mail->attempt,
                                       .begun = mail->begun };
    letter_mail(mail, &mail->ask, is_root, 0);
    return MPI_SUCCESS;
}

int rondo_mail_last(struct rondo_mail *mail, const struct rondo_letter *letter, int judge)
{
    TRY(requests_reserve(mail));
    mail->say = *letter;
    mail->say.kind = RONDO_MAIL_LAST;
    mail->say.attempt = mail->attempt;
    mail->say.begun = mail->begun > letter->begun ? mail->begun : letter->begun;
    letter_mail(mail, &mail->say, mail->rank == judge, judge);
    return MPI_SUCCESS;
}

int rondo_mail_test(struct rondo_mail *mail, int *rest)
{
    *rest = mail->incoming_request == MPI_REQUEST_NULL;
    for (int i = 0; i < mail->nrequests; i++) {
        int done = 1;
        if (mail->requests[i] != MPI_REQUEST_NULL) {
            TRY(PMPI_Test(&mail->requests[i], &done, MPI_STATUS_IGNORE));
        }
        *rest &= done;
    }
    return MPI_SUCCESS;
}

void rondo_mail_close(struct rondo_mail *mail)
{
    rondo_free(mail->here);
    rondo_free(mail->requests);
}
