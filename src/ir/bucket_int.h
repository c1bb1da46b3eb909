/* bucket_int: what the files of ir_bucket share.
 *
 * Each dimension of each value is a *factor*. Operations make factors equal (union-find), and reshapes take them apart: the
 * dimension 24 of a flat batch of sequences is the factors 3 and 8 of its two dimensions. A factor that is not taken apart
 * is a *root*, and roots are what is padded: the real elements of a dimension are those whose index in every root of it is
 * below the root's exact size. Three steps:
 *
 *   bucket_rules.c  walks the operations, joins and splits factors, and *pins* those that must keep their exact size
 *   bucket.c        gives each root that is padded its number, the exact size at run time
 *   bucket_emit.c   builds the padded function
 *
 * bucket_factors.c has the factors. A root may be *whole*: its operation needs the real elements in one run at the
 * beginning, so it must not be taken apart; an attempt pins it. */
#ifndef TTPU_IR_BUCKET_INT_H
#define TTPU_IR_BUCKET_INT_H

#include "ir/bucket.h"
#include "ir/ir_int.h"

enum { BUCKET_NONE = UINT32_MAX, BUCKET_FACTORS = 64 };
enum { BUCKET_CHUNKS = 256 }; /* runs of random bits that are put together again, at most */

typedef struct bucket_factor {
  uint32_t parent;      /* itself: nobody's */
  uint32_t parts[2];    /* where it is taken apart, the more significant one first */
  int64_t before, size; /* in the function known from before, and in this one */
  bool is_split, is_pinned, is_whole, varies;
  uint32_t number; /* of a padded root: which element of the numbers its size is */
} bucket_factor;

typedef struct bucket {
  const ir_func *f;
  base_arena *arena;
  const ir_bucket_options *options;
  uint32_t number_count;
  const int64_t *numbers, *before;
  uint32_t *value_slots, *op_slots; /* where the numbers of a value's sizes, and of an operation's attributes, begin */
  bucket_factor *factors;           /* the first ones are those of the sizes in `numbers` */
  uint32_t factor_count, factor_capacity;
  bool failed; /* out of memory */
  /* building */
  ir_builder b;
  ir_value *map;         /* by value of f */
  uint32_t *slot_number; /* by number of f: which run-time number it is, BUCKET_NONE: it stays a constant */
  ir_value run_numbers;
  uint32_t run_count;
  int64_t *run_values;
} bucket;

/* ---- bucket_factors.c ---- */
/* The roots of a factor, the most significant first, without those of size 1; at most BUCKET_FACTORS. */
uint32_t bucket_roots(bucket *s, uint32_t factor, uint32_t *roots);
void bucket_pin(bucket *s, uint32_t factor);
void bucket_tie(bucket *s, uint32_t x, uint32_t y);
/* Lists of factors whose products are equal, as in a reshape. */
void bucket_tie_lists(bucket *s, uint32_t x_count, const uint32_t *x, uint32_t y_count, const uint32_t *y);
void bucket_keep_whole(bucket *s, uint32_t factor); /* pins it where it is taken apart already */
bool bucket_root_is_padded(const bucket *s, uint32_t root);
bool bucket_is_padded(bucket *s, uint32_t factor);
int64_t bucket_padded_size(bucket *s, uint32_t factor);

/* ---- bucket_rules.c ---- */
bool bucket_same(const bucket *s, uint32_t factor, uint32_t other); /* equal sizes, before and now */
void bucket_tie_op(bucket *s, const ir_op *op);
/* Whether the slice or pad leaves this dimension as it is. */
bool bucket_slice_is_whole(const bucket *s, const ir_op *op, uint32_t d);
bool bucket_pad_is_whole(const bucket *s, const ir_op *op, uint32_t d);
/* The first number, counted from the operation's own, that the operation may have at run time, and how many; the rest stays
 * in the text. */
void bucket_run_slots(const ir_func *f, const ir_op *op, uint32_t *first, uint32_t *count);

/* ---- bucket_emit.c ---- */
void bucket_emit_op(bucket *s, const ir_op *op);

static inline uint32_t bucket_dim(const bucket *s, ir_value v, uint32_t d) { return s->value_slots[v] + d; }
static inline bool bucket_varies(const bucket *s, uint32_t slot) {
  return s->before[slot] != s->numbers[slot] || (s->options->varies && s->options->varies[slot]);
}

#endif
