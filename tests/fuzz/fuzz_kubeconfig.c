/*
 * A kubeconfig: often handed over by somebody else, or put together by a tool. Nothing in it is
 * run here, and what is taken must be usable.
 */

#include "cloud/kubeconfig_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_config(const uint8_t *data, size_t size);
static void show_words(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_config(data, size);
    show_words(data, size);
    return 0;
}

static void check_error(sandbox_status status, const sandbox_error *error)
{
    if (status != error->status || error->message[0] == '\0' ||
        strchr(error->message, '\n') != NULL)
        abort();
}

static void check_access(struct sbx_kubeconfig *config)
{
    struct sbx_wait wait = sbx_wait_alone(1000);
    struct sbx_kubernetes_access access;
    sandbox_error error;
    sandbox_status status = sbx_kubeconfig_access(config, 0, &wait, &access, &error);
    if (status != SANDBOX_OK) {
        check_error(status, &error);
        return;
    }
    if (access.number == 0)
        abort();
    for (size_t n = 0; access.headers[n] != NULL; n++) {
        if (strpbrk(access.headers[n], "\r\n") != NULL || strstr(access.headers[n], ": ") == NULL)
            abort();
    }
    sbx_kubernetes_access_end(&access);
}

static void read_config(const uint8_t *data, size_t size)
{
    int fd = memfd_create("kubeconfig", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct sbx_kubernetes_options options = {.kubeconfig = path};
    struct sbx_kubeconfig *config = NULL;
    sandbox_error error;
    sandbox_status status = sbx_kubeconfig_read(&options, &config, &error);
    close(fd);
    if (status != SANDBOX_OK) {
        check_error(status, &error);
        return;
    }
    const char *server = sbx_kubeconfig_server(config);
    if ((strncasecmp(server, "https://", 8) != 0 && strncasecmp(server, "http://", 7) != 0) ||
        server[strlen(server) - 1] == '/' || sbx_kubeconfig_namespace(config)[0] == '\0')
        abort();
    /* Neither programs nor files that the input names: those are not ours to touch. */
    const struct sbx_kubeconfig_user *user = &config->user;
    if (user->plugin == NULL && user->token_path == NULL && user->certificate_path == NULL &&
        user->key_path == NULL)
        check_access(config);
    sbx_kubeconfig_free(config);
}

/* What a plugin said: never more than there is room for, never a key. */
static void show_words(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), out[100];
    if (text == NULL)
        return;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    sbx_plugin_words(text, out, sizeof out);
    if (memchr(out, '\0', sizeof out) == NULL || strstr(out, " -----BEGIN") != NULL)
        abort();
    free(text);
}
