/* sandbox-agent: the program inside every workspace. This file reads its command line. */

#include "egress.h"
#include "guard.h"
#include "health.h"
#include "init.h"
#include "install.h"
#include "listener.h"
#include "loop.h"
#include "relay.h"
#include "server.h"
#include "tcp.h"
#include <stdio.h>
#include <string.h>

struct serve_options {
    const char *socket;
    const char *workspace;
    const char *seal;   /* NULL: none */
    const char *tcp;    /* NULL: none */
    const char *egress; /* NULL: where it usually is */
    bool init;
};

static int serve(int count, char **arguments);
static bool parse(int count, char **arguments, struct serve_options *options);
static int usage(void);

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "version") == 0)
        return printf("%s\n", AGENT_VERSION) < 0;
    if (argc == 3 && strcmp(argv[1], "relay") == 0)
        return agent_relay(argv[2]);
    if (argc == 3 && strcmp(argv[1], "health") == 0)
        return agent_health(argv[2]);
    if (argc == 3 && strcmp(argv[1], "install") == 0)
        return agent_install(argv[2]);
    if (argc >= 2 && strcmp(argv[1], "serve") == 0)
        return serve(argc - 2, argv + 2);
    return usage();
}

static int usage(void)
{
    fputs("usage: sandbox-agent serve --socket ADDRESS [--workspace DIR]\n"
          "                           [--seal PATH] [--tcp ADDRESS:PORT]\n"
          "                           [--egress 127.0.0.1:PORT] [--init]\n"
          "       sandbox-agent relay ADDRESS\n"
          "       sandbox-agent health ADDRESS\n"
          "       sandbox-agent install DIRECTORY\n"
          "       sandbox-agent version\n"
          "An ADDRESS is a path, or @NAME.\n",
          stderr);
    return 2;
}

static int serve(int count, char **arguments)
{
    struct serve_options options = {.workspace = "/workspace"};
    if (!parse(count, arguments, &options))
        return usage();
    if (options.workspace[0] != '/') {
        fprintf(stderr, "sandbox-agent: --workspace '%s' is not an absolute path\n",
                options.workspace);
        return 1;
    }
    if (options.seal != NULL && options.seal[0] != '/') {
        fprintf(stderr, "sandbox-agent: --seal '%s' is not an absolute path\n", options.seal);
        return 1;
    }
    if (options.tcp != NULL && !agent_tcp_configure(options.tcp)) {
        fprintf(stderr, "sandbox-agent: --tcp '%s' is not ADDRESS:PORT in numbers\n", options.tcp);
        return 1;
    }
    if (options.egress != NULL && !agent_egress_configure(options.egress)) {
        fprintf(stderr, "sandbox-agent: --egress '%s' is not 127.0.0.1:PORT\n", options.egress);
        return 1;
    }
    if (!agent_init_harden(options.init))
        return 1;
    if (!agent_loop_open()) {
        fputs("sandbox-agent: cannot make an event loop\n", stderr);
        return 1;
    }
    if (!agent_guard_begin(options.workspace, options.seal))
        return 1;
    if (!agent_init_watch()) {
        fputs("sandbox-agent: cannot watch for signals\n", stderr);
        return 1;
    }
    if (!agent_server_listen(options.socket))
        return 1;
    uv_run(agent_loop(), UV_RUN_DEFAULT);
    return 0;
}

static bool parse(int count, char **arguments, struct serve_options *options)
{
    for (int at = 0; at < count; at++) {
        bool has_value = at + 1 < count;
        if (strcmp(arguments[at], "--init") == 0)
            options->init = true;
        else if (strcmp(arguments[at], "--socket") == 0 && has_value)
            options->socket = arguments[++at];
        else if (strcmp(arguments[at], "--workspace") == 0 && has_value)
            options->workspace = arguments[++at];
        else if (strcmp(arguments[at], "--seal") == 0 && has_value)
            options->seal = arguments[++at];
        else if (strcmp(arguments[at], "--tcp") == 0 && has_value)
            options->tcp = arguments[++at];
        else if (strcmp(arguments[at], "--egress") == 0 && has_value)
            options->egress = arguments[++at];
        else
            return false;
    }
    return options->socket != NULL && options->socket[0] != '\0';
}
