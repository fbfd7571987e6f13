/* The headers of a gRPC call: which method, for how long, and in whose name. */

#include "call.h"
#include "connection.h"
#include "loop.h"
#include <string.h>

#define HEADERS_MAX (16u << 10)

static const struct agent_method *find_method(const uint8_t *path, size_t size);
static bool parse_token(struct agent_call *call, const uint8_t *text, size_t size);
static bool parse_epoch(struct agent_call *call, const uint8_t *text, size_t size);
static bool parse_timeout(struct agent_call *call, const uint8_t *text, size_t size);

static bool is_name(const uint8_t *name, size_t size, const char *text)
{
    return size == strlen(text) && memcmp(name, text, size) == 0;
}

bool agent_call_header(struct agent_call *call, const uint8_t *name, size_t name_size,
                       const uint8_t *value, size_t value_size)
{
    call->header_bytes += name_size + value_size + 32;
    if (call->header_bytes > HEADERS_MAX)
        return false;
    if (call->begun || call->ended)
        return true;
    if (is_name(name, name_size, ":path"))
        call->method = find_method(value, value_size);
    else if (is_name(name, name_size, ":method"))
        call->is_post = is_name(value, value_size, "POST");
    else if (is_name(name, name_size, "content-type"))
        call->is_grpc = is_name(value, value_size, "application/grpc") ||
                        is_name(value, value_size, "application/grpc+proto");
    else if (is_name(name, name_size, "grpc-timeout"))
        return parse_timeout(call, value, value_size);
    else if (is_name(name, name_size, "sandbox-token-bin"))
        call->has_token = parse_token(call, value, value_size);
    else if (is_name(name, name_size, "sandbox-epoch"))
        call->has_epoch = parse_epoch(call, value, value_size);
    return true;
}

static const struct agent_method *find_method(const uint8_t *path, size_t size)
{
    const struct agent_method *const services[] = {agent_guard_methods, agent_process_methods,
                                                   agent_file_methods, agent_port_methods,
                                                   agent_egress_methods};
    for (size_t at = 0; at < sizeof services / sizeof *services; at++) {
        for (const struct agent_method *method = services[at]; method->path != NULL; method++) {
            if (is_name(path, size, method->path))
                return method;
        }
    }
    return NULL;
}

static int digit_of_base64(uint8_t letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

/* Exactly 32 bytes in base64, with or without padding. */
static bool parse_token(struct agent_call *call, const uint8_t *text, size_t size)
{
    if (size == 44 && text[43] == '=')
        size--;
    if (size != 43)
        return false;
    uint32_t bits = 0;
    unsigned count = 0;
    size_t used = 0;
    for (size_t at = 0; at < size; at++) {
        int digit = digit_of_base64(text[at]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count >= 8) {
            count -= 8;
            call->token[used++] = (uint8_t)(bits >> count);
        }
    }
    return used == AGENT_TOKEN_BYTES;
}

static bool parse_epoch(struct agent_call *call, const uint8_t *text, size_t size)
{
    if (size == 0 || size > 10)
        return false;
    call->epoch = 0;
    for (size_t at = 0; at < size; at++) {
        if (text[at] < '0' || text[at] > '9')
            return false;
        call->epoch = call->epoch * 10 + (uint64_t)(text[at] - '0');
    }
    return true;
}

/* At most eight digits and a unit; false is a protocol error. */
static bool parse_timeout(struct agent_call *call, const uint8_t *text, size_t size)
{
    static const char units[] = "HMSmun";
    static const uint64_t thousandths[] = {3600000000, 60000000, 1000000, 1000, 1, 0};
    if (size < 2 || size > 9)
        return false;
    uint64_t value = 0;
    for (size_t at = 0; at + 1 < size; at++) {
        if (text[at] < '0' || text[at] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[at] - '0');
    }
    const char *unit = memchr(units, text[size - 1], sizeof units - 1);
    if (unit == NULL)
        return false;
    uint64_t microseconds = *unit == 'n' ? value / 1000 : value * thousandths[unit - units];
    call->deadline_ms = uv_now(agent_loop()) + (microseconds + 999) / 1000;
    return true;
}
