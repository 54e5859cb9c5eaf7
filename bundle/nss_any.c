/*
 * A source of users for the C library, in the image with Spark: every number is a user.
 *
 * Java wants to know the name of the user that it runs as. Containers often run as a number that
 * /etc/passwd does not have, and the image cannot have all of them.
 */

#include <errno.h>
#include <nss.h>
#include <pwd.h>

enum { MOST_DIGITS = 20 };

enum nss_status _nss_any_getpwuid_r(uid_t number, struct passwd *user, char *buffer, size_t size,
                                    int *error) {
    char digits[MOST_DIGITS];
    size_t count = 0, at = 0;
    unsigned long rest = number;
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    /* "user", the digits, and the ends of two texts. */
    if (size < 4 + count + 2) {
        *error = ERANGE;
        return NSS_STATUS_TRYAGAIN;
    }
    for (const char *each = "user"; *each; each++)
        buffer[at++] = *each;
    while (count)
        buffer[at++] = digits[--count];
    buffer[at++] = 0;
    char *empty = buffer + at;
    *empty = 0;
    user->pw_name = buffer;
    user->pw_passwd = user->pw_gecos = empty;
    user->pw_dir = "/tmp";
    user->pw_shell = "/";
    user->pw_uid = number;
    user->pw_gid = number;
    return NSS_STATUS_SUCCESS;
}
