/* Files of a stere pool read and written without the kernel in between.
 *
 * Every call that can fail gives a negative errno, and stere_message() then tells in words what was wrong and what to do.
 * A file may be used by several threads at once; close it when none of them uses it any more.
 * Link with -lstere. What the calls promise: docs/design/library.md. */
#ifndef STERE_H
#define STERE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stere_file stere_file;
typedef struct stere_pool stere_pool;

/* A part of a file to be read, of several at once. `result` is what was read. */
struct stere_piece {
    uint64_t offset;
    void *bytes;
    size_t length;
    size_t result;
};

/* Opens a file of a mounted pool, by its path in the mount. `flags` are O_RDONLY, O_WRONLY or O_RDWR of open(2), with
 * O_CREAT and O_TRUNC where wanted; others are refused. `mode` is for a file that is made. 0 or a negative errno. */
int stere_open(const char *path, int flags, mode_t mode, stere_file **file);

/* Goes on with a descriptor that was opened through the mount. The descriptor stays the caller's. 0 or a negative errno. */
int stere_open_fd(int descriptor, stere_file **file);

/* Opens a pool that is not mounted, on all of its devices, in this process. `flags` is O_RDONLY or O_RDWR.
 * 0 or a negative errno; -EBUSY if it is open or mounted elsewhere. */
int stere_pool_open(const char *const *devices, size_t count, int flags, stere_pool **pool);

/* Opens a file of such a pool, by its path from the pool's root. */
int stere_pool_file(stere_pool *pool, const char *path, int flags, mode_t mode, stere_file **file);

/* Makes everything durable and lets go of the devices. -EBUSY, and the pool stays open, while files of it are.
 * After any other result the pool is gone. */
int stere_pool_close(stere_pool *pool);

/* As pread(2): fewer bytes than asked for only at the end of the file. Long reads overlap on the devices. */
ssize_t stere_read_at(stere_file *file, void *bytes, size_t length, uint64_t offset);

/* Reads several parts, many of them at a time. 0 or a negative errno. */
int stere_read_many(stere_file *file, struct stere_piece *pieces, size_t count);

/* As pwrite(2): fewer bytes than given only where the pool or a quota got full on the way. */
ssize_t stere_write_at(stere_file *file, const void *bytes, size_t length, uint64_t offset);

/* Makes everything that was written before durable. 0 or a negative errno. */
int stere_sync(stere_file *file);

/* Length in bytes, or a negative errno. */
int64_t stere_size(stere_file *file);

/* Ends the use of a file; the pointer is gone whatever the result is. 0 or a negative errno. */
int stere_close(stere_file *file);

/* Why the last call on this thread failed; valid until the next call on it. Never NULL. */
const char *stere_message(void);

#ifdef __cplusplus
}
#endif

#endif
