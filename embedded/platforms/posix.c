/* A client as a program: it answers on standard output what it is asked on standard input. The card is a file. */
#include <stdio.h>
#include <stdlib.h>

#include "link.h"

const char prowd_name[] = "posix";

int prowd_read(uint8_t *byte) {
    const int found = getchar();
    *byte = (uint8_t)found;
    return found != EOF;
}

void prowd_write(const uint8_t *bytes, uint32_t count) {
    if (fwrite(bytes, 1, count, stdout) != count || fflush(stdout)) exit(3);
}

void prowd_measure(uint32_t *stack, uint32_t *memory) { *stack = *memory = 0; }

static uint8_t *contents(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    if (file && !fseek(file, 0, SEEK_END)) {
        const long end = ftell(file);
        if (end > 0 && (bytes = malloc((size_t)end)) && !fseek(file, 0, SEEK_SET))
            *size = fread(bytes, 1, (size_t)end, file);
    }
    if (file) fclose(file);
    return bytes;
}

int main(int count, char **arguments) {
    static prowd_link link;
    prowd_card card;
    size_t size = 0;
    const uint8_t *bytes = count == 2 ? contents(arguments[1], &size) : NULL;
    if (!bytes) {
        fputs("usage: client CARD, a file that prowd embed has written\n", stderr);
        return 2;
    }
    const int reason = prowd_read_card(bytes, size, &card);
    if (reason) {
        fprintf(stderr, "%s: %s\n", arguments[1], prowd_reason(reason));
        return 2;
    }
    prowd_serve(&link, &card);
    return 0;
}
