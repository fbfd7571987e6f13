/*
 * sandbox-egress-carrier: carries the connections of one workspace from its agent to the egress
 * proxy. Started by the library, one for each workspace that has a way out; not for people.
 *
 * The key that the proxy wants is read from standard input. The lock is a descriptor that was
 * inherited: it is held for as long as this process lives, and its file holds the process's number,
 * so that whoever starts the next one can end this one.
 */

#include "carrier.h"
#include "util/memory.h"
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static struct {
    const char *uri, *workspace, *id, *proxy, *log;
    int lock;
} settings = {.lock = -1};

static bool read_settings(int argc, char **argv);
static bool read_key(char key[CARRIER_KEY_DIGITS + 1]);
static void harden(void);
static bool detach(void);
static bool write_number(void);
static int open_and_run(struct carrier *carrier);

int main(int argc, char **argv)
{
    static struct carrier carrier;
    char key[CARRIER_KEY_DIGITS + 1];
    if (!read_settings(argc, argv) || !read_key(key))
        return 2;
    harden();
    snprintf(carrier.greeting, sizeof carrier.greeting, "SANDBOX-EGRESS/1 %s\r\n", key);
    sbx_wipe(key, sizeof key);
    carrier.name = settings.workspace;
    carrier.id = settings.id;
    carrier.proxy = settings.proxy;
    return detach() ? open_and_run(&carrier) : 1;
}

static bool read_settings(int argc, char **argv)
{
    static const struct option known[] = {
        {"uri", required_argument, NULL, 'u'},
        {"workspace", required_argument, NULL, 'w'},
        {"id", required_argument, NULL, 'i'},
        {"proxy", required_argument, NULL, 'p'},
        {"lock", required_argument, NULL, 'l'},
        {"log", required_argument, NULL, 'o'},
        {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        const char **const texts[] = {['u'] = &settings.uri,
                                      ['w'] = &settings.workspace,
                                      ['i'] = &settings.id,
                                      ['p'] = &settings.proxy,
                                      ['o'] = &settings.log};
        if (option == 'l')
            settings.lock = (int)strtol(optarg, NULL, 10);
        else if (option != '?')
            *texts[option] = optarg;
    }
    bool whole = settings.uri != NULL && settings.workspace != NULL && settings.id != NULL &&
                 settings.proxy != NULL && settings.log != NULL && settings.lock > 2 &&
                 optind == argc;
    if (!whole)
        fputs("usage: sandbox-egress-carrier --uri URI --workspace NAME --id ID --proxy SOCKET\n"
              "                              --log PATH --lock DESCRIPTOR <KEY\n",
              stderr);
    return whole;
}

static bool read_key(char key[CARRIER_KEY_DIGITS + 1])
{
    size_t have = 0;
    while (have < CARRIER_KEY_DIGITS) {
        ssize_t size = read(0, key + have, CARRIER_KEY_DIGITS - have);
        if (size <= 0)
            break;
        have += (size_t)size;
    }
    key[have] = '\0';
    if (have == CARRIER_KEY_DIGITS && strspn(key, "0123456789abcdef") == CARRIER_KEY_DIGITS)
        return true;
    fputs("sandbox-egress-carrier: no key on standard input\n", stderr);
    return false;
}

static void harden(void)
{
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    signal(SIGPIPE, SIG_IGN);
}

/* Nobody's child from here on. What the parent has to say was said before. */
static bool detach(void)
{
    pid_t pid = fork();
    if (pid > 0)
        _exit(0);
    if (pid < 0 || !write_number()) {
        perror("sandbox-egress-carrier: cannot begin");
        return false;
    }
    setsid();
    int log = open(settings.log, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log < 0 ? null : log, 2) < 0)
        return false;
    return chdir("/") == 0;
}

static bool write_number(void)
{
    char text[16];
    int size = snprintf(text, sizeof text, "%d\n", (int)getpid());
    return fcntl(settings.lock, F_SETFD, FD_CLOEXEC) == 0 && ftruncate(settings.lock, 0) == 0 &&
           pwrite(settings.lock, text, (size_t)size, 0) == size;
}

static int open_and_run(struct carrier *carrier)
{
    const sandbox_client_options options = {SANDBOX_CLIENT_OPTIONS, .uri = settings.uri};
    sandbox_error error = {0};
    carrier->owner.inbox = malloc(SBX_JOINT_PIECE);
    if (carrier->owner.inbox == NULL || pthread_mutex_init(&carrier->mutex, NULL) != 0 ||
        pthread_cond_init(&carrier->changed, NULL) != 0)
        return 1;
    if (sandbox_client_open(&options, NULL, &carrier->client, &error) != SANDBOX_OK) {
        fprintf(stderr, "sandbox-egress-carrier: %s\n", error.message);
        return 1;
    }
    int code = carrier_run(carrier);
    sandbox_client_free(carrier->client);
    free(carrier->owner.inbox);
    return code;
}
