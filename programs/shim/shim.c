/*
 * A library that is preloaded into every program of a workspace whose gVisor is older than the
 * programs: the sentry of 2022 answers EINVAL to statx() with AT_NO_AUTOMOUNT, which coreutils
 * always give. There are no automounts inside, so leaving the flag out changes nothing.
 *
 * It stands alone: no C library is linked, so that it loads into programs of any age, and only
 * the address of errno is asked of whichever is there.
 */

#define SHIM_AT_NO_AUTOMOUNT 0x800

extern int *__errno_location(void);

struct statx;

__attribute__((visibility("default"))) int statx(int directory, const char *path, int flags,
                                                 unsigned mask, struct statx *out);

static long call_statx(long directory, const char *path, long flags, long mask, void *out);

int statx(int directory, const char *path, int flags, unsigned mask, struct statx *out)
{
    long result = call_statx(directory, path, flags & ~SHIM_AT_NO_AUTOMOUNT, (long)mask, out);
    if (result >= 0)
        return (int)result;
    *__errno_location() = (int)-result;
    return -1;
}

#if defined(__x86_64__)
static long call_statx(long directory, const char *path, long flags, long mask, void *out)
{
    long result;
    register long fourth __asm__("r10") = mask;
    register void *fifth __asm__("r8") = out;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(332L), "D"(directory), "S"(path), "d"(flags), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static long call_statx(long directory, const char *path, long flags, long mask, void *out)
{
    register long number __asm__("x8") = 291;
    register long first __asm__("x0") = directory;
    register const char *second __asm__("x1") = path;
    register long third __asm__("x2") = flags;
    register long fourth __asm__("x3") = mask;
    register void *fifth __asm__("x4") = out;
    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(number), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
                     : "memory");
    return first;
}
#else
#error "gVisor runs on x86-64 and arm64 only"
#endif
