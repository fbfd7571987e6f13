/**
 * Files of a workspace: read, write, list, copy trees both ways.
 *
 * Paths are bytes, absolute or relative to /workspace; no shell is involved and no encoding is
 * assumed. They are only read during the call. A relative path never leads out of /workspace
 * through a link, unless `follow_out` says so; absolute paths are free inside the workspace,
 * as the workspace's user. Files are read and written as the workspace's user.
 *
 * Any thread, any time.
 */
#ifndef SANDBOX_FILES_H
#define SANDBOX_FILES_H

#include <sandbox/workspace.h>

SANDBOX_BEGIN_DECLARATIONS

typedef enum sandbox_file_kind {
    SANDBOX_FILE_OTHER = 0, /**< Device, socket, fifo. */
    SANDBOX_FILE_REGULAR = 1,
    SANDBOX_FILE_DIRECTORY = 2,
    SANDBOX_FILE_LINK = 3, /**< A symbolic link. */
} sandbox_file_kind;

/** What is known of a file. Strings are borrowed from whatever gave the struct. */
typedef struct sandbox_file_info {
    size_t size;
    const char *name;   /**< Within its directory, bytes. */
    const char *target; /**< Of a symbolic link, or "". */
    sandbox_file_kind kind;
    uint32_t mode; /**< The 12 permission bits. */
    uint32_t uid, gid;
    uint64_t file_size;
    int64_t modified_ms; /**< Unix time. */
    uint64_t links;
} sandbox_file_info;

typedef struct sandbox_file_list sandbox_file_list;
SANDBOX_API size_t sandbox_file_list_count(const sandbox_file_list *list);
SANDBOX_API const sandbox_file_info *sandbox_file_list_at(const sandbox_file_list *list,
                                                          size_t index);
SANDBOX_API void sandbox_file_list_free(sandbox_file_list *list);

/** How to read. */
typedef struct sandbox_read_options {
    size_t size;
    uint64_t offset;
    uint64_t length; /**< 0: to the end. */
    /** sandbox_file_read() only: more than this is SANDBOX_LIMIT. Default: 256 MiB. */
    size_t limit;
    bool follow_out; /**< Follow links that lead out of /workspace. */
} sandbox_read_options;

#define SANDBOX_READ_OPTIONS .size = sizeof(sandbox_read_options)

/** A file being read, piece by piece. */
typedef struct sandbox_file_reader sandbox_file_reader;

/** @param out  free it with sandbox_file_reader_free() */
SANDBOX_CHECKED sandbox_status sandbox_file_reader_open(sandbox_workspace *workspace,
                                                        const char *path,
                                                        const sandbox_read_options *options,
                                                        const sandbox_call *call,
                                                        sandbox_file_reader **out,
                                                        sandbox_error *error);
/**
 * The next piece; a size of 0 is the end.
 *
 * @param data  borrowed until the next call on this reader
 */
SANDBOX_CHECKED sandbox_status sandbox_file_reader_next(sandbox_file_reader *reader,
                                                        const sandbox_call *call,
                                                        const uint8_t **data, size_t *data_size,
                                                        sandbox_error *error);
SANDBOX_API void sandbox_file_reader_free(sandbox_file_reader *reader);

/**
 * Read a whole file, or part of it, into memory.
 *
 * @param data  the caller's; free it with sandbox_bytes_free(). A zero byte that does not count
 *              follows the content.
 */
SANDBOX_CHECKED sandbox_status sandbox_file_read(sandbox_workspace *workspace, const char *path,
                                                 const sandbox_read_options *options,
                                                 const sandbox_call *call, uint8_t **data,
                                                 size_t *data_size, sandbox_error *error);
SANDBOX_API void sandbox_bytes_free(uint8_t *data);

/** How to write. */
typedef struct sandbox_write_options {
    size_t size;
    uint32_t mode;    /**< Permission bits. Default: the old file's, else 0644. */
    bool append;      /**< Add to the end instead of replacing. */
    bool exclusive;   /**< SANDBOX_EXISTS if there is a file. */
    bool no_parents;  /**< Do not make missing directories. */
    bool follow_out;  /**< Follow links that lead out of /workspace. */
} sandbox_write_options;

#define SANDBOX_WRITE_OPTIONS .size = sizeof(sandbox_write_options)

/** A file being written. Nobody sees its content before sandbox_file_writer_commit(). */
typedef struct sandbox_file_writer sandbox_file_writer;

/** @param out  free it with sandbox_file_writer_free(); without a commit nothing has changed */
SANDBOX_CHECKED sandbox_status sandbox_file_writer_open(sandbox_workspace *workspace,
                                                        const char *path,
                                                        const sandbox_write_options *options,
                                                        const sandbox_call *call,
                                                        sandbox_file_writer **out,
                                                        sandbox_error *error);
SANDBOX_CHECKED sandbox_status sandbox_file_writer_write(sandbox_file_writer *writer,
                                                         const void *data, size_t data_size,
                                                         const sandbox_call *call,
                                                         sandbox_error *error);
/** Make the content durable and put it in place, in one step. */
SANDBOX_CHECKED sandbox_status sandbox_file_writer_commit(sandbox_file_writer *writer,
                                                          const sandbox_call *call,
                                                          sandbox_error *error);
SANDBOX_API void sandbox_file_writer_free(sandbox_file_writer *writer);

/** Write a whole file in one step: the old content or the new one, never a mixture. */
SANDBOX_CHECKED sandbox_status sandbox_file_write(sandbox_workspace *workspace, const char *path,
                                                  const void *data, size_t data_size,
                                                  const sandbox_write_options *options,
                                                  const sandbox_call *call,
                                                  sandbox_error *error);

/** About one file; a link is not followed. @param out  a list of one */
SANDBOX_CHECKED sandbox_status sandbox_file_stat(sandbox_workspace *workspace, const char *path,
                                                 const sandbox_call *call,
                                                 sandbox_file_list **out, sandbox_error *error);
/** What is in a directory, by name; at most 100,000 entries, else SANDBOX_LIMIT. */
SANDBOX_CHECKED sandbox_status sandbox_file_list_directory(sandbox_workspace *workspace,
                                                           const char *path,
                                                           const sandbox_call *call,
                                                           sandbox_file_list **out,
                                                           sandbox_error *error);

/** Which variant of a change is meant. */
typedef struct sandbox_change_options {
    size_t size;
    bool recursive;  /**< Remove: directories with their content. Make: parents too. */
    bool replace;    /**< Rename and link: a file that is there. */
    bool hard_link;  /**< Link: a second name instead of a symbolic link. */
    uint32_t mode;   /**< Make directory. Default: 0755. */
} sandbox_change_options;

#define SANDBOX_CHANGE_OPTIONS .size = sizeof(sandbox_change_options)

SANDBOX_CHECKED sandbox_status sandbox_file_remove(sandbox_workspace *workspace,
                                                   const char *path,
                                                   const sandbox_change_options *options,
                                                   const sandbox_call *call,
                                                   sandbox_error *error);
SANDBOX_CHECKED sandbox_status sandbox_file_rename(sandbox_workspace *workspace,
                                                   const char *from, const char *to,
                                                   const sandbox_change_options *options,
                                                   const sandbox_call *call,
                                                   sandbox_error *error);
SANDBOX_CHECKED sandbox_status sandbox_file_make_directory(
    sandbox_workspace *workspace, const char *path, const sandbox_change_options *options,
    const sandbox_call *call, sandbox_error *error);
/** @param mode  the 12 permission bits */
SANDBOX_CHECKED sandbox_status sandbox_file_set_mode(sandbox_workspace *workspace,
                                                     const char *path, uint32_t mode,
                                                     const sandbox_call *call,
                                                     sandbox_error *error);
/** Make a link at `path` that leads to `target` (kept as given for a symbolic one). */
SANDBOX_CHECKED sandbox_status sandbox_file_link(sandbox_workspace *workspace,
                                                 const char *target, const char *path,
                                                 const sandbox_change_options *options,
                                                 const sandbox_call *call, sandbox_error *error);

/** What happened to a watched file. */
typedef enum sandbox_file_change {
    SANDBOX_FILE_CREATED = 1,
    SANDBOX_FILE_MODIFIED = 2,
    SANDBOX_FILE_REMOVED = 3,
    SANDBOX_FILE_MOVED = 4,    /**< From `path` to `new_path`. */
    SANDBOX_FILE_OVERFLOW = 5, /**< Too much happened: look again at everything. */
} sandbox_file_change;

typedef struct sandbox_file_event {
    size_t size;
    sandbox_file_change change;
    const char *path;     /**< Relative to the watched one. Borrowed until the next call. */
    const char *new_path; /**< MOVED only, else "". */
} sandbox_file_event;

#define SANDBOX_FILE_EVENT .size = sizeof(sandbox_file_event)

/** A watch on a file or directory. */
typedef struct sandbox_file_watch sandbox_file_watch;

/** How to watch. */
typedef struct sandbox_watch_options {
    size_t size;
    bool recursive; /**< Directories below too, also those made later; at most 8,192. */
} sandbox_watch_options;

#define SANDBOX_WATCH_OPTIONS .size = sizeof(sandbox_watch_options)

/** Begin to watch: whatever happens after this returned is told. */
SANDBOX_CHECKED sandbox_status sandbox_file_watch_open(sandbox_workspace *workspace,
                                                       const char *path,
                                                       const sandbox_watch_options *options,
                                                       const sandbox_call *call,
                                                       sandbox_file_watch **out,
                                                       sandbox_error *error);
/** Wait for the next event. @param call  default: no deadline */
SANDBOX_CHECKED sandbox_status sandbox_file_watch_next(sandbox_file_watch *watch,
                                                       const sandbox_call *call,
                                                       sandbox_file_event *event,
                                                       sandbox_error *error);
SANDBOX_API void sandbox_file_watch_free(sandbox_file_watch *watch);

/** What to do with symbolic links while copying a tree. */
typedef enum sandbox_copy_links {
    SANDBOX_COPY_LINKS_INSIDE = 0, /**< Keep those that stay inside the tree, skip the others. */
    SANDBOX_COPY_LINKS_KEEP = 1,   /**< Keep all as links. */
    SANDBOX_COPY_LINKS_SKIP = 2,
} sandbox_copy_links;

/** How far a copy has come. */
typedef struct sandbox_copy_progress {
    size_t size;
    uint64_t bytes;       /**< Content moved so far. */
    uint64_t bytes_total; /**< 0 while not known. */
    uint64_t entries;
    const char *path;     /**< The entry being copied. Borrowed for the call. */
} sandbox_copy_progress;

/** How to copy a tree. A field left zero asks for the default. */
typedef struct sandbox_copy_options {
    size_t size;
    uint64_t max_bytes;   /**< Content in all. Default: 64 GiB. */
    uint64_t max_entries; /**< Default: 500,000. */
    uint32_t max_depth;   /**< Default: 64. */
    sandbox_copy_links links;
    /** Called on the calling thread, at most every 100 ms and at the end. May be NULL. */
    void (*progress)(const sandbox_copy_progress *progress, void *user_data);
    void *user_data;
} sandbox_copy_options;

#define SANDBOX_COPY_OPTIONS .size = sizeof(sandbox_copy_options)

/** What a copy did. */
typedef struct sandbox_copy_result {
    size_t size; /**< Set by the initializer; the call fills what fits. */
    uint64_t bytes;
    uint64_t entries;
    uint64_t skipped; /**< Devices, sockets, and links that lead out. */
} sandbox_copy_result;

#define SANDBOX_COPY_RESULT .size = sizeof(sandbox_copy_result)

/**
 * Copy a file or a whole tree from this machine into the workspace. `guest_path` becomes the
 * copy (not a folder to put it in). Set-user and set-group bits and owners are not copied.
 * Links on this machine are never followed.
 *
 * @param call    default: no deadline
 * @param result  the caller's, with `size` set; NULL allowed
 */
SANDBOX_CHECKED sandbox_status sandbox_file_upload(sandbox_workspace *workspace,
                                                   const char *host_path, const char *guest_path,
                                                   const sandbox_copy_options *options,
                                                   const sandbox_call *call,
                                                   sandbox_copy_result *result,
                                                   sandbox_error *error);

/**
 * Copy a file or a whole tree out of the workspace. Whatever the guest sends, nothing outside
 * `host_path` is written, no link on this machine is followed, no device and no set-user bit
 * is made, holes stay holes, and the limits end the copy with SANDBOX_LIMIT. What was copied
 * before a failure is removed again.
 */
SANDBOX_CHECKED sandbox_status sandbox_file_download(sandbox_workspace *workspace,
                                                     const char *guest_path,
                                                     const char *host_path,
                                                     const sandbox_copy_options *options,
                                                     const sandbox_call *call,
                                                     sandbox_copy_result *result,
                                                     sandbox_error *error);

SANDBOX_END_DECLARATIONS

#endif
