/*
 * The mutual proof of a token (lib/util/proof.c), which is the first that both sides read of a
 * stranger over TCP. Whatever is said, nobody is let in who does not know the token: an answer or
 * a proof that is taken was made with the key, so it can only be the one that we make ourselves.
 *
 * The first byte says which side is looked at, the rest is what the other one sends.
 */

#include "util/proof.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t key[SBX_DIGEST_BYTES] = {1, 2, 3}, id[SBX_PROOF_ID] = {'i', 'd'};
static const uint8_t address[SBX_PROOF_ADDRESS] = {[15] = 1, [17] = 80};

/* What was sent, as long as it lasts; zeros then, as a peer that is slow. */
static void take(const uint8_t **data, size_t *size, uint8_t *out, size_t wanted)
{
    size_t taken = *size < wanted ? *size : wanted;
    memset(out, 0, wanted);
    memcpy(out, *data, taken);
    *data += taken;
    *size -= taken;
}

static void be_the_agent(const uint8_t *data, size_t size)
{
    struct sbx_proof proof = {0};
    uint8_t hello[SBX_PROOF_HELLO], answer[SBX_PROOF_ANSWER], finish[SBX_PROOF_FINISH];
    take(&data, &size, hello, sizeof hello);
    if (!sbx_proof_answer(&proof, key, id, address, hello, answer))
        return;
    if (memcmp(hello, answer, SBX_PROOF_HEAD) != 0 ||
        memcmp(hello + SBX_PROOF_HEAD, id, sizeof id) != 0)
        abort();
    /* Its answer has random bytes, so nothing that is written down beforehand can be right. */
    take(&data, &size, finish, sizeof finish);
    if (sbx_proof_check(&proof, finish) ||
        sbx_proof_check(&proof, answer + SBX_PROOF_HEAD + SBX_PROOF_RANDOM))
        abort();
}

static void be_the_client(const uint8_t *data, size_t size)
{
    struct sbx_proof proof = {0};
    uint8_t hello[SBX_PROOF_HELLO], answer[SBX_PROOF_ANSWER], finish[SBX_PROOF_FINISH];
    if (!sbx_proof_hello(&proof, key, id, address, hello))
        abort();
    take(&data, &size, answer, sizeof answer);
    if (sbx_proof_finish(&proof, answer, finish))
        abort();
}

/* Both sides are ours, and what goes between them is changed somewhere, or nowhere. */
static void be_both(const uint8_t *data, size_t size)
{
    struct sbx_proof client = {0}, agent = {0};
    uint8_t hello[SBX_PROOF_HELLO], answer[SBX_PROOF_ANSWER], finish[SBX_PROOF_FINISH];
    uint8_t changes[SBX_PROOF_HELLO + SBX_PROOF_ANSWER + SBX_PROOF_FINISH];
    uint8_t pass[2][SBX_PROOF_PASS];
    const uint8_t *change = changes;
    bool changed = false;
    take(&data, &size, changes, sizeof changes);
    for (size_t at = 0; at < sizeof changes; at++)
        changed = changed || changes[at] != 0;
    if (!sbx_proof_hello(&client, key, id, address, hello))
        abort();
    for (size_t at = 0; at < sizeof hello; at++)
        hello[at] ^= *change++;
    bool agreed = sbx_proof_answer(&agent, key, id, address, hello, answer);
    for (size_t at = 0; agreed && at < sizeof answer; at++)
        answer[at] ^= *change++;
    agreed = agreed && sbx_proof_finish(&client, answer, finish);
    for (size_t at = 0; agreed && at < sizeof finish; at++)
        finish[at] ^= *change++;
    agreed = agreed && sbx_proof_check(&agent, finish) && sbx_proof_pass(&client, pass[0]) &&
             sbx_proof_pass(&agent, pass[1]) && sbx_equal_secret(pass[0], pass[1], SBX_PROOF_PASS);
    if (agreed == changed)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 3 == 0)
        be_the_agent(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        be_the_client(data + 1, size - 1);
    else
        be_both(data + 1, size - 1);
    return 0;
}
