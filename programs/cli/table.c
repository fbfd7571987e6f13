/* Tables: columns as wide as their content, the last one cut at the terminal's edge. */

#include "table.h"

#include "terminal.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_row(const struct cli_table *table, size_t row, const size_t *widths, size_t edge);
static char *clean_copy(const char *text);
static bool has_colour(void);

void cli_table_begin(struct cli_table *table, const char *const *headings)
{
    *table = (struct cli_table){0};
    while (headings[table->columns] != NULL)
        table->columns++;
    cli_table_add(table, headings);
}

void cli_table_add(struct cli_table *table, const char *const *cells)
{
    size_t used = table->rows * table->columns;
    char **grown = realloc(table->cells, (used + table->columns) * sizeof *grown);
    if (grown == NULL) {
        table->incomplete = true;
        return;
    }
    table->cells = grown;
    for (size_t i = 0; i < table->columns; i++) {
        grown[used + i] = clean_copy(cells[i]);
        table->incomplete = table->incomplete || grown[used + i] == NULL;
    }
    table->rows++;
}

bool cli_table_print(const struct cli_table *table)
{
    if (table->incomplete)
        return false;
    size_t widths[CLI_TABLE_COLUMNS] = {0};
    for (size_t i = 0; i < table->rows * table->columns; i++) {
        size_t width = cli_text_columns(table->cells[i]);
        size_t *widest = &widths[i % table->columns];
        *widest = width > *widest ? width : *widest;
    }
    unsigned rows, edge = 0;
    if (!isatty(STDOUT_FILENO) || !cli_terminal_size(&rows, &edge))
        edge = 0;
    for (size_t row = 0; row < table->rows; row++)
        print_row(table, row, widths, edge);
    return true;
}

void cli_table_free(struct cli_table *table)
{
    for (size_t i = 0; i < table->rows * table->columns; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct cli_table){0};
}

const char *cli_paint(const char *word)
{
    static const struct {
        const char *word, *colour;
    } paints[] = {
        {"running", "\033[32m"},   {"good", "\033[32m"},    {"intact", "\033[32m"},
        {"suspended", "\033[36m"}, {"note", "\033[33m"},    {"interrupted", "\033[33m"},
        {"blocked", "\033[31m"},   {"failed", "\033[31m"},  {"problem", "\033[31m"},
        {"damaged", "\033[31m"},   {"missing", "\033[31m"},
    };
    if (!has_colour())
        return "";
    for (size_t i = 0; i < sizeof paints / sizeof paints[0]; i++)
        if (strcmp(paints[i].word, word) == 0)
            return paints[i].colour;
    return "";
}

const char *cli_paint_end(void)
{
    return has_colour() ? "\033[0m" : "";
}

static void print_row(const struct cli_table *table, size_t row, const size_t *widths, size_t edge)
{
    size_t used = 0;
    for (size_t i = 0; i < table->columns; i++) {
        char *cell = table->cells[row * table->columns + i];
        bool last = i + 1 == table->columns;
        if (last && edge > used + 8)
            cli_text_cut(cell, edge - used);
        const char *paint = row > 0 ? cli_paint(cell) : "";
        fprintf(stdout, "%s%s%s", paint, cell, paint[0] != '\0' ? cli_paint_end() : "");
        if (!last)
            fprintf(stdout, "%*s", (int)(widths[i] - cli_text_columns(cell) + 2), "");
        used += widths[i] + 2;
    }
    fputc('\n', stdout);
}

static char *clean_copy(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    if (copy != NULL)
        cli_text_clean(text, copy, size);
    return copy;
}

static bool has_colour(void)
{
    const char *refused = getenv("NO_COLOR");
    const char *type = getenv("TERM");
    return isatty(STDOUT_FILENO) && (refused == NULL || refused[0] == '\0') && type != NULL &&
           strcmp(type, "dumb") != 0;
}
