/* Writes one JSON document to standard output. Bytes that are not UTF-8 become U+FFFD. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cli_json {
    unsigned depth;
    bool follows; /* something stands before, on this level */
};

/* `key` is NULL inside arrays and for the document itself. */
void cli_json_object(struct cli_json *json, const char *key);
void cli_json_array(struct cli_json *json, const char *key);
void cli_json_end(struct cli_json *json, char bracket);
/* NULL is written as null. */
void cli_json_text(struct cli_json *json, const char *key, const char *value);
void cli_json_number(struct cli_json *json, const char *key, int64_t value);
void cli_json_size(struct cli_json *json, const char *key, uint64_t value);
void cli_json_bool(struct cli_json *json, const char *key, bool value);
void cli_json_null(struct cli_json *json, const char *key);

#endif
