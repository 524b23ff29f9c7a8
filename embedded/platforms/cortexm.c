/* A client on a Cortex-M without an operating system: Arm's MPS2 boards, which QEMU has as mps2-an385 and mps2-an386.
 *
 * Frames go over the first UART, or with PROWD_SEMIHOSTING over the standard input and output of whoever debugs it. The
 * card lies at PROWD_CARD, where flash is on a real board. What of the stack was never used keeps the pattern that it
 * is painted with before anything runs. With PROWD_COUNT it serves nobody, but counts instructions in QEMU.
 */
#include "link.h"

#ifndef PROWD_CARD
#define PROWD_CARD 0x21000000u
#endif
#ifndef PROWD_CARD_ROOM
#define PROWD_CARD_ROOM 0x01000000u
#endif

extern uint32_t prowd_bss[], prowd_end[], prowd_stack_top[]; /* of mps2.ld */

enum { PATTERN = 0x5aa55aa5 };

static prowd_link link;

/* --- bytes ---------------------------------------------------------------------------------------------------------- */

#ifdef PROWD_SEMIHOSTING
const char prowd_name[] = "cortex-m, semihosting";

enum { OPEN = 1, WRITE = 5, READ = 6, EXIT = 0x18, STOPPED = 0x20026 };

static uint32_t ask(uint32_t what, const void *with) {
    register uint32_t r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static uint32_t console(uint32_t mode) {
    const uint32_t what[3] = {(uint32_t)":tt", mode, 3};
    return ask(OPEN, what);
}

static uint32_t input, output;

static void open_bytes(void) { input = console(0), output = console(4); }

int prowd_read(uint8_t *byte) {
    const uint32_t what[3] = {input, (uint32_t)byte, 1};
    return ask(READ, what) == 0;
}

void prowd_write(const uint8_t *bytes, uint32_t count) {
    const uint32_t what[3] = {output, (uint32_t)bytes, count};
    ask(WRITE, what);
}

static void stop(void) { ask(EXIT, (const void *)STOPPED); }

#else
const char prowd_name[] = "cortex-m, uart";

/* The UART of CMSDK: a byte, its state, what it does, and a divisor of the clock. */
typedef struct {
    volatile uint32_t data, state, control, interrupts, divisor;
} Uart;

enum { FULL = 1, HAS_BYTE = 2, BOTH_WAYS = 3, CLOCK = 25000000, BAUD = 115200 };

static Uart *const uart = (Uart *)0x40004000;

static void open_bytes(void) { uart->divisor = CLOCK / BAUD, uart->control = BOTH_WAYS; }

int prowd_read(uint8_t *byte) {
    while (!(uart->state & HAS_BYTE)) {
    }
    *byte = (uint8_t)uart->data;
    return 1;
}

void prowd_write(const uint8_t *bytes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        while (uart->state & FULL) {
        }
        uart->data = bytes[i];
    }
}

static void stop(void) {}
#endif

/* --- memory --------------------------------------------------------------------------------------------------------- */

void prowd_measure(uint32_t *stack, uint32_t *memory) {
    const uint32_t *unused = prowd_end;
    while (unused < prowd_stack_top && *unused == PATTERN) unused++;
    *stack = (uint32_t)((const uint8_t *)prowd_stack_top - (const uint8_t *)unused);
    *memory = (uint32_t)((const uint8_t *)prowd_end - (const uint8_t *)prowd_bss) + *stack;
}

/* --- instructions ---------------------------------------------------------------------------------------------------- */

#ifdef PROWD_COUNT
#ifndef PROWD_SEMIHOSTING
#error "what was counted goes to a debugger: compile with PROWD_SEMIHOSTING too"
#endif
#ifndef PROWD_TASK
#define PROWD_TASK 0x21800000u /* where its length lies, and then its bytes */
#endif

/* A timer of CMSDK that counts down with the clock of 25 MHz. With -icount shift=0 an instruction of QEMU is 1 ns. */
static volatile uint32_t *const timer = (volatile uint32_t *)0x40000000; /* control, value, reload */

/* Say how far it is, in ticks of 40 instructions. */
static void mark(void *unused, uint32_t step) {
    const uint32_t now = ~timer[1];
    (void)unused, (void)step;
    prowd_write((const uint8_t *)&now, sizeof now);
}

/* Marks about a loop of two million instructions, a task as it is taken, and each step; the update, and a mark. */
static void work(const prowd_card *card) {
    const uint32_t size = *(const uint32_t *)PROWD_TASK;
    uint32_t loops = 1000000;
    timer[2] = timer[1] = 0xffffffff, timer[0] = 1;
    mark(NULL, 0);
    __asm__ volatile("1: subs %0, #1\n bne 1b" : "+l"(loops) : : "cc");
    mark(NULL, 0);
    prowd_begin(&link.client, card);
    prowd_take(&link.client, (const uint8_t *)PROWD_TASK + 4, size);
    if (prowd_whole(&link.client)) return;
    mark(NULL, 0);
    prowd_train(&link.client, mark, NULL);
    for (uint32_t at = 0, some; at < NET_UPDATE; at += some) {
        some = NET_UPDATE - at < NET_CHUNK ? NET_UPDATE - at : NET_CHUNK;
        prowd_give(&link.client, at, some, link.frame);
        prowd_write(link.frame, some);
    }
    mark(NULL, 0);
}
#else
static void work(const prowd_card *card) { prowd_serve(&link, card); }
#endif

/* --- the beginning -------------------------------------------------------------------------------------------------- */

/* Nothing may be called here: memory is not what C expects it to be yet. */
void prowd_start(void) {
    uint32_t *stack;
    __asm__ volatile("mov %0, sp" : "=r"(stack));
    for (volatile uint32_t *at = prowd_bss; at < prowd_end; at++) *at = 0;
    for (volatile uint32_t *at = prowd_end; at < stack; at++) *at = PATTERN;
    prowd_card card;
    open_bytes();
    if (!prowd_read_card((const uint8_t *)PROWD_CARD, PROWD_CARD_ROOM, &card)) work(&card);
    stop();
    for (;;) {
    }
}

static void fail(void) {
    stop();
    for (;;) {
    }
}

/* Where the stack begins, what runs first, and what runs when something goes wrong. */
__attribute__((used, section(".vectors"))) static void *const vectors[16] = {
    prowd_stack_top, (void *)prowd_start, (void *)fail, (void *)fail, (void *)fail, (void *)fail, (void *)fail,
};
