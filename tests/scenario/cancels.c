/*
 * Calls that are cancelled before and after every driver call of create, and a platform that
 * fails, loses answers and leaves things half made at every request. Whatever the call said, the
 * record and the platform agree afterwards, and nothing is left. P110, P111, P112.
 */

#include "scenario.h"
#include <stdio.h>
#include <string.h>

#define CALLS_MAX 200

static unsigned cancelled, changes_cancelled, struck, places, all_places;

/* False: creating ended before it came to that call. */
static bool cancel_at(sandbox_client *client, enum strike how, unsigned at)
{
    sandbox_cancel *cancel = NULL;
    sandbox_workspace *workspace = NULL, *none = NULL;
    sandbox_error error = {0};
    char what[64];
    snprintf(what, sizeof what, "a create cancelled %s driver call %u",
             how == STRIKE_CANCEL_BEFORE ? "before" : "after", at);
    require(sandbox_cancel_create(&cancel, &error) == SANDBOX_OK, "%s", error.message);
    sandbox_call call = {SANDBOX_CALL, .cancel = cancel};
    sandbox_workspace_options options = {SANDBOX_WORKSPACE_OPTIONS, .name = "fleeting",
                                         .user = harness_user()};
    counting_begin(how, at, cancel);
    sandbox_status status = sandbox_workspace_create(client, &options, &call, &workspace, &error);
    bool reached = counting_calls() >= at;
    counting_begin(STRIKE_NEVER, 0, NULL);
    require(status == SANDBOX_OK || status == SANDBOX_CANCELLED, "%s: %s", what, error.message);
    if (status == SANDBOX_OK) {
        scenario_require_works(workspace);
        scenario_delete(client, "fleeting");
    }
    cancelled += status == SANDBOX_CANCELLED;
    sandbox_workspace_free(workspace);
    require(sandbox_workspace_find(client, "fleeting", NULL, &none, &error) == SANDBOX_NOT_FOUND,
            "%s: it can still be found", what);
    sandbox_cancel_free(cancel);
    scenario_require_nothing_left(what);
    return reached;
}

/* A workspace in some state, and what is done to it. */
struct subject {
    const char *operation;
    void (*prepare)(const char *name);
    bool keeps;   /* its file must be there afterwards */
    bool deletes;
};

static void nothing(const char *name)
{
}

static const struct subject subjects[] = {
    {"create", nothing, false, false},
    {"open", scenario_make_interrupted, true, false},
    {"delete", scenario_make_interrupted, false, true},
    {"suspend", scenario_make, true, false},
    {"suspend-files", scenario_make, true, false},
    {"checkpoint", scenario_make, true, false},
    {"resume", scenario_make_suspended, true, false},
    {"resume-snapshot", scenario_make_fallen, true, false},
    {"delete", scenario_make_suspended, false, true},
};

/* False: the request that the fault was for never came. */
static bool strike_at(const struct subject *subject, const char *request, const char *fault,
                      unsigned nth)
{
    char what[128];
    snprintf(what, sizeof what, "%s with '%s' at %s %u", subject->operation, fault, request, nth);
    subject->prepare("pressed");
    harness_tell("{\"do\":\"script\",\"rules\":[{\"on\":\"%s\",\"nth\":%u,\"do\":\"%s\"}]}",
                 request, nth, fault);
    int code = scenario_run(subject->operation, "pressed", STRIKE_NEVER, 0, "");
    bool reached = harness_calls(request) >= (int)nth;
    harness_tell("{\"do\":\"script\",\"rules\":[]}");
    require(code != CHILD_KILLED && code < 128, "%s: code %d", what, code);

    sandbox_client *client = scenario_client();
    sandbox_workspace *workspace = NULL;
    sandbox_error error = {0};
    if (!subject->deletes) {
        require(scenario_open_whole(client, "pressed", &workspace, &error) == SANDBOX_OK,
                "%s, then open: %s", what, error.message);
        scenario_require_works(workspace);
        require(harness_count("instances") == 1, "%s: %d instances", what,
                harness_count("instances"));
        require(!subject->keeps || scenario_has_kept(workspace), "%s: the file was lost", what);
    }
    sandbox_workspace_free(workspace);
    scenario_delete(client, "pressed");
    sandbox_client_free(client);
    scenario_require_nothing_left(what);
    struck += reached;
    return reached;
}

/* Every so many-th place where something can go wrong. */
static bool is_chosen(void)
{
    static unsigned left;
    if (all_places++ == 0)
        left = scenario_first();
    bool chosen = --left == 0;
    left = chosen ? scenario_stride() : left;
    places += chosen;
    return chosen;
}

static void strike_everywhere(void)
{
    static const char *const requests[] = {
        "record.load",     "record.store",    "record.remove", "secret",          "provision",
        "connect",         "inspect",         "discard",       "destroy",         "restore",
        "snapshot.prepare", "snapshot.take",  "snapshot.adopt", "snapshot.verify",
        "snapshot.remove", "release"};
    static const char *const faults[] = {"fail", "lose-answer", "kill-agent"};
    static const char *const takes[] = {"half-made", "consume-and-fail", "damage"};
    for (size_t s = 0; s < sizeof subjects / sizeof subjects[0]; s++) {
        for (size_t r = 0; r < sizeof requests / sizeof requests[0]; r++) {
            /* Where a request never comes, it does so whatever was to happen to it. */
            bool comes = true;
            for (size_t f = 0; f < 3 && comes; f++) {
                unsigned nth = 1;
                if (!is_chosen())
                    continue;
                for (; strike_at(&subjects[s], requests[r], faults[f], nth); nth++)
                    require(nth < CALLS_MAX, "%s makes too many requests", subjects[s].operation);
                comes = nth > 1;
            }
        }
        if (is_chosen())
            strike_at(&subjects[s], "provision", "half-made", 1);
        if (is_chosen())
            strike_at(&subjects[s], "restore", "half-made", 1);
        for (size_t f = 0; f < 3; f++) {
            if (is_chosen())
                strike_at(&subjects[s], "snapshot.take", takes[f], 1);
        }
    }
}

/* False: the operation ended before it came to that call. */
static bool cancel_change_at(sandbox_client *client, const struct subject *subject,
                             enum strike how, unsigned at)
{
    sandbox_cancel *cancel = NULL;
    sandbox_workspace *workspace = NULL, *whole = NULL;
    sandbox_error error = {0};
    char what[80];
    snprintf(what, sizeof what, "%s cancelled %s driver call %u", subject->operation,
             how == STRIKE_CANCEL_BEFORE ? "before" : "after", at);
    subject->prepare("pressed");
    require(sandbox_cancel_create(&cancel, &error) == SANDBOX_OK &&
                sandbox_workspace_find(client, "pressed", NULL, &workspace, &error) == SANDBOX_OK,
            "%s", error.message);
    sandbox_call call = {SANDBOX_CALL, .cancel = cancel};
    counting_begin(how, at, cancel);
    sandbox_status status = scenario_change(workspace, subject->operation, &call, &error);
    bool reached = counting_calls() >= at;
    counting_begin(STRIKE_NEVER, 0, NULL);
    require(status == SANDBOX_OK || status == SANDBOX_CANCELLED, "%s: %s", what, error.message);
    changes_cancelled += status == SANDBOX_CANCELLED;
    require(scenario_open_whole(client, "pressed", &whole, &error) == SANDBOX_OK,
            "%s, then open: %s", what, error.message);
    scenario_require_works(whole);
    require(scenario_has_kept(whole), "%s: the file was lost", what);
    sandbox_workspace_free(whole);
    sandbox_workspace_free(workspace);
    sandbox_cancel_free(cancel);
    scenario_delete(client, "pressed");
    scenario_require_nothing_left(what);
    return reached;
}

static void cancel_changes_everywhere(sandbox_client *client)
{
    for (size_t s = 0; s < sizeof subjects / sizeof subjects[0]; s++) {
        const struct subject *subject = &subjects[s];
        bool reached = subject->keeps && strcmp(subject->operation, "open") != 0;
        for (unsigned at = scenario_first(); reached; at += scenario_stride()) {
            require(at < CALLS_MAX, "%s makes too many calls", subject->operation);
            reached = cancel_change_at(client, subject, STRIKE_CANCEL_BEFORE, at);
            if (reached)
                cancel_change_at(client, subject, STRIKE_CANCEL_AFTER, at);
        }
    }
}

int main(int argc, char **argv)
{
    scenario_begin(argc, argv);
    sandbox_client *client = scenario_client();
    bool reached = true;
    for (unsigned at = scenario_first(); reached; at += scenario_stride()) {
        require(at < CALLS_MAX, "create makes too many calls");
        reached = cancel_at(client, STRIKE_CANCEL_BEFORE, at);
        if (reached)
            cancel_at(client, STRIKE_CANCEL_AFTER, at);
    }
    unsigned stride = scenario_stride();
    printf("%u creations of some %u cancelled, nothing left\n", cancelled, cancelled * stride);
    cancel_changes_everywhere(client);
    sandbox_client_free(client);
    printf("%u suspends and resumes of some %u cancelled, nothing lost\n", changes_cancelled,
           changes_cancelled * stride);
    strike_everywhere();
    printf("%u faults of the platform in %u of %u places, all recovered\n", struck, places,
           all_places);
    return scenario_end();
}
