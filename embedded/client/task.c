/* A task from its bytes, version 2 of prowd's wire format, as they come: codes are unpacked where they are used.
 *
 * Nothing may differ from what the network makes of it: the rows that announce the tensors are compared with the only
 * ones there can be. What is left for a server to choose is read and bounded.
 */
#include <string.h>

#include "client.h"
#include "numbers.h"

enum { HEADER = 24, TASK = 16, WORK = 26, COUNT = 2, BODY = 4 + NET_ROWS + NET_PAYLOADS, TRITS = 5 };

/* --- names and numbers of the head ---------------------------------------------------------------------------------- */

/* How long the UTF-8 character at the beginning of some bytes is; 0 if there is none. */
static uint32_t character(const uint8_t *at, uint32_t left) {
    const uint32_t first = at[0], size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (size == 1) return 1;
    if (first < 0xc2 || first > 0xf4 || size > left) return 0;
    const uint32_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const uint32_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (at[1] < least || at[1] > most) return 0;
    for (uint32_t i = 2; i < size; i++)
        if (at[i] >> 6 != 2) return 0;
    return size;
}

static int is_text(const uint8_t *at, uint32_t size) {
    for (uint32_t i = 0, step; i < size; i += step)
        if (!(step = character(at + i, size - i))) return 0;
    return size > 0;
}

/* Whether the settings that end a head are a table with finite numbers and without a name twice. */
static int settings_are_right(const uint8_t *at, uint32_t size) {
    const uint32_t count = at[0] | (uint32_t)at[1] << 8;
    uint32_t next = COUNT;
    for (uint32_t i = 0; i < count; i++) {
        if (next >= size || size - next < 9u + at[next] || !is_text(at + next + 1, at[next])) return 0;
        if ((prowd_u64(at + next + 1 + at[next]) >> 52 & 0x7ff) == 0x7ff) return 0;
        for (uint32_t other = COUNT; other < next; other += 9u + at[other])
            if (!memcmp(at + other, at + next, 1u + at[next])) return 0;
        next += 9u + at[next];
    }
    return next == size;
}

static int read_header(prowd_client *c) {
    const uint8_t *at = c->field;
    if (memcmp(at, "PRWD\2\1\0", 8)) return PROWD_NOT_A_TASK;
    c->head = prowd_u32(at + 8);
    if (c->head < TASK + WORK + COUNT || c->head > NET_HEAD - HEADER) return PROWD_LENGTH;
    return prowd_u64(at + 12) == BODY ? PROWD_FINE : PROWD_TENSORS;
}

static int read_head(prowd_client *c) {
    const uint8_t *at = c->field + HEADER;
    const uint32_t crc = prowd_crc(prowd_crc(0, c->field, HEADER - 4), at, c->head);
    if (crc != prowd_u32(at - 4)) return PROWD_DAMAGED;
    if (!settings_are_right(at + TASK + WORK, c->head - TASK - WORK)) return PROWD_SETTINGS;
    prowd_task *t = &c->task;
    t->round = prowd_u32(at), t->seed = prowd_u64(at + 4), t->client = prowd_u32(at + 12);
    t->steps = prowd_u32(at + 16), t->batch = prowd_u32(at + 20);
    const uint64_t mantissa = prowd_u64(at + 24);
    t->mantissa = (uint32_t)mantissa, t->exponent = (int16_t)(at[32] | at[33] << 8);
    if (c->card.client != UINT32_MAX && t->client != c->card.client) return PROWD_CLIENT;
    if (prowd_u64(at + 34) != NET_HASH) return PROWD_NETWORK;
    c->batch = t->batch < c->card.count ? t->batch : c->card.count;
    if (!t->steps || !c->batch || c->batch > NET_BATCH || c->card.count > NET_EXAMPLES) return PROWD_WORK;
    if (mantissa % 2 == 0 || mantissa > 255 || t->exponent < -256 || t->exponent > 256) return PROWD_WORK;
    return PROWD_FINE;
}

/* --- codes of the body ---------------------------------------------------------------------------------------------- */

static uint32_t weights_of(uint32_t tensor) {
    const int32_t end = tensor + 1 < NET_STAGES ? net_stages[tensor + 1].weights : NET_WEIGHTS;
    return (uint32_t)(end - net_stages[tensor].weights);
}

static int store(prowd_client *c, uint32_t number) {
    if (number > 2 * (uint32_t)prowd_max_code(NET_BITS)) return PROWD_CODES;
    const uint32_t place = (uint32_t)net_stages[c->tensor].weights + c->code++;
    c->weights[place] = (prowd_code)((int32_t)number - prowd_max_code(NET_BITS));
    return PROWD_FINE;
}

static int unpack_trits(prowd_client *c, uint32_t byte, uint32_t count) {
    int found = byte > 242 ? PROWD_CODES : PROWD_FINE;
    for (int i = 0; i < TRITS && !found; i++, byte /= 3)
        found = c->code < count ? store(c, byte % 3) : byte % 3 ? PROWD_CODES : PROWD_FINE;
    return found;
}

static int unpack_bits(prowd_client *c, uint32_t byte, uint32_t count) {
    int found = PROWD_FINE;
    c->held |= byte << c->bits, c->bits += 8;
    for (; c->bits >= NET_BITS && c->code < count && !found; c->bits -= NET_BITS) {
        found = store(c, c->held & (((uint32_t)1 << NET_BITS) - 1));
        c->held >>= NET_BITS;
    }
    return found || c->code < count || !c->held ? found : PROWD_CODES;
}

static int unpack(prowd_client *c, uint32_t byte) {
    const uint32_t count = weights_of(c->tensor);
    const int found = NET_BITS == 2 ? unpack_trits(c, byte, count) : unpack_bits(c, byte, count);
    if (c->code == count) c->tensor++, c->code = 0, c->bits = 0, c->held = 0;
    return found;
}

static int read_body(prowd_client *c, uint32_t at, uint32_t byte) {
    if (at < 4) {
        c->said_crc |= byte << (8 * at);
        return PROWD_FINE;
    }
    if (at < 4 + NET_ROWS) return byte == net_rows[at - 4] ? PROWD_FINE : PROWD_TENSORS;
    return unpack(c, byte);
}

/* --- all of it ------------------------------------------------------------------------------------------------------ */

void prowd_begin(prowd_client *c, const prowd_card *card) {
    memset(c, 0, offsetof(prowd_client, weights));
    memset(&c->at, 0, offsetof(prowd_client, field) - offsetof(prowd_client, at));
    c->card = *card;
}

static int take(prowd_client *c, const uint8_t **bytes, size_t *count) {
    const uint32_t start = HEADER + c->head;
    if (c->at < start) {
        const size_t some = *count < start - c->at ? *count : start - c->at;
        memcpy(c->field + c->at, *bytes, some);
        c->at += (uint32_t)some, *bytes += some, *count -= some;
        if (c->at < start) return PROWD_FINE;
        return c->head ? read_head(c) : read_header(c);
    }
    const uint32_t left = start + BODY - c->at;
    const size_t some = *count < left ? *count : left;
    int found = some ? PROWD_FINE : PROWD_LENGTH;
    for (size_t i = 0; i < some && !found; i++, c->at++) {
        const uint32_t at = c->at - start;
        found = read_body(c, at, (*bytes)[i]);
        if (at >= 4) c->body_crc = prowd_crc(c->body_crc, *bytes + i, 1);
    }
    *bytes += some, *count -= some;
    return !found && some == left && c->said_crc != c->body_crc ? PROWD_DAMAGED : found;
}

int prowd_take(prowd_client *c, const uint8_t *bytes, size_t count) {
    c->task_crc = prowd_crc(c->task_crc, bytes, count);
    while (count && !c->refusal) c->refusal = take(c, &bytes, &count);
    return c->refusal;
}

int prowd_whole(const prowd_client *c) {
    return c->refusal ? c->refusal : c->head && c->at == HEADER + c->head + BODY ? PROWD_FINE : PROWD_UNFINISHED;
}

const char *prowd_reason(int reason) {
    static const char *const words[PROWD_CODES_OF_REFUSAL] = {
        "fine",
        "not a task of version 2",
        "not the length that it says",
        "damaged: a checksum is wrong",
        "settings: accepted: names in UTF-8, each once, with finite numbers",
        "for another client",
        "for another network",
        "work: steps, batch or rate beyond what was compiled",
        "tensors: names, widths, shapes or scales of another network",
        "codes: bits that stand for no number",
        "unfinished",
    };
    return words[reason < PROWD_CODES_OF_REFUSAL ? reason : PROWD_UNFINISHED];
}

int prowd_read_card(const uint8_t *bytes, size_t room, prowd_card *card) {
    enum { CARD = 32 };
    if (room < CARD || memcmp(bytes, "PRWC\1\0\0", 8) || prowd_u64(bytes + 8) != NET_HASH) return PROWD_NETWORK;
    card->client = prowd_u32(bytes + 16), card->count = prowd_u32(bytes + 20);
    if (prowd_u32(bytes + 24) != NET_INPUTS || !card->count || card->count > NET_EXAMPLES) return PROWD_WORK;
    const size_t size = card->count * (size_t)(NET_INPUTS + 1);
    if (size > room - CARD) return PROWD_LENGTH;
    if (prowd_crc(0, bytes + CARD, size) != prowd_u32(bytes + 28)) return PROWD_DAMAGED;
    card->images = bytes + CARD, card->labels = bytes + CARD + card->count * (size_t)NET_INPUTS;
    for (uint32_t i = 0; i < card->count; i++)
        if (card->labels[i] >= NET_CLASSES) return PROWD_CODES;
    return PROWD_FINE;
}
