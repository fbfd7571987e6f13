/* From options to an egress policy. Credentials come from a file, never from the command line. */

#include "reaching.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECRETS_MAX (1u << 20)

static bool read_secrets(const struct cli *cli, const char *path, struct cli_reached *reached);

bool cli_reaching_settle(const struct cli *cli, const struct cli_reaching *reaching,
                         struct cli_reached *reached, const sandbox_egress_options **out)
{
    *reached = (struct cli_reached){.options = {SANDBOX_EGRESS_OPTIONS}};
    *out = NULL;
    if (reaching->allow.count == 0 && reaching->transformations == NULL)
        return true;
    if (reaching->transformations != NULL && !read_secrets(cli, reaching->transformations, reached))
        return false;
    *out = &reached->options;
    for (size_t i = 0; i < reaching->allow.count; i++) {
        if (strcmp(reaching->allow.word[i], "*") != 0)
            continue;
        if (reaching->allow.count > 1) {
            cli_usage(cli, "--allow '*' is everything; name no other host beside it");
            return false;
        }
        cli_note(cli, "it may reach every public host");
        reached->options.mode = SANDBOX_EGRESS_ALLOW_ALL;
        return true;
    }
    reached->options.allow = reaching->allow.word;
    return true;
}

static bool read_secrets(const struct cli *cli, const char *path, struct cli_reached *reached)
{
    bool is_input = strcmp(path, "-") == 0;
    FILE *file = is_input ? stdin : fopen(path, "re");
    /* Unbuffered: no copy of it stays in the stream's memory. */
    if (file != NULL)
        setvbuf(file, NULL, _IONBF, 0);
    reached->secrets = file == NULL ? NULL : calloc(1, SECRETS_MAX + 2);
    if (reached->secrets == NULL) {
        cli_usage(cli, "--transformations: cannot read '%s': %s", path, strerror(errno));
        if (file != NULL && !is_input)
            fclose(file);
        return false;
    }
    size_t size = fread(reached->secrets, 1, SECRETS_MAX + 1, file);
    bool failed = ferror(file) != 0;
    if (!is_input)
        fclose(file);
    if (failed || size > SECRETS_MAX || strlen(reached->secrets) != size) {
        cli_usage(cli, "--transformations: '%s' is no JSON of at most 1 MiB", path);
        return false;
    }
    reached->options.transformations = reached->secrets;
    return true;
}

void cli_reached_free(struct cli_reached *reached)
{
    if (reached->secrets != NULL)
        explicit_bzero(reached->secrets, SECRETS_MAX + 2);
    free(reached->secrets);
    reached->secrets = NULL;
}
