/*
 * Suspend and resume against runsc's own checkpoint and restore of a sandbox that holds as much
 * memory, and verification against the bare digest. Ours includes a tree of 2,000 files, the
 * proof, the verification and every record; the peer's only the image, made durable.
 */

#include "bench.h"
#include "util/digest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES       2000
#define ROUNDS_MAX  50
#define DIGEST_SIZE ((size_t)256 << 20)
#define CONFIG                                                                                  \
    "{\"ociVersion\":\"1.0.2\",\"process\":{\"args\":[\"/hold\",\"hold\",\"%u\"],"            \
    "\"cwd\":\"/\",\"env\":[\"PATH=/\"],\"user\":{\"uid\":0,\"gid\":0},\"terminal\":false},"    \
    "\"root\":{\"path\":\"rootfs\"},\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\","   \
    "\"source\":\"proc\"}],\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"mount\"}]}}"

extern char **environ;

/* A sandbox without the library. */
struct bare {
    const char *runsc, *place;
    char root[4300], bundle[4200], image[4300], output[4300];
};

static sandbox_workspace *make(sandbox_client *client, const char *echo, const char *place,
                               unsigned mib);
static void make_files(sandbox_workspace *workspace, const char *place);
static void make_bare(struct bare *bare, const char *echo, unsigned mib);
static double bare_checkpoint(struct bare *bare, int round, double *alone);
static double bare_restore(struct bare *bare, int round);
static void runsc(const struct bare *bare, const char *const *words, const char *what);
static void remove_tree(const char *path);
static void await_removal(const char *place);
static double digest_rate(void);

void bench_sleep(sandbox_client *client, const char *runsc_path, const char *echo,
                 const char *place, unsigned mib, int rounds)
{
    double suspends[ROUNDS_MAX], resumes[ROUNDS_MAX], checkpoints[ROUNDS_MAX], alone[ROUNDS_MAX],
        restores[ROUNDS_MAX];
    char name[64];
    sandbox_error error;
    struct bare bare = {.runsc = runsc_path, .place = place};
    sandbox_workspace *workspace = make(client, echo, place, mib);
    make_bare(&bare, echo, mib);
    for (int each = 0; each < rounds; each++) {
        sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
        double began = bench_now();
        bench_check(sandbox_workspace_suspend(workspace, NULL, NULL, NULL, &error), &error,
                    "suspend");
        suspends[each] = bench_now() - began;
        await_removal(place);
        checkpoints[each] = bare_checkpoint(&bare, each, &alone[each]);
        began = bench_now();
        bench_check(sandbox_workspace_resume(workspace, NULL, NULL, &result, &error), &error,
                    "resume");
        resumes[each] = bench_now() - began;
        if (!result.restored || result.proof != SANDBOX_PROOF_MEMORY)
            bench_fail("resume", "it was not proven by memory");
        restores[each] = bare_restore(&bare, each);
    }
    snprintf(name, sizeof name, "suspend-%u", mib);
    bench_print_three(name, suspends, checkpoints, alone, rounds);
    snprintf(name, sizeof name, "resume-%u", mib);
    bench_print_three(name, resumes, restores, restores, rounds);
    if (mib >= 1024) {
        sandbox_verification seen = {SANDBOX_VERIFICATION};
        double began = bench_now();
        bench_check(sandbox_snapshot_verify(workspace, NULL, NULL, &seen, &error), &error,
                    "verify");
        bench_print("verify-rate", (double)seen.bytes / (bench_now() - began));
        bench_print("digest-rate", digest_rate() * (double)sysconf(_SC_NPROCESSORS_ONLN));
    }
    bench_check(sandbox_workspace_delete(workspace, NULL, &error), &error, "delete");
    sandbox_workspace_free(workspace);
    const char *const kill_it[] = {"delete", "--force", "bare", NULL};
    runsc(&bare, kill_it, "delete");
    remove_tree(bare.bundle);
}

static sandbox_workspace *make(sandbox_client *client, const char *echo, const char *place,
                               unsigned mib)
{
    sandbox_workspace *workspace = NULL;
    sandbox_process *process = NULL;
    sandbox_process_event event = {SANDBOX_PROCESS_EVENT};
    sandbox_error error;
    char size[16];
    snprintf(size, sizeof size, "%u", mib);
    const sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "sleeper",
                                               .memory_mib = 4096, .retain = 1};
    bench_check(sandbox_workspace_create(client, &options, NULL, &workspace, &error), &error,
                "create");
    bench_check(sandbox_file_upload(workspace, echo, BENCH_ECHO, NULL, NULL, NULL, &error),
                &error, "upload the echo program");
    make_files(workspace, place);
    const char *const argv[] = {BENCH_ECHO, "hold", size, NULL};
    const sandbox_process_options how = {SANDBOX_PROCESS_OPTIONS, .argv = argv,
                                         .role = SANDBOX_ROLE_SERVICE};
    bench_check(sandbox_process_start(workspace, &how, NULL, &process, &error), &error, "hold");
    bench_check(sandbox_process_next(process, NULL, &event, &error), &error, "hold");
    if (event.kind != SANDBOX_PROCESS_STDOUT)
        bench_fail("hold", "there is not so much memory");
    sandbox_process_free(process);
    return workspace;
}

/* Of 1 to 8 KiB, in 20 directories: a small project. */
static void make_files(sandbox_workspace *workspace, const char *place)
{
    static const char letters[8192] = "bytes that a project is made of, more or less";
    char path[4400];
    sandbox_error error;
    snprintf(path, sizeof path, "%s/tree", place);
    (void)mkdir(path, 0755);
    for (int each = 0; each < FILES; each++) {
        snprintf(path, sizeof path, "%s/tree/%d", place, each % 20);
        (void)mkdir(path, 0755);
        snprintf(path, sizeof path, "%s/tree/%d/%d", place, each % 20, each);
        size_t size = 1024 + (size_t)each * 7 % 7168;
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0 || write(fd, letters, size) != (ssize_t)size || close(fd) != 0)
            bench_fail(path, strerror(errno));
    }
    snprintf(path, sizeof path, "%s/tree", place);
    bench_check(sandbox_file_upload(workspace, path, "tree", NULL, NULL, NULL, &error), &error,
                "upload a tree");
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t size = strlen(text);
    if (fd < 0 || write(fd, text, size) != (ssize_t)size || close(fd) != 0)
        bench_fail(path, strerror(errno));
}

static void make_bare(struct bare *bare, const char *echo, unsigned mib)
{
    char config[1024], path[4400], seen[8] = "";
    snprintf(bare->root, sizeof bare->root, "--root=%s/bare-root", bare->place);
    snprintf(bare->bundle, sizeof bare->bundle, "%s/bare", bare->place);
    snprintf(bare->output, sizeof bare->output, "%s/bare/output", bare->place);
    snprintf(path, sizeof path, "%s/rootfs", bare->bundle);
    if (mkdir(bare->bundle, 0700) != 0 || mkdir(path, 0755) != 0)
        bench_fail(path, strerror(errno));
    snprintf(path, sizeof path, "%s/rootfs/proc", bare->bundle);
    (void)mkdir(path, 0555);
    snprintf(config, sizeof config, CONFIG, mib);
    snprintf(path, sizeof path, "%s/config.json", bare->bundle);
    write_file(path, config);
    snprintf(path, sizeof path, "%s/rootfs/hold", bare->bundle);
    const char *copy[] = {"cp", echo, path, NULL};
    pid_t pid = 0;
    if (posix_spawnp(&pid, "cp", NULL, NULL, (char *const *)(uintptr_t)copy, environ) != 0 ||
        waitpid(pid, NULL, 0) != pid)
        bench_fail("cp", strerror(errno));
    write_file(bare->output, "");
    char bundle[4400];
    snprintf(bundle, sizeof bundle, "--bundle=%s", bare->bundle);
    const char *const words[] = {"run", "--detach", bundle, "bare", NULL};
    runsc(bare, words, "run");
    for (int tries = 0; tries < 60000 && strcmp(seen, "held\n") != 0; tries++) {
        int fd = open(bare->output, O_RDONLY | O_CLOEXEC);
        ssize_t size = read(fd, seen, sizeof seen - 1);
        seen[size > 0 ? size : 0] = '\0';
        close(fd);
        usleep(1000);
    }
}

static double bare_checkpoint(struct bare *bare, int round, double *alone)
{
    char image[4400], path[4500];
    snprintf(bare->image, sizeof bare->image, "%s/image-%d", bare->bundle, round);
    snprintf(image, sizeof image, "--image-path=%s", bare->image);
    const char *const words[] = {"checkpoint", image, "bare", NULL};
    double began = bench_now();
    runsc(bare, words, "checkpoint");
    *alone = bench_now() - began;
    snprintf(path, sizeof path, "%s/checkpoint.img", bare->image);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || syncfs(fd) != 0)
        bench_fail(path, strerror(errno));
    close(fd);
    return bench_now() - began;
}

static double bare_restore(struct bare *bare, int round)
{
    char image[4400], bundle[4400];
    const char *const gone[] = {"delete", "--force", "bare", NULL};
    runsc(bare, gone, "delete");
    snprintf(image, sizeof image, "--image-path=%s", bare->image);
    snprintf(bundle, sizeof bundle, "--bundle=%s", bare->bundle);
    const char *const words[] = {"restore", "--detach", image, bundle, "bare", NULL};
    double began = bench_now();
    runsc(bare, words, "restore");
    double took = bench_now() - began;
    remove_tree(bare->image);
    return took;
}

static void runsc(const struct bare *bare, const char *const *words, const char *what)
{
    const char *all[16] = {bare->runsc, bare->root, "--platform=ptrace", "--network=none",
                           "--ignore-cgroups", "--overlay2=root:memory"};
    size_t count = 6;
    for (size_t each = 0; words[each] != NULL && count < 15; each++)
        all[count++] = words[each];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, bare->output, O_WRONLY | O_APPEND, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid = 0;
    int state = 0;
    int failed = posix_spawn(&pid, all[0], &actions, NULL, (char *const *)(uintptr_t)all, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0 || waitpid(pid, &state, 0) != pid || !WIFEXITED(state) ||
        WEXITSTATUS(state) != 0)
        bench_fail("bare runsc", what);
}

static void remove_tree(const char *path)
{
    const char *words[] = {"rm", "-rf", path, NULL};
    pid_t pid = 0;
    if (posix_spawnp(&pid, "rm", NULL, NULL, (char *const *)(uintptr_t)words, environ) == 0)
        waitpid(pid, NULL, 0);
}

/* Of the former snapshot, which goes on after the answer: it must not disturb the peer. */
static void await_removal(const char *place)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/removed", place);
    for (bool found = true; found; usleep(1000)) {
        DIR *removed = opendir(path);
        if (removed == NULL)
            bench_fail(path, strerror(errno));
        found = false;
        for (struct dirent *entry; (entry = readdir(removed)) != NULL;)
            found = found || entry->d_name[0] != '.';
        closedir(removed);
    }
}

/* Bytes a second on one processor, of memory that is there already. */
static double digest_rate(void)
{
    uint8_t digest[SBX_DIGEST_BYTES];
    uint8_t *block = malloc(DIGEST_SIZE);
    struct sbx_hash *hash = sbx_hash_new();
    if (block == NULL || hash == NULL)
        bench_fail("digest", "no memory");
    memset(block, 7, DIGEST_SIZE);
    double began = bench_now();
    sbx_hash_add(hash, block, DIGEST_SIZE);
    if (!sbx_hash_end(hash, digest))
        bench_fail("digest", "it failed");
    double took = bench_now() - began;
    sbx_hash_free(hash);
    free(block);
    return (double)DIGEST_SIZE / took;
}
