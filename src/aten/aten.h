/* aten: one lowering per ATen operator. Takes a call (an operator's row in aten.def, its arguments, its
 * tensors' metadata) and gives StableHLO through ir's builder; and, where a row has a shape function, the
 * results' metadata without asking PyTorch.
 *
 * A row names the functional overload ("add.Tensor"). Its in-place form (add_.Tensor) and out form (add.out) are
 * found by schema when the operators are registered and share the row: lowerings always compute functionally, and
 * the recorder puts results back where the schema's alias annotations say. Operators that exist only in place
 * ("fill_.Scalar", "normal_") are rows under that name, and are written the same way: result 0 is self's new value.
 *
 * Results: the schema's returns in order, then each argument that is mutated but not returned, in order (batch
 * norm's running statistics; the rows' `mutates` adds what schemas do not say). A lowering gives all of
 * them with aten_out.
 *
 * Numbers. Sizes, dims, flags, dtypes and texts are static: a lowering may branch on them, and they are part of every
 * key. A float or a Scalar argument is *dynamic*: it reaches the program as data (aten_number), so that a new
 * learning rate compiles nothing; unless the row's static mask names it. A CPU number in a tensor's
 * place (x * 2.0, a 0-d CPU tensor) is dynamic too and looks like a rank-0 tensor to a lowering.
 *
 *   aten.def     the rows
 *   aten.c       lookup, the accessors below
 *   promote.c    PyTorch's type promotion
 *   shape.c      shape functions (PyTorch's Meta kernels are the oracle: a test compares)
 *   lower_*.c    lowerings by family
 */
#ifndef TTPU_ATEN_H
#define TTPU_ATEN_H

#include "base/base.h"
#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor as an operator sees it. */
enum {
  ATEN_WRAPPED = 1,   /* a Python number: lowest priority in type promotion */
  ATEN_NUMBER = 2,    /* its value is a host number (`number`); rank 0 */
  ATEN_UNDEFINED = 4, /* None, or an undefined gradient */
  ATEN_HALVES = 8,    /* for lowerings: a complex tensor whose parts are held as f16 (complex32) */
};
typedef struct aten_tensor {
  uint8_t dtype; /* ttpu_dtype */
  uint8_t rank;
  uint8_t flags;
  int64_t offset; /* of the view in its storage, elements */
  const int64_t *sizes, *strides;
  base_scalar number;
} aten_tensor;

typedef enum aten_kind {
  ATEN_NONE,    /* None, or left at a default of None */
  ATEN_TENSOR,  /* tensors[first] */
  ATEN_TENSORS, /* tensors[first .. first+count) ; elements may be ATEN_UNDEFINED (Tensor?[]) */
  ATEN_INT,     /* ints[first]: int, SymInt, bool, ScalarType (as ttpu_dtype), memory format (c10's number) */
  ATEN_INTS,    /* ints[first .. first+count): int[], bool[] */
  ATEN_FLOAT,   /* numbers[first], dtype F64 */
  ATEN_SCALAR,  /* numbers[first], dtype BOOL, I64, F64 or C128 */
  ATEN_FLOATS,  /* numbers[first .. first+count) */
  ATEN_SCALARS,
  ATEN_TEXT,  /* texts[first] */
  ATEN_OTHER, /* layout, device, pin_memory, generator: no meaning for a lowering */
} aten_kind;

typedef struct aten_arg {
  uint8_t kind;
  uint8_t is_float; /* a wrapped float was given where an int may stand (unused otherwise) */
  uint16_t count;
  uint32_t first;
} aten_arg;

typedef struct aten_number {
  ttpu_dtype dtype; /* BOOL, I64, F64, C128 */
  base_scalar value;
} aten_number;

typedef struct aten_call {
  const struct aten_row *row;
  uint32_t arg_count, tensor_count, int_count, number_count, text_count;
  const aten_arg *args;
  const aten_tensor *tensors;
  const int64_t *ints;
  const aten_number *numbers;
  const char *const *texts;
} aten_call;

/* What a lowering works with. */
typedef struct aten_lowering {
  ir_builder *b;
  const aten_call *call;
  const aten_tensor *outs; /* metadata of the results: dtype, sizes, strides */
  uint32_t out_count;
  ir_value *results; /* by aten_out */
  /* From the recorder: the operand's logical value (sizes as the tensor's), made on first use. */
  ir_value (*operand)(struct aten_lowering *c, uint32_t tensor);
  ir_value (*number)(struct aten_lowering *c, uint32_t number, ttpu_dtype dtype); /* dynamic: rank 0 */
  ir_value (*random)(struct aten_lowering *c); /* tensor<2xui64>: seed, offset; only for ATEN_RNG rows */
  ir_precision precision;                      /* of f32 products, by torch.set_float32_matmul_precision */
  void *context;
} aten_lowering;

typedef void (*aten_lower_fn)(aten_lowering *c);
/* Fills outs (dtype, rank, sizes, strides; arrays have room for TTPU_MAX_RANK; a list of results has as many as the
 * call's first list argument) and returns true; or returns false for
 * what it does not cover and for bad calls: then PyTorch's Meta kernel is asked and raises PyTorch's error. */
typedef struct aten_shape {
  uint8_t dtype, rank;
  int64_t sizes[TTPU_MAX_RANK], strides[TTPU_MAX_RANK];
} aten_shape;
typedef bool (*aten_shape_fn)(const aten_call *call, aten_shape *outs);

enum {
  ATEN_RNG = 1,       /* draws random numbers: takes the generator's seed and offset */
  ATEN_DYNAMIC = 2,   /* the size of the results' first dimension, or of the call's `dim` in a result of more than one
                       * (unique_dim), is known only when it has run (nonzero, masked_select, unique): outs are the
                       * upper bound; one more result after all others holds the count (i64, rank 0). `dynamic`
                       * says which results it cuts. Needs a shape function. */
  ATEN_PRODUCT = 4,   /* multiplies matrices: its lowering reads `precision`, which only such a call carries */
  ATEN_CHECKED = 8,   /* its Meta kernel lets pass what the CPU's refuses: after Meta, the CPU is asked as well */
  ATEN_COMPLETE = 16, /* its shape function takes all that the CPU takes: the CPU raises the error of what it refuses */
  ATEN_LISTS = 64,    /* its lists of integers are data like its Scalars; their values decide no more than sizes */
  ATEN_APART = 128,   /* what it writes may share no element with its operands other than self */
  ATEN_COUNTED = 256, /* its out= argument keeps whatever sizes it has if it has as many elements as the result */
  ATEN_UNIFORM = 32,  /* its result is the same number everywhere: it may be written to elements that share memory */
};
typedef struct aten_row {
  const char *name; /* "add.Tensor", without "aten::" */
  aten_lower_fn lower;
  aten_shape_fn shape; /* NULL: Meta */
  uint32_t flags;
  uint32_t static_args; /* bit i: argument i (float, Scalar) is static */
  uint32_t mutates;     /* bit i: argument i is written though the schema does not say so */
  uint32_t dynamic;     /* ATEN_DYNAMIC: bit i: result i is cut to the count */
  uint32_t units;       /* bit i: Scalar argument i is passed as ATEN_NONE when it is exactly 1 (alpha, value):
                         * most calls leave it so, and then nothing is multiplied */
} aten_row;

extern const aten_row aten_rows[];
extern const uint32_t aten_row_count;
const aten_row *aten_row_find(const char *name); /* NULL: none */
/* torch.cond, scan and while_loop, which are no operators of ATen: lower_control.c says what their arguments are. */
extern const aten_row aten_cond_row, aten_scan_row, aten_while_loop_row;
/* How many Philox counters (4 words of 32 bits) a call of an ATEN_RNG row may draw, for the generator's offset. */
uint64_t aten_random_counters(const aten_call *call, const aten_tensor *outs);
/* Fails for static arguments (sizes, numbers, texts) and dtypes that Meta lets pass and the CPU refuses, in the words of
 * PyTorch's CPU kernels; asked once for each metadata (check.c). */
ttpu_status aten_call_check(const aten_call *call);
/* Fails for dtypes and numbers (a probability, a range) with which no distribution is, as PyTorch's CPU kernels do; outs are
 * the results' metadata. */
enum { ATEN_WARNING = 256 }; /* room for what the user is to be warned of; empty: nothing */
ttpu_status aten_random_check(const aten_call *call, const aten_tensor *outs, char *warning);

/* ---- inside a lowering: arguments by their position in the schema ------------------------------ */

bool aten_has(const aten_lowering *c, uint32_t arg); /* present, not None, not undefined */
ir_value aten_in(aten_lowering *c, uint32_t arg);
const aten_tensor *aten_meta(const aten_lowering *c, uint32_t arg); /* of a tensor argument */
uint32_t aten_list_count(const aten_lowering *c, uint32_t arg);
bool aten_list_has(const aten_lowering *c, uint32_t arg, uint32_t i);
ir_value aten_list_in(aten_lowering *c, uint32_t arg, uint32_t i);
const aten_tensor *aten_list_meta(const aten_lowering *c, uint32_t arg, uint32_t i);
int64_t aten_int(const aten_lowering *c, uint32_t arg); /* int, bool */
int64_t aten_int_or(const aten_lowering *c, uint32_t arg, int64_t none);
ttpu_dtype aten_dtype_or(const aten_lowering *c, uint32_t arg, ttpu_dtype none); /* ScalarType? */
ir_i64s aten_ints(const aten_lowering *c, uint32_t arg);                         /* empty when None */
/* The integers of an ATEN_LISTS row's list as a vector. */
ir_value aten_vector_in(aten_lowering *c, uint32_t arg);
const char *aten_text(const aten_lowering *c, uint32_t arg); /* NULL when None */
/* A dim argument, wrapped into [0, rank); rank 0 counts as rank 1. */
uint32_t aten_dim(const aten_lowering *c, uint32_t arg, uint32_t rank);
/* A list of dims, wrapped; an absent or empty list means all. Returns how many, sorted ascending. */
uint32_t aten_dims(const aten_lowering *c, uint32_t arg, uint32_t rank, int64_t dims[TTPU_MAX_RANK]);
/* A float or Scalar argument as a rank-0 value of that dtype. */
ir_value aten_number_in(aten_lowering *c, uint32_t arg, ttpu_dtype dtype);
ttpu_dtype aten_number_dtype(const aten_lowering *c, uint32_t arg); /* BOOL, I64, F64, C128 */
/* The value itself; only for arguments in the row's static mask. */
double aten_static(const aten_lowering *c, uint32_t arg);
/* Result i; converted to the result's dtype and broadcast to its sizes where they differ. */
void aten_out(aten_lowering *c, uint32_t i, ir_value v);
/* The dtype in which PyTorch's CPU kernels compute for t: f32 for f16 and bf16, else t itself. */
ttpu_dtype aten_math_dtype(ttpu_dtype t);

/* ---- type promotion (promote.c) ----------------------------------------------------------------- */

/* torch.promote_types. */
ttpu_dtype aten_promote(ttpu_dtype a, ttpu_dtype b);
/* torch.result_type over tensors and numbers: dimensioned tensors before 0-d ones before wrapped numbers. The result is
 * TTPU_NO_DTYPE where PyTorch refuses: uint16, uint32 and uint64 go with nothing but floats. */
typedef struct aten_promotion {
  ttpu_dtype dim, zero, wrapped;
  bool refused;
} aten_promotion;
void aten_promotion_add(aten_promotion *p, const aten_tensor *t);
void aten_promotion_add_number(aten_promotion *p, ttpu_dtype number);
ttpu_dtype aten_promotion_result(const aten_promotion *p);

#ifdef __cplusplus
}
#endif
#endif
