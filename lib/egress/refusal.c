/* What the guest is told when it is refused. */

#include "egress/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct words {
    const char *reason, *how;
};

static const char *phrase_of(int status);
static const char *how_of(const char *reason);

/* What may be done about it, by whom. */
static const struct words hows[] = {
    {SBX_EGRESS_HOST_REFUSED, "The workspace's network policy does not name this host. Whoever "
                              "runs the workspace may add it."},
    {SBX_EGRESS_PORT_REFUSED,
     "Only HTTPS (443) and, to the hosts that the policy names for it, plain "
     "HTTP (80) go through this proxy."},
    {SBX_EGRESS_PRIVATE_ADDRESS, "This proxy never connects to private or special addresses. Only "
                                 "its operator can permit a range."},
    {SBX_EGRESS_UPGRADE,
     "A route that puts credentials in carries plain requests and answers only."},
};

void sbx_egress_refuse(struct sbx_egress_refusal *refusal, int status, const char *reason,
                       const char *format, ...)
{
    refusal->status = status;
    refusal->reason = reason;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal->text, sizeof refusal->text, format, arguments);
    va_end(arguments);
    for (char *at = refusal->text; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

bool sbx_egress_refusal_write(const struct sbx_egress_refusal *refusal, struct sbx_bytes *out)
{
    const char *how = how_of(refusal->reason);
    size_t size = strlen("Refused: \n\n") + strlen(refusal->text) + strlen(how);
    return sbx_bytes_format(out,
                            "HTTP/1.1 %d %s\r\n"
                            "X-Proxy-Error: %s; %s\r\n"
                            "Content-Type: text/plain; charset=us-ascii\r\n"
                            "Content-Length: %zu\r\n"
                            "Connection: close\r\n"
                            "\r\n"
                            "Refused: %s\n%s\n",
                            refusal->status, phrase_of(refusal->status), refusal->reason,
                            refusal->text, size, refusal->text, how);
}

static const char *phrase_of(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } phrases[] = {
        {400, "Bad Request"},
        {403, "Forbidden"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
        if (phrases[i].status == status)
            return phrases[i].phrase;
    return "Refused";
}

static const char *how_of(const char *reason)
{
    for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i++)
        if (strcmp(hows[i].reason, reason) == 0)
            return hows[i].how;
    return "This is the workspace's egress proxy.";
}
