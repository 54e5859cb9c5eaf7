/*
 * bin/kdump of the bundle: starts the bundle's Python with the bundle's own C library.
 *
 * The program needs nothing of the machine that it runs on but Linux: it is static, and has no C
 * library itself. The same program is lib/kdump/python, which Python's child processes start; that
 * one passes its arguments on to Python.
 *
 * The dynamic loader is started as a program (lib/kdump/kdump), because a program can name its
 * loader by an absolute path only, and the bundle may be anywhere.
 */

#define PATH_BYTES 4096
#define LIBRARIES "/lib/kdump"

typedef unsigned long word;

#if defined(__x86_64__)
enum { SYS_write = 1, SYS_execve = 59, SYS_exit = 60 };
enum { SYS_getcwd = 79, SYS_readlinkat = 267 };

static long call(long number, long a, long b, long c, long d) {
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call start\n");
#elif defined(__aarch64__)
enum { SYS_getcwd = 17, SYS_readlinkat = 78, SYS_write = 64, SYS_exit = 93, SYS_execve = 221 };

static long call(long number, long a, long b, long c, long d) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}

__asm__(".globl _start\n"
        "_start:\n"
        "    mov x29, #0\n"
        "    mov x30, #0\n"
        "    mov x0, sp\n"
        "    and sp, x0, #-16\n"
        "    bl start\n");
#else
#error "kdump's launcher knows x86-64 and arm64"
#endif

enum { AT_EXECFN = 31, AT_FDCWD = -100, OPERATIONAL_ERROR = 8 };

static word length(const char *text) {
    word count = 0;
    while (text[count])
        count++;
    return count;
}

static int begins_with(const char *text, const char *prefix) {
    while (*prefix)
        if (*text++ != *prefix++)
            return 0;
    return 1;
}

/* Write first and second to target, as much as there is room for; false if there is too little. */
static int join(char *target, const char *first, const char *second) {
    char *end = target + PATH_BYTES - 1;
    while (*first && target < end)
        *target++ = *first++;
    while (*second && target < end)
        *target++ = *second++;
    *target = 0;
    return !*first && !*second;
}

/* Cut the last component of a path off, and return it. */
static const char *cut(char *path) {
    word at = length(path);
    while (at && path[at] != '/')
        at--;
    path[at] = 0;
    return path + at + 1;
}

static void say(const char *text) {
    call(SYS_write, 2, (long)text, (long)length(text), 0);
}

static void fail(const char *what, const char *path, const char *advice) {
    say("kdump: ");
    say(what);
    say(path);
    say(advice);
    say("\n");
    call(SYS_exit, OPERATIONAL_ERROR, 0, 0, 0);
}

/*
 * Whether a variable must not reach the bundle's Python. Those of the dynamic loader and of Python
 * would let it load other code; the machine's locales may be of another version of the C library.
 * Those that begin with PYTHON_ are how Spark talks to its workers; Python itself ignores them (-I).
 */
static int is_dropped(const char *variable) {
    if (begins_with(variable, "PYTHON_"))
        return 0;
    return begins_with(variable, "LD_") || begins_with(variable, "PYTHON") ||
           begins_with(variable, "LC_") || begins_with(variable, "LANG=") ||
           begins_with(variable, "LANGUAGE=") || begins_with(variable, "LOCPATH=") ||
           begins_with(variable, "GCONV_PATH=") || begins_with(variable, "GLIBC_TUNABLES=");
}

static char libraries[PATH_BYTES], loader[PATH_BYTES], python[PATH_BYTES], program[PATH_BYTES];

/* Find the path of this program: from the name that it was started by where /proc is missing. */
static void find_itself(char *own, const char *started_by) {
    static char link[PATH_BYTES], folder[PATH_BYTES];
    long size = call(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)link, PATH_BYTES - 1);
    int is_whole = 1;
    if (size > 0) {
        link[size] = 0;
        join(own, link, "");
    } else if (started_by[0] == '/') {
        is_whole = join(own, started_by, "");
    } else {
        while (begins_with(started_by, "./"))
            started_by += 2;
        size = call(SYS_getcwd, (long)folder, PATH_BYTES, 0, 0);
        is_whole = size > 0 && join(link, folder, "/") && join(own, link, started_by);
    }
    if (!is_whole)
        fail("the path of the bundle is too long: ", started_by, "");
}

/* Follow the links that a path leads to, as /proc does. */
static void follow_links(char *own) {
    static char link[PATH_BYTES], folder[PATH_BYTES];
    for (int hops = 0; hops < 40; hops++) {
        long size = call(SYS_readlinkat, AT_FDCWD, (long)own, (long)link, PATH_BYTES - 1);
        if (size <= 0)
            return;
        link[size] = 0;
        if (link[0] == '/') {
            join(own, link, "");
        } else {
            cut(own);
            if (!join(folder, own, "/") || !join(own, folder, link))
                fail("the path of the bundle is too long: ", link, "");
        }
    }
}

/*
 * Refuse a path that the dynamic loader would change: it takes these words for folders, also in the
 * middle of a name, when Python loads a module.
 */
static void require_plain(const char *path) {
    for (const char *at = path; *at; at++)
        if (*at == '$') {
            const char *word = at[1] == '{' ? at + 2 : at + 1;
            if (begins_with(word, "ORIGIN") || begins_with(word, "LIB") ||
                begins_with(word, "PLATFORM"))
                fail("the path of the bundle has $ORIGIN, $LIB or $PLATFORM in it: ", path, "");
        }
}

/* Find lib/kdump of the bundle that this program lies in; return whether it is bin/kdump. */
static int find_libraries(const char *started_by) {
    static char own[PATH_BYTES];
    find_itself(own, started_by);
    follow_links(own);
    if (begins_with(cut(own), "python")) {
        join(libraries, own, "");
        return 0;
    }
    cut(own);
    if (!join(libraries, own, LIBRARIES))
        fail("the path of the bundle is too long: ", own, "");
    return 1;
}

/* Return the name that the kernel started this program by; it follows the environment. */
static const char *name_at_start(char **environment) {
    while (*environment)
        environment++;
    for (word *pair = (word *)(environment + 1); pair[0]; pair += 2)
        if (pair[0] == AT_EXECFN)
            return (const char *)pair[1];
    return "";
}

__attribute__((used)) void start(word *stack) {
    word count = stack[0];
    char **arguments = (char **)(stack + 1);
    char **environment = arguments + count + 1;
    int is_kdump = find_libraries(name_at_start(environment));
    if (!join(loader, libraries, "/kdump") || !join(python, libraries, "/python") ||
        !join(program, libraries, "/python.bin"))
        fail("the path of the bundle is too long: ", libraries, "");
    require_plain(libraries);

    char *command[count + 16];
    word at = 0;
    command[at++] = "kdump";
    command[at++] = "--inhibit-cache";
    /* The folder of python.bin: a path itself would be cut at every ':' and ';' in it. */
    command[at++] = "--library-path";
    command[at++] = "$ORIGIN";
    command[at++] = "--argv0";
    command[at++] = python;
    command[at++] = program;
    command[at++] = "-IB";
    command[at++] = "-Xutf8";
    if (is_kdump) {
        command[at++] = "-c";
        command[at++] = "from kdump.program import main; main()";
    }
    for (word index = 1; index < count; index++)
        command[at++] = arguments[index];
    command[at] = 0;

    word kept = 0;
    for (char **each = environment; *each; each++)
        if (!is_dropped(*each))
            environment[kept++] = *each;
    environment[kept] = 0;

    call(SYS_execve, (long)loader, (long)command, (long)environment, 0);
    fail("cannot execute ", loader, ": unpack the whole archive where programs may be executed");
}
