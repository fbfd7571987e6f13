/*
 * Runs a fuzz target over a folder of inputs, without libFuzzer: each file as it is, cut short,
 * and with bytes changed. What is changed depends on the file's name and the count alone, so a
 * failure comes back with the same arguments.
 *
 * SANDBOX_TEST_COUNT: how many changed copies of each file are tried (default 64).
 */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX (1u << 20)
#define COUNT_DEFAULT 64
#define COUNT_MAX 10000000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_folder(const char *folder, unsigned long count);
static int replay_file(const char *path, const char *name, unsigned long count);
static uint8_t *read_input(const char *path, size_t *size);
static void run_copy(const uint8_t *data, size_t size);
static void run_changed(const uint8_t *data, size_t size, uint64_t *seed);
static uint64_t next_random(uint64_t *seed);
static unsigned long wanted_count(void);

int main(int argument_count, char **arguments)
{
    int files = 0;
    run_copy(NULL, 0);
    for (int each = 1; each < argument_count; each++) {
        int replayed = replay_folder(arguments[each], wanted_count());
        if (replayed < 0)
            return 1;
        files += replayed;
    }
    printf("%d inputs replayed\n", files);
    return files > 0 ? 0 : 1;
}

static int replay_folder(const char *folder, unsigned long count)
{
    struct dirent **entries = NULL;
    int found = scandir(folder, &entries, NULL, alphasort);
    if (found < 0) {
        printf("cannot read the folder '%s'\n", folder);
        return -1;
    }
    int replayed = 0;
    for (int each = 0; each < found; each++) {
        const char *name = entries[each]->d_name;
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", folder, name);
        if (name[0] != '.' && length > 0 && (size_t)length < sizeof path)
            replayed += replay_file(path, name, count);
        free(entries[each]);
    }
    free(entries);
    return replayed;
}

static int replay_file(const char *path, const char *name, unsigned long count)
{
    size_t size = 0;
    uint8_t *data = read_input(path, &size);
    if (data == NULL)
        return 0;
    uint64_t seed = 1469598103934665603u;
    for (const char *letter = name; *letter != '\0'; letter++)
        seed = (seed ^ (uint8_t)*letter) * 1099511628211u;

    run_copy(data, size);
    for (unsigned long cut = 1; cut <= count && size > 0; cut++)
        run_copy(data, size * cut / (count + 1));
    for (unsigned long change = 0; change < count && size > 0; change++)
        run_changed(data, size, &seed);
    free(data);
    return 1;
}

static uint8_t *read_input(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return NULL;
    uint8_t *data = malloc(INPUT_MAX);
    if (data != NULL)
        *size = fread(data, 1, INPUT_MAX, file);
    fclose(file);
    return data;
}

/* A block of exactly that size, so that a sanitizer sees one byte too far. */
static void run_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(1, size + (size == 0));
    if (copy == NULL)
        return;
    if (size > 0)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_changed(const uint8_t *data, size_t size, uint64_t *seed)
{
    uint8_t *changed = malloc(size);
    if (changed == NULL)
        return;
    memcpy(changed, data, size);
    unsigned changes = 1 + (unsigned)(next_random(seed) % 4);
    for (unsigned each = 0; each < changes; each++) {
        size_t place = (size_t)(next_random(seed) % size);
        uint64_t drawn = next_random(seed);
        /* The values at the edges of a field find more than random ones. */
        static const uint8_t edges[] = {0x00, 0xff, 0x7f, 0x80, '"', '/', '0', '9'};
        changed[place] = (drawn & 1) != 0 ? edges[(drawn >> 1) % sizeof edges]
                                          : (uint8_t)(drawn >> 8);
    }
    LLVMFuzzerTestOneInput(changed, size);
    free(changed);
}

/* xorshift64*: the same on every machine, which rand() is not. */
static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * 2685821657736338717u;
}

static unsigned long wanted_count(void)
{
    const char *text = getenv("SANDBOX_TEST_COUNT");
    unsigned long count = text == NULL ? COUNT_DEFAULT : strtoul(text, NULL, 10);
    return count < 1 || count > COUNT_MAX ? COUNT_DEFAULT : count;
}
