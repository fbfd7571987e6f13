/* The options that say how a workspace is made, shared by create, open and run. */

#include "making.h"

bool cli_making_settle(const struct cli *cli, const struct cli_making *making,
                       struct cli_made_of *made_of, sandbox_workspace_options *options)
{
    const sandbox_egress_options *egress;
    if (!cli_settle_env(cli, &making->env, &made_of->env, &made_of->owned) ||
        !cli_reaching_settle(cli, &making->reaching, &made_of->reached, &egress))
        return false;
    *options = (sandbox_workspace_options){
        SANDBOX_WORKSPACE_OPTIONS,
        .image = making->image,
        .user = making->user,
        .env = made_of->env.word,
        .labels = making->labels.word,
        .memory_mib = making->memory_mib,
        .cpu_millis = making->cpu_millis,
        .process_limit = making->process_limit,
        .disk_mib = making->disk_mib,
        .expires_after_ms = making->expires_ms,
        .retain = making->retain,
        .suspend_after_idle_ms = making->suspend_after_idle_ms,
        .checks = making->checks.word,
        .egress = egress,
    };
    return true;
}

void cli_made_of_free(struct cli_made_of *made_of)
{
    cli_words_free(&made_of->env);
    cli_owned_free(&made_of->owned);
    cli_reached_free(&made_of->reached);
}
