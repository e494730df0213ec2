/* Run what a process cannot undo (limits, another user, death) in a child. Include it after cmocka.h. */
#ifndef RONDO_TEST_IN_CHILD_H
#define RONDO_TEST_IN_CHILD_H

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../holdings.h"

enum { SKIPPED = 77, NOBODY = 65534 };

/* Run a function in a child. @return its exit code. */
static inline int in_child(int (*function)(void *arg), void *arg)
{
    int status;
    pid_t child;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        _exit(function(arg));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Become user nobody. @return 0 on success. */
static inline int become_nobody(void)
{
    return geteuid() != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0;
}

#endif
