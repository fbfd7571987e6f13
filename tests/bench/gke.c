/*
 * Measures the library over a cluster, as tests/bench/gke.py asks for it.
 *
 *     bench-gke URI sleep ROUNDS      suspend and resume: seconds of each
 *     bench-gke URI command ROUNDS    /bin/true over a channel that is there
 *     bench-gke URI many COUNT WIDTH  so many workspaces by one client, WIDTH at a time: seconds of
 *                                     each, then what this process took
 *     bench-gke URI watched COUNT     holds the COUNT workspaces WATCHED-00000… that are there, and
 *                                     listens to all of them
 *
 * A line each: a name and a number. It deletes what it made.
 */

#include <sandbox/sandbox.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define WIDTH_MAX 64

struct crowd {
    sandbox_client *client;
    sandbox_workspace **workspaces;
    double *seconds;
    int count, next;
    bool is_deleting;
    pthread_mutex_t lock;
};

static void measure_sleep(sandbox_client *client, int rounds);
static void measure_command(sandbox_client *client, int rounds);
static void measure_many(sandbox_client *client, int count, int width);
static void measure_watched(sandbox_client *client, int count);
static void print_usage(void);
static void run_crowd(struct crowd *crowd, int width);
static void *work(void *data);

static double now(void)
{
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return (double)moment.tv_sec + (double)moment.tv_nsec / 1e9;
}

static void check(sandbox_status status, const sandbox_error *error, const char *what)
{
    if (status == SANDBOX_OK)
        return;
    fprintf(stderr, "bench-gke: %s: %s\n", what, error->message);
    exit(1);
}

int main(int argument_count, char **arguments)
{
    const char *part = argument_count >= 4 ? arguments[2] : "";
    int count = argument_count >= 4 ? (int)strtol(arguments[3], NULL, 10) : 0;
    int width = argument_count == 5 ? (int)strtol(arguments[4], NULL, 10) : 1;
    if (count < 1 || width < 1 || width > WIDTH_MAX) {
        fprintf(stderr, "usage: bench-gke URI sleep|command ROUNDS\n"
                        "       bench-gke URI many COUNT WIDTH\n"
                        "       bench-gke URI watched COUNT\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    sandbox_client *client = NULL;
    sandbox_error error;
    const sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = arguments[1]};
    check(sandbox_client_open(&options, NULL, &client, &error), &error, "open");
    if (strcmp(part, "sleep") == 0)
        measure_sleep(client, count);
    else if (strcmp(part, "command") == 0)
        measure_command(client, count);
    else if (strcmp(part, "watched") == 0)
        measure_watched(client, count);
    else
        measure_many(client, count, width);
    sandbox_client_free(client);
    return 0;
}

static sandbox_workspace *make(sandbox_client *client)
{
    sandbox_workspace *workspace = NULL;
    sandbox_error error;
    check(sandbox_workspace_create(client, NULL, NULL, &workspace, &error), &error, "create");
    return workspace;
}

static void destroy(sandbox_workspace *workspace)
{
    sandbox_error error;
    check(sandbox_workspace_delete(workspace, NULL, &error), &error, "delete");
    sandbox_workspace_free(workspace);
}

static void measure_sleep(sandbox_client *client, int rounds)
{
    sandbox_error error;
    double began = now();
    sandbox_workspace *workspace = make(client);
    printf("create %.6f\n", now() - began);
    for (int each = 0; each < rounds; each++) {
        began = now();
        check(sandbox_workspace_suspend(workspace, NULL, NULL, NULL, &error), &error, "suspend");
        printf("suspend %.6f\n", now() - began);
        began = now();
        check(sandbox_workspace_resume(workspace, NULL, NULL, NULL, &error), &error, "resume");
        printf("resume %.6f\n", now() - began);
    }
    destroy(workspace);
}

static void measure_command(sandbox_client *client, int rounds)
{
    const char *argv[] = {"/bin/true", NULL};
    const sandbox_process_options options = {SANDBOX_PROCESS_OPTIONS, .argv = argv};
    sandbox_workspace *workspace = make(client);
    for (int each = 0; each < rounds; each++) {
        sandbox_process_result *result = NULL;
        sandbox_error error;
        double began = now();
        check(sandbox_process_run(workspace, &options, NULL, NULL, &result, &error), &error,
              "run /bin/true");
        printf("command %.6f\n", now() - began);
        sandbox_process_result_free(result);
    }
    destroy(workspace);
}

static void measure_many(sandbox_client *client, int count, int width)
{
    struct crowd crowd = {.client = client, .count = count};
    crowd.workspaces = calloc((size_t)count, sizeof *crowd.workspaces);
    crowd.seconds = calloc((size_t)count, sizeof *crowd.seconds);
    if (crowd.workspaces == NULL || crowd.seconds == NULL)
        exit(1);
    pthread_mutex_init(&crowd.lock, NULL);

    double began = now();
    run_crowd(&crowd, width);
    double took = now() - began;
    for (int each = 0; each < count; each++)
        printf("create %.6f\n", crowd.seconds[each]);
    printf("all %.6f\n", took);
    print_usage();
    /* Whoever measures looks at the double's counters now, and closes our input. */
    printf("made 1\n");
    (void)getchar();

    crowd.is_deleting = true;
    crowd.next = 0;
    run_crowd(&crowd, width);
    pthread_mutex_destroy(&crowd.lock);
    free(crowd.workspaces);
    free(crowd.seconds);
}

static void measure_watched(sandbox_client *client, int count);
static void print_usage(void);
/* Found, listened to, and listed: all that is held of a workspace that nobody works in. */
static void measure_watched(sandbox_client *client, int count)
{
    sandbox_error error;
    sandbox_watch *watch = NULL;
    sandbox_workspace_list *list = NULL;
    sandbox_workspace **held = calloc((size_t)count, sizeof *held);
    if (held == NULL)
        exit(1);
    check(sandbox_client_watch(client, &watch, &error), &error, "watch");
    double began = now();
    for (int each = 0; each < count; each++) {
        char name[32];
        snprintf(name, sizeof name, "watched-%05d", each);
        check(sandbox_workspace_find(client, name, NULL, &held[each], &error), &error, "find");
    }
    printf("found %.6f\n", now() - began);
    print_usage();
    began = now();
    check(sandbox_workspace_list_all(client, NULL, NULL, &list, &error), &error, "list");
    printf("listed %.6f\n", now() - began);
    print_usage();
    sandbox_workspace_list_free(list);
    for (int each = 0; each < count; each++)
        sandbox_workspace_free(held[each]);
    free(held);
    sandbox_watch_free(watch);
}

static void print_usage(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("processor %.6f\n", (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    printf("memory-kib %ld\n", used.ru_maxrss);
}

static void run_crowd(struct crowd *crowd, int width)
{
    pthread_t threads[WIDTH_MAX];
    for (int each = 0; each < width; each++) {
        if (pthread_create(&threads[each], NULL, work, crowd) != 0)
            exit(1);
    }
    for (int each = 0; each < width; each++)
        pthread_join(threads[each], NULL);
}

static void *work(void *data)
{
    struct crowd *crowd = data;
    for (;;) {
        pthread_mutex_lock(&crowd->lock);
        int mine = crowd->next < crowd->count ? crowd->next++ : -1;
        pthread_mutex_unlock(&crowd->lock);
        if (mine < 0)
            return NULL;
        if (crowd->is_deleting) {
            destroy(crowd->workspaces[mine]);
            continue;
        }
        double began = now();
        crowd->workspaces[mine] = make(crowd->client);
        crowd->seconds[mine] = now() - began;
    }
}
