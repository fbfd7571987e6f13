/* sandbox verify: whether a snapshot is what was recorded, byte for byte. */

#include "json.h"
#include "progress.h"
#include "table.h"
#include "text.h"

struct settings {
    char none;
};

static int verify(struct cli *cli, const void *given, const struct cli_words *words);
static void print(const struct cli *cli, const sandbox_verification *found);
static void print_json(const sandbox_verification *found);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_verify = {
    .name = "verify",
    .usage = "NAME [SNAPSHOT]",
    .summary = "look at every byte of a snapshot",
    .text = "Of the recovery point, or of the one whose id, or the first digits of it, is given.\n"
            "Changes nothing. Exit code 0 only if it is intact, 1 if it is damaged or missing or\n"
            "could not be looked at. With -q the verdict only.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 2,
    .raw_after = -1,
    .json = true,
    .complete = CLI_COMPLETE_SNAPSHOT,
    .run = verify,
};

static int verify(struct cli *cli, const void *given, const struct cli_words *words)
{
    const char *name = words->word[0], *wanted = words->count > 1 ? words->word[1] : NULL;
    CLI_ON_EXIT(cli_workspace_free) sandbox_workspace *workspace = NULL;
    sandbox_verification found = {SANDBOX_VERIFICATION};
    sandbox_error error = {0};
    char snapshot[CLI_SNAPSHOT_BYTES];
    sandbox_status status = cli_find(cli, name, &workspace, &error);
    if (status == SANDBOX_OK && wanted != NULL)
        status = cli_find_snapshot(cli, workspace, wanted, snapshot, &error);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    struct cli_progress progress;
    sandbox_call call = cli_call(cli);
    cli_progress_begin(cli, &progress);
    status =
        sandbox_snapshot_verify(workspace, wanted != NULL ? snapshot : NULL, &call, &found, &error);
    cli_progress_end(&progress);
    if (status != SANDBOX_OK)
        return cli_fail(cli, &error, name);
    print(cli, &found);
    if (found.verdict == SANDBOX_VERDICT_INTACT)
        return CLI_OK;
    if (found.verdict == SANDBOX_VERDICT_CANNOT_TELL)
        cli_hint(cli, "nothing is said about it; try again");
    else
        cli_hint(cli,
                 "it is not restored as it is: repair it, or take another one; sandbox "
                 "snapshots %s shows what there is",
                 name);
    return CLI_FAILED;
}

static void print(const struct cli *cli, const sandbox_verification *found)
{
    const char *verdict = sandbox_verdict_name(found->verdict);
    char size[CLI_SHORT_BYTES], evidence[sizeof found->evidence];
    if (cli->json) {
        print_json(found);
        return;
    }
    const char *paint = cli_paint(verdict);
    printf("%s%s%s", paint, verdict, paint[0] != '\0' ? cli_paint_end() : "");
    if (!cli->quiet)
        printf(": %s in %u files of snapshot %.12s", cli_text_size(found->bytes, size),
               found->files, found->snapshot);
    cli_text_clean(found->evidence, evidence, sizeof evidence);
    if (!cli->quiet && evidence[0] != '\0')
        printf("; %s", evidence);
    printf("\n");
}

static void print_json(const sandbox_verification *found)
{
    struct cli_json json = {0};
    cli_json_object(&json, NULL);
    cli_json_text(&json, "snapshot", found->snapshot);
    cli_json_text(&json, "verdict", sandbox_verdict_name(found->verdict));
    cli_json_number(&json, "files", found->files);
    cli_json_size(&json, "bytes", found->bytes);
    cli_json_text(&json, "evidence", found->evidence);
    cli_json_end(&json, '}');
}
