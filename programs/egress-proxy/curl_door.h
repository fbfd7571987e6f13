/*
 * libcurl, loaded when the first request needs it: with all it brings along it takes more memory
 * than the rest of the program, and a proxy that only tunnels never needs it.
 */
#ifndef EGRESS_CURL_DOOR_H
#define EGRESS_CURL_DOOR_H

/* Its type checks are macros around the functions themselves. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <stdbool.h>

#define CURL_DOOR_FUNCTIONS(each)                                                                  \
    each(global_init_mem) each(global_cleanup) each(easy_init) each(easy_cleanup) each(easy_reset) \
        each(easy_setopt) each(easy_getinfo) each(easy_pause) each(slist_append)                   \
            each(slist_free_all) each(multi_init) each(multi_cleanup) each(multi_setopt)           \
                each(multi_add_handle) each(multi_remove_handle) each(multi_socket_action)         \
                    each(multi_assign) each(multi_info_read)

struct curl_door {
#define CURL_DOOR_MEMBER(name) __typeof__ (&curl_##name)(name);
    CURL_DOOR_FUNCTIONS(CURL_DOOR_MEMBER)
#undef CURL_DOOR_MEMBER
};

extern struct curl_door curl_door;

bool curl_door_open(void); /* again and again; false: it is not to be had */
void curl_door_close(void);

#endif
