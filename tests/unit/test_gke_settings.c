/* What a gke: URI may say. */

#include "drivers/gke/gke.h"
#include <check.h>

static struct sbx_gke settings;
static sandbox_error error;

static sandbox_status read_uri(const char *rest)
{
    sbx_gke_settings_clear(&settings);
    error = (sandbox_error){0};
    return sbx_gke_settings_read(rest, &settings, &error);
}

static void forget(void)
{
    sbx_gke_settings_clear(&settings);
}

static const struct {
    const char *rest, *context, *space, *pool;
    bool direct;
} good_ones[] = {
    {"//prod/agents?pool=standard", "prod", "agents", "standard"},
    {"//gke_p_europe-west4_c/agents?pool=p-1", "gke_p_europe-west4_c", "agents", "p-1"},
    {"//arn:aws%2Fname%20x/agents", "arn:aws/name x", "agents", ""},
    {"//prod", "prod", "", ""},
    {"//prod/?pool=a", "prod", "", "a"},
    {"///agents?pool=a", "", "agents", "a"},
    {"?pool=a", "", "", "a"},
    {"", "", "", ""},
    {"//prod/agents?pool=a&channel=pod", "prod", "agents", "a", true},
    {"//prod/agents?channel=pod&pool=a", "prod", "agents", "a", true},
    {"//prod/agents?channel=exec&pool=a", "prod", "agents", "a"},
};

START_TEST(context_namespace_and_pool_are_told_apart)
{
    ck_assert_msg(read_uri(good_ones[_i].rest) == SANDBOX_OK, "%s: %s", good_ones[_i].rest,
                  error.message);
    ck_assert_str_eq(settings.context, good_ones[_i].context);
    ck_assert_str_eq(settings.space, good_ones[_i].space);
    ck_assert_str_eq(settings.pool, good_ones[_i].pool);
    ck_assert_int_eq(settings.direct, good_ones[_i].direct);
}
END_TEST

static const struct {
    const char *rest, *says;
} wrong[] = {
    {"prod/agents", "gke://CONTEXT/NAMESPACE"},
    {"/prod", "gke://CONTEXT/NAMESPACE"},
    {"//prod/Agents", "Agents"},
    {"//prod/a/b", "a/b"},
    {"//prod/agents?pool=A_b", "A_b"},
    {"//prod/agents?pool=", "pool=NAME"},
    {"//prod/agents?pol=a", "pol=a"},
    {"//prod/agents?pool=a&pool=b", "twice"},
    {"//prod/agents?pool=a&", "pool=NAME"},
    {"//prod/agents?pool=a&channel=tcp", "'tcp' is no channel"},
    {"//prod/agents?pool=a&channel=", "channel=pod"},
    {"?egress=192.0.2.9:3128", "http://ADDRESS:PORT"},
    {"?egress=http://proxy:3128", "know no names"},
    {"?egress=http://192.0.2.9", "http://ADDRESS:PORT"},
    {"?egress=http://192.0.2.9:0", "http://ADDRESS:PORT"},
    {"?egress=http://192.0.2.9:65536", "http://ADDRESS:PORT"},
    {"?egress=http://192.0.2.9:3128/", "http://ADDRESS:PORT"},
    {"?egress=http://192.0.2.9:3128%00x", "%25"},
    {"?egress=http://[2001:db8::9:3128", "http://ADDRESS:PORT"},
    {"?egress=http://192.0.2.9:1&egress=http://192.0.2.9:2", "twice"},
    {"?admin=https://proxy:3129", "http://HOST:PORT"},
    {"?admin=http://user:word@proxy:3129", "http://HOST:PORT"},
    {"?admin=http://proxy:3129/v1", "http://HOST:PORT"},
    {"?admin=http://[proxy]:3129", "http://HOST:PORT"},
    {"//pr%2/agents", "%25"},
    {"//pr%00od/agents", "%25"},
};

START_TEST(the_proxy_is_two_addresses)
{
    ck_assert_msg(read_uri("//prod/agents?egress=http://192.0.2.9:3128&pool=a&admin=http%3A%2F%2F"
                           "proxy.workspaces-egress.svc:3129") == SANDBOX_OK,
                  "%s", error.message);
    ck_assert_str_eq(settings.proxy.egress, "http://192.0.2.9:3128");
    ck_assert_str_eq(settings.proxy.admin, "http://proxy.workspaces-egress.svc:3129");
    ck_assert_int_eq(read_uri("?egress=http://[2001:db8::9]:3128&admin=http://[::1]:65535"),
                     SANDBOX_OK);
    ck_assert_int_eq(read_uri("?pool=a"), SANDBOX_OK);
    ck_assert_ptr_null(settings.proxy.egress);
    ck_assert_ptr_null(settings.proxy.admin);
}
END_TEST

START_TEST(what_is_wrong_is_named)
{
    ck_assert_int_eq(read_uri(wrong[_i].rest), SANDBOX_INVALID);
    ck_assert_msg(strstr(error.message, wrong[_i].says) != NULL, "%s: %s", wrong[_i].rest,
                  error.message);
    ck_assert_ptr_null(settings.context);
}
END_TEST

static Suite *settings_suite(void)
{
    Suite *suite = suite_create("gke settings");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, NULL, forget);
    tcase_add_loop_test(all, context_namespace_and_pool_are_told_apart, 0,
                        sizeof good_ones / sizeof good_ones[0]);
    tcase_add_test(all, the_proxy_is_two_addresses);
    tcase_add_loop_test(all, what_is_wrong_is_named, 0, sizeof wrong / sizeof wrong[0]);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(settings_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
