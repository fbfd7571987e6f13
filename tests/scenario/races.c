/*
 * Two owners at once: 20 races each of creating, opening, going on with and deleting the same
 * name, in processes of their own. Exactly one instance, no lost record, no lost file. P142, P143.
 */

#include "scenario.h"
#include <stdio.h>
#include <string.h>

#define RACES 20

static unsigned races;

/* Two operations on one name at the same moment. */
static void race(const char *first, const char *second, const char *name, int codes[2])
{
    struct scenario_child *children[2] = {scenario_start(first, name),
                                          scenario_start(second, name)};
    scenario_go(children, 2);
    for (size_t n = 0; n < 2; n++)
        codes[n] = scenario_wait(children[n]);
    races++;
}

static void require_one(const char *name, bool with_file, const char *what)
{
    sandbox_client *client = scenario_client();
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    require(sandbox_workspace_find(client, name, NULL, &workspace, &error) == SANDBOX_OK, "%s: %s",
            what, error.message);
    require(harness_count("instances") == 1, "%s: %d instances", what, harness_count("instances"));
    require(harness_count("records") == 1, "%s: %d records", what, harness_count("records"));
    scenario_require_works(workspace);
    require(!with_file || scenario_has_kept(workspace), "%s: the file was lost", what);
    sandbox_workspace_free(workspace);
    scenario_delete(client, name);
    sandbox_client_free(client);
    scenario_require_nothing_left(what);
}

static void create_and_create(void)
{
    int codes[2];
    race("create", "create", "same", codes);
    int exists = CHILD_STATUS(SANDBOX_EXISTS);
    require((codes[0] == CHILD_OK && codes[1] == exists) ||
                (codes[1] == CHILD_OK && codes[0] == exists),
            "two creations ended with %d and %d", codes[0], codes[1]);
    require_one("same", false, "two creations");
}

static void open_and_open(void)
{
    int codes[2];
    race("open", "open", "same", codes);
    require(codes[0] == CHILD_OK && codes[1] == CHILD_OK, "two openings ended with %d and %d",
            codes[0], codes[1]);
    require_one("same", false, "two openings");
}

static void go_on_and_go_on(void)
{
    int codes[2];
    scenario_make_interrupted("same");
    race("open", "open", "same", codes);
    require(codes[0] == CHILD_OK && codes[1] == CHILD_OK,
            "two that went on with an interrupted one ended with %d and %d", codes[0], codes[1]);
    require_one("same", true, "two that went on");
}

static void delete_and_delete(void)
{
    int codes[2];
    scenario_make("same");
    race("delete", "delete", "same", codes);
    require(codes[0] == CHILD_OK && codes[1] == CHILD_OK, "two deletions ended with %d and %d",
            codes[0], codes[1]);
    scenario_require_nothing_left("two deletions");
}

/* Whoever was first: in the end there is one that works, or none. */
static void open_and_delete(void)
{
    int codes[2];
    scenario_make_interrupted("same");
    race("open", "delete", "same", codes);
    require(codes[1] == CHILD_OK, "a deletion beside an opening ended with %d", codes[1]);
    require(codes[0] == CHILD_OK, "an opening beside a deletion ended with %d", codes[0]);
    sandbox_client *client = scenario_client();
    require(harness_count("instances") == harness_count("records"), "%d instances, %d records",
            harness_count("instances"), harness_count("records"));
    scenario_delete(client, "same");
    sandbox_client_free(client);
    scenario_require_nothing_left("an opening and a deletion");
}

static struct scenario_child *creator;
static bool judged;

/* The creator's last step goes through, and its process ends. */
static void let_creator_finish(void)
{
    judged = true;
    harness_tell("{\"do\":\"go\"}");
    require(scenario_wait(creator) == CHILD_OK, "the creator failed");
}

/*
 * Somebody looks at a creation under way; before he asks whether its owner lives, it has ended
 * well and its process too. The workspace is whole, so nobody may take it for a leftover. P114.
 */
static void finish_while_judged(const char *way)
{
    sandbox_client *client = scenario_client();
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "same",
                                         .user = harness_user()};
    size_t count = 0;
    /* The third store of a creation says that it runs. */
    harness_tell(
        "{\"do\":\"script\",\"rules\":[{\"on\":\"record.store\",\"nth\":3,\"do\":\"hang\"}]}");
    creator = scenario_start("create", "same");
    scenario_go(&creator, 1);
    harness_tell("{\"do\":\"await-hung\",\"count\":1}");
    judged = false;
    counting_before_judging(let_creator_finish);
    sandbox_status status = SANDBOX_OK;
    if (strcmp(way, "create") == 0)
        status = sandbox_workspace_create(client, &options, NULL, &workspace, &error);
    else if (strcmp(way, "open") == 0)
        status = sandbox_workspace_open(client, &options, NULL, &workspace, &error);
    else if (strcmp(way, "find") == 0)
        status = sandbox_workspace_find(client, "same", NULL, &workspace, &error);
    else
        status = sandbox_client_sweep(client, NULL, &count, &error);
    bool creates = strcmp(way, "create") == 0;
    require(judged, "%s never asked for the owner", way);
    require(status == (creates ? SANDBOX_EXISTS : SANDBOX_OK), "%s: %s", way, error.message);
    require(count == 0, "a whole workspace was swept");
    sandbox_workspace_free(workspace);
    sandbox_client_free(client);
    harness_tell("{\"do\":\"script\",\"rules\":[]}");
    require(harness_count("instances") == 1, "%s took a whole workspace for a leftover", way);
    require_one("same", false, way);
    races++;
}

int main(int argc, char **argv)
{
    scenario_begin(argc, argv);
    for (unsigned n = 0; n < RACES; n++) {
        create_and_create();
        open_and_open();
        go_on_and_go_on();
        delete_and_delete();
        open_and_delete();
    }
    finish_while_judged("create");
    finish_while_judged("open");
    finish_while_judged("find");
    finish_while_judged("sweep");
    printf("%u races, none lost\n", races);
    return scenario_end();
}
