/* The Files methods with one request and one answer, as files.c lists them. */
#ifndef AGENT_FILES_CHANGE_H
#define AGENT_FILES_CHANGE_H

#include "files.h"
#include "files.pb-c.h"
#include <sys/stat.h>

void agent_stat_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_remove_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_rename_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_make_directory_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_set_mode_message(struct agent_call *call, const ProtobufCMessage *message);
void agent_link_message(struct agent_call *call, const ProtobufCMessage *message);

/* What is told of a file. Strings are the struct's own. */
struct agent_about {
    char name[AGENT_NAME_MAX + 1];
    char target[AGENT_PATH_MAX];
    struct stat stat;
};

/* 0 or an errno value. */
int agent_about_read(int parent, const char *name, struct agent_about *about);
/* Borrows from `about`. */
void agent_about_tell(struct agent_about *about, Sandbox__V1__FileInfo *info);

#endif
