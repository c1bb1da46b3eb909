/* Buckets: a function whose sizes are rounded up, so that one compiled program serves many sizes.
 *
 * ir_bucket takes a function of exact sizes and builds the same function of padded ones. The exact sizes, and any other
 * number that differs from one size to the next, are elements of one more parameter, a vector of i64; so the functions that
 * are made for all sizes of a bucket have one text, and whoever has compiled one of them has compiled all.
 *
 * What is promised: the real part of each result is that of the exact function, whatever the padding of the parameters holds,
 * NaN included. It rests on one rule an operation (bucket_rules.c, bucket_emit.c): the real part of each result depends on
 * the real parts of the operands alone. Sums over a padded dimension have zeros put in first and so may be added in another
 * order; all else is equal to the bit. A dimension that an operation without a rule sees keeps its exact size. */
#ifndef TTPU_IR_BUCKET_H
#define TTPU_IR_BUCKET_H

#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The size that stands for n: a power of two or one and a half of it (1 2 3 4 6 8 12 16 24 ...). At most half as much again
 * is computed in vain, a fifth on average; powers of two alone would cost twice that, and finer steps more compilations. */
int64_t ir_bucket_size(int64_t n);

/* The composites that ir_bucket has rules for; the others are to be decomposed before. */
bool ir_bucket_keeps(ir_kind kind);

/* All numbers of a function that may differ between functions of one structure (ir_func_structure), in a fixed order: the
 * sizes of all its values, then the sizes in attributes and the elements of constants that fill. */
ttpu_status ir_func_numbers(const ir_func *f, base_arena *arena, uint32_t *count, const int64_t **numbers);

typedef struct ir_bucket_options {
  const int64_t *before; /* the numbers of another function of the structure; NULL: none is known */
  const bool *varies;    /* which of the numbers have been seen to differ; NULL with `before` NULL */
  bool all;              /* pad whatever can be padded, not only what varies */
} ir_bucket_options;

/* How a value lies in a padded parameter or result: its dimensions, taken apart into `rank` factors of these sizes, each at
 * the beginning of a longer one. A padded batch of sequences that is flat, [batch * length], has two. */
typedef struct ir_layout {
  ir_type exact, padded;
  uint32_t rank;
  const int64_t *sizes, *padded_sizes;
} ir_layout;
static inline bool ir_layout_is_padded(const ir_layout *l) { return !ir_same_dims(l->exact, l->padded); }
/* Programs of one parameter and one result: from the exact value to the padded one (zeros), and back. */
ttpu_status ir_layout_enter(const ir_layout *l, base_arena *arena, ir_func **out);
ttpu_status ir_layout_leave(const ir_layout *l, base_arena *arena, ir_func **out);

typedef struct ir_bucketed {
  ir_func *func;               /* NULL: it cannot be, or nothing would be padded */
  ir_layout *params, *results; /* without the vector of numbers */
  uint32_t number_count;       /* the last parameter of func, where it is more than 0 */
  const int64_t *numbers;
} ir_bucketed;
/* f has no composites but those of ir_bucket_keeps. Without `all` it cannot be when a size that varies, or another number,
 * would remain in the text. */
ttpu_status ir_bucket(const ir_func *f, base_arena *arena, const ir_bucket_options *options, ir_bucketed *out);

#ifdef __cplusplus
}
#endif
#endif
