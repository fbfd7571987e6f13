/**
 * What every other header needs: visibility, C++ guards, and the handle types.
 */
#ifndef SANDBOX_EXPORT_H
#define SANDBOX_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(SWIG)
#define SANDBOX_API
#define SANDBOX_CHECKED
#define SANDBOX_PRINTF(format, first)
#else
/** Part of the library's interface. */
#define SANDBOX_API __attribute__((visibility("default")))
/** Part of the interface, and its status must be looked at. */
#define SANDBOX_CHECKED __attribute__((visibility("default"), warn_unused_result))
#endif

#ifdef __cplusplus
#define SANDBOX_BEGIN_DECLARATIONS extern "C" {
#define SANDBOX_END_DECLARATIONS }
#else
#define SANDBOX_BEGIN_DECLARATIONS
#define SANDBOX_END_DECLARATIONS
#endif

SANDBOX_BEGIN_DECLARATIONS

/** A connection to one platform; see client.h. */
typedef struct sandbox_client sandbox_client;
/** An isolated place where untrusted code runs; see workspace.h. */
typedef struct sandbox_workspace sandbox_workspace;
/** A command inside a workspace; see process.h. */
typedef struct sandbox_process sandbox_process;

SANDBOX_END_DECLARATIONS

#endif
