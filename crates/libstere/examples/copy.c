/* Copies a file into a pool: copy SOURCE PATH (through the mount's daemon), or copy SOURCE PATH DEVICE... (not mounted). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "stere.h"

#define BUFFER_BYTES (4u << 20)

static int failed(const char *what) {
    fprintf(stderr, "copy: %s: %s\n", what, stere_message());
    return EXIT_FAILURE;
}

int main(int count, char **words) {
    static char buffer[BUFFER_BYTES];
    stere_pool *pool = NULL;
    stere_file *file = NULL;
    if (count < 3) {
        fprintf(stderr, "copy SOURCE PATH [DEVICE...]\n");
        return EXIT_FAILURE;
    }
    FILE *source = fopen(words[1], "rb");
    if (source == NULL) {
        perror(words[1]);
        return EXIT_FAILURE;
    }
    if (count > 3) {
        const char *const *devices = (const char *const *)(words + 3);
        if (stere_pool_open(devices, (size_t)(count - 3), O_RDWR, &pool) < 0)
            return failed("open the pool");
        if (stere_pool_file(pool, words[2], O_RDWR | O_CREAT | O_TRUNC, 0644, &file) < 0)
            return failed(words[2]);
    } else if (stere_open(words[2], O_RDWR | O_CREAT | O_TRUNC, 0644, &file) < 0) {
        return failed(words[2]);
    }
    uint64_t at = 0;
    size_t length;
    while ((length = fread(buffer, 1, sizeof buffer, source)) > 0) {
        for (size_t done = 0; done < length;) {
            ssize_t written = stere_write_at(file, buffer + done, length - done, at);
            if (written <= 0)
                return failed("write");
            done += (size_t)written;
            at += (uint64_t)written;
        }
    }
    fclose(source);
    if (stere_sync(file) < 0 || stere_size(file) != (int64_t)at)
        return failed("make it durable");
    struct stere_piece ends[2] = {{0, buffer, 16, 0}, {at > 16 ? at - 16 : 0, buffer + 16, 16, 0}};
    if (stere_read_many(file, ends, 2) < 0 || stere_read_at(file, buffer, 16, 0) < 0)
        return failed("read it again");
    if (stere_close(file) < 0 || (pool != NULL && stere_pool_close(pool) < 0))
        return failed("close");
    printf("%llu bytes\n", (unsigned long long)at);
    return EXIT_SUCCESS;
}
