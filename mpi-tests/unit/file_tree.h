/* A tree of small files that stands for /sys or /proc. Include it after cmocka.h. */
#ifndef RONDO_TEST_FILE_TREE_H
#define RONDO_TEST_FILE_TREE_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char tree[] = "/tmp/unit_tree.XXXXXX";

/* Write text to a file of the tree, making its folders. */
static inline void tree_put(const char *path, const char *text)
{
    char full[256];
    FILE *file;
    snprintf(full, sizeof full, "%s%s", tree, path);
    for (char *slash = strchr(full + strlen(tree) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static inline int tree_remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    return walk->level > 0 ? remove(path) : 0;
}

/* Fixtures: remove all files; make the tree; remove it. */
static inline int tree_clean(void **state)
{
    (void)state;
    return nftw(tree, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int tree_make(void **state)
{
    (void)state;
    return mkdtemp(tree) ? 0 : -1;
}

static inline int tree_remove(void **state)
{
    (void)state;
    return rmdir(tree);
}

#endif
