/*
 * System calls without a C library, for code that runs inside foreign programs. A negative result
 * is an errno.
 */
#ifndef SHIM_KERNEL_H
#define SHIM_KERNEL_H

#include <stdint.h>

static inline long kernel_address(const volatile void *pointer)
{
    return (long)(uintptr_t)pointer;
}

#if defined(__x86_64__)
static inline long kernel_call(long number, long first, long second, long third, long fourth,
                               long fifth)
{
    long result;
    register long in_r10 __asm__("r10") = fourth;
    register long in_r8 __asm__("r8") = fifth;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(in_r10), "r"(in_r8)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long kernel_call(long number, long first, long second, long third, long fourth,
                               long fifth)
{
    register long in_x8 __asm__("x8") = number;
    register long in_x0 __asm__("x0") = first;
    register long in_x1 __asm__("x1") = second;
    register long in_x2 __asm__("x2") = third;
    register long in_x3 __asm__("x3") = fourth;
    register long in_x4 __asm__("x4") = fifth;
    __asm__ volatile("svc 0"
                     : "+r"(in_x0)
                     : "r"(in_x8), "r"(in_x1), "r"(in_x2), "r"(in_x3), "r"(in_x4)
                     : "memory");
    return in_x0;
}
#else
#error "gVisor runs on x86-64 and arm64 only"
#endif

#endif
