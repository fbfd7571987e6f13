/* The mutual proof of a token: see proof.h. */

#include "util/proof.h"
#include "util/memory.h"
#include "util/random.h"
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* What a MAC is for stands before all that it covers, so that none is taken for another. */
enum purpose { OF_AGENT = 'A', OF_CLIENT = 'C', OF_PASS = 'P' };

#define AT_ADDRESS 1
#define AT_HELLO   (AT_ADDRESS + SBX_PROOF_ADDRESS)
#define AT_ANSWER  (AT_HELLO + SBX_PROOF_HELLO)

static const uint8_t head[SBX_PROOF_HEAD] = {'s', 'a', 'n', 'd', 'b', 'o', 'x', SBX_PROOF_VERSION};

static bool mac(const struct sbx_proof *proof, enum purpose purpose,
                uint8_t digest[SBX_DIGEST_BYTES]);
static bool is_mac(const struct sbx_proof *proof, enum purpose purpose,
                   const uint8_t given[SBX_DIGEST_BYTES]);

bool sbx_proof_key(const uint8_t token[SBX_PROOF_TOKEN], uint8_t key[SBX_DIGEST_BYTES])
{
    static const char label[] = "sandbox tcp 1";
    return sbx_hmac_sha256(token, SBX_PROOF_TOKEN, label, sizeof label - 1, key);
}

bool sbx_proof_address(const struct sockaddr *address, uint8_t out[SBX_PROOF_ADDRESS])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const void *port;
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        memcpy(out, mapped, sizeof mapped);
        memcpy(out + sizeof mapped, &v4->sin_addr, 4);
        port = &v4->sin_port;
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;
        memcpy(out, &v6->sin6_addr, 16);
        port = &v6->sin6_port;
    } else {
        return false;
    }
    memcpy(out + 16, port, 2);
    return true;
}

bool sbx_proof_hello(struct sbx_proof *proof, const uint8_t key[SBX_DIGEST_BYTES],
                     const uint8_t id[SBX_PROOF_ID], const uint8_t address[SBX_PROOF_ADDRESS],
                     uint8_t hello[SBX_PROOF_HELLO])
{
    memcpy(hello, head, sizeof head);
    memcpy(hello + SBX_PROOF_HEAD, id, SBX_PROOF_ID);
    if (!sbx_random(hello + SBX_PROOF_HEAD + SBX_PROOF_ID, SBX_PROOF_RANDOM))
        return false;
    memcpy(proof->key, key, sizeof proof->key);
    memcpy(proof->said + AT_ADDRESS, address, SBX_PROOF_ADDRESS);
    memcpy(proof->said + AT_HELLO, hello, SBX_PROOF_HELLO);
    return true;
}

bool sbx_proof_finish(struct sbx_proof *proof, const uint8_t answer[SBX_PROOF_ANSWER],
                      uint8_t finish[SBX_PROOF_FINISH])
{
    if (memcmp(answer, head, sizeof head) != 0)
        return false;
    memcpy(proof->said + AT_ANSWER, answer, SBX_PROOF_HEAD + SBX_PROOF_RANDOM);
    return is_mac(proof, OF_AGENT, answer + SBX_PROOF_HEAD + SBX_PROOF_RANDOM) &&
           mac(proof, OF_CLIENT, finish);
}

bool sbx_proof_answer(struct sbx_proof *proof, const uint8_t key[SBX_DIGEST_BYTES],
                      const uint8_t id[SBX_PROOF_ID], const uint8_t address[SBX_PROOF_ADDRESS],
                      const uint8_t hello[SBX_PROOF_HELLO], uint8_t answer[SBX_PROOF_ANSWER])
{
    if (memcmp(hello, head, sizeof head) != 0 ||
        !sbx_equal_secret(hello + SBX_PROOF_HEAD, id, SBX_PROOF_ID))
        return false;
    memcpy(answer, head, sizeof head);
    if (!sbx_random(answer + SBX_PROOF_HEAD, SBX_PROOF_RANDOM))
        return false;
    memcpy(proof->key, key, sizeof proof->key);
    memcpy(proof->said + AT_ADDRESS, address, SBX_PROOF_ADDRESS);
    memcpy(proof->said + AT_HELLO, hello, SBX_PROOF_HELLO);
    memcpy(proof->said + AT_ANSWER, answer, SBX_PROOF_HEAD + SBX_PROOF_RANDOM);
    return mac(proof, OF_AGENT, answer + SBX_PROOF_HEAD + SBX_PROOF_RANDOM);
}

bool sbx_proof_check(const struct sbx_proof *proof, const uint8_t finish[SBX_PROOF_FINISH])
{
    return is_mac(proof, OF_CLIENT, finish);
}

bool sbx_proof_pass(const struct sbx_proof *proof, uint8_t pass[SBX_PROOF_PASS])
{
    return mac(proof, OF_PASS, pass);
}

static bool mac(const struct sbx_proof *proof, enum purpose purpose,
                uint8_t digest[SBX_DIGEST_BYTES])
{
    uint8_t said[sizeof proof->said];
    said[0] = (uint8_t)purpose;
    memcpy(said + AT_ADDRESS, proof->said + AT_ADDRESS, sizeof said - AT_ADDRESS);
    return sbx_hmac_sha256(proof->key, sizeof proof->key, said, sizeof said, digest);
}

static bool is_mac(const struct sbx_proof *proof, enum purpose purpose,
                   const uint8_t given[SBX_DIGEST_BYTES])
{
    uint8_t right[SBX_DIGEST_BYTES];
    bool is_right = mac(proof, purpose, right) && sbx_equal_secret(right, given, sizeof right);
    sbx_wipe(right, sizeof right);
    return is_right;
}
