/*
 * What a hostile agent answers to the life cycle (lib/core/gate.c): that it is sealed, what it
 * proves, who is active. The first byte chooses the call, the second how it ends, the rest is the
 * message. The wire below it is fuzz_session.c's.
 */

#include "core/gate.h"
#include "util/fail.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

sandbox_status __wrap_sbx_session_call(struct sbx_session *session, const char *method,
                                       const ProtobufCMessage *request, bool repeatable,
                                       const ProtobufCMessageDescriptor *descriptor,
                                       const struct sbx_wait *wait, ProtobufCMessage **reply,
                                       sandbox_error *error);

static void ask_for_seal(void);
static void ask_for_proof(void);
static void ask_to_open(void);
static void ask_for_activity(void);
static void ask_for_health(void);
static void ask_to_quiesce(void);

static void (*const questions[])(void) = {
    ask_for_seal, ask_for_proof, ask_to_open, ask_for_activity, ask_for_health, ask_to_quiesce,
};
static const char *const reasons[] = {"", "not-sealed", "opening", "suspending", "stale-epoch"};

/* What is left of the input. */
static const uint8_t *answer;
static size_t answer_size;
static uint8_t ending;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    ending = data[1];
    answer = data + 2;
    answer_size = size - 2;
    questions[data[0] % (sizeof questions / sizeof questions[0])]();
    return 0;
}

/* In the place of a session: one answer to whatever was asked. */
sandbox_status __wrap_sbx_session_call(struct sbx_session *session, const char *method,
                                       const ProtobufCMessage *request, bool repeatable,
                                       const ProtobufCMessageDescriptor *descriptor,
                                       const struct sbx_wait *wait, ProtobufCMessage **reply,
                                       sandbox_error *error)
{
    /* What is asked must be fit to be sent. */
    uint8_t *packed = malloc(protobuf_c_message_get_packed_size(request) + 1);
    protobuf_c_message_pack(request, packed);
    free(packed);
    if (ending % 4 == 1)
        return sbx_fail_for(error, SANDBOX_UNAVAILABLE, reasons[ending / 4 % 5], "not now");
    *reply = protobuf_c_message_unpack(descriptor, NULL, answer_size, answer);
    if (*reply == NULL)
        return sbx_fail_for(error, SANDBOX_FAILED, "malformed-answer", "not a message");
    return SANDBOX_OK;
}

static void must(bool right)
{
    if (!right)
        abort();
}

/* A digest in digits, or nothing; never a part of one. */
static void must_be_hash(const char hash[SBX_HASH_TEXT])
{
    size_t length = strnlen(hash, SBX_HASH_TEXT);
    must(length == 0 || (length == SBX_HASH_TEXT - 1 &&
                         strspn(hash, "0123456789abcdef") == SBX_HASH_TEXT - 1));
}

/* One line for people, whatever a guest calls itself. */
static void must_be_text(const char *text, size_t size)
{
    must(memchr(text, '\0', size) != NULL);
    for (; *text != '\0'; text++)
        must(*text >= ' ' && *text < 127);
}

static void must_have_said(sandbox_status status, const sandbox_error *error)
{
    must(status == error->status && error->message[0] != '\0');
    (void)sbx_gate_is_moving(status, error);
}

static void ask_for_seal(void)
{
    struct sbx_wait wait = sbx_wait_alone(1000);
    struct sbx_seal seal;
    sandbox_error error = {0};
    memset(&seal, 0x55, sizeof seal);
    sandbox_status status = sbx_gate_seal(NULL, 5, true, &wait, &seal, &error);
    if (status != SANDBOX_OK) {
        must_have_said(status, &error);
        return;
    }
    must_be_hash(seal.hash);
    must_be_text(seal.obstacles, sizeof seal.obstacles);
}

static void ask_for_proof(void)
{
    struct sbx_wait wait = sbx_wait_alone(1000);
    struct sbx_proven proven;
    sandbox_error error = {0};
    memset(&proven, 0x55, sizeof proven);
    sandbox_status status = sbx_gate_prove(NULL, 5, &wait, &proven, &error);
    if (status != SANDBOX_OK)
        must_have_said(status, &error);
    else
        must_be_hash(proven.hash);
}

static void ask_to_open(void)
{
    static sandbox_client client = {.clock = &sbx_system_clock};
    static const uint8_t token[SBX_TOKEN_BYTES];
    static const char *const environment[] = {"NAME=value", NULL};
    struct sbx_record record = {.id = "0123456789abcdef0123456789abcdef", .name = "w",
                                .user = "root", .epoch = 6};
    struct sbx_opening opening = {.token = token, .environment = environment,
                                  .restored = ending % 8 >= 4};
    struct sbx_wait wait = sbx_wait_alone(1000);
    struct sbx_opened opened;
    sandbox_error error = {0};
    sandbox_status status =
        sbx_gate_open(&client, &record, NULL, &opening, &wait, &opened, &error);
    if (status != SANDBOX_OK)
        must_have_said(status, &error);
}

static void ask_for_activity(void)
{
    struct sbx_wait wait = sbx_wait_alone(1000);
    struct sbx_gate_activity activity;
    sandbox_error error = {0};
    memset(&activity, 0x55, sizeof activity);
    sandbox_status status = sbx_gate_activity(NULL, &wait, &activity, &error);
    if (status != SANDBOX_OK)
        must_have_said(status, &error);
    else
        must_be_text(activity.who, sizeof activity.who);
}

static void ask_for_health(void)
{
    struct sbx_wait wait = sbx_wait_alone(1000);
    struct sbx_health health;
    sandbox_error error = {0};
    sandbox_status status = sbx_gate_health(NULL, &wait, &health, &error);
    if (status != SANDBOX_OK)
        must_have_said(status, &error);
}

static void ask_to_quiesce(void)
{
    struct sbx_wait wait = sbx_wait_alone(1000);
    sandbox_error error = {0};
    sandbox_status status = sbx_gate_quiesce(NULL, 5, 10, &wait, &error);
    if (status != SANDBOX_OK)
        must_have_said(status, &error);
}
