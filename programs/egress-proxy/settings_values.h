/* One function for each option's value; false where it is none. */
#ifndef EGRESS_SETTINGS_VALUES_H
#define EGRESS_SETTINGS_VALUES_H

#include "settings.h"

bool value_listen(struct settings *into, char *value);
bool value_admin(struct settings *into, char *value);
bool value_token_file(struct settings *into, char *value);
bool value_resolver(struct settings *into, char *value);
bool value_host(struct settings *into, char *value);
bool value_permit(struct settings *into, char *value);
bool value_connections(struct settings *into, char *value);
bool value_rate(struct settings *into, char *value);
bool value_timeout(struct settings *into, char *value);
bool value_idle_exit(struct settings *into, char *value);
bool value_ca_file(struct settings *into, char *value);
bool value_log(struct settings *into, char *value);

/* These wipe the value where it stood, so that no listing of processes shows it. */
bool value_token(struct settings *into, char *value);
bool value_upstream(struct settings *into, char *value);

void value_forget(char **secret);

#endif
