"""What the description cannot say: which C idiom is meant, and where JavaScript has its own name."""

# Handles that JavaScript has something better for: AbortSignal.
NO_CLASSES = {"sandbox_cancel"}

# Functions that JavaScript does without.
LEFT_OUT = {
    "sandbox_cancel_create", "sandbox_cancel_trigger",
    "sandbox_process_descriptor", "sandbox_connection_descriptor",  # it has an event loop
    "sandbox_status_name", "sandbox_state_name", "sandbox_verdict_name",
    "sandbox_egress_mode_name",  # enums are words
}

# Fields that are the same as one of another name, or that the engine sets.
NO_FIELDS = {"size", "user_data", "check_count", "output_size", "errors_size", "data_size",
             "input_size"}

# Structs inside others whose fields stand in the outer one.
FLAT = {"sandbox_process_exit"}

FIELDS = {
    ("sandbox_process_exit", "code"): "exitCode",
    ("sandbox_process_result", "output"): "stdout",
    ("sandbox_process_result", "errors"): "stderr",
    ("sandbox_process_result", "output_total"): "stdoutTotal",
    ("sandbox_process_result", "errors_total"): "stderrTotal",
    ("sandbox_process_result", "output_truncated"): "stdoutTruncated",
    ("sandbox_process_result", "errors_truncated"): "stderrTruncated",
}

# int fields and parameters that are signals.
SIGNALS = {("sandbox_process_exit", "signal")}

# Lists of "NAME=value".
PAIRS = {"env", "labels"}

# Texts that are JSON: JavaScript may give what it is of.
JSON = {"transformations", "addTransformations"}

# Lists of which there is always one: that one is the answer.
ONE = {"sandbox_workspace_inspect", "sandbox_file_stat", "sandbox_egress_inspect"}

# Texts that may be left out.
OPTIONAL = {("sandbox_snapshot_verify", "snapshot")}

# Options that are parameters of their own in JavaScript: (function, fields, must they be given).
LIFTED = {
    "sandbox_client_open": ("uri", False),
    "sandbox_doctor_with": ("uri", False),
    "sandbox_workspace_open": ("name", True),
    "sandbox_port_forward": ("port", True),
}
# Functions that take a command line or a list of words.
COMMANDS = {"sandbox_process_start", "sandbox_process_run"}

# Options that the glue takes before the engine sees them.
IGNORED = {
    "sandbox_process_run": ["encoding"],
    "sandbox_file_read": ["encoding"],
    "sandbox_workspace_create": ["temporary"],
}

# Methods that index.js shows in another form, so the types of their own are written by hand.
BY_HAND = {
    "sandbox_client_open", "sandbox_process_run", "sandbox_process_next", "sandbox_process_signal",
    "sandbox_file_read", "sandbox_file_reader_next", "sandbox_file_watch_next",
    "sandbox_watch_next", "sandbox_connection_read", "sandbox_process_start",
    "sandbox_workspace_create", "sandbox_process_wait",
}
