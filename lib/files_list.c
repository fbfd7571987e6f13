/* What is known of files: one, or all in a directory. */

#include "files_parts.h"
#include "util/fail.h"
#include "util/memory.h"

#define LIST_MAX 100000u

struct entry {
    sandbox_file_info info;
    char *name, *target;
};

struct sandbox_file_list {
    struct entry *entries;
    size_t count, capacity;
};

static sandbox_status add(sandbox_file_list *list, const Sandbox__V1__FileInfo *info,
                          sandbox_error *error);
static int compare(const void *a, const void *b);

static void free_list(sandbox_file_list **list)
{
    sandbox_file_list_free(*list);
}

static void free_stream(struct sbx_stream **stream)
{
    sbx_stream_free(*stream);
}

static sandbox_status begin(sandbox_workspace *workspace, const char *path,
                            const sandbox_call *call, sandbox_file_list **out,
                            Sandbox__V1__PathRequest *request, struct sbx_wait *wait,
                            sandbox_file_list **list, sandbox_error *error)
{
    sandbox__v1__path_request__init(request);
    sandbox_status status = sbx_workspace_check(workspace, error);
    if (status == SANDBOX_OK && out == NULL)
        status = sbx_fail(error, SANDBOX_INVALID, "no place to put the list");
    if (status == SANDBOX_OK)
        status = sbx_file_path(path, &request->path, error);
    if (status == SANDBOX_OK)
        status = sbx_wait_begin(wait, call, SBX_FILE_CALL_MS, error);
    if (status != SANDBOX_OK)
        return status;
    *list = calloc(1, sizeof **list);
    return *list == NULL ? sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of files")
                         : SANDBOX_OK;
}

sandbox_status sandbox_file_stat(sandbox_workspace *workspace, const char *path,
                                 const sandbox_call *call, sandbox_file_list **out,
                                 sandbox_error *error)
{
    struct sbx_wait wait;
    Sandbox__V1__PathRequest request;
    SBX_ON_EXIT(free_list) sandbox_file_list *list = NULL;
    SBX_ON_EXIT(sbx_file_free_message) ProtobufCMessage *reply = NULL;
    sandbox_status status = begin(workspace, path, call, out, &request, &wait, &list, error);
    if (status == SANDBOX_OK)
        status = sbx_workspace_call(workspace, "/sandbox.v1.Files/Stat", &request.base, true,
                                    &sandbox__v1__file_info__descriptor, &wait, &reply, error);
    if (status == SANDBOX_OK)
        status = add(list, (const Sandbox__V1__FileInfo *)(void *)reply, error);
    if (status == SANDBOX_OK)
        *out = sbx_take(list);
    return status;
}

sandbox_status sandbox_file_list_directory(sandbox_workspace *workspace, const char *path,
                                           const sandbox_call *call, sandbox_file_list **out,
                                           sandbox_error *error)
{
    struct sbx_wait wait;
    Sandbox__V1__PathRequest request;
    const ProtobufCMessageDescriptor *descriptor = &sandbox__v1__file_info__descriptor;
    SBX_ON_EXIT(free_list) sandbox_file_list *list = NULL;
    SBX_ON_EXIT(free_stream) struct sbx_stream *stream = NULL;
    ProtobufCMessage *message = NULL;
    sandbox_status status = begin(workspace, path, call, out, &request, &wait, &list, error);
    if (status == SANDBOX_OK)
        status = sbx_file_ask(workspace, "/sandbox.v1.Files/List", &request.base, descriptor,
                              &wait, &stream, &message, error);
    while (status == SANDBOX_OK && message != NULL) {
        const Sandbox__V1__FileInfo *info = (const Sandbox__V1__FileInfo *)(void *)message;
        bool is_name = info->name.len > 0 && memchr(info->name.data, '/', info->name.len) == NULL;
        status = is_name ? add(list, info, error)
                         : sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer",
                                        "the agent told a file name that cannot be one");
        sbx_file_free_message(&message);
        message = NULL;
        if (status == SANDBOX_OK)
            status = sbx_stream_next(stream, descriptor, &wait, &message, error);
        if (status == SANDBOX_CLOSED)
            status = SANDBOX_OK;
    }
    if (status != SANDBOX_OK)
        return status;
    if (list->count > 1)
        qsort(list->entries, list->count, sizeof *list->entries, compare);
    *out = sbx_take(list);
    return SANDBOX_OK;
}

size_t sandbox_file_list_count(const sandbox_file_list *list)
{
    return list == NULL ? 0 : list->count;
}

const sandbox_file_info *sandbox_file_list_at(const sandbox_file_list *list, size_t index)
{
    return list == NULL || index >= list->count ? NULL : &list->entries[index].info;
}

void sandbox_file_list_free(sandbox_file_list *list)
{
    if (list == NULL)
        return;
    for (size_t i = 0; i < list->count; i++) {
        free(list->entries[i].name);
        free(list->entries[i].target);
    }
    free(list->entries);
    free(list);
}

static sandbox_file_kind kind_of(Sandbox__V1__FileInfo__Kind kind)
{
    switch (kind) {
    case SANDBOX__V1__FILE_INFO__KIND__KIND_REGULAR:
        return SANDBOX_FILE_REGULAR;
    case SANDBOX__V1__FILE_INFO__KIND__KIND_DIRECTORY:
        return SANDBOX_FILE_DIRECTORY;
    case SANDBOX__V1__FILE_INFO__KIND__KIND_LINK:
        return SANDBOX_FILE_LINK;
    default:
        return SANDBOX_FILE_OTHER;
    }
}

static sandbox_status add(sandbox_file_list *list, const Sandbox__V1__FileInfo *info,
                          sandbox_error *error)
{
    if (list->count == LIST_MAX)
        return sbx_fail_for(error, SANDBOX_LIMIT, "limit",
                            "the directory holds more than %u entries", LIST_MAX);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        struct entry *larger = realloc(list->entries, capacity * sizeof *larger);
        if (larger == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a list of files");
        list->entries = larger;
        list->capacity = capacity;
    }
    struct entry *entry = &list->entries[list->count];
    *entry = (struct entry){0};
    sandbox_status status = sbx_file_text(&info->name, &entry->name, error);
    if (status == SANDBOX_OK)
        status = sbx_file_text(&info->target, &entry->target, error);
    if (status != SANDBOX_OK) {
        free(entry->name);
        return status;
    }
    entry->info = (sandbox_file_info){
        .size = sizeof entry->info,
        .name = entry->name,
        .target = entry->target,
        .kind = kind_of(info->kind),
        .mode = info->mode & 07777,
        .uid = info->uid,
        .gid = info->gid,
        .file_size = info->size,
        .modified_ms = info->modified_ms,
        .links = info->links,
    };
    list->count++;
    return SANDBOX_OK;
}

static int compare(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    return strcmp(left->name, right->name);
}
