/* For tests that speak to a double: one of the programs of tests/doubles, while the test runs. */
#ifndef TESTS_UNIT_DOUBLE_H
#define TESTS_UNIT_DOUBLE_H

#include "util/child.h"
#include "util/file.h"
#include "util/memory.h"
#include "util/wait.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct sbx_child double_child = SBX_CHILD;
static int double_input = -1;

/*
 * In main(), before any test. Makes the folder, which is the program's only argument. `line`: the
 * first one that it prints, when it is ready. False: there is none.
 */
static bool start_double(const char *name, char *folder, char *line, size_t size)
{
    const char *doubles = getenv("SANDBOX_TEST_DOUBLES");
    char program[512];
    snprintf(program, sizeof program, "%s/%s", doubles == NULL ? "." : doubles, name);
    int input[2], output[2];
    *line = '\0';
    if (mkdtemp(folder) == NULL || pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0)
        return false;
    const char *const argv[] = {"/usr/bin/python3", "-B", program, folder, NULL};
    struct sbx_child_options options = {
        .argv = argv, .input = input[0], .output = output[1], .errors = STDERR_FILENO};
    bool started = sbx_child_start(&double_child, &options, NULL) == SANDBOX_OK;
    close(input[0]);
    close(output[1]);
    double_input = input[1];
    size_t used = 0;
    ssize_t got = started ? 1 : 0;
    while (got > 0 && strchr(line, '\n') == NULL && used < size - 1) {
        got = read(output[0], line + used, size - 1 - used);
        used += got > 0 ? (size_t)got : 0;
        line[used] = '\0';
    }
    close(output[0]);
    return strchr(line, '\n') != NULL;
}

/* It ends when its input does. */
static void end_double(const char *folder)
{
    sbx_close_fd(&double_input);
    struct sbx_wait wait = sbx_wait_alone(30000);
    int code;
    (void)sbx_child_wait(&double_child, &wait, &code, NULL);
    sbx_child_end(&double_child);
    (void)sbx_tree_remove(AT_FDCWD, folder, NULL);
}

#endif
