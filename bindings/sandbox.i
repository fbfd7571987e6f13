/*
 * One description of the public interface for every binding.
 *
 * A prototype without a body in `%extend T` calls the C function `T_verb`; aliases.h says which
 * that is where the header has another name for it. How C's idioms look in a language (a status
 * and an error, options, bytes, lists, handles that are given back) is in that language's typemaps.
 * Structs, enums and constants are read from the public headers below, so a field that is added
 * there is in the bindings too. `swig -xml` gives the same to generators.
 */
%module(package="libsandbox") sandbox

%{
#include <sandbox/sandbox.h>
#include "aliases.h"
%}

%include <stdint.i>

#if defined(SWIGPYTHON)
%include "python/typemaps.swg"
#endif

/* Handles: opaque, made by a function, freed by the language's own means. */
%nodefaultctor;
%rename(Cancel) sandbox_cancel;
%rename(Client) sandbox_client;
%rename(Workspace) sandbox_workspace;
%rename(Process) sandbox_process;
%rename(FileReader) sandbox_file_reader;
%rename(FileWriter) sandbox_file_writer;
%rename(FileWatch) sandbox_file_watch;
%rename(Connection) sandbox_connection;
%rename(Forward) sandbox_forward;
%rename(Watch) sandbox_watch;

struct sandbox_cancel {};
struct sandbox_client {};
struct sandbox_workspace {};
struct sandbox_process {};
struct sandbox_file_reader {};
struct sandbox_file_writer {};
struct sandbox_file_watch {};
struct sandbox_connection {};
struct sandbox_forward {};
struct sandbox_watch {};

%extend sandbox_cancel {
    ~sandbox_cancel() { sandbox_cancel_free($self); }
    void trigger();
}

%extend sandbox_client {
    ~sandbox_client() { sandbox_client_free($self); }
    const char *uri();
    const char *driver();
    bool can(sandbox_ability ability);
    sandbox_status create_workspace(const sandbox_workspace_options *options,
                                    const sandbox_call *call, sandbox_workspace **out,
                                    sandbox_error *error);
    sandbox_status find_workspace(const char *name, const sandbox_call *call,
                                  sandbox_workspace **out, sandbox_error *error);
    sandbox_status open_workspace(const sandbox_workspace_options *options,
                                  const sandbox_call *call, sandbox_workspace **out,
                                  sandbox_error *error);
    sandbox_status list_workspaces(const sandbox_list_options *options, const sandbox_call *call,
                                   sandbox_workspace_list **out, sandbox_error *error);
    sandbox_status sweep(const sandbox_call *call, size_t *count, sandbox_error *error);
    sandbox_status recover(const sandbox_call *call, size_t *count, sandbox_error *error);
    sandbox_status suspend_idle(const sandbox_idle_options *options, const sandbox_call *call,
                                sandbox_idle_result *result, sandbox_error *error);
    sandbox_status watch(sandbox_watch **out, sandbox_error *error);
}

%extend sandbox_workspace {
    ~sandbox_workspace() { sandbox_workspace_free($self); }
    const char *name();
    const char *id();
    sandbox_status inspect(const sandbox_call *call, sandbox_workspace_list **out,
                           sandbox_error *error);
    sandbox_status measure(const sandbox_call *call, sandbox_workspace_stats *out,
                           sandbox_error *error);
    sandbox_status activity(const sandbox_call *call, sandbox_activity *out,
                            sandbox_error *error);
    sandbox_status renew(uint64_t expires_after_ms, const sandbox_call *call,
                         sandbox_error *error);
    sandbox_status delete(const sandbox_call *call, sandbox_error *error);

    sandbox_status suspend(const sandbox_suspend_options *options, const sandbox_call *call,
                           sandbox_suspend_result *result, sandbox_error *error);
    sandbox_status resume(const sandbox_resume_options *options, const sandbox_call *call,
                          sandbox_resume_result *result, sandbox_error *error);
    sandbox_status checkpoint(const sandbox_suspend_options *options, const sandbox_call *call,
                              sandbox_suspend_result *result, sandbox_error *error);
    sandbox_status list_snapshots(const sandbox_call *call, sandbox_snapshot_list **out,
                                  sandbox_error *error);
    sandbox_status verify_snapshot(const char *snapshot, const sandbox_call *call,
                                   sandbox_verification *out, sandbox_error *error);
    sandbox_status delete_snapshot(const char *snapshot, const sandbox_call *call,
                                   sandbox_error *error);

    sandbox_status start(const sandbox_process_options *options, const sandbox_call *call,
                         sandbox_process **out, sandbox_error *error);
    sandbox_status run(const sandbox_process_options *options,
                       const sandbox_run_options *run_options, const sandbox_call *call,
                       sandbox_process_result **out, sandbox_error *error);
    sandbox_status find_process(const char *id, const sandbox_call *call, sandbox_process **out,
                                sandbox_error *error);
    sandbox_status list_processes(const sandbox_call *call, sandbox_process_list **out,
                                  sandbox_error *error);

    sandbox_status read_file(const char *path, const sandbox_read_options *options,
                             const sandbox_call *call, uint8_t **data, size_t *data_size,
                             sandbox_error *error);
    sandbox_status write_file(const char *path, const void *data, size_t data_size,
                              const sandbox_write_options *options, const sandbox_call *call,
                              sandbox_error *error);
    sandbox_status open_reader(const char *path, const sandbox_read_options *options,
                               const sandbox_call *call, sandbox_file_reader **out,
                               sandbox_error *error);
    sandbox_status open_writer(const char *path, const sandbox_write_options *options,
                               const sandbox_call *call, sandbox_file_writer **out,
                               sandbox_error *error);
    sandbox_status stat_file(const char *path, const sandbox_call *call, sandbox_file_list **out,
                             sandbox_error *error);
    sandbox_status list_directory(const char *path, const sandbox_call *call,
                                  sandbox_file_list **out, sandbox_error *error);
    sandbox_status remove_file(const char *path, const sandbox_change_options *options,
                               const sandbox_call *call, sandbox_error *error);
    sandbox_status rename_file(const char *from, const char *to,
                               const sandbox_change_options *options, const sandbox_call *call,
                               sandbox_error *error);
    sandbox_status make_directory(const char *path, const sandbox_change_options *options,
                                  const sandbox_call *call, sandbox_error *error);
    sandbox_status set_file_mode(const char *path, uint32_t mode, const sandbox_call *call,
                                 sandbox_error *error);
    sandbox_status link_file(const char *target, const char *path,
                             const sandbox_change_options *options, const sandbox_call *call,
                             sandbox_error *error);
    sandbox_status watch_files(const char *path, const sandbox_watch_options *options,
                               const sandbox_call *call, sandbox_file_watch **out,
                               sandbox_error *error);
    sandbox_status upload(const char *host_path, const char *guest_path,
                          const sandbox_copy_options *options, const sandbox_call *call,
                          sandbox_copy_result *result, sandbox_error *error);
    sandbox_status download(const char *guest_path, const char *host_path,
                            const sandbox_copy_options *options, const sandbox_call *call,
                            sandbox_copy_result *result, sandbox_error *error);

    sandbox_status set_egress(const sandbox_egress_options *options, const sandbox_call *call,
                              sandbox_error *error);
    sandbox_status inspect_egress(const sandbox_call *call, sandbox_egress_list **out,
                                  sandbox_error *error);
    sandbox_status read_egress_log(const sandbox_call *call, sandbox_egress_log **out,
                                   sandbox_error *error);

    sandbox_status list_ports(const sandbox_call *call, sandbox_port_list **out,
                              sandbox_error *error);
    sandbox_status dial(uint16_t port, const sandbox_call *call, sandbox_connection **out,
                        sandbox_error *error);
    sandbox_status forward(const sandbox_forward_options *options, const sandbox_call *call,
                           sandbox_forward **out, sandbox_error *error);
}

%extend sandbox_process {
    ~sandbox_process() { sandbox_process_free($self); }
    const char *id();
    int64_t pid();
    int descriptor();
    sandbox_status next(const sandbox_call *call, sandbox_process_event *event,
                        sandbox_error *error);
    sandbox_status wait(const sandbox_call *call, sandbox_process_exit *exit,
                        sandbox_error *error);
    sandbox_status write(const void *data, size_t data_size, const sandbox_call *call,
                         sandbox_error *error);
    sandbox_status end_input(const sandbox_call *call, sandbox_error *error);
    sandbox_status signal(int signal_number, const sandbox_call *call, sandbox_error *error);
    sandbox_status resize(uint16_t columns, uint16_t rows, const sandbox_call *call,
                          sandbox_error *error);
}

%extend sandbox_file_reader {
    ~sandbox_file_reader() { sandbox_file_reader_free($self); }
    sandbox_status next(const sandbox_call *call, const uint8_t **data, size_t *data_size,
                        sandbox_error *error);
}

%extend sandbox_file_writer {
    ~sandbox_file_writer() { sandbox_file_writer_free($self); }
    sandbox_status write(const void *data, size_t data_size, const sandbox_call *call,
                         sandbox_error *error);
    sandbox_status commit(const sandbox_call *call, sandbox_error *error);
}

%extend sandbox_file_watch {
    ~sandbox_file_watch() { sandbox_file_watch_free($self); }
    sandbox_status next(const sandbox_call *call, sandbox_file_event *event,
                        sandbox_error *error);
}

%extend sandbox_connection {
    ~sandbox_connection() { sandbox_connection_free($self); }
    int descriptor();
    sandbox_status read(const sandbox_call *call, const uint8_t **data, size_t *data_size,
                        sandbox_error *error);
    sandbox_status write(const void *data, size_t data_size, const sandbox_call *call,
                         sandbox_error *error);
    sandbox_status end_output(const sandbox_call *call, sandbox_error *error);
}

%extend sandbox_forward {
    ~sandbox_forward() { sandbox_forward_free($self); }
    uint16_t host_port();
}

%extend sandbox_watch {
    ~sandbox_watch() { sandbox_watch_free($self); }
    sandbox_status next(const sandbox_call *call, sandbox_event *out, sandbox_error *error);
}

/* What belongs to no handle. */
%rename(create_cancel) sandbox_cancel_create;
%rename(open_client) sandbox_client_open;
%rename(doctor) sandbox_doctor_with;
%rename(render_manifests) sandbox_manifests_render;
%rename(apply_manifests) sandbox_manifests_apply;
%rename(version) sandbox_version;
%rename(status_name) sandbox_status_name;
%rename(state_name) sandbox_state_name;
%rename(verdict_name) sandbox_verdict_name;
%rename(egress_mode_name) sandbox_egress_mode_name;

sandbox_status sandbox_cancel_create(sandbox_cancel **out, sandbox_error *error);
sandbox_status sandbox_client_open(const sandbox_client_options *options,
                                   const sandbox_call *call, sandbox_client **out,
                                   sandbox_error *error);
sandbox_status sandbox_doctor_with(const sandbox_doctor_options *options,
                                   const sandbox_call *call, sandbox_findings **out,
                                   sandbox_error *error);
sandbox_status sandbox_manifests_render(const char *uri, const sandbox_manifests_options *options,
                                        sandbox_manifests **out, sandbox_error *error);
sandbox_status sandbox_manifests_apply(const char *uri, const sandbox_manifests_options *options,
                                       const sandbox_call *call, sandbox_manifests **out,
                                       sandbox_error *error);
const char *sandbox_version(void);
const char *sandbox_status_name(sandbox_status status);
const char *sandbox_state_name(sandbox_state state);
const char *sandbox_verdict_name(sandbox_verdict verdict);
const char *sandbox_egress_mode_name(sandbox_egress_mode mode);

/*
 * Structs, enums and constants. The functions stand above, and the structs are turned into what
 * the language has for them: nothing but the constants becomes part of the module by itself.
 */
%rename("$ignore", %$isfunction, %$not %$ismember) "";
%rename("$ignore", %$isclass) "";
%include <sandbox/export.h>
%include <sandbox/error.h>
%include <sandbox/call.h>
%include <sandbox/client.h>
%include <sandbox/workspace.h>
%include <sandbox/egress.h>
%include <sandbox/activity.h>
%include <sandbox/snapshot.h>
%include <sandbox/process.h>
%include <sandbox/files.h>
%include <sandbox/ports.h>
%include <sandbox/watch.h>
%include <sandbox/log.h>
%include <sandbox/manifests.h>
%include <sandbox/version.h>
