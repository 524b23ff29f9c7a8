/* Frames: "PRWL" | version u8 | type u8 | sequence u16 | length u32 | payload | CRC-32 of all before it. */
#include "link.h"

#include <string.h>

enum { HELLO = 1, PUT, RUN, GET, ANSWER = 0x80, TAKEN = 0x82, DONE, WORKING, DATA, REFUSED = 0x8f };
enum { VERSION = 1, HEADER = 12, HELLO_SIZE = 40 };
enum { UNKNOWN = 1, TOO_LARGE, NO_TASK, WRONG_CRC, UNACCEPTED };

/* --- frames --------------------------------------------------------------------------------------------------------- */

static int read_some(uint8_t *to, uint32_t count) {
    while (count--)
        if (!prowd_read(to++)) return 0;
    return 1;
}

/* The next frame that is whole, with the length of its payload; 0 at the end. */
static int read_frame(prowd_link *l, uint32_t *size) {
    static const uint8_t magic[4] = {'P', 'R', 'W', 'L'};
    for (;;) {
        for (uint32_t found = 0; found < sizeof magic;) {
            if (!prowd_read(l->frame + found)) return 0;
            found = l->frame[found] == magic[found] ? found + 1 : l->frame[found] == magic[0];
            if (found == 1) l->frame[0] = magic[0];
        }
        if (!read_some(l->frame + 4, HEADER - 4)) return 0;
        *size = prowd_u32(l->frame + 8);
        if (*size > 8 + NET_CHUNK) continue;
        if (!read_some(l->frame + HEADER, *size + 4)) return 0;
        if (prowd_crc(0, l->frame, HEADER + *size) == prowd_u32(l->frame + HEADER + *size)) return 1;
    }
}

/* Send what lies in the frame after its header. */
static void answer(prowd_link *l, int type, uint32_t size) {
    memcpy(l->frame, "PRWL", 4), l->frame[4] = VERSION, l->frame[5] = (uint8_t)type;
    l->frame[6] = (uint8_t)l->sequence, l->frame[7] = (uint8_t)(l->sequence >> 8);
    prowd_put32(l->frame + 8, size);
    prowd_put32(l->frame + HEADER + size, prowd_crc(0, l->frame, HEADER + size));
    prowd_write(l->frame, HEADER + size + 4);
}

static void answer_words(prowd_link *l, int type, uint32_t count, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t words[4] = {a, b, c, d};
    for (uint32_t i = 0; i < count; i++) prowd_put32(l->frame + HEADER + 4 * i, words[i]);
    answer(l, type, 4 * count);
}

static void refuse(prowd_link *l, int code, const char *text) {
    const uint32_t size = (uint32_t)strlen(text);
    l->frame[HEADER] = (uint8_t)code, l->frame[HEADER + 1] = 0;
    memcpy(l->frame + HEADER + 2, text, size);
    answer(l, REFUSED, 2 + size);
}

/* --- requests ------------------------------------------------------------------------------------------------------- */

static void hello(prowd_link *l) {
    uint8_t *to = l->frame + HEADER;
    const uint32_t name = (uint32_t)strlen(prowd_name);
    memset(to, 0, HELLO_SIZE);
    to[0] = NET_BITS, to[2] = NET_CHUNK & 255, to[3] = NET_CHUNK >> 8;
    prowd_put32(to + 4, l->card.client), prowd_put64(to + 8, NET_HASH), prowd_put64(to + 16, NET_RECIPE);
    prowd_put32(to + 24, l->card.count), prowd_put32(to + 28, l->examples), prowd_put32(to + 32, NET_TASK);
    memcpy(to + HELLO_SIZE, prowd_name, name);
    answer(l, ANSWER | HELLO, HELLO_SIZE + name);
}

static void put(prowd_link *l, int again, uint32_t size) {
    const uint32_t total = prowd_u32(l->frame + HEADER), offset = prowd_u32(l->frame + HEADER + 4), some = size - 8;
    if (total > NET_TASK) {
        refuse(l, TOO_LARGE, "task: more bytes than this network's have");
        return;
    }
    if (!again && !offset) prowd_begin(&l->client, &l->card), l->total = total, l->received = 0, l->has_update = 0;
    if (!again && total == l->total && offset == l->received && some <= total - offset && !l->has_update)
        prowd_take(&l->client, l->frame + HEADER + 8, some), l->received += some;
    answer_words(l, TAKEN, 1, l->received, 0, 0, 0);
}

static void say_step(void *given, uint32_t step) {
    prowd_link *l = given;
    answer_words(l, WORKING, 2, step, l->client.task.steps, 0, 0);
}

static void done(prowd_link *l) {
    uint32_t stack, memory;
    prowd_measure(&stack, &memory);
    answer_words(l, DONE, 4, NET_UPDATE, l->update_crc, memory, stack);
}

/* The checksum of the update, made in parts as it will be asked for. */
static uint32_t update_crc(prowd_link *l) {
    uint32_t crc = 0;
    for (uint32_t at = 0, some; at < NET_UPDATE; at += some) {
        some = NET_UPDATE - at < NET_CHUNK ? NET_UPDATE - at : NET_CHUNK;
        prowd_give(&l->client, at, some, l->frame);
        crc = prowd_crc(crc, l->frame, some);
    }
    return crc;
}

static void run(prowd_link *l) {
    const uint32_t total = prowd_u32(l->frame + HEADER), crc = prowd_u32(l->frame + HEADER + 4);
    const int is_same = total == l->total && crc == l->client.task_crc;
    if (l->has_update && is_same) {
        done(l);
    } else if (l->has_update || !l->received || l->received < l->total || total != l->total) {
        refuse(l, NO_TASK, "no such task");
    } else if (!is_same) {
        l->received = 0;
        refuse(l, WRONG_CRC, "task: its checksum is wrong");
    } else if (prowd_whole(&l->client)) {
        refuse(l, UNACCEPTED, prowd_reason(prowd_whole(&l->client)));
    } else {
        say_step(l, 0);
        prowd_train(&l->client, say_step, l);
        l->has_update = 1, l->update_crc = update_crc(l);
        done(l);
    }
}

static void get(prowd_link *l) {
    const uint32_t offset = prowd_u32(l->frame + HEADER);
    if (!l->has_update || offset > NET_UPDATE) {
        refuse(l, NO_TASK, "no such update");
        return;
    }
    const uint32_t left = NET_UPDATE - offset, some = left < NET_CHUNK ? left : NET_CHUNK;
    prowd_give(&l->client, offset, some, l->frame + HEADER + 4);
    answer(l, DATA, 4 + some);
}

void prowd_serve(prowd_link *l, const prowd_card *card) {
    static const uint32_t least[] = {0, 0, 9, 8, 4}, most[] = {0, 0, 8 + NET_CHUNK, 8, 4};
    uint32_t size;
    l->total = l->received = 0, l->sequence = 0, l->has_update = 0, l->card = *card;
    l->examples = prowd_crc(0, card->images, card->count * (size_t)NET_INPUTS);
    l->examples = prowd_crc(l->examples, card->labels, card->count);
    hello(l);
    while (read_frame(l, &size)) {
        const uint16_t sequence = (uint16_t)(l->frame[6] | l->frame[7] << 8);
        const int again = sequence == l->sequence, type = l->frame[5];
        l->sequence = sequence;
        if (l->frame[4] != VERSION || type < HELLO || type > GET || size < least[type] || size > most[type])
            refuse(l, UNKNOWN, "request: not known here, or not of its length");
        else if (type == HELLO)
            hello(l), l->sequence = 0;
        else if (type == PUT)
            put(l, again, size);
        else if (type == RUN)
            run(l);
        else
            get(l);
    }
}
