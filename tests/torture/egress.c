/*
 * Everything of the egress policy with the Nth allocation failing: a failure comes back as one,
 * what was in force stays so, nothing is half done, and nothing leaks (the sanitizers look).
 */

#include "allocations.h"
#include "egress/request.h"
#include "egress/scrub.h"
#include "util/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool run(unsigned long failing, unsigned long *allocations);
static bool change(struct sbx_egress_policy *old, struct sbx_egress_policy **out);
static bool send(const struct sbx_egress_policy *policy);
static bool scrub(const struct sbx_egress_policy *policy, const struct sbx_egress_host *host);
static bool greet(const struct sbx_egress_host *host);
static void require(bool right, const char *what);

static const char policy_text[] =
    "{\"policy\":{\"allow\":[\"a.example\",\"*.b.example\"],\"http\":[\"c.example\"]},"
    "\"transformations\":[{\"match\":{\"host\":\"a.example\",\"path\":{\"regex\":\"/.*\"}},"
    "\"set\":{\"authorization\":\"Basic dXNlcjpwYXNzd29yZA==\"}}],"
    "\"add\":{\"allow\":[\"d.example\"]}}";
static const char request_text[] = "GET /https/a.example/ HTTP/1.1\r\nHost: x.example\r\n\r\n";
/* The beginning of a ClientHello in two records, so that it is put together. */
static const unsigned char hello_bytes[] = {22, 3, 1, 0, 2, 1, 0, 22, 3, 1, 0, 4, 0, 2, 3, 3};

static cJSON *json;
static unsigned failures;

int main(void)
{
    unsigned long allocations = 0;
    json = cJSON_Parse(policy_text);
    require(json != NULL && run(0, &allocations) && allocations > 20, "a run without a failure");
    for (unsigned long failing = 1; failing <= allocations; failing++)
        if (!run(failing, NULL))
            failures++;
    printf("%lu allocations, %u runs failed as they should\n", allocations, failures);
    require(failures > allocations / 2, "failures come back");
    cJSON_Delete(json);
    return 0;
}

/* Whether all of it succeeded. */
static bool run(unsigned long failing, unsigned long *allocations)
{
    static const uint8_t key[SBX_EGRESS_DIGEST_KEY] = {3};
    struct sbx_egress_host host;
    struct sbx_egress_policy *changed = NULL;
    require(sbx_egress_host_read("a.example", 9, &host) == NULL, "a host");
    allocations_arm(failing);
    struct sbx_egress_policy *old = sbx_egress_policy_new(key);
    bool done = old != NULL && change(old, &changed);
    if (old != NULL)
        require(!sbx_egress_policy_allows(old, &host), "the old policy stays as it was");
    if (done)
        require(sbx_egress_policy_allows(changed, &host) &&
                    sbx_egress_policy_rule_count(changed) == 1,
                "what is changed is changed whole");
    done = done && send(changed) && scrub(changed, &host) && greet(&host);
    sbx_egress_policy_drop(old);
    sbx_egress_policy_drop(changed);
    unsigned long made = allocations_disarm();
    if (allocations != NULL)
        *allocations = made;
    return done;
}

static bool change(struct sbx_egress_policy *old, struct sbx_egress_policy **out)
{
    sandbox_error error = {0};
    const struct sbx_egress_change parts = {
        cJSON_GetObjectItemCaseSensitive(json, "policy"),
        cJSON_GetObjectItemCaseSensitive(json, "transformations"),
        cJSON_GetObjectItemCaseSensitive(json, "add"),
    };
    sandbox_status status = sbx_egress_policy_change(old, &parts, out, &error);
    require((status == SANDBOX_OK) == (*out != NULL), "a policy comes out of success only");
    require(status == SANDBOX_OK || status == SANDBOX_NO_MEMORY, error.message);
    return status == SANDBOX_OK;
}

static bool send(const struct sbx_egress_policy *policy)
{
    static struct sbx_egress_head head;
    struct sbx_egress_refusal refusal;
    struct sbx_egress_request request;
    struct sbx_egress_fields *fields = NULL;
    struct sbx_bytes out = SBX_BYTES(4096);
    require(sbx_egress_head_parse(request_text, sizeof request_text - 1, &head, &refusal) &&
                sbx_egress_request_judge(&head, policy, &request, &refusal),
            "a request is judged without memory");
    bool done = sbx_egress_fields_make(&head, &request, policy, &fields, &refusal);
    require(done || refusal.status == 503, "no memory is told as such");
    done = done && sbx_egress_head_write(&head, &request, fields, &out);
    sbx_egress_fields_free(fields);
    sbx_bytes_wipe(&out);
    return done;
}

static bool scrub(const struct sbx_egress_policy *policy, const struct sbx_egress_host *host)
{
    struct sbx_egress_scrub *scrubber = NULL;
    struct sbx_bytes out = SBX_BYTES(4096);
    bool done = sbx_egress_scrub_new(policy, host, &scrubber, NULL) == SANDBOX_OK &&
                sbx_egress_scrub_feed(scrubber, "x user:pass", 11, &out) &&
                sbx_egress_scrub_feed(scrubber, "word y", 6, &out) &&
                sbx_egress_scrub_end(scrubber, &out);
    require(sbx_bytes_size(&out) == 0 ||
                memmem(sbx_bytes_data(&out), sbx_bytes_size(&out), "password", 8) == NULL,
            "nothing slips through");
    sbx_egress_scrub_free(scrubber);
    sbx_bytes_free(&out);
    return done;
}

static bool greet(const struct sbx_egress_host *host)
{
    struct sbx_egress_refusal refusal;
    struct sbx_egress_hello *hello = sbx_egress_hello_new(host, SBX_EGRESS_ECH_DENY);
    enum sbx_egress_hello_verdict verdict = SBX_EGRESS_HELLO_NO_MEMORY;
    if (hello != NULL)
        verdict = sbx_egress_hello_feed(hello, hello_bytes, sizeof hello_bytes, &refusal);
    require(verdict == SBX_EGRESS_HELLO_NO_MEMORY || verdict == SBX_EGRESS_HELLO_REFUSED,
            "a ClientHello that is none never passes");
    sbx_egress_hello_free(hello);
    return verdict == SBX_EGRESS_HELLO_REFUSED;
}

static void require(bool right, const char *what)
{
    if (right)
        return;
    allocations_disarm();
    printf("not so: %s\n", what);
    exit(1);
}
