/* What the command line and the environment say. Read once; fixed from then on. */
#ifndef EGRESS_SETTINGS_H
#define EGRESS_SETTINGS_H

#include "deadline.h"
#include "egress/address.h"
#include "endpoint.h"
#include <stddef.h>

#define LISTENERS_MAX 16
#define TOKEN_BYTES   512
#define LINGER_MS     2000
#define ADMIN_MS      60000

/* A name that the operator has given an address. */
struct pin {
    char *host;
    union address address;
};

struct settings {
    union address listen[LISTENERS_MAX];
    size_t listen_count;
    union address admin;
    char *admin_token; /* NULL: none; in locked memory */
    const char *resolvers;
    struct pin *pins;
    size_t pin_count;
    struct sbx_egress_range *permits; /* ranges that the operator has opened */
    size_t permit_count;
    unsigned connections, rate; /* of a workspace, where it does not say */
    uint64_t timeout_ms[DEADLINE_KINDS];
    uint64_t idle_exit_ms; /* 0: never */
    const char *ca_file;
    bool has_upstream_proxy;
    union address upstream_proxy;
    char *upstream_authorization; /* "Basic …" or NULL; in locked memory */
    const char *log_path;         /* NULL: standard error */
    bool detach;
};

extern struct settings settings;

/* -1: go on; otherwise the program ends with that code, and has said why. */
int settings_read(int argc, char **argv);
void settings_forget(void);

#endif
