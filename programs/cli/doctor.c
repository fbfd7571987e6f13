/* sandbox doctor: what a platform lacks, and the remedies. */

#include "cli.h"
#include "json.h"
#include "table.h"
#include "text.h"
#include <string.h>

struct settings {
    const char *save, *from;
};

static int examine(struct cli *cli, const void *given, const struct cli_words *words);
static void print_json(const sandbox_findings *findings);
static int print_table(const struct cli *cli, const sandbox_findings *findings);
static const char *severity_name(sandbox_severity severity);

static const struct cli_option options[] = {
    {0, "save", "FILE", "write what was read of the cluster there, without secrets", CLI_TEXT,
     offsetof(struct settings, save)},
    {0, "from", "FILE", "look at what was saved, or at kubectl's -o json, and ask nobody", CLI_TEXT,
     offsetof(struct settings, from)},
    {.name = NULL},
};

const struct cli_verb cli_doctor = {
    .name = "doctor",
    .usage = "",
    .summary = "say what this machine or platform lacks, and the remedy",
    .text = "Exit code 1 if workspaces cannot be made until something is mended. With -q problems\n"
            "only.",
    .options = options,
    .settings_size = sizeof(struct settings),
    .raw_after = -1,
    .json = true,
    .run = examine,
};

static int examine(struct cli *cli, const void *given, const struct cli_words *words)
{
    const struct settings *settings = given;
    sandbox_findings *findings;
    sandbox_error error = {0};
    sandbox_call call = cli_call(cli);
    /* A description is of a cluster, wherever workspaces live otherwise. */
    bool is_elsewhere =
        settings->from != NULL && cli->uri != NULL && strncmp(cli->uri, "gke:", 4) != 0;
    const sandbox_doctor_options wanted = {SANDBOX_DOCTOR_OPTIONS, is_elsewhere ? NULL : cli->uri,
                                           .save = settings->save, .from = settings->from};
    if (settings->save != NULL && settings->from != NULL)
        return cli_usage(cli, "--save looks at a cluster, --from at what was saved: give one");
    if (sandbox_doctor_with(&wanted, &call, &findings, &error) != SANDBOX_OK)
        return cli_fail(cli, &error, NULL);
    int code = CLI_OK;
    for (size_t i = 0; i < sandbox_findings_count(findings); i++)
        if (sandbox_findings_at(findings, i)->severity == SANDBOX_SEVERITY_PROBLEM)
            code = CLI_FAILED;
    if (cli->json)
        print_json(findings);
    else if (print_table(cli, findings) != CLI_OK)
        code = CLI_FAILED;
    sandbox_findings_free(findings);
    return code;
}

static void print_json(const sandbox_findings *findings)
{
    struct cli_json json = {0};
    cli_json_array(&json, NULL);
    for (size_t i = 0; i < sandbox_findings_count(findings); i++) {
        const sandbox_finding *finding = sandbox_findings_at(findings, i);
        cli_json_object(&json, NULL);
        cli_json_text(&json, "severity", severity_name(finding->severity));
        cli_json_text(&json, "subject", finding->subject);
        cli_json_text(&json, "text", finding->text);
        cli_json_text(&json, "remedy", finding->remedy);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
}

/* A remedy must be readable as a whole, so it stands on a line of its own and is never cut. */
static int print_table(const struct cli *cli, const sandbox_findings *findings)
{
    for (size_t i = 0; i < sandbox_findings_count(findings); i++) {
        const sandbox_finding *finding = sandbox_findings_at(findings, i);
        if (cli->quiet && finding->severity != SANDBOX_SEVERITY_PROBLEM)
            continue;
        const char *severity = severity_name(finding->severity);
        const char *paint = cli_paint(severity);
        char subject[64], text[1024], remedy[1024];
        cli_text_clean(finding->subject, subject, sizeof subject);
        cli_text_clean(finding->text, text, sizeof text);
        cli_text_clean(finding->remedy, remedy, sizeof remedy);
        printf("%s%-8s%s %-12s %s\n", paint, severity, paint[0] != '\0' ? cli_paint_end() : "",
               subject, text);
        if (remedy[0] != '\0')
            printf("%-8s %-12s -> %s\n", "", "", remedy);
    }
    return CLI_OK;
}

static const char *severity_name(sandbox_severity severity)
{
    switch (severity) {
    case SANDBOX_SEVERITY_GOOD:
        return "good";
    case SANDBOX_SEVERITY_NOTE:
        return "note";
    default:
        return "problem";
    }
}
