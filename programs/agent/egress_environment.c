/*
 * What commands are told of the way out. Whatever a command or the workspace sets itself stays: an
 * empty value switches a variable off. Only base URLs are changed, since their point is that the
 * proxy can put a credential in.
 */

#include "egress.h"
#include "util/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIT_MAX    1000 /* entries of a command's own */
#define ROOM_FIRST 16

/* What is made, NULL-terminated. */
struct made {
    char **words;
    size_t count, room;
    bool failed;
};

static void add(struct made *made, char *word);
static const char *find(char *const *environment, const char *name, size_t size);
static void add_proxies(struct made *made, char *const *environment, const char *proxy);
static void add_base_url(struct made *made, char *const *environment, const char *proxy,
                         const char *entry);
static void add_git(struct made *made, char *const *environment, const char *proxy);

bool agent_egress_environment(char *const *environment, char ***out)
{
    struct made made = {.words = NULL};
    char proxy[64];
    *out = NULL;
    if (agent_egress_port() == 0)
        return true;
    snprintf(proxy, sizeof proxy, "http://127.0.0.1:%u", agent_egress_port());
    add_proxies(&made, environment, proxy);
    for (char *const *url = agent_egress_base_urls(); url != NULL && *url != NULL; url++)
        add_base_url(&made, environment, proxy, *url);
    add_git(&made, environment, proxy);
    if (made.failed) {
        sbx_free_strings(made.words);
        return false;
    }
    *out = made.words;
    return true;
}

/* Takes the word over; NULL: there was no memory for it. */
static void add(struct made *made, char *word)
{
    if (word != NULL && made->count + 1 >= made->room) {
        size_t room = made->room == 0 ? ROOM_FIRST : 2 * made->room;
        char **larger = realloc(made->words, room * sizeof *larger);
        if (larger == NULL) {
            free(sbx_take(word));
        } else {
            made->words = larger;
            made->room = room;
        }
    }
    if (word == NULL) {
        made->failed = true;
        return;
    }
    made->words[made->count++] = word;
    made->words[made->count] = NULL;
}

/* The value of a variable, or NULL. */
static const char *find(char *const *environment, const char *name, size_t size)
{
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, size) == 0 && (*environment)[size] == '=')
            return *environment + size + 1;
    }
    return NULL;
}

static void add_unless_set(struct made *made, char *const *environment, const char *name,
                           const char *value)
{
    if (find(environment, name, strlen(name)) == NULL)
        add(made, sbx_format("%s=%s", name, value));
}

/* Programs disagree about the case of the names; Node asks to be told that it may look. */
static void add_proxies(struct made *made, char *const *environment, const char *proxy)
{
    static const char *const names[] = {"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"};
    static const char here[] = "localhost,127.0.0.1,::1";
    for (size_t at = 0; at < sizeof names / sizeof names[0]; at++)
        add_unless_set(made, environment, names[at], proxy);
    add_unless_set(made, environment, "NO_PROXY", here);
    add_unless_set(made, environment, "no_proxy", here);
    add_unless_set(made, environment, "NODE_USE_ENV_PROXY", "1");
}

/* "https://api.example.com/v1" goes over the proxy's route of that host. */
static void add_base_url(struct made *made, char *const *environment, const char *proxy,
                         const char *entry)
{
    static const char scheme[] = "https://";
    size_t name_size = strcspn(entry, "=");
    const char *url = find(environment, entry, name_size);
    if (url == NULL)
        url = entry + name_size + 1;
    if (strncmp(url, scheme, sizeof scheme - 1) == 0)
        add(made,
            sbx_format("%.*s=%s/https/%s", (int)name_size, entry, proxy, url + sizeof scheme - 1));
}

/* After the command's own settings, so that theirs keep their numbers. */
static void add_git(struct made *made, char *const *environment, const char *proxy)
{
    const char *given = find(environment, "GIT_CONFIG_COUNT", strlen("GIT_CONFIG_COUNT"));
    char *end = NULL;
    unsigned long count = given == NULL ? 0 : strtoul(given, &end, 10);
    /* git itself says what is wrong with such a number. */
    if (given != NULL && (*given < '0' || *given > '9' || *end != '\0' || count > GIT_MAX))
        return;
    add(made, sbx_format("GIT_CONFIG_COUNT=%lu", count + 1));
    add(made, sbx_format("GIT_CONFIG_KEY_%lu=url.%s/https/.insteadOf", count, proxy));
    add(made, sbx_format("GIT_CONFIG_VALUE_%lu=https://", count));
}
