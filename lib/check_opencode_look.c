/* What an opencode server says of its project directories, turns and terminals. */

#include "agent/text.h"
#include "check_opencode_parts.h"
#include <stdio.h>

#define DIRECTORIES_MAX 1000u
#define DIRECTORY_MAX 4096u
#define PAGES_MAX 100u
#define TERMINALS_MAX 1000u /* in one directory */
#define WORD_SHOWN 64

static sandbox_status add_directory(struct sbx_opencode *opencode, const char *directory,
                                    sandbox_error *error);
static sandbox_status add_projects(struct sbx_opencode *opencode, sandbox_error *error);
static sandbox_status add_sessions(struct sbx_opencode *opencode, sandbox_error *error);
static sandbox_status look_at_turns(struct sbx_opencode *opencode, const char *directory,
                                    const char *escaped, sandbox_error *error);
static sandbox_status look_at_second_engine(struct sbx_opencode *opencode, sandbox_error *error);
static sandbox_status look_at_terminals(struct sbx_opencode *opencode, const char *path,
                                        const char *directory, const char *escaped,
                                        sandbox_error *error);
static void say_who(struct sbx_opencode *opencode, const char *what, const char *id,
                    const char *does, const char *directory);

static sandbox_status nonsense(const char *where, sandbox_error *error)
{
    return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                        "the server's answer to %s is not what opencode says", where);
}

sandbox_status sbx_opencode_find_directories(struct sbx_opencode *opencode, sandbox_error *error)
{
    /* What is asked without a directory, the server takes for this one. */
    SBX_ON_EXIT(sbx_json_free) cJSON *own = NULL;
    sandbox_status status =
        sbx_guest_http_get(opencode->http, "/path", opencode->wait, &own, NULL, error);
    if (status == SANDBOX_OK)
        status = add_directory(opencode, sbx_json_text(own, "directory"), error);
    if (status == SANDBOX_OK)
        status = add_projects(opencode, error);
    if (status == SANDBOX_OK)
        status = add_sessions(opencode, error);
    return status;
}

sandbox_status sbx_opencode_look(struct sbx_opencode *opencode, sandbox_error *error)
{
    sbx_opencode_forget_processes(opencode);
    sandbox_status status = look_at_second_engine(opencode, error);
    for (size_t n = 0; n < opencode->directory_count; n++) {
        const char *directory = opencode->directories[n];
        if (status != SANDBOX_OK || opencode->active)
            break;
        SBX_ON_EXIT(sbx_free_text) char *escaped = sbx_guest_http_escape(directory);
        if (escaped == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
        status = look_at_turns(opencode, directory, escaped, error);
        /* The engines have terminals of their own, too. */
        if (status == SANDBOX_OK && !opencode->active)
            status = look_at_terminals(opencode, "/pty?directory=", directory, escaped, error);
        if (status == SANDBOX_OK && !opencode->active)
            status = look_at_terminals(opencode, "/api/pty?location%5Bdirectory%5D=", directory,
                                       escaped, error);
    }
    int64_t pid = 0;
    if (status == SANDBOX_OK && !opencode->active)
        status = sbx_opencode_find_job(opencode, &pid, error);
    if (pid != 0) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)pid);
        say_who(opencode, "terminal of process", number, "running a job", "");
    }
    return status;
}

static sandbox_status add_directory(struct sbx_opencode *opencode, const char *directory,
                                    sandbox_error *error)
{
    if (directory[0] != '/' || strlen(directory) > DIRECTORY_MAX)
        return nonsense("where its projects are", error);
    /* Sessions come in runs of one directory: the last one first. */
    for (size_t n = opencode->directory_count; n > 0; n--) {
        if (strcmp(opencode->directories[n - 1], directory) == 0)
            return SANDBOX_OK;
    }
    if (opencode->directory_count == DIRECTORIES_MAX)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                            "opencode knows more than %u project directories, too many to ask "
                            "for each", DIRECTORIES_MAX);
    if (opencode->directories == NULL)
        opencode->directories = calloc(DIRECTORIES_MAX, sizeof *opencode->directories);
    char *copy = opencode->directories == NULL ? NULL : sbx_copy(directory);
    if (copy == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a check");
    opencode->directories[opencode->directory_count++] = copy;
    return SANDBOX_OK;
}

/* Of projects under version control, with their further work trees. */
static sandbox_status add_projects(struct sbx_opencode *opencode, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *projects = NULL;
    sandbox_status status =
        sbx_guest_http_get(opencode->http, "/project", opencode->wait, &projects, NULL, error);
    if (status == SANDBOX_OK && !cJSON_IsArray(projects))
        status = nonsense("/project", error);
    const cJSON *project, *sandbox;
    cJSON_ArrayForEach(project, projects) {
        /* All others are one project, whose tree is said to be "/". */
        const char *tree = sbx_json_text(project, "worktree");
        if (status == SANDBOX_OK && strcmp(tree, "/") != 0)
            status = add_directory(opencode, tree, error);
        cJSON_ArrayForEach(sandbox, cJSON_GetObjectItemCaseSensitive(project, "sandboxes")) {
            const char *text = cJSON_GetStringValue(sandbox);
            if (status == SANDBOX_OK)
                status = add_directory(opencode, text == NULL ? "" : text, error);
        }
    }
    return status;
}

/* Of the sessions of both engines and all projects. */
static sandbox_status add_sessions(struct sbx_opencode *opencode, sandbox_error *error)
{
    char cursor[SBX_GUEST_CURSOR_TEXT] = "";
    for (unsigned page = 0; page < PAGES_MAX; page++) {
        SBX_ON_EXIT(sbx_free_text) char *escaped = sbx_guest_http_escape(cursor);
        SBX_ON_EXIT(sbx_free_text) char *path =
            sbx_format("/experimental/session?limit=500&archived=true%s%s",
                       cursor[0] == '\0' ? "" : "&cursor=", escaped == NULL ? "" : escaped);
        if (escaped == NULL || path == NULL)
            return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
        SBX_ON_EXIT(sbx_json_free) cJSON *sessions = NULL;
        sandbox_status status =
            sbx_guest_http_get(opencode->http, path, opencode->wait, &sessions, cursor, error);
        if (status == SANDBOX_OK && !cJSON_IsArray(sessions))
            status = nonsense("/experimental/session", error);
        const cJSON *session;
        cJSON_ArrayForEach(session, sessions) {
            if (status == SANDBOX_OK)
                status = add_directory(opencode, sbx_json_text(session, "directory"), error);
        }
        if (status != SANDBOX_OK || cursor[0] == '\0')
            return status;
    }
    return sbx_fail_for(error, SANDBOX_UNAVAILABLE, "check-failed",
                        "opencode has more than %u pages of sessions", PAGES_MAX);
}

/* {"ses_…": {"type": "busy"}}: of the first engine, in one directory. */
static sandbox_status look_at_turns(struct sbx_opencode *opencode, const char *directory,
                                    const char *escaped, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *path = sbx_format("/session/status?directory=%s", escaped);
    if (path == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    SBX_ON_EXIT(sbx_json_free) cJSON *sessions = NULL;
    sandbox_status status =
        sbx_guest_http_get(opencode->http, path, opencode->wait, &sessions, NULL, error);
    if (status == SANDBOX_OK && !cJSON_IsObject(sessions))
        status = nonsense("/session/status", error);
    const cJSON *session;
    cJSON_ArrayForEach(session, sessions) {
        const char *type = sbx_json_text(session, "type");
        if (status == SANDBOX_OK && type[0] == '\0')
            status = nonsense("/session/status", error);
        /* "busy", "retry", and whatever a later version adds. */
        if (status == SANDBOX_OK && !opencode->active && strcmp(type, "idle") != 0)
            say_who(opencode, "session", session->string, type, directory);
    }
    return status;
}

/* {"data": {"ses_…": {"type": "running"}}}: of the second engine, in all directories. */
static sandbox_status look_at_second_engine(struct sbx_opencode *opencode, sandbox_error *error)
{
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status = sbx_guest_http_get(opencode->http, "/api/session/active",
                                               opencode->wait, &answer, NULL, error);
    const cJSON *sessions = cJSON_GetObjectItemCaseSensitive(answer, "data");
    if (status == SANDBOX_OK && !cJSON_IsObject(sessions))
        status = nonsense("/api/session/active", error);
    if (status != SANDBOX_OK || sessions->child == NULL)
        return status;
    const char *id = sessions->child->string, *type = sbx_json_text(sessions->child, "type");
    SBX_ON_EXIT(sbx_json_free) cJSON *about = NULL;
    /* Work it is, wherever: if the server does not say where, the answer is the same. */
    SBX_ON_EXIT(sbx_free_text) char *escaped =
        strlen(id) < WORD_SHOWN ? sbx_guest_http_escape(id) : NULL;
    SBX_ON_EXIT(sbx_free_text) char *path =
        escaped == NULL ? NULL : sbx_format("/api/session/%s", escaped);
    if (path != NULL)
        (void)sbx_guest_http_get(opencode->http, path, opencode->wait, &about, NULL, NULL);
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(about, "data");
    const cJSON *location = cJSON_GetObjectItemCaseSensitive(data, "location");
    say_who(opencode, "session", id, type[0] == '\0' ? "running" : type,
            sbx_json_text(location, "directory"));
    return SANDBOX_OK;
}

/* A list, or {"data": a list}. */
static sandbox_status look_at_terminals(struct sbx_opencode *opencode, const char *path,
                                        const char *directory, const char *escaped,
                                        sandbox_error *error)
{
    SBX_ON_EXIT(sbx_free_text) char *whole = sbx_format("%s%s", path, escaped);
    if (whole == NULL)
        return sbx_fail(error, SANDBOX_NO_MEMORY, "no memory for a request");
    SBX_ON_EXIT(sbx_json_free) cJSON *answer = NULL;
    sandbox_status status =
        sbx_guest_http_get(opencode->http, whole, opencode->wait, &answer, NULL, error);
    const cJSON *terminals =
        cJSON_IsObject(answer) ? cJSON_GetObjectItemCaseSensitive(answer, "data") : answer;
    if (status == SANDBOX_OK &&
        (!cJSON_IsArray(terminals) || cJSON_GetArraySize(terminals) > (int)TERMINALS_MAX))
        status = nonsense("its terminals", error);
    const cJSON *terminal;
    cJSON_ArrayForEach(terminal, terminals) {
        if (status != SANDBOX_OK || opencode->active)
            break;
        /* "running" means that the shell lives; one that has ended is on its way out. */
        if (strcmp(sbx_json_text(terminal, "status"), "exited") == 0)
            continue;
        bool has_job = false;
        int64_t pid = sbx_json_integer(terminal, "pid");
        status = pid > 0 ? sbx_opencode_has_job(opencode, pid, &has_job, error)
                         : nonsense("its terminals", error);
        if (status == SANDBOX_OK && has_job)
            say_who(opencode, "terminal", sbx_json_text(terminal, "id"), "running a job",
                    directory);
    }
    return status;
}

static void say_who(struct sbx_opencode *opencode, const char *what, const char *id,
                    const char *does, const char *directory)
{
    char id_shown[WORD_SHOWN], does_shown[WORD_SHOWN / 2], line[SBX_OPENCODE_WHO];
    sbx_text_clean((const uint8_t *)id, strlen(id), id_shown, sizeof id_shown);
    sbx_text_clean((const uint8_t *)does, strlen(does), does_shown, sizeof does_shown);
    opencode->active = true;
    snprintf(line, sizeof line, "opencode %s %s is %s%s%s", what, id_shown, does_shown,
             directory[0] == '\0' ? "" : " in ", directory);
    sbx_text_clean((const uint8_t *)line, strlen(line), opencode->who, sizeof opencode->who);
}
