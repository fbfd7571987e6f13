/* The numbers and layouts that compiled programs carry in them: a change here breaks every one. */

#include <sandbox/sandbox.h>
#include <stdio.h>
#include <string.h>

#define PINNED(constant, number) _Static_assert((constant) == (number), #constant " has moved")
#define PLACED(type, field, place) \
    _Static_assert(offsetof(type, field) == (place), #type "." #field " has moved")

PINNED(SANDBOX_OK, 0);
PINNED(SANDBOX_INVALID, -1);
PINNED(SANDBOX_NOT_FOUND, -2);
PINNED(SANDBOX_EXISTS, -3);
PINNED(SANDBOX_DENIED, -4);
PINNED(SANDBOX_UNSUPPORTED, -5);
PINNED(SANDBOX_NO_MEMORY, -6);
PINNED(SANDBOX_UNAVAILABLE, -7);
PINNED(SANDBOX_TIMED_OUT, -8);
PINNED(SANDBOX_CANCELLED, -9);
PINNED(SANDBOX_BUSY, -10);
PINNED(SANDBOX_INTERRUPTED, -11);
PINNED(SANDBOX_LIMIT, -12);
PINNED(SANDBOX_UNKNOWN, -13);
PINNED(SANDBOX_CLOSED, -14);
PINNED(SANDBOX_CONFLICT, -15);
PINNED(SANDBOX_FAILED, -16);

PINNED(SANDBOX_STATE_CREATING, 1);
PINNED(SANDBOX_STATE_RUNNING, 2);
PINNED(SANDBOX_STATE_INTERRUPTED, 3);
PINNED(SANDBOX_STATE_DELETING, 4);
PINNED(SANDBOX_STATE_GONE, 5);

PINNED(SANDBOX_FROM_NOTHING, 0);
PINNED(SANDBOX_FROM_LIVE_FILES, 1);
PINNED(SANDBOX_CAN_LIMIT_MEMORY, 1);
PINNED(SANDBOX_CAN_LIMIT_CPU, 2);
PINNED(SANDBOX_CAN_LIMIT_PROCESSES, 3);
PINNED(SANDBOX_CAN_LIMIT_DISK, 4);
PINNED(SANDBOX_CAN_USE_IMAGES, 5);
PINNED(SANDBOX_SEVERITY_GOOD, 0);
PINNED(SANDBOX_SEVERITY_NOTE, 1);
PINNED(SANDBOX_SEVERITY_PROBLEM, 2);

PINNED(SANDBOX_LOG_OFF, 0);
PINNED(SANDBOX_LOG_ERROR, 1);
PINNED(SANDBOX_LOG_WARNING, 2);
PINNED(SANDBOX_LOG_INFO, 3);
PINNED(SANDBOX_LOG_DEBUG, 4);

PINNED(SANDBOX_ROLE_TASK, 0);
PINNED(SANDBOX_ROLE_SERVICE, 1);
PINNED(SANDBOX_WHEN_FULL_BLOCK, 0);
PINNED(SANDBOX_WHEN_FULL_DROP_OLDEST, 1);
PINNED(SANDBOX_INPUT_NONE, 0);
PINNED(SANDBOX_INPUT_PIPE, 1);
PINNED(SANDBOX_PROCESS_STDOUT, 1);
PINNED(SANDBOX_PROCESS_STDERR, 2);
PINNED(SANDBOX_PROCESS_EXIT, 3);

PINNED(SANDBOX_FILE_OTHER, 0);
PINNED(SANDBOX_FILE_REGULAR, 1);
PINNED(SANDBOX_FILE_DIRECTORY, 2);
PINNED(SANDBOX_FILE_LINK, 3);
PINNED(SANDBOX_FILE_CREATED, 1);
PINNED(SANDBOX_FILE_MODIFIED, 2);
PINNED(SANDBOX_FILE_REMOVED, 3);
PINNED(SANDBOX_FILE_MOVED, 4);
PINNED(SANDBOX_FILE_OVERFLOW, 5);
PINNED(SANDBOX_COPY_LINKS_INSIDE, 0);
PINNED(SANDBOX_COPY_LINKS_KEEP, 1);
PINNED(SANDBOX_COPY_LINKS_SKIP, 2);

PINNED(SANDBOX_FOREVER, 0xffffffffu);

/* The error is the one struct that callers allocate without saying its size. */
PINNED(sizeof(sandbox_error), 512);
PLACED(sandbox_error, status, 0);
PLACED(sandbox_error, http_status, 4);
PLACED(sandbox_error, system_error, 8);
PLACED(sandbox_error, reason, 16);
PLACED(sandbox_error, driver, 64);
PLACED(sandbox_error, process_id, 80);
PLACED(sandbox_error, reserved, 120);
PLACED(sandbox_error, message, 184);

/* Whatever grows is told apart by its first member. */
PLACED(sandbox_call, size, 0);
PLACED(sandbox_client_options, size, 0);
PLACED(sandbox_finding, size, 0);
PLACED(sandbox_workspace_options, size, 0);
PLACED(sandbox_workspace_info, size, 0);
PLACED(sandbox_list_options, size, 0);
PLACED(sandbox_workspace_stats, size, 0);
PLACED(sandbox_process_options, size, 0);
PLACED(sandbox_process_event, size, 0);
PLACED(sandbox_run_options, size, 0);
PLACED(sandbox_process_result, size, 0);
PLACED(sandbox_process_info, size, 0);
PLACED(sandbox_file_info, size, 0);
PLACED(sandbox_read_options, size, 0);
PLACED(sandbox_write_options, size, 0);
PLACED(sandbox_change_options, size, 0);
PLACED(sandbox_file_event, size, 0);
PLACED(sandbox_watch_options, size, 0);
PLACED(sandbox_copy_progress, size, 0);
PLACED(sandbox_copy_options, size, 0);
PLACED(sandbox_copy_result, size, 0);
PLACED(sandbox_port_info, size, 0);
PLACED(sandbox_forward_options, size, 0);

static int names_are_distinct(void);

int main(void)
{
    if (strcmp(sandbox_version(), SANDBOX_VERSION) != 0) {
        printf("the library says '%s', its header '%s'\n", sandbox_version(), SANDBOX_VERSION);
        return 1;
    }
    return names_are_distinct();
}

/* A status that has no name of its own would be printed as another one's. */
static int names_are_distinct(void)
{
    for (int first = SANDBOX_FAILED; first <= SANDBOX_OK; first++) {
        const char *name = sandbox_status_name((sandbox_status)first);
        if (name == NULL || name[0] == '\0') {
            printf("status %d has no name\n", first);
            return 1;
        }
        for (int second = SANDBOX_FAILED; second < first; second++) {
            if (strcmp(name, sandbox_status_name((sandbox_status)second)) == 0) {
                printf("statuses %d and %d share the name '%s'\n", first, second, name);
                return 1;
            }
        }
    }
    return 0;
}
