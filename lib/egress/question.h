/* What an egress proxy is asked about one workspace: see doc/egress.md. */
#ifndef SBX_EGRESS_QUESTION_H
#define SBX_EGRESS_QUESTION_H

enum sbx_egress_question {
    SBX_EGRESS_KNOWN,  /* nothing: whether it may be registered, as far as that costs nothing */
    SBX_EGRESS_LOOK,   /* GET: the workspace */
    SBX_EGRESS_LOG,    /* GET: its refusals */
    SBX_EGRESS_CHANGE, /* PATCH, with a body */
    SBX_EGRESS_CHECK,  /* POST, with a body: whether texts hold a secret */
};

#endif
