/* Short names for arithmetic on values of one type, for the long formulas of lower_special.c and lower_gamma.c. */
#ifndef TTPU_ATEN_SPECIAL_INT_H
#define TTPU_ATEN_SPECIAL_INT_H

#include <math.h>

#include "aten/aten_int.h"

#define TABLE(name, ...) static const double name[] = {__VA_ARGS__};
#include "ir/cephes.def"
#define COUNT(table) ((uint32_t)(sizeof(table) / sizeof *(table)))
#define POLY(x, table) aten_polynomial(c, x, COUNT(table), table)

static inline ir_value num(aten_lowering *c, ir_value like, double v) { return aten_like(c, like, v); }
static inline ir_value add(aten_lowering *c, ir_value x, ir_value y) { return ir_add(c->b, x, y); }
static inline ir_value sub(aten_lowering *c, ir_value x, ir_value y) { return ir_subtract(c->b, x, y); }
static inline ir_value mul(aten_lowering *c, ir_value x, ir_value y) { return ir_multiply(c->b, x, y); }
static inline ir_value over(aten_lowering *c, ir_value x, ir_value y) { return ir_divide(c->b, x, y); }
static inline ir_value add_n(aten_lowering *c, ir_value x, double y) { return add(c, x, num(c, x, y)); }
static inline ir_value mul_n(aten_lowering *c, ir_value x, double y) { return mul(c, x, num(c, x, y)); }
static inline ir_value n_over(aten_lowering *c, double x, ir_value y) { return over(c, num(c, y, x), y); }
static inline ir_value cmp_n(aten_lowering *c, ir_direction d, ir_value x, double y) {
  return ir_compare(c->b, d, x, num(c, x, y));
}
static inline ir_value pick(aten_lowering *c, ir_value pred, ir_value x, ir_value y) {
  return ir_select(c->b, pred, x, y);
}
static inline ir_value pick_n(aten_lowering *c, ir_value pred, double x, ir_value y) {
  return aten_select_number(c, pred, x, y);
}
static inline ir_value both(aten_lowering *c, ir_value x, ir_value y) { return ir_and_bits(c->b, x, y); }
static inline ir_value either(aten_lowering *c, ir_value x, ir_value y) { return ir_or_bits(c->b, x, y); }
static inline ir_value exp_of(aten_lowering *c, ir_value x) { return ir_exponential(c->b, x); }
static inline ir_value log_of(aten_lowering *c, ir_value x) { return ir_log(c->b, x); }
static inline ir_value root(aten_lowering *c, ir_value x) { return ir_sqrt(c->b, x); }
static inline ir_value neg(aten_lowering *c, ir_value x) { return ir_negate(c->b, x); }

/* An operand in f64. The sums and quotients of these functions lose a few digits on the way (and all of them near a
 * zero), which f32 results must not show. */
static inline ir_value wide_in(aten_point *p, uint32_t arg) {
  return ir_convert(p->c->b, aten_point_in(p, arg), TTPU_F64);
}

/* lower_gamma.c: while (any(state[0] (bool)) and limit passes are not over) state = step(state). Gives the first value, the
 * others follow it. */
enum { SPECIAL_LOOP_MAX = 8 };
typedef void (*special_step)(aten_lowering *c, ir_value count, const ir_value *state, ir_value *next);
ir_value special_loop(aten_lowering *c, uint32_t n, const ir_value *state, int64_t limit, special_step step);

#endif
