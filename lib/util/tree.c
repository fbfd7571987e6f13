/* The rules that packing and unpacking share: limits, and which links stay inside. */

#include "util/tree.h"

#include "util/fail.h"

#include <inttypes.h>
#include <string.h>

sandbox_status sbx_tree_limits_settle(struct sbx_tree_limits *limits, sandbox_error *error)
{
    if (limits->max_depth > SBX_TREE_DEPTH_MAX)
        return sbx_fail_for(error, SANDBOX_INVALID, "max-depth", "max_depth is at most %u",
                            SBX_TREE_DEPTH_MAX);
    if ((unsigned)limits->links > SBX_TREE_LINKS_SKIP)
        return sbx_fail_for(error, SANDBOX_INVALID, "links", "no such policy for links: %d",
                            (int)limits->links);
    if (limits->max_bytes == 0)
        limits->max_bytes = SBX_TREE_BYTES_DEFAULT;
    if (limits->max_entries == 0)
        limits->max_entries = SBX_TREE_ENTRIES_DEFAULT;
    if (limits->max_depth == 0)
        limits->max_depth = SBX_TREE_DEPTH_DEFAULT;
    return SANDBOX_OK;
}

sandbox_status sbx_tree_add_content(const struct sbx_tree_limits *limits,
                                    struct sbx_tree_claimed *claimed, uint64_t stored,
                                    uint64_t apparent, sandbox_error *error)
{
    uint64_t most = limits->max_bytes > UINT64_MAX / SBX_TREE_HOLE_FACTOR
                        ? UINT64_MAX
                        : limits->max_bytes * SBX_TREE_HOLE_FACTOR;
    if (stored > limits->max_bytes - claimed->stored)
        return sbx_fail_for(error, SANDBOX_LIMIT, "max-bytes",
                            "the tree holds more than %" PRIu64 " bytes; raise max_bytes",
                            limits->max_bytes);
    if (apparent > most - claimed->apparent)
        return sbx_fail_for(error, SANDBOX_LIMIT, "max-bytes",
                            "the tree's files and their holes come to more than %u times "
                            "max_bytes; raise max_bytes",
                            SBX_TREE_HOLE_FACTOR);
    claimed->stored += stored;
    claimed->apparent += apparent;
    return SANDBOX_OK;
}

static bool is_dots(const char *part, size_t size, size_t count)
{
    return size == count && memcmp(part, "..", count) == 0;
}

bool sbx_tree_link_is_inside(const char *path, const char *target)
{
    long depth = -1; /* of the directory that holds the link */
    for (const char *at = path; *at != 0;) {
        at += strspn(at, "/");
        size_t size = strcspn(at, "/");
        if (size > 0 && !is_dots(at, size, 1))
            depth++;
        at += size;
    }
    bool named = false;
    if (target[0] == '/')
        return false;
    for (const char *at = target; *at != 0;) {
        at += strspn(at, "/");
        size_t size = strcspn(at, "/");
        bool up = is_dots(at, size, 2);
        if (up && (named || --depth < 0))
            return false;
        named = named || (size > 0 && !up && !is_dots(at, size, 1));
        at += size;
    }
    return true;
}
