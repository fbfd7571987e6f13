/* Bringing a workspace back, shared by open, resume and restore. */

#include "resuming.h"

#include "json.h"
#include "progress.h"
#include "suspending.h"
#include "text.h"

#include <string.h>

static void tell_flaws(const struct cli *cli, const sandbox_resume_result *result);
static void print_json(const char *name, const sandbox_resume_result *result);
static void print_text(const char *name, const sandbox_resume_result *result);
static const char *proof_name(sandbox_proof proof);

bool cli_from_settle(const struct cli *cli, const char *text, sandbox_from *out)
{
    *out = SANDBOX_FROM_NOTHING;
    if (text == NULL)
        return true;
    *out = SANDBOX_FROM_LIVE_FILES;
    if (strcmp(text, "live-files") == 0)
        return true;
    *out = SANDBOX_FROM_SNAPSHOT;
    if (strcmp(text, "snapshot") == 0)
        return true;
    cli_usage(cli, "--from: '%s' is neither live-files nor snapshot", text);
    return false;
}

int cli_bring_back(struct cli *cli, sandbox_workspace *workspace,
                   const sandbox_resume_options *wanted)
{
    const char *name = sandbox_workspace_name(workspace);
    sandbox_resume_result result = {SANDBOX_RESUME_RESULT};
    sandbox_error error = {0};
    struct cli_progress progress;
    sandbox_call call = cli_call(cli);
    cli_progress_begin(cli, &progress);
    sandbox_status status = sandbox_workspace_resume(workspace, wanted, &call, &result, &error);
    cli_progress_end(&progress);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    tell_flaws(cli, &result);
    if (cli->json)
        print_json(name, &result);
    else if (cli->quiet)
        printf("%s\n", name);
    else
        print_text(name, &result);
    return CLI_OK;
}

static void tell_flaws(const struct cli *cli, const sandbox_resume_result *result)
{
    if (result->clock_failed)
        cli_note(cli, "the clock inside is wrong and could not be set");
    if (result->entropy_failed)
        cli_note(cli, "the kernel inside took no fresh entropy: its random numbers may repeat "
                      "those of another resume from the same snapshot");
    if (result->connections_reset > 0)
        cli_note(cli, "%u connections that led into it were ended by the suspend",
                 result->connections_reset);
    if (result->hook_code == -2)
        cli_note(cli, "the resume hook inside was killed");
    else if (result->hook_code > 0)
        cli_note(cli, "the resume hook inside ended with %d", (int)result->hook_code);
}

static void print_json(const char *name, const sandbox_resume_result *result)
{
    bool known = result->kept != SANDBOX_KEEP_BEST;
    struct cli_json json = {0};
    cli_json_object(&json, NULL);
    cli_json_text(&json, "name", name);
    cli_json_bool(&json, "restored", result->restored);
    cli_json_text(&json, "proof", proof_name(result->proof));
    cli_json_text(&json, "kept", known ? cli_keep_name(result->kept) : NULL);
    cli_json_text(&json, "snapshot", result->snapshot);
    cli_json_number(&json, "attempts", result->attempts);
    cli_json_number(&json, "continued", result->continued);
    cli_json_number(&json, "deadlines_kept", result->deadlines_kept);
    cli_json_number(&json, "connections_reset", result->connections_reset);
    cli_json_number(&json, "generation", result->generation);
    if (result->hook_code == -1)
        cli_json_null(&json, "hook_code");
    else
        cli_json_number(&json, "hook_code", result->hook_code);
    cli_json_bool(&json, "clock_failed", result->clock_failed);
    cli_json_bool(&json, "entropy_failed", result->entropy_failed);
    cli_json_number(&json, "skew_ms", result->skew_ms);
    cli_json_size(&json, "asleep_ms", result->asleep_ms);
    cli_json_number(&json, "took_ms", result->took_ms);
    cli_json_end(&json, '}');
}

static void print_text(const char *name, const sandbox_resume_result *result)
{
    char asleep[CLI_SHORT_BYTES], took[CLI_SHORT_BYTES];
    cli_text_age((int64_t)result->asleep_ms, asleep);
    cli_text_took(result->took_ms, took);
    if (result->attempts == 0)
        printf("%s runs already\n", name);
    else if (!result->restored)
        printf("%s goes on: started anew over the files that were there, nothing proven (%s)\n",
               name, took);
    else if (result->kept == SANDBOX_KEEP_MEMORY)
        printf("%s resumed: restored, proven by memory; %u process%s on after %s (%s)\n", name,
               result->continued, result->continued == 1 ? " goes" : "es go", asleep, took);
    else
        printf("%s resumed: restored, proven by files; processes ended %s ago (%s)\n", name, asleep,
               took);
}

static const char *proof_name(sandbox_proof proof)
{
    switch (proof) {
    case SANDBOX_PROOF_MEMORY:
        return "memory";
    case SANDBOX_PROOF_FILES:
        return "files";
    default:
        return "none";
    }
}
