/* The device's end of a link: frames with requests in, frames with answers out, over any stream of bytes. */
#ifndef PROWD_LINK_H
#define PROWD_LINK_H

#include "client.h"

enum { PROWD_FRAME = 12 + 8 + NET_CHUNK + 4 }; /* header, two numbers, data, checksum */

typedef struct {
    prowd_client client;
    prowd_card card;
    uint32_t examples;        /* the checksum of the card's */
    uint32_t total, received; /* bytes of the task */
    uint32_t update_crc;      /* of the whole update */
    uint16_t sequence;        /* of the request that is answered */
    uint8_t has_update;
    uint8_t frame[PROWD_FRAME];
} prowd_link;

/* What a platform has. Reading waits for a byte and returns 0 when there will be none. */
int prowd_read(uint8_t *byte);
void prowd_write(const uint8_t *bytes, uint32_t count);

/* The most bytes of stack and of all memory that were ever in use; 0: not measured. */
void prowd_measure(uint32_t *stack, uint32_t *memory);
extern const char prowd_name[];

/* Answer requests until there are none. */
void prowd_serve(prowd_link *link, const prowd_card *card);

#endif
