/* Where random words come from: keys by SHA-256, and checksums. */
#include <string.h>

#include "client.h"

/* --- CRC-32, half a byte at a time: 64 bytes of table ---------------------------------------------------------------- */

uint32_t prowd_crc(uint32_t crc, const uint8_t *bytes, size_t count) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    crc = ~crc;
    for (size_t i = 0; i < count; i++) {
        crc = table[(crc ^ bytes[i]) & 15] ^ crc >> 4;
        crc = table[(crc ^ (uint32_t)bytes[i] >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
}

/* --- SHA-256 of at most two blocks ---------------------------------------------------------------------------------- */

static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void compress(uint32_t state[8], const uint8_t block[64]) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    };
    uint32_t w[16], s[8];
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        if (i < 16) {
            const uint8_t *at = block + 4 * i;
            w[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        } else {
            const uint32_t a = w[(i + 1) & 15], b = w[(i + 14) & 15];
            w[i & 15] += (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[(i + 9) & 15] +
                         (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
        }
        const uint32_t e = s[4], a = s[0];
        const uint32_t one = s[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                             k[i] + w[i & 15];
        const uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, sizeof *s * 7);
        s[4] += one, s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

/* --- keys ----------------------------------------------------------------------------------------------------------- */

/* A part of a key: its length in 32 bits, what it is, and itself. */
static uint32_t add_text(uint8_t *to, const char *kind, const char *text) {
    const uint32_t one = (uint32_t)strlen(kind), two = (uint32_t)strlen(text);
    prowd_put32(to, one + two);
    memcpy(to + 4, kind, one), memcpy(to + 4 + one, text, two);
    return 4 + one + two;
}

static uint32_t add_number(uint8_t *to, uint64_t value) {
    char digits[21] = {0};
    int first = 20;
    do {
        digits[--first] = (char)('0' + value % 10), value /= 10;
    } while (value);
    return add_text(to, "int:", digits + first);
}

void prowd_key(uint64_t seed, const char *purpose, uint32_t round, uint32_t client, uint32_t key[2]) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t text[128] = {0}; /* of at most 28 + 18 + 18 + 18 bytes */
    uint32_t size = add_number(text, seed);
    size += add_text(text + size, "str:", purpose);
    size += add_number(text + size, round);
    size += add_number(text + size, client);
    const uint32_t blocks = (size + 9 + 63) / 64, bits = 8 * size;
    text[size] = 0x80;
    for (uint32_t i = 0; i < 4; i++) text[64 * blocks - 1 - i] = (uint8_t)(bits >> (8 * i));
    for (uint32_t i = 0; i < blocks; i++) compress(state, text + 64 * i);
    for (int i = 0; i < 2; i++) /* the digest's first bytes, the least significant first */
        key[i] = state[i] >> 24 | (state[i] >> 8 & 0xff00) | (state[i] << 8 & 0xff0000) | state[i] << 24;
}
