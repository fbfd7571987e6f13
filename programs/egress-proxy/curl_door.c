/* libcurl, loaded when the first request needs it: see curl_door.h. */

#include "curl_door.h"
#include "journal.h"
#include "util/memory.h"
#include <dlfcn.h>
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_KEPT (4 * 1024 * 1024)

struct curl_door curl_door;

static void *library;

static bool find_all(void);
static void wipe_and_free(void *data);
static void *wipe_and_realloc(void *data, size_t size);

bool curl_door_open(void)
{
    if (library != NULL)
        return true;
    library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        journal_event("no-libcurl", NULL, NULL);
        return false;
    }
    /* Requests with credentials pass through its memory: none of it is given back unwiped. Nor are
       the larger blocks of the TLS library below it, which are written over as they are freed. */
    (void)mallopt(M_PERTURB, 0x55);
    /* Each request takes and gives back a few large blocks: not from and to the kernel each time.
     */
    (void)mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
    (void)mallopt(M_TOP_PAD, HEAP_KEPT);
    if (find_all() && curl_door.global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wipe_and_free,
                                                wipe_and_realloc, strdup, calloc) == CURLE_OK)
        return true;
    dlclose(library);
    library = NULL;
    return false;
}

void curl_door_close(void)
{
    if (library == NULL)
        return;
    curl_door.global_cleanup();
    /* It stays loaded: what it has brought along may still have work at the program's end. */
    library = NULL;
}

static bool find_all(void)
{
    static const struct {
        const char *name;
        size_t place;
    } wanted[] = {
#define CURL_DOOR_ENTRY(name) {"curl_" #name, offsetof(struct curl_door, name)},
        CURL_DOOR_FUNCTIONS(CURL_DOOR_ENTRY)
#undef CURL_DOOR_ENTRY
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (found == NULL)
            return false;
        /* A function's address through a data pointer, as POSIX has it for dlsym(). */
        memcpy((char *)&curl_door + wanted[i].place, &found, sizeof found);
    }
    return true;
}

static void wipe_and_free(void *data)
{
    if (data != NULL)
        sbx_wipe(data, malloc_usable_size(data));
    free(data);
}

static void *wipe_and_realloc(void *data, size_t size)
{
    size_t had = data == NULL ? 0 : malloc_usable_size(data);
    void *moved = malloc(size);
    if (moved == NULL)
        return NULL;
    if (data != NULL)
        memcpy(moved, data, had < size ? had : size);
    wipe_and_free(data);
    return moved;
}
