/* What is spoken with those who register workspaces. PROXY_VERSION comes from the build. */
#ifndef EGRESS_VERSION_H
#define EGRESS_VERSION_H

#define PROXY_PROTOCOL 1

#endif
