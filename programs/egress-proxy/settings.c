/* What the command line and the environment say: see settings.h. */

#include "settings.h"
#include "settings_values.h"
#include "version.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings settings = {
    .connections = 128,
    .rate = 500,
    .timeout_ms = {10000, 10000, 10000, 600000, LINGER_MS, ADMIN_MS},
};

static bool take(const char *name, char *value);
static bool take_environment(void);
static bool is_whole(void);
static int help(void);

/* In the order of the manual page. The index is what getopt_long() gives back. */
static const struct option known[] = {
    {"listen", required_argument, NULL, 0},
    {"admin", required_argument, NULL, 0},
    {"admin-token-file", required_argument, NULL, 0},
    {"resolver", required_argument, NULL, 0},
    {"host", required_argument, NULL, 0},
    {"permit", required_argument, NULL, 0},
    {"connections", required_argument, NULL, 0},
    {"rate", required_argument, NULL, 0},
    {"timeout", required_argument, NULL, 0},
    {"idle-exit", required_argument, NULL, 0},
    {"ca-file", required_argument, NULL, 0},
    {"upstream-proxy", required_argument, NULL, 0},
    {"log", required_argument, NULL, 0},
    {"detach", no_argument, NULL, 'd'},
    {"version", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

int settings_read(int argc, char **argv)
{
    int place = 0;
    for (int option; (option = getopt_long(argc, argv, "", known, &place)) != -1;) {
        if (option == 'h')
            return help();
        if (option == 'v')
            return printf("sandbox-egress-proxy %s, protocol %d\n", PROXY_VERSION, PROXY_PROTOCOL) <
                   0;
        if (option == 'd') {
            settings.detach = true;
            continue;
        }
        if (option != 0 || !take(known[place].name, optarg))
            return 2;
    }
    if (optind != argc) {
        fprintf(stderr, "sandbox-egress-proxy: '%s' is no option\n", argv[optind]);
        return 2;
    }
    return take_environment() && is_whole() ? -1 : 2;
}

void settings_forget(void)
{
    for (size_t i = 0; i < settings.pin_count; i++)
        free(settings.pins[i].host);
    free(settings.pins);
    free(settings.permits);
    value_forget(&settings.admin_token);
    value_forget(&settings.upstream_authorization);
}

static bool take(const char *name, char *value)
{
    static const struct {
        const char *name;
        bool (*read)(struct settings *into, char *value);
        const char *wanted;
    } readers[] = {
        {"listen", value_listen, "ADDRESS:PORT, IPv6 in brackets, at most 16"},
        {"admin", value_admin, "unix:/PATH (at most 107 bytes) or ADDRESS:PORT"},
        {"admin-token-file", value_token_file, "a readable file with one line of 16 to 512 bytes"},
        {"resolver", value_resolver, "1 to 4 IP addresses with commas between"},
        {"host", value_host, "NAME=ADDRESS"},
        {"permit", value_permit, "a range like 10.1.0.0/16"},
        {"connections", value_connections, "a number from 1 to 65536"},
        {"rate", value_rate, "a number from 1 to 1000000"},
        {"timeout", value_timeout, "head, hello, connect or idle, =, and milliseconds up to a day"},
        {"idle-exit", value_idle_exit, "minutes, more than 0 and at most 100000"},
        {"ca-file", value_ca_file, "a readable file with certificates in PEM"},
        {"upstream-proxy", value_upstream, "http://[USER:PASSWORD@]ADDRESS:PORT"},
        {"log", value_log, "a path or -"},
    };
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (strcmp(readers[i].name, name) != 0)
            continue;
        if (readers[i].read(&settings, value))
            return true;
        /* Not the value itself: it may be a password. */
        fprintf(stderr, "sandbox-egress-proxy: --%s wants %s\n", name, readers[i].wanted);
        return false;
    }
    return false;
}

/* The command line comes first; what is empty is not set. */
static bool take_environment(void)
{
    char *token = getenv("SANDBOX_PROXY_TOKEN");
    char *minutes = getenv("SANDBOX_PROXY_IDLE_EXIT_MINUTES");
    char *upstream = getenv("SANDBOX_UPSTREAM_PROXY");
    if (token != NULL && token[0] != '\0' && settings.admin_token == NULL &&
        !value_token(&settings, token)) {
        fputs("sandbox-egress-proxy: SANDBOX_PROXY_TOKEN wants 16 to 512 visible characters\n",
              stderr);
        return false;
    }
    if (minutes != NULL && minutes[0] != '\0' && settings.idle_exit_ms == 0 &&
        !value_idle_exit(&settings, minutes)) {
        fputs("sandbox-egress-proxy: SANDBOX_PROXY_IDLE_EXIT_MINUTES wants minutes\n", stderr);
        return false;
    }
    if (upstream != NULL && upstream[0] != '\0' && !settings.has_upstream_proxy &&
        !value_upstream(&settings, upstream)) {
        fputs("sandbox-egress-proxy: SANDBOX_UPSTREAM_PROXY wants "
              "http://[USER:PASSWORD@]ADDRESS:PORT\n",
              stderr);
        return false;
    }
    return true;
}

static bool is_whole(void)
{
    if (settings.admin.any.sa_family == AF_UNSPEC) {
        fputs("sandbox-egress-proxy: --admin is missing: without it no workspace can be "
              "registered\n",
              stderr);
        return false;
    }
    if (settings.admin.any.sa_family != AF_UNIX && settings.admin_token == NULL) {
        fputs("sandbox-egress-proxy: --admin over TCP needs a token: --admin-token-file or "
              "SANDBOX_PROXY_TOKEN\n",
              stderr);
        return false;
    }
    if (settings.detach && settings.log_path == NULL) {
        fputs("sandbox-egress-proxy: --detach needs --log PATH: there is no standard error to log "
              "to afterwards\n",
              stderr);
        return false;
    }
    return true;
}

static int help(void)
{
    return fputs(
               "usage: sandbox-egress-proxy --admin unix:PATH|ADDRESS:PORT [OPTION]…\n"
               "The only way out of workspaces: allowed hosts, and credentials put in on the way.\n"
               "\n"
               "  --listen ADDRESS:PORT      where workspaces connect to\n"
               "  --admin unix:PATH|ADDRESS:PORT\n"
               "  --admin-token-file PATH    or SANDBOX_PROXY_TOKEN; TCP needs one\n"
               "  --resolver ADDRESS[,…]     DNS servers; default: the system's\n"
               "  --host NAME=ADDRESS        this name has this address\n"
               "  --permit CIDR              this range is no special one\n"
               "  --connections N            of one workspace at once; default 128\n"
               "  --rate N                   new ones of a workspace in a second; default 500\n"
               "  --timeout NAME=MS          head, hello, connect (10000) or idle (600000)\n"
               "  --idle-exit MINUTES        end with code 100 when nobody needs it any more\n"
               "  --ca-file PATH             what credential routes trust\n"
               "  --upstream-proxy URL       or SANDBOX_UPSTREAM_PROXY: go out through it\n"
               "  --log PATH|-               JSON lines; default: standard error\n"
               "  --detach                   go on in the background once it listens\n"
               "  --version, --help\n",
               stdout) < 0;
}
