/*
 * about [URI]: says what the platform behind a URI can do, and makes a workspace with the limits
 * that hold there.
 */

#include <sandbox/sandbox.h>
#include <stdio.h>

static void print_abilities(const sandbox_client *client)
{
    static const struct {
        sandbox_ability ability;
        const char *text;
    } abilities[] = {
        {SANDBOX_CAN_LIMIT_MEMORY, "limits memory"},
        {SANDBOX_CAN_LIMIT_CPU, "limits processor time"},
        {SANDBOX_CAN_LIMIT_PROCESSES, "limits the number of processes"},
        {SANDBOX_CAN_LIMIT_DISK, "limits disk space"},
        {SANDBOX_CAN_USE_IMAGES, "takes images"},
    };
    printf("libsandbox %s, driver %s, at %s\n", sandbox_version(), sandbox_client_driver(client),
           sandbox_client_uri(client));
    for (size_t each = 0; each < sizeof abilities / sizeof abilities[0]; each++)
        printf("  %s: %s\n", abilities[each].text,
               sandbox_client_can(client, abilities[each].ability) ? "yes" : "no");
}

/* Works where no client can be opened, and says why. */
static void print_problems(const char *uri)
{
    sandbox_findings *findings = NULL;
    sandbox_error error;
    if (sandbox_doctor(uri, NULL, &findings, &error) != SANDBOX_OK)
        return;
    for (size_t each = 0; each < sandbox_findings_count(findings); each++) {
        const sandbox_finding *finding = sandbox_findings_at(findings, each);
        if (finding->severity == SANDBOX_SEVERITY_PROBLEM)
            fprintf(stderr, "  %s: %s\n", finding->text, finding->remedy);
    }
    sandbox_findings_free(findings);
}

/* What is asked for and cannot be enforced is refused, so it is asked for only where it can. */
static sandbox_status make_limited(sandbox_client *client, sandbox_workspace **workspace,
                                   sandbox_error *error)
{
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS,
                                         .expires_after_ms = 10 * 60 * 1000};
    if (sandbox_client_can(client, SANDBOX_CAN_LIMIT_MEMORY))
        options.memory_mib = 1024;
    if (sandbox_client_can(client, SANDBOX_CAN_LIMIT_PROCESSES))
        options.process_limit = 256;
    return sandbox_workspace_create(client, &options, NULL, workspace, error);
}

int main(int count, char **arguments)
{
    sandbox_error error;
    sandbox_client *client = NULL;
    sandbox_workspace *workspace = NULL;
    sandbox_client_options where = {SANDBOX_CLIENT_OPTIONS, .uri = count > 1 ? arguments[1] : NULL};
    sandbox_status status = sandbox_client_open(&where, NULL, &client, &error);
    if (status == SANDBOX_OK) {
        print_abilities(client);
        status = make_limited(client, &workspace, &error);
    }
    if (status == SANDBOX_OK) {
        /* The name may be used again one day, the id never. */
        printf("made '%s', whose id is %s\n", sandbox_workspace_name(workspace),
               sandbox_workspace_id(workspace));
        status = sandbox_workspace_delete(workspace, NULL, &error);
    }
    if (status != SANDBOX_OK) {
        fprintf(stderr, "about: %s\n", error.message);
        print_problems(where.uri);
    }
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    return status == SANDBOX_OK ? 0 : 1;
}
