/* One function for each option's value: see settings_values.h. */

#include "settings_values.h"
#include "egress/host.h"
#include "util/base64.h"
#include "util/file.h"
#include "util/memory.h"
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PINS_MAX      1024
#define PERMITS_MAX   256
#define RESOLVERS_MAX 4
#define CA_FILE_MAX   (16u * 1024 * 1024)
#define DAY_MS        86400000u

static bool parse_number(const char *text, unsigned most, unsigned *number);
static char *secret_copy(const char *text, size_t size);
static bool is_token(const char *text);
static void free_bytes(uint8_t **data);

bool value_listen(struct settings *into, char *value)
{
    return into->listen_count < LISTENERS_MAX &&
           address_parse_port(value, &into->listen[into->listen_count++]);
}

bool value_admin(struct settings *into, char *value)
{
    if (strncmp(value, "unix:", 5) == 0)
        return address_parse_path(value + 5, &into->admin);
    return address_parse_port(value, &into->admin);
}

bool value_token_file(struct settings *into, char *value)
{
    uint8_t *data = NULL;
    size_t size = 0;
    if (sbx_file_read(AT_FDCWD, value, TOKEN_BYTES + 2, &data, &size, NULL) != SANDBOX_OK)
        return false;
    char *text = (char *)data;
    text[strcspn(text, "\r\n")] = '\0';
    bool taken = value_token(into, text);
    sbx_wipe(data, size);
    free(data);
    return taken;
}

bool value_token(struct settings *into, char *value)
{
    if (!is_token(value))
        return false;
    value_forget(&into->admin_token);
    into->admin_token = secret_copy(value, strlen(value));
    sbx_wipe(value, strlen(value));
    return into->admin_token != NULL;
}

static bool is_token(const char *text)
{
    size_t size = strlen(text);
    for (size_t i = 0; i < size; i++)
        if (!isgraph((unsigned char)text[i]))
            return false;
    return size >= 16 && size <= TOKEN_BYTES;
}

bool value_resolver(struct settings *into, char *value)
{
    char text[RESOLVERS_MAX * (INET6_ADDRSTRLEN + 1)];
    if (strlen(value) >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%s", value);
    unsigned count = 0;
    for (char *rest = text, *one; (one = strsep(&rest, ",")) != NULL; count++) {
        union address address;
        if (count == RESOLVERS_MAX || !address_parse(one, &address))
            return false;
    }
    into->resolvers = value;
    return true;
}

bool value_host(struct settings *into, char *value)
{
    struct sbx_egress_host host;
    struct pin pin = {NULL, {.any = {0}}};
    const char *equals = strchr(value, '=');
    if (equals == NULL || into->pin_count == PINS_MAX ||
        sbx_egress_host_read(value, (size_t)(equals - value), &host) != NULL || host.is_literal ||
        !address_parse(equals + 1, &pin.address))
        return false;
    struct pin *pins = realloc(into->pins, (into->pin_count + 1) * sizeof *pins);
    if (pins == NULL)
        return false;
    into->pins = pins;
    pin.host = sbx_copy(host.name);
    if (pin.host == NULL)
        return false;
    pins[into->pin_count++] = pin;
    return true;
}

bool value_permit(struct settings *into, char *value)
{
    struct sbx_egress_range range;
    if (into->permit_count == PERMITS_MAX || strchr(value, '/') == NULL ||
        sbx_egress_range_parse(value, &range) != NULL)
        return false;
    struct sbx_egress_range *permits =
        realloc(into->permits, (into->permit_count + 1) * sizeof *permits);
    if (permits == NULL)
        return false;
    into->permits = permits;
    permits[into->permit_count++] = range;
    return true;
}

bool value_connections(struct settings *into, char *value)
{
    return parse_number(value, 65536, &into->connections);
}

bool value_rate(struct settings *into, char *value)
{
    return parse_number(value, 1000000, &into->rate);
}

bool value_timeout(struct settings *into, char *value)
{
    static const char *const names[] = {"head", "hello", "connect", "idle"};
    const char *equals = strchr(value, '=');
    unsigned milliseconds;
    if (equals == NULL || !parse_number(equals + 1, DAY_MS, &milliseconds))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) != (size_t)(equals - value) ||
            strncmp(names[i], value, strlen(names[i])) != 0)
            continue;
        into->timeout_ms[i] = milliseconds;
        return true;
    }
    return false;
}

bool value_idle_exit(struct settings *into, char *value)
{
    char *end;
    double minutes = strtod(value, &end);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || !isfinite(minutes) ||
        minutes * 60000 < 1 || minutes > 100000)
        return false;
    into->idle_exit_ms = (uint64_t)(minutes * 60000);
    return true;
}

bool value_ca_file(struct settings *into, char *value)
{
    SBX_ON_EXIT(free_bytes) uint8_t *data = NULL;
    size_t size = 0;
    into->ca_file = value;
    /* Whether each of them is good is seen when a server proves itself by one. */
    return sbx_file_read(AT_FDCWD, value, CA_FILE_MAX, &data, &size, NULL) == SANDBOX_OK &&
           strstr((const char *)data, "-----BEGIN CERTIFICATE-----") != NULL;
}

static void free_bytes(uint8_t **data)
{
    free(*data);
}

bool value_log(struct settings *into, char *value)
{
    into->log_path = strcmp(value, "-") == 0 ? NULL : value;
    return value[0] != '\0';
}

bool value_upstream(struct settings *into, char *value)
{
    static const char scheme[] = "http://";
    if (strncmp(value, scheme, sizeof scheme - 1) != 0)
        return false;
    char *rest = value + sizeof scheme - 1, *at = strrchr(rest, '@');
    char place[INET6_ADDRSTRLEN + 8];
    const char *where = at == NULL ? rest : at + 1;
    size_t size = strcspn(where, "/");
    if (size >= sizeof place || (where[size] == '/' && where[size + 1] != '\0'))
        return false;
    snprintf(place, sizeof place, "%.*s", (int)size, where);
    if (!address_parse_port(place, &into->upstream_proxy))
        return false;
    into->has_upstream_proxy = true;
    value_forget(&into->upstream_authorization);
    if (at == NULL)
        return true;
    SBX_ON_EXIT(sbx_secret_free_text) char *encoded = sbx_base64_text(rest, (size_t)(at - rest));
    SBX_ON_EXIT(sbx_secret_free_text)
    char *header = encoded == NULL ? NULL : sbx_format("Basic %s", encoded);
    if (header != NULL)
        into->upstream_authorization = secret_copy(header, strlen(header));
    memset(rest, '*', (size_t)(at - rest));
    return into->upstream_authorization != NULL;
}

void value_forget(char **secret)
{
    if (*secret == NULL)
        return;
    size_t size = strlen(*secret) + 1;
    sbx_wipe(*secret, size);
    free(*secret);
    *secret = NULL;
}

static bool parse_number(const char *text, unsigned most, unsigned *number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9 || text[digits] != '\0')
        return false;
    *number = (unsigned)strtoul(text, NULL, 10);
    return *number >= 1 && *number <= most;
}

/* Beside what main locks; where neither works it has said so, and swap should be off. */
static char *secret_copy(const char *text, size_t size)
{
    char *copy = calloc(1, size + 1);
    if (copy == NULL)
        return NULL;
    (void)mlock(copy, size + 1);
    memcpy(copy, text, size);
    return copy;
}
