/*
 * The first message of TLS in a tunnel: the guest writes it. The first byte says in what pieces it
 * comes, which changes nothing about the verdict; what passes has the host's name in it.
 */

#include "egress/client_hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum sbx_egress_hello_verdict feed(const uint8_t *data, size_t size, size_t piece,
                                          enum sbx_egress_ech ech);
static void check_good(struct sbx_egress_hello *hello, const uint8_t *data, size_t fed);
static void expect(bool right);

static const char host_name[] = "api.example.com";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t piece = 1 + data[0] % 32;
    enum sbx_egress_ech ech = data[0] >= 128 ? SBX_EGRESS_ECH_ALLOW_GREASE : SBX_EGRESS_ECH_DENY;
    enum sbx_egress_hello_verdict verdict = feed(data + 1, size - 1, piece, ech);
    expect(verdict == feed(data + 1, size - 1, size, ech));
    /* What one denies, the other may allow; never the other way round. */
    if (ech == SBX_EGRESS_ECH_DENY && verdict == SBX_EGRESS_HELLO_GOOD)
        expect(feed(data + 1, size - 1, piece, SBX_EGRESS_ECH_ALLOW_GREASE) == verdict);
    return 0;
}

static enum sbx_egress_hello_verdict feed(const uint8_t *data, size_t size, size_t piece,
                                          enum sbx_egress_ech ech)
{
    struct sbx_egress_host host;
    struct sbx_egress_refusal refusal = {.status = -1};
    expect(sbx_egress_host_read(host_name, sizeof host_name - 1, &host) == NULL);
    struct sbx_egress_hello *hello = sbx_egress_hello_new(&host, ech);
    enum sbx_egress_hello_verdict verdict = SBX_EGRESS_HELLO_MORE;
    size_t fed = 0;
    while (hello != NULL && fed < size && verdict == SBX_EGRESS_HELLO_MORE) {
        size_t part = piece < size - fed ? piece : size - fed;
        verdict = sbx_egress_hello_feed(hello, data + fed, part, &refusal);
        fed += part;
        size_t held = 0;
        sbx_egress_hello_data(hello, &held);
        expect(held == fed && (verdict != SBX_EGRESS_HELLO_MORE || held <= SBX_EGRESS_HELLO_HELD));
    }
    if (verdict == SBX_EGRESS_HELLO_GOOD)
        check_good(hello, data, fed);
    expect((verdict == SBX_EGRESS_HELLO_REFUSED) == (refusal.status == 0));
    sbx_egress_hello_free(hello);
    return verdict;
}

static void check_good(struct sbx_egress_hello *hello, const uint8_t *data, size_t fed)
{
    size_t held = 0;
    const uint8_t *kept = sbx_egress_hello_data(hello, &held);
    size_t used = sbx_egress_hello_used(hello);
    expect(held == fed && memcmp(kept, data, fed) == 0 && used <= fed);
    /* Its letters are there in this order, whatever records cut them. */
    size_t found = 0;
    for (size_t i = 0; i < used && found < sizeof host_name - 1; i++)
        if ((kept[i] | (host_name[found] == '.' ? 0 : 32)) == host_name[found])
            found++;
    expect(found == sizeof host_name - 1);
}

static void expect(bool right)
{
    if (!right)
        abort();
}
