/* The options that say how a workspace is made, shared by create, open and run. */
#ifndef CLI_MAKING_H
#define CLI_MAKING_H

#include "reaching.h"

struct cli_making {
    const char *image, *user;
    struct cli_words env, labels;
    uint32_t memory_mib, cpu_millis, process_limit, disk_mib;
    uint64_t expires_ms, suspend_after_idle_ms;
    uint32_t retain;
    struct cli_words checks;
    struct cli_reaching reaching;
};

/* clang-format off */

/* The table's lines for settings of `type` that hold a struct cli_making `making`. */
#define CLI_MAKING_USER_OPTIONS(type)                                                             \
    {0, "user", "USER", "who runs commands: sandbox or root", CLI_TEXT,                           \
     offsetof(type, making.user)},                                                                \
    {'e', "env", "NAME[=VALUE]", "for every command; without a value: this program's", CLI_LIST,  \
     offsetof(type, making.env)}

/* Those that run has too, beside the user and environment of its command. */
#define CLI_MAKING_OPTIONS(type)                                                                  \
    {0, "image", "IMAGE", "the driver's term; gvisor: a root directory", CLI_TEXT,                \
     offsetof(type, making.image)},                                                               \
    {'l', "label", "KEY=VALUE", "to find it by; not secret", CLI_LIST,                            \
     offsetof(type, making.labels)},                                                              \
    {0, "memory", "MIB", "limit; default: 2048", CLI_NUMBER,                                      \
     offsetof(type, making.memory_mib)},                                                          \
    {0, "cpus", "N", "limit in processors, like 1.5; default: none", CLI_MILLIS,                  \
     offsetof(type, making.cpu_millis)},                                                          \
    {0, "processes", "N", "limit; default: 4096", CLI_NUMBER,                                     \
     offsetof(type, making.process_limit)},                                                       \
    {0, "disk", "MIB", "limit for its own files; default: none", CLI_NUMBER,                      \
     offsetof(type, making.disk_mib)},                                                            \
    {0, "expires", "DURATION", "delete it after this, like 90s, 15m, 2h, 3d", CLI_DURATION,       \
     offsetof(type, making.expires_ms)},                                                          \
    {0, "retain", "N", "snapshots to keep, 1 to 16; default: 3", CLI_NUMBER,                      \
     offsetof(type, making.retain)},                                                              \
    {0, "suspend-after-idle", "DURATION", "for suspend-idle; default: 15m", CLI_DURATION,         \
     offsetof(type, making.suspend_after_idle_ms)},                                               \
    {0, "check", "opencode:PORT", "what every suspend asks whether it is busy", CLI_LIST,         \
     offsetof(type, making.checks)},                                                              \
    {0, "allow", "HOST", CLI_REACHING_ALLOW, CLI_LIST, offsetof(type, making.reaching.allow)},    \
    {0, "transformations", "FILE|-", CLI_REACHING_FILE, CLI_TEXT,                                 \
     offsetof(type, making.reaching.transformations)}

/* clang-format on */

/* What the strings in settled options hang on. */
struct cli_made_of {
    struct cli_words env, owned;
    struct cli_reached reached;
};

/* False: told. Free `made_of` after the last use of `options`. */
bool cli_making_settle(const struct cli *cli, const struct cli_making *making,
                       struct cli_made_of *made_of, sandbox_workspace_options *options);
void cli_made_of_free(struct cli_made_of *made_of);

#endif
