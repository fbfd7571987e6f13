/*
 * Scripted faults: what the platform does wrong on request, so that tests need not wait for it.
 *
 * The request "script" replaces all rules and starts the counting anew. A rule is
 *   {"on": OPERATION, "nth": 1, "do": FAULT, "status": NUMBER, "asks": NUMBER}
 * and strikes once, at the nth such request. The faults:
 *   fail         nothing is done; the answer is `status` (default: -7, unavailable)
 *   lose-answer  it is done, then the connection is cut
 *   hang         nothing is done until "go" comes; a caller that leaves meanwhile is forgotten
 *   hang-after   it is done, the answer waits for "go"
 *   half-made    provision: the instance is started, its agent killed at once, its remains are
 *                left, and the answer is a failure; restore: the same, and the instance is left
 *                as it is; snapshot.take: a part of the files is copied and left, a failure
 *   kill-agent   it is done and answered well, and the workspace's agent is killed
 * Of snapshot.take alone:
 *   hang-midway       the copy is made, and goes on with "go", its caller there or not
 *   consume-and-fail  the instance is gone, there is no snapshot, and the answer is a failure
 *   damage            it is done and answered well, and one byte of the snapshot is changed
 * Of restore alone, answered well:
 *   cold      a fresh agent without a seal, over the files that are there
 *   older     another snapshot of the same workspace; cold if there is none
 *   foreign   a snapshot of another workspace; cold if there is none
 *   silent    the right one, but its agent is stopped and answers nothing
 *   evidence-confirmed, evidence-contrary
 *             the platform says of the restore what it says of others never: good or bad
 *   evidence-missing
 *             it says that it cannot tell yet, `asks` times or until "evidence" is sent
 * Nothing here ever goes on by time. "await-hung" answers once so many requests hang.
 */

#include "platform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULES_MAX   64
#define COUNTED_MAX 32

struct rule {
    char operation[32];
    int64_t nth;
    struct platform_strike strike;
};

struct counter {
    char operation[32];
    int64_t count;
};

static const struct {
    const char *word;
    enum platform_fault fault;
} faults[] = {
    {"fail", PLATFORM_FAULT_FAIL},
    {"lose-answer", PLATFORM_FAULT_LOSE_ANSWER},
    {"hang", PLATFORM_FAULT_HANG},
    {"hang-after", PLATFORM_FAULT_HANG_AFTER},
    {"half-made", PLATFORM_FAULT_HALF_MADE},
    {"kill-agent", PLATFORM_FAULT_KILL_AGENT},
    {"hang-midway", PLATFORM_FAULT_HANG_MIDWAY},
    {"consume-and-fail", PLATFORM_FAULT_CONSUME_AND_FAIL},
    {"damage", PLATFORM_FAULT_DAMAGE},
    {"cold", PLATFORM_FAULT_COLD},
    {"older", PLATFORM_FAULT_OLDER},
    {"foreign", PLATFORM_FAULT_FOREIGN},
    {"silent", PLATFORM_FAULT_SILENT},
    {"evidence-confirmed", PLATFORM_FAULT_EVIDENCE_CONFIRMED},
    {"evidence-missing", PLATFORM_FAULT_EVIDENCE_MISSING},
    {"evidence-contrary", PLATFORM_FAULT_EVIDENCE_CONTRARY},
};

static struct rule rules[RULES_MAX];
static size_t rule_count;
static struct counter counters[COUNTED_MAX];

/* A held request and how it goes on. */
struct held {
    struct platform_request *request;
    void (*resume)(struct platform_request *request);
    struct held *next;
};

static struct held *hung;
static struct platform_request *watchers; /* await-hung requests */

static int64_t count_call(const char *operation);
static void let_go(struct platform_request *request);
static void tell_watchers(void);

struct platform_strike platform_fault_choose(const char *operation)
{
    int64_t nth = count_call(operation);
    for (size_t n = 0; n < rule_count; n++) {
        if (strcmp(rules[n].operation, operation) == 0 && rules[n].nth == nth)
            return rules[n].strike;
    }
    return (struct platform_strike){.fault = PLATFORM_FAULT_NONE};
}

void platform_fault_hold(struct platform_request *request,
                         void (*resume)(struct platform_request *request))
{
    struct held *held = calloc(1, sizeof *held);
    if (held == NULL) {
        platform_request_end(request);
        return;
    }
    held->request = request;
    held->resume = resume;
    struct held **at = &hung;
    while (*at != NULL)
        at = &(*at)->next;
    *at = held;
    request->abandoned = request->strike.fault == PLATFORM_FAULT_HANG_MIDWAY ? NULL : let_go;
    tell_watchers();
}

/* The caller of a held request has gone: it is as if it never arrived, or nobody will be told. */
static void let_go(struct platform_request *request)
{
    for (struct held **at = &hung; *at != NULL; at = &(*at)->next) {
        struct held *held = *at;
        if (held->request == request) {
            *at = held->next;
            free(held);
            break;
        }
    }
    platform_request_end(request);
}

void platform_go(struct platform_request *request)
{
    struct held *held = hung;
    hung = NULL;
    while (held != NULL) {
        struct held *next = held->next;
        held->request->abandoned = NULL;
        held->resume(held->request);
        free(held);
        held = next;
    }
    platform_request_answer(request, NULL);
}

static bool add_rule(const cJSON *item)
{
    const char *word = sbx_json_text(item, "do");
    for (size_t n = 0; n < sizeof faults / sizeof faults[0] && rule_count < RULES_MAX; n++) {
        if (strcmp(faults[n].word, word) != 0)
            continue;
        struct rule *rule = &rules[rule_count++];
        snprintf(rule->operation, sizeof rule->operation, "%s", sbx_json_text(item, "on"));
        rule->nth = sbx_json_integer(item, "nth");
        if (rule->nth == 0)
            rule->nth = 1;
        rule->strike.fault = faults[n].fault;
        rule->strike.asks = sbx_json_integer(item, "asks");
        rule->strike.status = (sandbox_status)sbx_json_integer(item, "status");
        if (rule->strike.status == SANDBOX_OK)
            rule->strike.status = SANDBOX_UNAVAILABLE;
        return true;
    }
    return false;
}

void platform_script(struct platform_request *request)
{
    rule_count = 0;
    memset(counters, 0, sizeof counters);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(request->body, "rules");
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (!add_rule(item)) {
            platform_request_fail(request, SANDBOX_INVALID, "",
                                  "not a rule, or more than %d: do '%.20s'", RULES_MAX,
                                  sbx_json_text(item, "do"));
            return;
        }
    }
    platform_request_answer(request, NULL);
}

static void forget_watcher(struct platform_request *request)
{
    platform_list_remove(&watchers, request);
    platform_request_end(request);
}

void platform_await_hung(struct platform_request *request)
{
    request->abandoned = forget_watcher;
    platform_list_add(&watchers, request);
    tell_watchers();
}

static void tell_watchers(void)
{
    int64_t count = 0;
    for (const struct held *held = hung; held != NULL; held = held->next)
        count++;
    struct platform_request *next;
    for (struct platform_request *at = watchers; at != NULL; at = next) {
        next = at->next;
        if (sbx_json_integer(at->body, "count") <= count) {
            platform_list_remove(&watchers, at);
            at->abandoned = NULL;
            platform_request_answer(at, NULL);
        }
    }
}

static int64_t count_call(const char *operation)
{
    for (size_t n = 0; n < COUNTED_MAX; n++) {
        struct counter *counter = &counters[n];
        if (counter->operation[0] == '\0')
            snprintf(counter->operation, sizeof counter->operation, "%s", operation);
        if (strcmp(counter->operation, operation) == 0)
            return ++counter->count;
    }
    return 0;
}

cJSON *platform_fault_calls(void)
{
    cJSON *calls = cJSON_CreateObject();
    for (size_t n = 0; n < COUNTED_MAX && counters[n].operation[0] != '\0'; n++)
        cJSON_AddNumberToObject(calls, counters[n].operation, (double)counters[n].count);
    return calls;
}

void platform_faults_free(void)
{
    while (hung != NULL)
        let_go(hung->request);
    while (watchers != NULL)
        forget_watcher(watchers);
}
