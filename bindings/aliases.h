/*
 * Names by which the public functions are methods. A method `verb` of handle `T` is the function
 * `T_verb`; where the header says it otherwise, because a function's first word is what it makes
 * and not what it is asked of, the other name stands here. Every binding includes this.
 */
#ifndef SANDBOX_BINDINGS_ALIASES_H
#define SANDBOX_BINDINGS_ALIASES_H

/* Of a client. */
#define sandbox_client_create_workspace sandbox_workspace_create
#define sandbox_client_find_workspace sandbox_workspace_find
#define sandbox_client_open_workspace sandbox_workspace_open
#define sandbox_client_list_workspaces sandbox_workspace_list_all

/* Of a workspace: its processes. */
#define sandbox_workspace_start sandbox_process_start
#define sandbox_workspace_run sandbox_process_run
#define sandbox_workspace_find_process sandbox_process_find
#define sandbox_workspace_list_processes sandbox_process_list_all

/* Its files. */
#define sandbox_workspace_read_file sandbox_file_read
#define sandbox_workspace_write_file sandbox_file_write
#define sandbox_workspace_open_reader sandbox_file_reader_open
#define sandbox_workspace_open_writer sandbox_file_writer_open
#define sandbox_workspace_stat_file sandbox_file_stat
#define sandbox_workspace_list_directory sandbox_file_list_directory
#define sandbox_workspace_remove_file sandbox_file_remove
#define sandbox_workspace_rename_file sandbox_file_rename
#define sandbox_workspace_make_directory sandbox_file_make_directory
#define sandbox_workspace_set_file_mode sandbox_file_set_mode
#define sandbox_workspace_link_file sandbox_file_link
#define sandbox_workspace_watch_files sandbox_file_watch_open
#define sandbox_workspace_upload sandbox_file_upload
#define sandbox_workspace_download sandbox_file_download

/* Its ports. */
#define sandbox_workspace_list_ports sandbox_port_list_all
#define sandbox_workspace_dial sandbox_port_dial
#define sandbox_workspace_forward sandbox_port_forward

/* Its way out. */
#define sandbox_workspace_set_egress sandbox_egress_set
#define sandbox_workspace_inspect_egress sandbox_egress_inspect
#define sandbox_workspace_read_egress_log sandbox_egress_read_log

/* Its snapshots. */
#define sandbox_workspace_list_snapshots sandbox_snapshot_list_all
#define sandbox_workspace_verify_snapshot sandbox_snapshot_verify
#define sandbox_workspace_delete_snapshot sandbox_snapshot_delete

#endif
