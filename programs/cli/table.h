/* Tables: columns as wide as their content, the last one cut at the terminal's edge. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#define CLI_TABLE_COLUMNS 8

struct cli_table {
    size_t columns;
    size_t rows;     /* the heading counts as one */
    char **cells;    /* rows * columns, clean */
    bool incomplete; /* memory ran out */
};

/* `headings` ends with a NULL and holds at most CLI_TABLE_COLUMNS. */
void cli_table_begin(struct cli_table *table, const char *const *headings);
/* As many cells as there are headings. Copied and cleaned. */
void cli_table_add(struct cli_table *table, const char *const *cells);
/* To standard output. False: not everything fitted into memory. */
bool cli_table_print(const struct cli_table *table);
void cli_table_free(struct cli_table *table);

/* The colour of a word that says how something stands, or "". `cli_paint_end` ends it. */
const char *cli_paint(const char *word);
const char *cli_paint_end(void);

#endif
