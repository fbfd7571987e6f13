/* For tests of kubeconfigs: a folder of the test's own, files in it, and a clock that is set. */
#ifndef TESTS_UNIT_KUBECONFIG_PLACE_H
#define TESTS_UNIT_KUBECONFIG_PLACE_H

#include "cloud/kubeconfig_parts.h"
#include "util/file.h"
#include "util/memory.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PEM(kind, words) "-----BEGIN " kind "-----\n" words "\n-----END " kind "-----\n"
/* PEM("CERTIFICATE", "Y2E=") in base64 */
#define CA_DATA "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tClkyRT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="

static char folder[64];
static sandbox_error error;
static struct sbx_wait wait;

static void set_up(void)
{
    snprintf(folder, sizeof folder, "/tmp/sandbox-kubeconfig.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    wait = sbx_wait_alone(20000);
    ck_assert_int_eq(setenv("HOME", folder, 1), 0);
    ck_assert_int_eq(unsetenv("KUBECONFIG"), 0);
    ck_assert_int_eq(unsetenv("KUBERNETES_SERVICE_HOST"), 0);
    ck_assert_int_eq(unsetenv("KUBERNETES_SERVICE_PORT"), 0);
}

static void tear_down(void)
{
    (void)sbx_tree_remove(AT_FDCWD, folder, NULL);
}

/* Borrowed until the next but seven calls. */
static const char *path_of(const char *name)
{
    static char paths[8][200];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void put_file(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s", path_of(name));
    char *slash = strrchr(path, '/');
    *slash = '\0';
    ck_assert_int_eq(sbx_directory_make(AT_FDCWD, path, 0700, NULL), SANDBOX_OK);
    *slash = '/';
    ck_assert_int_eq(sbx_file_replace(AT_FDCWD, path, text, strlen(text), 0600, NULL), SANDBOX_OK);
}

/* A program for /bin/sh. */
static inline void put_script(const char *name, const char *text)
{
    char whole[4096];
    snprintf(whole, sizeof whole, "#!/bin/sh\n%s\n", text);
    put_file(name, whole);
    ck_assert_int_eq(chmod(path_of(name), 0755), 0);
}

static sandbox_status read_config(const char *path, const char *context,
                                  struct sbx_kubeconfig **out)
{
    struct sbx_kubernetes_options options = {.kubeconfig = path, .context = context};
    return sbx_kubeconfig_read(&options, out, &error);
}

static void forget(struct sbx_kubeconfig **config)
{
    sbx_kubeconfig_free(*config);
}

/* Of `text` as a file; the test fails where that does. */
static struct sbx_kubeconfig *good_config(const char *text)
{
    struct sbx_kubeconfig *config = NULL;
    put_file("config", text);
    sandbox_status status = read_config(path_of("config"), NULL, &config);
    ck_assert_msg(status == SANDBOX_OK, "%s", status == SANDBOX_OK ? "" : error.message);
    return config;
}

static inline void good_access(struct sbx_kubeconfig *config, uint64_t refused,
                               struct sbx_kubernetes_access *access)
{
    sandbox_status status = sbx_kubeconfig_access(config, refused, &wait, access, &error);
    ck_assert_msg(status == SANDBOX_OK, "%s", status == SANDBOX_OK ? "" : error.message);
}

/* What a request carries now, as one text: "header|header". */
static const char *headers_now(struct sbx_kubeconfig *config, uint64_t refused)
{
    static char text[2000];
    struct sbx_kubernetes_access access;
    good_access(config, refused, &access);
    size_t used = 0;
    text[0] = '\0';
    for (size_t n = 0; access.headers[n] != NULL; n++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", n == 0 ? "" : "|",
                                 access.headers[n]);
    sbx_kubernetes_access_end(&access);
    return text;
}

#endif
