/* sandbox completion: the script that completes verbs, options, workspaces and processes. */

#include "cli.h"

#include <string.h>

struct settings {
    char none;
};

static int print(struct cli *cli, const void *given, const struct cli_words *words);
static void print_bash(void);
static void print_options(const struct cli_option *table, bool json);
static void print_verbs_that(enum cli_complete kind);

static const struct cli_option options[] = {{.name = NULL}};

const struct cli_verb cli_completion = {
    .name = "completion",
    .usage = "bash",
    .summary = "print the completion script for a shell",
    .text = "Use it with: source <(sandbox completion bash)",
    .options = options,
    .settings_size = sizeof(struct settings),
    .least = 1,
    .most = 1,
    .raw_after = -1,
    .complete = CLI_COMPLETE_SHELLS,
    .run = print,
};

/* Finds the verb and the words after it, and which options of ours came before. */
static const char bash_head[] =
    "# bash completion for sandbox; made by 'sandbox completion bash'.\n"
    "\n"
    "_sandbox_ask() {\n"
    "    local uri=()\n"
    "    [[ -n $_sandbox_uri ]] && uri=(-u \"$_sandbox_uri\")\n"
    "    command \"${COMP_WORDS[0]}\" -q --timeout 2 \"${uri[@]}\" \"$@\" 2>/dev/null </dev/null\n"
    "}\n"
    "\n"
    "_sandbox() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} verb='' places=() word skip='' i _sandbox_uri=''\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ -n $skip ]]; then\n"
    "            # A word with a colon comes in pieces: gvisor : /path\n"
    "            [[ $skip == uri ]] && _sandbox_uri+=$word\n"
    "            if [[ $skip == uri && ( ${COMP_WORDS[i+1]} == :* || $word == *: ) &&\n"
    "                  $((i + 1)) -lt $COMP_CWORD ]]; then\n"
    "                continue\n"
    "            fi\n"
    "            skip=''\n"
    "            continue\n"
    "        fi\n"
    "        case $word in\n"
    "        -u|--uri) skip=uri ;;\n"
    "        --) [[ -n $verb ]] && return ;;\n"
    "        -*) _sandbox_takes \"$verb\" \"$word\" && skip=value ;;\n"
    "        *) if [[ -z $verb ]]; then verb=$word; else places+=(\"$word\"); fi ;;\n"
    "        esac\n"
    "    done\n"
    "    [[ -n $skip ]] && { compopt -o default 2>/dev/null; return; }\n"
    "    if [[ $current == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$(_sandbox_options \"$verb\")\" -- \"$current\"))\n"
    "        return\n"
    "    fi\n"
    "    if [[ -z $verb ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$_sandbox_verbs\" -- \"$current\"))\n"
    "        return\n"
    "    fi\n"
    "    case $verb in\n";

static const char bash_tail[] = "    esac\n"
                                "}\n"
                                "\n"
                                "complete -F _sandbox sandbox\n";

/* What follows a verb, by kind; the verbs come before as a pattern. */
static const struct {
    enum cli_complete kind;
    const char *script;
} bash_words[] = {
    {CLI_COMPLETE_WORKSPACE,
     "        [[ ${#places[@]} -eq 0 ]] &&\n"
     "            COMPREPLY=($(compgen -W \"$(_sandbox_ask list)\" -- \"$current\")) ;;\n"},
    {CLI_COMPLETE_WORKSPACES,
     "        COMPREPLY=($(compgen -W \"$(_sandbox_ask list)\" -- \"$current\")) ;;\n"},
    {CLI_COMPLETE_PROCESS,
     "        if [[ ${#places[@]} -eq 0 ]]; then\n"
     "            COMPREPLY=($(compgen -W \"$(_sandbox_ask list)\" -- \"$current\"))\n"
     "        elif [[ ${#places[@]} -eq 1 ]]; then\n"
     "            COMPREPLY=($(compgen -W \"$(_sandbox_ask ps \"${places[0]}\")\" \\\n"
     "                -- \"$current\"))\n"
     "        fi ;;\n"},
    {CLI_COMPLETE_SNAPSHOT,
     "        if [[ ${#places[@]} -eq 0 ]]; then\n"
     "            COMPREPLY=($(compgen -W \"$(_sandbox_ask list)\" -- \"$current\"))\n"
     "        else\n"
     "            COMPREPLY=($(compgen -W \"$(_sandbox_ask snapshots \"${places[0]}\")\" \\\n"
     "                -- \"$current\"))\n"
     "        fi ;;\n"},
    {CLI_COMPLETE_PATHS,
     "        compopt -o filenames -o nospace 2>/dev/null\n"
     "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
     "        [[ $current == */* || $current == :* ]] ||\n"
     "            COMPREPLY+=($(compgen -S : -W \"$(_sandbox_ask list)\" -- \"$current\")) ;;\n"},
    {CLI_COMPLETE_SHELLS, "        COMPREPLY=($(compgen -W bash -- \"$current\")) ;;\n"},
};

static int print(struct cli *cli, const void *given, const struct cli_words *words)
{
    if (strcmp(words->word[0], "bash") != 0)
        return cli_usage(cli, "no completion for '%s', only for bash", words->word[0]);
    print_bash();
    return CLI_OK;
}

static void print_bash(void)
{
    fputs("# shellcheck shell=bash disable=SC2207\n_sandbox_verbs='", stdout);
    for (size_t i = 0; cli_verbs[i] != NULL; i++)
        printf("%s%s", i > 0 ? " " : "", cli_verbs[i]->name);
    fputs("'\n\n_sandbox_options() {\n    case $1 in\n", stdout);
    for (size_t i = 0; cli_verbs[i] != NULL; i++) {
        printf("    %s) echo '", cli_verbs[i]->name);
        print_options(cli_verbs[i]->options, true);
        print_options(cli_global_options, cli_verbs[i]->json);
        fputs("' ;;\n", stdout);
    }
    fputs("    *) echo '", stdout);
    print_options(cli_global_options, true);
    fputs("' ;;\n    esac\n}\n\n# Whether an option's value is the next word.\n"
          "_sandbox_takes() {\n    case \"$1 $2\" in\n",
          stdout);
    for (size_t i = 0; cli_verbs[i] != NULL; i++) {
        for (const struct cli_option *option = cli_verbs[i]->options; option->name; option++) {
            if (option->argument == NULL)
                continue;
            printf("    '%s --%s'", cli_verbs[i]->name, option->name);
            if (option->letter != 0)
                printf("|'%s -%c'", cli_verbs[i]->name, option->letter);
            fputs(") ;;\n", stdout);
        }
    }
    fputs("    *' --timeout') ;;\n    *) return 1 ;;\n    esac\n}\n\n", stdout);
    fputs(bash_head, stdout);
    for (size_t i = 0; i < sizeof bash_words / sizeof bash_words[0]; i++) {
        print_verbs_that(bash_words[i].kind);
        fputs(bash_words[i].script, stdout);
    }
    fputs("    help) COMPREPLY=($(compgen -W \"$_sandbox_verbs\" -- \"$current\")) ;;\n", stdout);
    fputs(bash_tail, stdout);
}

static void print_options(const struct cli_option *table, bool json)
{
    for (; table->name != NULL; table++)
        if (json || strcmp(table->name, "json") != 0)
            printf("--%s ", table->name);
}

static void print_verbs_that(enum cli_complete kind)
{
    const char *between = "    ";
    for (size_t i = 0; cli_verbs[i] != NULL; i++) {
        if (cli_verbs[i]->complete != kind)
            continue;
        printf("%s%s", between, cli_verbs[i]->name);
        between = "|";
    }
    fputs(")\n", stdout);
}
