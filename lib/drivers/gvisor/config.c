/* The OCI configuration of a workspace: what runsc mounts, starts and allows inside. */

#include "drivers/gvisor/gvisor.h"
#include "util/memory.h"

static cJSON *describe_process(void);
static cJSON *describe_mounts(const struct sbx_gvisor *driver, const struct sbx_record *record,
                              const struct sbx_gvisor_bundle *bundle);
static cJSON *add_object(cJSON *array);
static bool put(cJSON *object, const char *name, cJSON *value);
static cJSON *strings(const char *const *texts);

cJSON *sbx_gvisor_config(const struct sbx_gvisor *driver, const struct sbx_record *record,
                         const struct sbx_gvisor_bundle *bundle)
{
    static const char *const namespaces[] = {"pid", "ipc", "uts", "mount", "network"};
    SBX_ON_EXIT(sbx_free_text)
    char *root_path = sbx_gvisor_path(driver, "workspaces/%s/bundle/rootfs", record->id);
    SBX_ON_EXIT(sbx_json_free) cJSON *config = cJSON_CreateObject();
    cJSON *root = NULL, *annotations = NULL, *part = NULL, *list = NULL;
    bool good = root_path != NULL && config != NULL &&
                put(config, "ociVersion", cJSON_CreateString("1.0.2")) &&
                put(config, "hostname", cJSON_CreateString(record->name)) &&
                (root = cJSON_AddObjectToObject(config, "root")) != NULL &&
                put(root, "path", cJSON_CreateString(root_path)) &&
                put(root, "readonly", cJSON_CreateFalse()) &&
                put(config, "process", describe_process()) &&
                put(config, "mounts", describe_mounts(driver, record, bundle));

    good = good && (annotations = cJSON_AddObjectToObject(config, "annotations")) != NULL &&
           put(annotations, "org.libsandbox.id", cJSON_CreateString(record->id)) &&
           put(annotations, "org.libsandbox.base", cJSON_CreateString(bundle->pins.base)) &&
           put(annotations, "org.libsandbox.tools", cJSON_CreateString(bundle->pins.tools)) &&
           put(annotations, "org.libsandbox.runtime", cJSON_CreateString(bundle->pins.runtime));

    good = good && (part = cJSON_AddObjectToObject(config, "linux")) != NULL &&
           (list = cJSON_AddArrayToObject(part, "namespaces")) != NULL;
    for (size_t n = 0; good && n < sizeof namespaces / sizeof namespaces[0]; n++) {
        cJSON *item = add_object(list);
        good = item != NULL && put(item, "type", cJSON_CreateString(namespaces[n]));
    }
    return good ? sbx_take(config) : NULL;
}

/* Enough for root inside to keep house: files of others, their processes, other users. Not to
 * mount, and so not to take away what is mounted. */
static cJSON *describe_process(void)
{
    static const char *const argv[] = {
        "/.sandbox/sandbox-agent", "serve",  "--socket", "/run/sandbox/agent.sock", "--seal",
        "/run/sandbox/seal/seal",  "--init", NULL};
    static const char *const env[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    static const char *const capabilities[] = {"CAP_CHOWN",      "CAP_DAC_OVERRIDE",
                                               "CAP_FOWNER",     "CAP_FSETID",
                                               "CAP_KILL",       "CAP_SETGID",
                                               "CAP_SETUID",     "CAP_NET_BIND_SERVICE",
                                               "CAP_SYS_CHROOT", "CAP_SETPCAP",
                                               "CAP_MKNOD",      "CAP_AUDIT_WRITE",
                                               "CAP_SYS_PTRACE", NULL};
    static const char *const sets[] = {"bounding", "effective", "permitted"};
    SBX_ON_EXIT(sbx_json_free) cJSON *process = cJSON_CreateObject();
    cJSON *user = NULL, *held = NULL, *limits = NULL, *files = NULL;
    bool good = process != NULL && put(process, "terminal", cJSON_CreateFalse()) &&
                (user = cJSON_AddObjectToObject(process, "user")) != NULL &&
                put(user, "uid", cJSON_CreateNumber(0)) &&
                put(user, "gid", cJSON_CreateNumber(0)) && put(process, "args", strings(argv)) &&
                put(process, "env", strings(env)) && put(process, "cwd", cJSON_CreateString("/")) &&
                put(process, "noNewPrivileges", cJSON_CreateTrue()) &&
                (held = cJSON_AddObjectToObject(process, "capabilities")) != NULL;
    for (size_t n = 0; good && n < sizeof sets / sizeof sets[0]; n++)
        good = put(held, sets[n], strings(capabilities));
    good = good && (limits = cJSON_AddArrayToObject(process, "rlimits")) != NULL &&
           (files = add_object(limits)) != NULL &&
           put(files, "type", cJSON_CreateString("RLIMIT_NOFILE")) &&
           put(files, "hard", cJSON_CreateNumber(1048576)) &&
           put(files, "soft", cJSON_CreateNumber(65536));
    return good ? sbx_take(process) : NULL;
}

static bool add_mount(cJSON *mounts, const char *destination, const char *type, const char *source,
                      const char *const *options)
{
    cJSON *mount = add_object(mounts);
    return source != NULL && mount != NULL &&
           put(mount, "destination", cJSON_CreateString(destination)) &&
           put(mount, "type", cJSON_CreateString(type)) &&
           put(mount, "source", cJSON_CreateString(source)) &&
           put(mount, "options", strings(options));
}

/* Real mounts, not rules about paths: the guest cannot move, replace or uncover them. */
static cJSON *describe_mounts(const struct sbx_gvisor *driver, const struct sbx_record *record,
                              const struct sbx_gvisor_bundle *bundle)
{
    static const char *const plain[] = {"nosuid", "nodev", "noexec", NULL};
    static const char *const fixed[] = {"ro", "nosuid", "nodev", "noexec", NULL};
    static const char *const open_to_all[] = {"nosuid", "nodev", "mode=1777", NULL};
    static const char *const run[] = {"nosuid", "nodev", "mode=0755", NULL};
    static const char *const only_root[] = {"nosuid", "nodev", "mode=0700", NULL};
    static const char *const tools[] = {"bind", "ro", "nosuid", "nodev", NULL};
    static const char *const files[] = {"bind", "rw", "nosuid", "nodev", NULL};
    static const char *const seals[] = {"bind", "rw", "nosuid", "nodev", "noexec", NULL};
    SBX_ON_EXIT(sbx_free_text)
    char *tools_path = sbx_gvisor_path(driver, "agents/%s", bundle->pins.tools);
    SBX_ON_EXIT(sbx_free_text)
    char *workspace = sbx_gvisor_path(driver, "workspaces/%s/files/workspace", record->id);
    SBX_ON_EXIT(sbx_free_text)
    char *home = sbx_gvisor_path(driver, "workspaces/%s/files/home", record->id);
    SBX_ON_EXIT(sbx_free_text)
    char *seal = sbx_gvisor_path(driver, "workspaces/%s/files/seal", record->id);
    SBX_ON_EXIT(sbx_json_free) cJSON *mounts = cJSON_CreateArray();
    bool good = add_mount(mounts, "/proc", "proc", "proc", plain) &&
                add_mount(mounts, "/sys", "sysfs", "sysfs", fixed) &&
                add_mount(mounts, "/dev/shm", "tmpfs", "tmpfs", open_to_all) &&
                add_mount(mounts, "/tmp", "tmpfs", "tmpfs", open_to_all) &&
                add_mount(mounts, "/run", "tmpfs", "tmpfs", run) &&
                add_mount(mounts, "/run/sandbox", "tmpfs", "tmpfs", only_root) &&
                add_mount(mounts, "/run/sandbox/seal", "bind", seal, seals) &&
                add_mount(mounts, "/.sandbox", "bind", tools_path, tools) &&
                add_mount(mounts, "/workspace", "bind", workspace, files);
    if (good && strcmp(bundle->user.home, "/workspace") != 0)
        good = add_mount(mounts, bundle->user.home, "bind", home, files);
    return good ? sbx_take(mounts) : NULL;
}

/* NULL on no memory. */
static cJSON *add_object(cJSON *array)
{
    cJSON *object = cJSON_CreateObject();
    if (array != NULL && object != NULL && cJSON_AddItemToArray(array, object))
        return object;
    cJSON_Delete(object);
    return NULL;
}

/* False on no memory; the value is freed then. */
static bool put(cJSON *object, const char *name, cJSON *value)
{
    if (value != NULL && cJSON_AddItemToObject(object, name, value))
        return true;
    cJSON_Delete(value);
    return false;
}

static cJSON *strings(const char *const *texts)
{
    size_t count = sbx_count_strings(texts);
    return cJSON_CreateStringArray(texts, (int)count);
}
