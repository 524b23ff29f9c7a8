/* A client of s = 2..16 bits for a microcontroller: the bytes of a task in, the bytes of an update out.
 *
 * Integers only, no allocation, no operating system. `net.h`, which `prowd embed` writes, has all sizes, so that
 * sizeof(prowd_client) is known before anything runs: the caller lends one, and nothing else is used but some stack.
 *
 * The images of a batch take turns in NET_KEPT places. Those that have none of their own are computed again for every
 * layer on the way back, so that the memory does not grow with the batch; what the errors of a layer are divided by
 * depends on the largest of the whole batch, so that they cannot be learnt from one after the other.
 */
#ifndef PROWD_CLIENT_H
#define PROWD_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "net.h"

#if NET_BITS <= 8
typedef int8_t prowd_code;
#else
typedef int16_t prowd_code;
#endif

#if NET_WIDE_SUMS
typedef int64_t prowd_sum; /* of a gradient */
#else
typedef int32_t prowd_sum;
#endif

/* What an update has: the weights, or how far they moved. */
enum { PROWD_WEIGHTS = 0, PROWD_MOVEMENT = 1, PROWD_LEVELS = 2 };

/* A convolution and the pooling after it; a linear layer is one of a single pixel. */
typedef struct {
    int32_t inputs, rows, columns;             /* what it receives */
    int32_t outputs, conv_rows, conv_columns;  /* what it gives, before */
    int32_t out_rows, out_columns;             /* and after the pooling */
    int32_t kernel_rows, kernel_columns, stride_rows, stride_columns, pad_rows, pad_columns, groups;
    int32_t pool_rows, pool_columns, step_rows, step_columns; /* 1 where there is none */
    int32_t shift; /* log2 of 2 alpha */
    int32_t relu;
    int32_t weights, values, marks, errors; /* where in the client its weights, inputs, marks and error codes begin */
} prowd_stage;

/* What `net.c` has. */
extern const prowd_stage net_stages[NET_STAGES];
extern const prowd_code net_codes[256];             /* of every byte of an image */
extern const uint32_t net_exponentials[2][256];     /* of the softmax */
extern const int16_t net_turns[61][2];              /* cosines and sines of quarters of a degree */
extern const uint8_t net_rows[NET_ROWS];            /* what a task says of its tensors */
extern const uint8_t net_reply_rows[NET_REPLY_ROWS]; /* the same of an update, */
extern const uint32_t net_scales[NET_STAGES];       /* and where in it the scales are */

/* Examples in memory that nobody changes. */
typedef struct {
    uint32_t client, count;
    const uint8_t *images; /* NET_INPUTS bytes each */
    const uint8_t *labels;
} prowd_card;

/* Why a task is refused. */
enum {
    PROWD_FINE,
    PROWD_NOT_A_TASK,    /* magic, version or kind */
    PROWD_LENGTH,        /* not the length that it says, or must have */
    PROWD_DAMAGED,       /* a wrong checksum */
    PROWD_SETTINGS,      /* a name or number that may not be sent */
    PROWD_CLIENT,        /* for another client */
    PROWD_NETWORK,       /* for another network */
    PROWD_WORK,          /* steps, batch or rate that it cannot do */
    PROWD_TENSORS,       /* names, widths, shapes or scales of another network */
    PROWD_CODES,         /* bits that stand for no code */
    PROWD_UNFINISHED,    /* more was expected */
    PROWD_CODES_OF_REFUSAL
};

typedef struct {
    uint32_t round, client, steps, batch;
    uint64_t seed;
    uint32_t mantissa;
    int32_t exponent;
} prowd_task;

typedef struct {
    /* --- what a round is about */
    prowd_card card;
    prowd_task task;
    uint32_t batch; /* of the task, and no more than there are examples */
    int64_t loss;
    prowd_code weights[NET_WEIGHTS];
#if NET_REPLY != 0
    prowd_code received[NET_WEIGHTS];
#endif
    /* --- while a task comes in */
    uint32_t at, head;                /* bytes that came, and how many its head has */
    uint32_t task_crc;                /* of all of them */
    uint32_t said_crc, body_crc;      /* what the body says its checksum is, and what it is so far */
    uint32_t tensor, code, held;      /* which weight is next, and bits that belong to it */
    int32_t bits;                     /* how many */
    int32_t refusal;
    uint8_t field[NET_HEAD]; /* header and head */
    /* --- what an update says, beside codes */
    uint32_t update_crc, movement[2]; /* the key of its random words */
    struct {
        uint32_t threshold, mantissa;
        int32_t exponent;
    } moved[NET_STAGES];
    /* --- while it learns */
    uint8_t ternary[(NET_WEIGHTS + 3) / 4]; /* as they were when a step began */
    prowd_code values[NET_KEPT][NET_VALUES];
    uint8_t marks[NET_KEPT][NET_MARKS]; /* where errors pass, and which place of a window won */
    prowd_code flat[NET_SHARED][NET_FLAT_INPUTS]; /* inputs of the layers of one pixel, of images without a place */
    prowd_code flat_errors[NET_BATCH][NET_FLAT_ERRORS];
    prowd_code errors[2][NET_WIDEST];
    prowd_sum gradient[NET_GRADIENT];
    int32_t sums[NET_PLANE];
    struct {
        int32_t row, column, error;
    } spots[NET_SPOTS];
    uint32_t order[NET_EXAMPLES], chosen[NET_BATCH], place, epoch;
    uint32_t batches[2], variations[2], rounding[2]; /* keys of random words */
    int32_t exponents[NET_STAGES];
    int32_t shown, shown_flat; /* which image has the place that is shared */
#if NET_OPERATIONS
    uint8_t varied[NET_INPUTS];
#endif
} prowd_client;

/* Begin a task, and take the next bytes of it. Returns PROWD_FINE or why it is refused. */
void prowd_begin(prowd_client *c, const prowd_card *card);
int prowd_take(prowd_client *c, const uint8_t *bytes, size_t count);

/* PROWD_FINE if all of the task is there and it can be done. */
int prowd_whole(const prowd_client *c);

/* Train. `after` is called with every step that is done; it may be NULL. */
void prowd_train(prowd_client *c, void (*after)(void *given, uint32_t step), void *given);

/* The update: its length is NET_UPDATE; any part of it can be asked for, any number of times. */
void prowd_seal(prowd_client *c);
void prowd_give(const prowd_client *c, uint32_t offset, uint32_t count, uint8_t *bytes);

/* What a reason means, in words. */
const char *prowd_reason(int reason);

/* --- parts of it --------------------------------------------------------------------------------------------------- */

/* CRC-32 as zlib has it: begin with 0, go on with what it gave. */
uint32_t prowd_crc(uint32_t crc, const uint8_t *bytes, size_t count);

/* The key of a stream of random words: 64 bits of SHA-256 over seed, purpose, round and client. */
void prowd_key(uint64_t seed, const char *purpose, uint32_t round, uint32_t client, uint32_t key[2]);

/* Examples as a card has them, or why not; `room` is how many bytes may be read. */
int prowd_read_card(const uint8_t *bytes, size_t room, prowd_card *card);

static inline uint32_t prowd_u32(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t prowd_u64(const uint8_t *at) { return prowd_u32(at) | (uint64_t)prowd_u32(at + 4) << 32; }

static inline void prowd_put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static inline void prowd_put64(uint8_t *at, uint64_t value) {
    prowd_put32(at, (uint32_t)value), prowd_put32(at + 4, (uint32_t)(value >> 32));
}

#endif
