/* What listens inside, from /proc/net, and who it is as far as /proc tells. */

#include "call.h"
#include "egress.h"
#include "ports.h"
#include "ports.pb-c.h"
#include "tcp.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORTS_MAX     1024u
#define LISTENING     0x0au
#define LOOKED_AT_MAX 65536u

struct found {
    Sandbox__V1__PortInfo info;
    char address[INET6_ADDRSTRLEN];
    unsigned long inode;
};

struct ports {
    struct found *found;
    size_t count;
};

static void read_table(const char *path, struct ports *ports);
static bool parse_line(const char *line, struct found *out);
static void find_owners(struct ports *ports);

void agent_ports_list(struct agent_call *call, const ProtobufCMessage *message)
{
    struct ports ports = {calloc(PORTS_MAX, sizeof *ports.found), 0};
    Sandbox__V1__PortInfo **infos = calloc(PORTS_MAX, sizeof *infos);
    if (ports.found != NULL && infos != NULL) {
        read_table("/proc/net/tcp", &ports);
        read_table("/proc/net/tcp6", &ports);
        find_owners(&ports);
        for (size_t at = 0; at < ports.count; at++) {
            ports.found[at].info.address = ports.found[at].address;
            infos[at] = &ports.found[at].info;
        }
        Sandbox__V1__PortListReply reply = SANDBOX__V1__PORT_LIST_REPLY__INIT;
        reply.ports = infos;
        reply.n_ports = ports.count;
        agent_call_answer(call, &reply.base);
    } else {
        agent_call_fail(call, AGENT_RESOURCE_EXHAUSTED, "no-memory",
                        "the agent has no memory for the list");
    }
    free(infos);
    free(ports.found);
}

static void read_table(const char *path, struct ports *ports)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    const unsigned own = agent_tcp_port(), out = agent_egress_port();
    char line[512];
    while (ports->count < PORTS_MAX && fgets(line, sizeof line, file) != NULL) {
        struct found *next = &ports->found[ports->count];
        if (parse_line(line, next) && next->info.port != own && next->info.port != out)
            ports->count++;
    }
    fclose(file);
}

/* "  0: 0100007F:1F90 00000000:0000 0A ...": addresses are words of the machine's byte order. */
static bool parse_line(const char *line, struct found *out)
{
    char address[33];
    unsigned port, state;
    unsigned long inode;
    if (sscanf(line, " %*[^:]: %32[0-9A-Fa-f]:%x %*[^ ] %x %*s %*s %*s %*s %*s %lu", address, &port,
               &state, &inode) != 4 ||
        state != LISTENING)
        return false;
    size_t words = strlen(address) / 8;
    uint32_t binary[4];
    if (words != 1 && words != 4)
        return false;
    for (size_t at = 0; at < words; at++) {
        char digits[9] = {0};
        memcpy(digits, address + at * 8, 8);
        binary[at] = (uint32_t)strtoul(digits, NULL, 16);
    }
    *out = (struct found){.info = SANDBOX__V1__PORT_INFO__INIT, .inode = inode};
    out->info.port = port;
    return inet_ntop(words == 1 ? AF_INET : AF_INET6, binary, out->address, sizeof out->address) !=
           NULL;
}

static void match_descriptors(struct ports *ports, long pid, size_t *looked_at)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/%ld/fd", pid);
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    for (struct dirent *entry;
         (entry = readdir(directory)) != NULL && ++*looked_at < LOOKED_AT_MAX;) {
        ssize_t size = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);
        unsigned long inode;
        if (size <= 0)
            continue;
        target[size] = '\0';
        if (sscanf(target, "socket:[%lu]", &inode) != 1)
            continue;
        for (size_t at = 0; at < ports->count; at++) {
            if (ports->found[at].inode == inode && ports->found[at].info.pid == 0)
                ports->found[at].info.pid = pid;
        }
    }
    closedir(directory);
}

/* Best effort: without the right to look, or where a runtime shows no numbers, it stays 0. */
static void find_owners(struct ports *ports)
{
    DIR *directory = ports->count == 0 ? NULL : opendir("/proc");
    if (directory == NULL)
        return;
    size_t looked_at = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL && looked_at < LOOKED_AT_MAX;) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (pid > 0 && *end == '\0')
            match_descriptors(ports, pid, &looked_at);
    }
    closedir(directory);
}
