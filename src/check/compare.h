/* compare: two arrays of a dtype, by what a check says of them. */
#ifndef TTPU_CHECK_COMPARE_H
#define TTPU_CHECK_COMPARE_H

#include "ir/ir.h"

/* True when all elements agree; else `message` names the first one that does not, and how many. */
bool check_compare(const ir_check *check, ir_type type, const void *actual, const void *expected, char *message,
                   size_t size);

#endif
