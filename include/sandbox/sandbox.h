/**
 * libsandbox: workspaces for AI agents. This header brings all the others.
 */
#ifndef SANDBOX_SANDBOX_H
#define SANDBOX_SANDBOX_H

#include <sandbox/activity.h>
#include <sandbox/call.h>
#include <sandbox/client.h>
#include <sandbox/egress.h>
#include <sandbox/error.h>
#include <sandbox/export.h>
#include <sandbox/files.h>
#include <sandbox/log.h>
#include <sandbox/manifests.h>
#include <sandbox/ports.h>
#include <sandbox/process.h>
#include <sandbox/snapshot.h>
#include <sandbox/version.h>
#include <sandbox/watch.h>
#include <sandbox/workspace.h>

#endif
