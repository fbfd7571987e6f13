/*
 * What the tests of suspending and resuming on a real runsc share: one client and one workspace
 * over the public API, what runs in it, and the host's own view of what there is.
 */
#ifndef TESTS_GVISOR_SCENE_H
#define TESTS_GVISOR_SCENE_H

#include "checks.h"

extern sandbox_client *client;
extern sandbox_workspace *workspace;

/* The main() of a suite. */
int scene_main(Suite *(*make)(void));
/* Whether this runsc cannot save TCP sockets that sit in an epoll set. */
bool scene_runsc_is_old(void);
/* False, with the reason printed, where the host has no such program. */
bool scene_has_program(const char *path);

/* Opens `client` on the state directory, and `workspace`, made if there is none. */
void scene_open(const char *name);
/* Deletes it, and makes sure that nothing of it is left on the host. */
void scene_close(void);

sandbox_state scene_state(void);
void scene_put(const char *path, const char *text);
void scene_require_file(const char *path, const char *text);
/* Runs a shell command inside, which must succeed; what it printed, in a static place. */
const char *scene_run(const char *command);
void scene_require_prints(const char *command, const char *expected);
/* Starts something that goes on, as a service that reads what is written to it. */
sandbox_process *scene_start(const char *command);
/* The next line that it writes, without its end, in a static place. */
const char *scene_read_line(sandbox_process *process);
void scene_require_line(sandbox_process *process, const char *expected);
/* Ends it and forgets it. */
void scene_end(sandbox_process *process);

sandbox_suspend_result scene_suspend(sandbox_keep keep);
/* Must be restored and proven by what the snapshot holds. */
sandbox_resume_result scene_resume(const char *snapshot);

/* A process that counts in its memory, line by line. */
sandbox_process *scene_count(void);
/* Reads `lines` more of it; each must be the last one's successor. Returns the last. */
unsigned long scene_read_count(sandbox_process *counter, unsigned long last, unsigned lines);

/* The workspace's own directory on the host, with what is below; in a static place. */
const char *scene_host(const char *below);
/* Runs a shell command on the host in that directory; it must succeed. */
void scene_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A number that a shell command on the host prints, in the state directory. */
long scene_number(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The host's processes that work for the state directory. */
long scene_processes(void);
/* The state directory. */
const char *scene_folder(void);

#endif
