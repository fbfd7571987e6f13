/* sandbox cp: files and trees between this machine and a workspace. */

#include "cli.h"
#include "text.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES  4096
#define BAR_COLUMNS 79

struct settings {
    bool keep_links, skip_links;
    uint64_t max_bytes;
};

static int copy(struct cli *cli, const void *given, const struct cli_words *words);
static int copy_in(struct cli *cli, const char *host, const struct cli_place *guest,
                   const sandbox_copy_options *how);
static int copy_out(struct cli *cli, const struct cli_place *guest, const char *host,
                    const sandbox_copy_options *how);
static bool is_guest_directory(struct cli *cli, sandbox_workspace *workspace, const char *path);
static bool is_host_directory(const char *path);
static bool target_path(const struct cli *cli, const char *source, const char *target,
                        bool is_directory, char out[PATH_BYTES]);
static void tell_result(const struct cli *cli, const sandbox_copy_result *result);
static void show_progress(const sandbox_copy_progress *progress, void *user_data);
static void clear_progress(const sandbox_copy_options *how);

static const struct cli_option options[] = {
    {0, "keep-links", NULL, "keep symbolic links that lead out of the tree too", CLI_FLAG,
     offsetof(struct settings, keep_links)},
    {0, "skip-links", NULL, "copy no symbolic links", CLI_FLAG,
     offsetof(struct settings, skip_links)},
    {0, "max-bytes", "BYTES", "fail beyond that much content; default: 64 GiB", CLI_OFFSET,
     offsetof(struct settings, max_bytes)},
    {.name = NULL},
};

const struct cli_verb cli_cp = {
    .name = "cp",
    .usage = "[OPTIONS] SOURCE TARGET",
    .summary = "copy files and trees into or out of a workspace",
    .text = "One side is NAME:PATH; a path of this machine with a ':' is written ./PATH. A TARGET\n"
            "that is a directory or ends in '/' gets the copy inside. '-' is standard input or\n"
            "output, for one file. Links are never followed; devices are skipped.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 2,
    .most = 2,
    .raw_after = -1,
    .complete = CLI_COMPLETE_PATHS,
    .run = copy,
};

static int copy(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    struct cli_place source = cli_place_of(words->word[0]), target = cli_place_of(words->word[1]);
    bool from_guest = source.name[0] != '\0', to_guest = target.name[0] != '\0';
    if (!from_guest && !to_guest)
        return cli_usage(cli, "one side must be NAME:PATH");
    if (from_guest && to_guest)
        return cli_usage(cli, "only one side may be NAME:PATH; copy over this machine");
    if (settings->keep_links && settings->skip_links)
        return cli_usage(cli, "--keep-links and --skip-links exclude each other");
    bool shows = !cli->quiet && isatty(STDERR_FILENO);
    sandbox_copy_options how = {
        SANDBOX_COPY_OPTIONS,
        .max_bytes = settings->max_bytes,
        .links = settings->keep_links   ? SANDBOX_COPY_LINKS_KEEP
                 : settings->skip_links ? SANDBOX_COPY_LINKS_SKIP
                                        : SANDBOX_COPY_LINKS_INSIDE,
        .progress = shows ? show_progress : NULL,
    };
    return to_guest ? copy_in(cli, source.path, &target, &how)
                    : copy_out(cli, &source, target.path, &how);
}

static int copy_in(struct cli *cli, const char *host, const struct cli_place *guest,
                   const sandbox_copy_options *how)
{
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    char path[PATH_BYTES];
    if (cli_find(cli, guest->name, &workspace, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, guest->name);
    bool inside = is_guest_directory(cli, workspace, guest->path);
    if (strcmp(host, "-") == 0 && inside)
        return cli_usage(cli, "'%s' is a directory; name the file", guest->path);
    if (strcmp(host, "-") == 0)
        return cli_transfer_in(cli, workspace, guest->path);
    if (!target_path(cli, host, guest->path, inside, path))
        return CLI_USAGE;
    sandbox_copy_result result = {SANDBOX_COPY_RESULT};
    sandbox_call call = cli_call(cli);
    sandbox_status status = sandbox_file_upload(workspace, host, path, how, &call, &result, &error);
    clear_progress(how);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, guest->name);
    tell_result(cli, &result);
    return CLI_OK;
}

static int copy_out(struct cli *cli, const struct cli_place *guest, const char *host,
                    const sandbox_copy_options *how)
{
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    char path[PATH_BYTES];
    if (cli_find(cli, guest->name, &workspace, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, guest->name);
    if (strcmp(host, "-") == 0)
        return cli_transfer_out(cli, workspace, guest->path);
    if (!target_path(cli, guest->path, host, is_host_directory(host), path))
        return CLI_USAGE;
    sandbox_copy_result result = {SANDBOX_COPY_RESULT};
    sandbox_call call = cli_call(cli);
    sandbox_status status =
        sandbox_file_download(workspace, guest->path, path, how, &call, &result, &error);
    clear_progress(how);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, guest->name);
    tell_result(cli, &result);
    return CLI_OK;
}

/* A link to a directory counts, as with cp: only a directory has a "." inside. */
static bool is_guest_directory(struct cli *cli, sandbox_workspace *workspace, const char *path)
{
    if (path[strlen(path) - 1] == '/')
        return true;
    char inside[PATH_BYTES];
    sandbox_file_list *found;
    sandbox_call call = cli_call(cli);
    if (sandbox_file_stat(workspace, path, &call, &found, NULL) != SANDBOX_OK)
        return false;
    sandbox_file_kind kind = sandbox_file_list_at(found, 0)->kind;
    sandbox_file_list_free(found);
    int size = snprintf(inside, sizeof inside, "%s/.", path);
    if (kind != SANDBOX_FILE_LINK || size < 0 || (size_t)size >= sizeof inside)
        return kind == SANDBOX_FILE_DIRECTORY;
    call = cli_call(cli);
    if (sandbox_file_stat(workspace, inside, &call, &found, NULL) != SANDBOX_OK)
        return false;
    sandbox_file_list_free(found);
    return true;
}

static bool is_host_directory(const char *path)
{
    struct stat about;
    return path[0] != '\0' &&
           (path[strlen(path) - 1] == '/' || (stat(path, &about) == 0 && S_ISDIR(about.st_mode)));
}

/* Into a directory goes a copy under the source's own name; "." and "/" have none. */
static bool target_path(const struct cli *cli, const char *source, const char *target,
                        bool is_directory, char out[PATH_BYTES])
{
    size_t end = strlen(source);
    while (end > 1 && source[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && source[start - 1] != '/')
        start--;
    int size = (int)(end - start);
    const char *name = source + start;
    bool nameless = size == 0 || strncmp(name, ".", (size_t)size) == 0 ||
                    strncmp(name, "..", (size_t)size) == 0;
    int written;
    if (!is_directory || nameless)
        written = snprintf(out, PATH_BYTES, "%s", target);
    else
        written = snprintf(out, PATH_BYTES, "%s%s%.*s", target,
                           target[strlen(target) - 1] == '/' ? "" : "/", size, name);
    if (written > 0 && written < PATH_BYTES)
        return true;
    cli_usage(cli, "%s", written == 0 ? "an empty path" : "a path is too long");
    return false;
}

static void tell_result(const struct cli *cli, const sandbox_copy_result *result)
{
    if (result->skipped > 0)
        cli_note(cli, "%llu skipped: devices, sockets and links that lead out of the tree",
                 (unsigned long long)result->skipped);
}

static void show_progress(const sandbox_copy_progress *progress, void *user_data)
{
    char moved[CLI_SHORT_BYTES], total[CLI_SHORT_BYTES], line[512], name[256];
    cli_text_clean(progress->path, name, sizeof name);
    cli_text_size(progress->bytes, moved);
    if (progress->bytes_total > 0 && progress->bytes <= progress->bytes_total)
        snprintf(line, sizeof line, "%3u%%  %s of %s  %s",
                 (unsigned)((double)progress->bytes * 100 / (double)progress->bytes_total), moved,
                 cli_text_size(progress->bytes_total, total), name);
    else
        snprintf(line, sizeof line, "%s  %llu files  %s", moved,
                 (unsigned long long)progress->entries, name);
    cli_text_cut(line, BAR_COLUMNS);
    fprintf(stderr, "\r%s\033[K", line);
}

static void clear_progress(const sandbox_copy_options *how)
{
    if (how->progress != NULL)
        fputs("\r\033[K", stderr);
}
