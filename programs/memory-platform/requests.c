/*
 * The requests that the platform understands, from the line to the answer.
 *
 * A request is {"do": NAME, …}, an answer {"ok": true, …} or {"ok": false, "status": NUMBER,
 * "reason": WORD, "message": TEXT}; the numbers are those of sandbox_status. A connection has one
 * request at a time. In the table below F stands for the fence: "name", "id", "epoch" and
 * "operation", which must be those of the stored record.
 *
 *   hello                                        -> pid, protocol
 *   record.load     name                         -> text, version
 *   record.store    name, text, expected         -> version
 *   record.remove   name, expected
 *   record.list     after                        -> records [{name, text, version}], more
 *   secret          key_id                       -> key_id, key (hexadecimal)
 *   provision       F, agent                     -> incarnation
 *   inspect         id, incarnation              -> presence, incarnation, detail
 *   connect         id, incarnation              -> socket
 *   discard         F
 *   destroy         F
 *   snapshot.prepare  F, snapshot, kind, incarnation
 *   snapshot.take   F, snapshot, kind, incarnation -> digest, bytes
 *   snapshot.adopt  F, snapshot                  -> digest, bytes
 *   snapshot.verify id, snapshot, digest         -> verdict, files, bytes, evidence
 *   snapshot.remove F, snapshot
 *   restore         F, snapshot, digest, keep, agent -> incarnation, evidence, detail
 *   evidence.look   id, incarnation              -> evidence, detail
 *   release         F
 *
 * "kind" and "keep" are "memory" or "files"; an empty "incarnation" stands for a workspace
 * without an instance, whose files are kept without a seal. "evidence" is "", "confirmed",
 * "missing" or "contrary", "verdict" "intact", "damaged", "missing" or "cannot tell".
 *
 * For tests:
 *   script          rules [{on, nth, do, status, asks}]
 *   go                                           lets hung requests go on
 *   await-hung      count                        answers once so many requests hang
 *   state                                        -> instances, records, directories, orphans,
 *                                                   frozen, snapshots,
 *                                                   calls {operation: how often}
 *   evidence        id, say                      from now on the platform says so of the instance
 *   kill            id                           kills the agent, as a lack of memory would
 *   stop                                         ends the platform and all that it runs
 */

#include "platform.h"
#include "util/random.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROTOCOL 2

static void say_hello(struct platform_request *request);
static void give_secret(struct platform_request *request);
static void tell_state(struct platform_request *request);
static void stop(struct platform_request *request);

static const struct platform_operation operations[] = {
    {"hello", say_hello, false},
    {"record.load", platform_record_load, true},
    {"record.store", platform_record_store, true},
    {"record.remove", platform_record_remove, true},
    {"record.list", platform_record_list, true},
    {"secret", give_secret, true},
    {"provision", platform_provision, true},
    {"inspect", platform_inspect, true},
    {"connect", platform_connect, true},
    {"discard", platform_discard, true},
    {"destroy", platform_destroy, true},
    {"snapshot.prepare", platform_snapshot_prepare, true},
    {"snapshot.take", platform_snapshot_take, true},
    {"snapshot.adopt", platform_snapshot_adopt, true},
    {"snapshot.verify", platform_snapshot_verify, true},
    {"snapshot.remove", platform_snapshot_remove, true},
    {"restore", platform_restore, true},
    {"evidence.look", platform_evidence_look, true},
    {"release", platform_release, true},
    {"script", platform_script, false},
    {"go", platform_go, false},
    {"await-hung", platform_await_hung, false},
    {"state", tell_state, false},
    {"kill", platform_kill, false},
    {"evidence", platform_evidence, false},
    {"stop", stop, false},
};

static const struct platform_operation *find_operation(const char *name)
{
    for (size_t n = 0; n < sizeof operations / sizeof operations[0]; n++) {
        if (strcmp(operations[n].name, name) == 0)
            return &operations[n];
    }
    return NULL;
}

static void run(struct platform_request *request)
{
    request->abandoned = NULL;
    request->operation->run(request);
}

void platform_request_begin(struct platform_connection *connection, cJSON *body,
                            struct platform_request **current)
{
    struct platform_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        cJSON_Delete(body);
        platform_connection_answer(connection, NULL);
        return;
    }
    *current = request;
    request->connection = connection;
    request->body = body;
    request->operation = find_operation(sbx_json_text(body, "do"));
    if (request->operation == NULL) {
        platform_request_fail(request, SANDBOX_UNSUPPORTED, "no-such-request",
                              "the memory platform knows no request '%.40s'",
                              sbx_json_text(body, "do"));
        return;
    }
    if (request->operation->scriptable)
        request->strike = platform_fault_choose(request->operation->name);
    if (request->strike.fault == PLATFORM_FAULT_FAIL)
        platform_request_fail(request, request->strike.status, "scripted",
                              "the platform was told to fail");
    else if (request->strike.fault == PLATFORM_FAULT_HANG)
        platform_fault_hold(request, run);
    else
        run(request);
}

static void send_answer(struct platform_request *request)
{
    struct platform_connection *connection = request->connection;
    cJSON *answer = request->answer;
    request->answer = NULL;
    bool lost = request->strike.fault == PLATFORM_FAULT_LOSE_ANSWER;
    bool killed = request->strike.fault == PLATFORM_FAULT_KILL_AGENT;
    if (killed)
        platform_kill_agent(platform_request_text(request, "id"));
    cJSON_Delete(request->body);
    free(request);
    if (connection != NULL && !lost) {
        platform_connection_answer(connection, answer);
        return;
    }
    cJSON_Delete(answer);
    if (connection != NULL)
        platform_connection_answer(connection, NULL);
}

void platform_request_answer(struct platform_request *request, cJSON *answer)
{
    if (answer == NULL)
        answer = cJSON_CreateObject();
    if (cJSON_GetObjectItemCaseSensitive(answer, "ok") == NULL)
        cJSON_AddTrueToObject(answer, "ok");
    request->answer = answer;
    if (request->strike.fault == PLATFORM_FAULT_HANG_AFTER && request->connection != NULL)
        platform_fault_hold(request, send_answer);
    else
        send_answer(request);
}

void platform_request_fail(struct platform_request *request, sandbox_status status,
                           const char *reason, const char *format, ...)
{
    char message[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);

    cJSON *answer = cJSON_CreateObject();
    cJSON_AddFalseToObject(answer, "ok");
    cJSON_AddNumberToObject(answer, "status", status);
    cJSON_AddStringToObject(answer, "reason", reason);
    cJSON_AddStringToObject(answer, "message", message);
    platform_request_answer(request, answer);
}

void platform_request_orphan(struct platform_request *request)
{
    request->connection = NULL;
    if (request->abandoned != NULL)
        request->abandoned(request);
}

void platform_request_end(struct platform_request *request)
{
    if (request->connection != NULL)
        platform_connection_answer(request->connection, NULL);
    cJSON_Delete(request->answer);
    cJSON_Delete(request->body);
    free(request);
}

const char *platform_request_text(const struct platform_request *request, const char *field)
{
    return sbx_json_text(request->body, field);
}

void platform_list_add(struct platform_request **list, struct platform_request *request)
{
    while (*list != NULL)
        list = &(*list)->next;
    request->next = NULL;
    *list = request;
}

bool platform_list_remove(struct platform_request **list, struct platform_request *request)
{
    while (*list != NULL && *list != request)
        list = &(*list)->next;
    if (*list == NULL)
        return false;
    *list = request->next;
    request->next = NULL;
    return true;
}

static void say_hello(struct platform_request *request)
{
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddNumberToObject(answer, "pid", getpid());
    cJSON_AddNumberToObject(answer, "protocol", PROTOCOL);
    platform_request_answer(request, answer);
}

/* One key for the life of the platform: it keeps nothing that outlives it either. */
static void give_secret(struct platform_request *request)
{
    static uint8_t key[32];
    static bool drawn;
    int64_t wanted = sbx_json_integer(request->body, "key_id");
    if (wanted != 0 && wanted != 1) {
        platform_request_fail(request, SANDBOX_NOT_FOUND, "no-such-key", "there is no key %lld",
                              (long long)wanted);
        return;
    }
    drawn = drawn || sbx_random(key, sizeof key);
    if (!drawn) {
        platform_request_fail(request, SANDBOX_FAILED, "", "the kernel gives no random bytes");
        return;
    }
    char text[2 * sizeof key + 1];
    sbx_hex_print(key, sizeof key, text);
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddNumberToObject(answer, "key_id", 1);
    cJSON_AddStringToObject(answer, "key", text);
    platform_request_answer(request, answer);
}

static void tell_state(struct platform_request *request)
{
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddNumberToObject(answer, "instances", (double)platform_instance_count());
    cJSON_AddNumberToObject(answer, "records", (double)platform_record_count());
    cJSON_AddNumberToObject(answer, "directories", (double)platform_directory_count());
    cJSON_AddNumberToObject(answer, "orphans", (double)platform_orphans_sweep());
    cJSON_AddNumberToObject(answer, "frozen", (double)platform_frozen_count());
    cJSON_AddNumberToObject(answer, "snapshots", (double)platform_snapshot_count());
    cJSON_AddItemToObject(answer, "calls", platform_fault_calls());
    platform_request_answer(request, answer);
}

static void stop(struct platform_request *request)
{
    platform_request_answer(request, NULL);
    platform_stop();
}
