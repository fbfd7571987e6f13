/* sandbox ls: what is in a directory of a workspace. */

#include "cli.h"
#include "json.h"
#include "table.h"
#include "text.h"

#include <string.h>
#include <unistd.h>

struct settings {
    bool details;
};

static int list(struct cli *cli, const void *given, const struct cli_words *words);
static sandbox_status look(struct cli *cli, sandbox_workspace *workspace, const char *path,
                           sandbox_file_list **out, sandbox_error *error);
static int print(const struct cli *cli, const sandbox_file_list *found, bool details);
static void print_json(const sandbox_file_list *found);
static void add_details(struct cli_table *table, const sandbox_file_info *info);
static const char *kind_name(sandbox_file_kind kind);
static void print_name(const char *name);

static const struct cli_option options[] = {
    {'l', "long", NULL, "mode, owner, size and time too", CLI_FLAG,
     offsetof(struct settings, details)},
    {.name = NULL},
};

const struct cli_verb cli_ls = {
    .name = "ls",
    .usage = "[-l] NAME[:PATH]",
    .summary = "show the files in a directory of a workspace",
    .text = "PATH is absolute or counts from /workspace, which is also the default.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_WORKSPACE,
    .run = list,
};

static int list(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    struct cli_place place = cli_place_of(words->word[0]);
    const char *name = place.name[0] != '\0' ? place.name : place.path;
    const char *path = place.name[0] != '\0' ? place.path : ".";
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_file_list *found = NULL;
    sandbox_error error = {0};
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    if (status == SANDBOX_OK)
        status = look(cli, workspace, path, &found, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    int code = print(cli, found, settings->details);
    sandbox_file_list_free(found);
    return code;
}

/* A directory, or a link to one, is listed; anything else stands for itself. */
static sandbox_status look(struct cli *cli, sandbox_workspace *workspace, const char *path,
                           sandbox_file_list **out, sandbox_error *error)
{
    sandbox_file_list *itself;
    sandbox_call call = cli_call(cli);
    sandbox_status status = sandbox_file_stat(workspace, path, &call, &itself, error);
    if (status != SANDBOX_OK)
        return status;
    sandbox_file_kind kind = sandbox_file_list_at(itself, 0)->kind;
    if (kind == SANDBOX_FILE_DIRECTORY || kind == SANDBOX_FILE_LINK) {
        call = cli_call(cli);
        status = sandbox_file_list_directory(workspace, path, &call, out, error);
        if (status == SANDBOX_OK || kind == SANDBOX_FILE_DIRECTORY) {
            sandbox_file_list_free(itself);
            return status;
        }
    }
    *out = itself;
    return SANDBOX_OK;
}

static int print(const struct cli *cli, const sandbox_file_list *found, bool details)
{
    size_t count = sandbox_file_list_count(found);
    if (cli->json) {
        print_json(found);
        return CLI_OK;
    }
    if (!details) {
        for (size_t i = 0; i < count; i++)
            print_name(sandbox_file_list_at(found, i)->name);
        return CLI_OK;
    }
    static const char *const headings[] = {"MODE", "OWNER", "SIZE", "MODIFIED", "NAME", NULL};
    CLI_ON_EXIT(cli_table_free) struct cli_table table;
    cli_table_begin(&table, headings);
    for (size_t i = 0; i < count; i++)
        add_details(&table, sandbox_file_list_at(found, i));
    if (cli_table_print(&table))
        return CLI_OK;
    cli_complain("no memory for the table");
    return CLI_FAILED;
}

static void print_json(const sandbox_file_list *found)
{
    struct cli_json json = {0};
    cli_json_array(&json, NULL);
    for (size_t i = 0; i < sandbox_file_list_count(found); i++) {
        const sandbox_file_info *info = sandbox_file_list_at(found, i);
        char mode[8];
        snprintf(mode, sizeof mode, "%04o", info->mode & 07777);
        cli_json_object(&json, NULL);
        cli_json_text(&json, "name", info->name);
        cli_json_text(&json, "kind", kind_name(info->kind));
        cli_json_text(&json, "target", info->kind == SANDBOX_FILE_LINK ? info->target : NULL);
        cli_json_text(&json, "mode", mode);
        cli_json_number(&json, "uid", info->uid);
        cli_json_number(&json, "gid", info->gid);
        cli_json_size(&json, "size", info->file_size);
        cli_json_number(&json, "modified_ms", info->modified_ms);
        cli_json_size(&json, "links", info->links);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
}

static void add_details(struct cli_table *table, const sandbox_file_info *info)
{
    char mode[11] = "?rwxrwxrwx", owner[CLI_SHORT_BYTES], size[CLI_SHORT_BYTES],
         moment[CLI_SHORT_BYTES], name[1024];
    mode[0] = "?-dl"[info->kind <= SANDBOX_FILE_LINK ? info->kind : 0];
    for (unsigned bit = 0; bit < 9; bit++)
        if ((info->mode >> (8 - bit) & 1) == 0)
            mode[bit + 1] = '-';
    static const char set_marks[3] = {'s', 's', 't'};
    for (unsigned i = 0; i < 3; i++)
        if ((info->mode >> (11 - i) & 1) != 0)
            mode[3 * i + 3] = set_marks[i];
    snprintf(owner, sizeof owner, "%u:%u", info->uid, info->gid);
    snprintf(size, sizeof size, "%llu", (unsigned long long)info->file_size);
    bool link = info->kind == SANDBOX_FILE_LINK;
    snprintf(name, sizeof name, "%s%s%s", info->name, link ? " -> " : "", link ? info->target : "");
    const char *cells[] = {mode, owner, size, cli_text_time(info->modified_ms, moment), name};
    cli_table_add(table, cells);
}

static const char *kind_name(sandbox_file_kind kind)
{
    static const char *const names[] = {"other", "regular", "directory", "link"};
    return kind <= SANDBOX_FILE_LINK ? names[kind] : names[0];
}

/* Bytes as they are for a program, harmless for a terminal. */
static void print_name(const char *name)
{
    char clean[4096];
    if (isatty(STDOUT_FILENO)) {
        cli_text_clean(name, clean, sizeof clean);
        name = clean;
    }
    printf("%s\n", name);
}
