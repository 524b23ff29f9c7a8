/* What the client needs of <string.h>, for compilers that come without a C library; their own runtime has the first four. */
#ifndef PROWD_BARE_STRING_H
#define PROWD_BARE_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int byte, size_t count);
int memcmp(const void *one, const void *two, size_t count);

static inline size_t strlen(const char *text) {
    size_t count = 0;
    while (text[count]) count++;
    return count;
}

#endif
