#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/log.h"

static _Thread_local struct rondo_thread_texts *texts;
static _Thread_local int logged; /* texts->error was */
static pthread_key_t texts_key;  /* frees them when the thread ends */
static int have_texts_key;
static struct rondo_thread_texts shared_texts; /* of all threads that cannot get their own */

static void texts_free(void *mine)
{
    munmap(mine, sizeof(*texts));
    texts = NULL;
}

/* When the library is loaded: a signal handler could not wait for another thread that makes the key. */
static void __attribute__((constructor)) texts_key_create(void)
{
    have_texts_key = pthread_key_create(&texts_key, texts_free) == 0;
}

struct rondo_thread_texts *rondo_thread_texts_get(void)
{
    if (texts == NULL) {
        int saved = errno;
        void *mine = have_texts_key ? mmap(NULL, sizeof(*texts), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                    : MAP_FAILED;
        texts = mine == MAP_FAILED ? &shared_texts : mine;
        if (texts != &shared_texts && pthread_setspecific(texts_key, texts) != 0) {
            texts_free(texts);
            texts = &shared_texts;
        }
        errno = saved;
    }
    return texts;
}

static void error_set(const char *fmt, va_list args)
{
    /* The new sentence may quote the old one. */
    char text[RONDO_ERROR_TEXT], *error_text = rondo_thread_texts_get()->error;
    if (vsnprintf(text, sizeof text, fmt, args) >= (int)sizeof text) {
        snprintf(text + sizeof text - 4, 4, "...");
    }
    logged = logged && strcmp(text, error_text) == 0; /* repeating an error does not log it again */
    snprintf(error_text, RONDO_ERROR_TEXT, "%s", text);
}

rondo_status rondo_fail(rondo_status status, const char *fmt, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, fmt);
    error_set(fmt, args);
    va_end(args);
    logged = 0;
    rondo_fail_aloud(status);
    errno = saved;
    return status;
}

rondo_status rondo_fail_quiet(rondo_status status, const char *fmt, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, fmt);
    error_set(fmt, args);
    va_end(args);
    errno = saved;
    return status;
}

rondo_status rondo_fail_aloud(rondo_status status)
{
    if (!logged) {
        RONDO_WARN("%s", rondo_error_text());
        logged = 1;
    }
    return status;
}

int rondo_error_logged(void) { return logged; }

const char *rondo_error_text(void) { return texts != NULL ? texts->error : ""; }

void rondo_error_clear(void)
{
    if (texts != NULL) {
        texts->error[0] = '\0';
    }
}
