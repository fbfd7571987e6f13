/* A message of the caller, of which the many bytes stay where they are. */

#include "connection.h"
#include "util/wire.h"
#include <stdlib.h>

#define LEND_MIN (32u << 10) /* fewer are copied as fast */

ProtobufCMessage *agent_call_unpack(const struct agent_method *method, unsigned lends,
                                    const uint8_t *data, size_t size, ProtobufCBinaryData **lent)
{
    struct sbx_wire_bytes found = {NULL, 0};
    size_t kept = lends == 0 ? size : sbx_wire_last_field(data, size, lends, LEND_MIN, &found);
    ProtobufCMessage *message = protobuf_c_message_unpack(method->request, NULL, kept, data);
    if (message == NULL || found.data == NULL)
        return message;
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(method->request, lends);
    *lent = (ProtobufCBinaryData *)(void *)((char *)message + field->offset);
    free((*lent)->data); /* one that came before it in the same message */
    **lent = (ProtobufCBinaryData){found.size, (uint8_t *)(uintptr_t)found.data};
    return message;
}
