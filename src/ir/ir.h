/* ir: StableHLO as C structs. Takes builder calls (or text) and gives a function that was type-checked
 * op by op, which the software TPU compiles by pointer and every other plugin reads as text.
 *
 * An ir_func lives in one arena, given by whoever builds it. Values are 32-bit handles, numbered through the
 * whole function, regions included; 0 is no value. Operations are in order: an operand is always defined
 * before its use. Everything is immutable once built; a pass annotates (arrays indexed by value or by op) or
 * builds a new function.
 *
 *   ops.def attrs.def   the lists
 *   tables.c  what the lists say, as data; copying and comparing attributes
 *   build.c   functions, regions, append
 *   helpers.c the builder's helpers: one line for what lowerings write most
 *   infer*.c  result types and every constraint of the spec; the message names op and types
 *   verify.c  a whole function again, between passes in debug builds and after parsing
 *   print.c parse*.c    the generic MLIR text form, both ways
 *   vhlo* bytecode*.c   portable artifacts: MLIR bytecode
 *   composite*.c        decompositions, ir_decompose
 *   bucket*.c sizes rounded up, so that one program serves many (bucket.h)
 *   hash.c    ir_func_hash: with sizes; ir_func_structure: without
 */
#ifndef TTPU_IR_H
#define TTPU_IR_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t ir_value; /* 0: none */

typedef enum ir_kind {
  IR_NO_OP = 0,
#define OP(ENUM, name, operands, results, regions, infer, attrs, flags) IR_##ENUM,
#include "ir/ops.def"
#undef OP
  IR_KIND_COUNT
} ir_kind;

enum { IR_POINTWISE = 1, IR_COMMUTES = 2, IR_VIEW = 4, IR_EFFECT = 8, IR_COMPOSITE = 16 };

typedef enum { IR_EQ, IR_NE, IR_GE, IR_GT, IR_LE, IR_LT } ir_direction;
/* Operand precision of a product. DEFAULT: one bf16 pass, HIGH: three, HIGHEST: exact f32. */
typedef enum { IR_PRECISION_DEFAULT, IR_PRECISION_HIGH, IR_PRECISION_HIGHEST } ir_precision;
typedef enum { IR_RNG_DEFAULT, IR_RNG_THREE_FRY, IR_RNG_PHILOX } ir_rng_algorithm;
typedef enum { IR_FFT_FFT, IR_FFT_IFFT, IR_FFT_RFFT, IR_FFT_IRFFT } ir_fft_type;
typedef enum { IR_NO_TRANSPOSE, IR_TRANSPOSE_A, IR_ADJOINT } ir_transpose_kind;
/* What a failed check is: an index outside (OUT_OF_RANGE), another bad argument (FAILED_PRECONDITION), or a matrix that
 * cannot be factored (ABORTED). */
typedef enum { IR_BAD_INDEX, IR_BAD_VALUE, IR_BAD_MATRIX } ir_check_error;
typedef enum { IR_CUMSUM, IR_CUMPROD, IR_CUMMAX, IR_CUMMIN, IR_LOGCUMSUMEXP } ir_scan_kind;

typedef struct ir_i64s {
  const int64_t *data;
  uint32_t count;
} ir_i64s;
typedef struct ir_flags {
  const bool *data;
  uint32_t count;
} ir_flags;
typedef struct ir_data { /* a constant: elements in row-major order, or one that fills all */
  const void *bytes;
  bool splat;
} ir_data;

/* The attribute structs, from attrs.def. */
#define DIMS(s, f) ir_i64s f;
#define SIZES(s, f) ir_i64s f;
#define I64(s, f) int64_t f;
#define SIZE(s, f) int64_t f;
#define F64(s, f) double f;
#define FLAG(s, f) bool f;
#define FLAGS(s, f) ir_flags f;
#define ENUM(s, f, e) e f;
#define DATA(s, f) ir_data f;
#define TEXT(s, f) const char *f;
#define ATTRS(name, fields)          \
  typedef struct ir_##name##_attrs { \
    fields                           \
  } ir_##name##_attrs;
#include "ir/attrs.def"
#undef ATTRS
#undef DIMS
#undef SIZES
#undef I64
#undef SIZE
#undef F64
#undef FLAG
#undef FLAGS
#undef ENUM
#undef DATA
#undef TEXT

typedef struct ir_type { /* tensor<dims x dtype> */
  uint8_t dtype;         /* ttpu_dtype */
  uint8_t rank;
  const int64_t *dims;
} ir_type;

typedef struct ir_op {
  uint16_t kind; /* ir_kind */
  uint16_t region_count;
  uint32_t operand_count, result_count;
  uint32_t index; /* position in its region */
  ir_value *operands;
  ir_value first_result; /* results are first_result, +1, ... */
  const void *attrs;     /* the kind's ir_*_attrs; NULL where it has none. Use IR_ATTRS */
  struct ir_region **regions;
  const char *source; /* the ATen operator this came from, for messages; may be NULL */
} ir_op;
#define IR_ATTRS(op, name) ((const ir_##name##_attrs *)(op)->attrs)

typedef struct ir_region {
  ir_value first_arg; /* arguments are first_arg, +1, ... */
  uint32_t arg_count;
  ir_op **ops; /* the last one is RETURN */
  uint32_t count, capacity;
} ir_region;

typedef struct ir_value_info {
  ir_type type;
  ir_op *def;        /* NULL for a region's argument */
  ir_region *region; /* where it is defined */
  uint32_t number;   /* which result or argument */
} ir_value_info;

/* How a program's values lie on several chips, as its text says: Shardy's #sdy.sharding<@mesh, [{"x"}, {}]>, or the older
 * strings of mhlo.sharding, "{devices=[2,1]<=[2]}". */
typedef struct ir_mesh {
  const char *name, *text; /* "mesh" and #sdy.mesh<["x"=2, "y"=2]> */
} ir_mesh;
typedef struct ir_shardings {
  uint32_t mesh_count;
  const ir_mesh *meshes;
  const char *const *parameters, *const *results; /* NULL for those without */
} ir_shardings;

typedef struct ir_func {
  base_arena *arena;
  const char *name;      /* "main" */
  ir_region body;        /* its RETURN's operands are the function's results */
  ir_value_info *values; /* [1 .. value_count) */
  uint32_t value_count, value_capacity;
  const bool *donate;            /* per parameter: its buffer may be consumed; NULL: none */
  const ir_shardings *shardings; /* NULL: nothing is said about several chips */
} ir_func;

static inline ir_type ir_type_of(const ir_func *f, ir_value v) { return f->values[v].type; }
static inline ir_op *ir_def(const ir_func *f, ir_value v) { return f->values[v].def; }
static inline int64_t ir_numel(ir_type t) { return base_numel(t.rank, t.dims); }
bool ir_type_equal(ir_type a, ir_type b);
bool ir_same_dims(ir_type a, ir_type b);

typedef struct ir_op_info {
  const char *name;                  /* without the dialect: "add" */
  int8_t operands, results, regions; /* -1: any */
  uint16_t flags;
  uint16_t attrs; /* index into the attribute tables, 0: none */
} ir_op_info;
extern const ir_op_info ir_ops[IR_KIND_COUNT];

/* ---- building ------------------------------------------------------------------------------- */

/* A builder appends to the innermost open region. Its first failure is kept in `status` and `message` ("aten::mm:
 * dot_general: contracting dimensions ..."); from then on every call returns 0 at once, so callers check once at the
 * end. Until they do, value 0 has a type (a scalar of no dtype, with dims that may be read) and ir_region_begin gives a
 * region without arguments. */
typedef struct ir_builder {
  ir_func *func;
  ir_region *region;
  const char *source; /* put into each op; the text must live as long as the function */
  ttpu_status status;
  char message[512];
} ir_builder;

ir_func *ir_func_new(base_arena *arena, const char *name); /* NULL: out of memory */
ir_builder ir_builder_on(ir_func *func); /* of NULL: a builder that has failed with RESOURCE_EXHAUSTED */
ir_type ir_tensor(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims); /* copies dims */
ir_value ir_param(ir_builder *b, ir_type type);
void ir_return(ir_builder *b, uint32_t count, const ir_value *values);
/* Records a failure of the builder's user; returns 0. */
ir_value ir_fail(ir_builder *b, ttpu_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The one way in: infers and checks. `given` is the result type for rules that need one (convert, iota,
 * reshape, ...), NULL elsewhere; given all the same it is checked. One with dims NULL gives the dtype alone (products).
 * Attributes are copied deep. Returns the first result. */
ir_value ir_append(ir_builder *b, ir_kind kind, uint32_t operand_count, const ir_value *operands, const void *attrs,
                   uint32_t given_count, const ir_type *given, uint32_t region_count, ir_region **regions);

/* Regions: begin opens one with arguments of the given types (rank 0 for reducers), end closes it with its
 * results. Values of outer regions may be used inside. */
ir_region *ir_region_begin(ir_builder *b, uint32_t arg_count, const ir_type *types, ir_region **outer);
void ir_region_end(ir_builder *b, ir_region *outer, uint32_t count, const ir_value *results);
/* Appends `op` of the function `from` again, regions included. map[old value] = new value: it is read for the
 * operands and written for the results (from->value_count entries). Returns the first result. */
ir_value ir_copy_op(ir_builder *b, const ir_func *from, const ir_op *op, ir_value *map);

ir_value ir_unary(ir_builder *b, ir_kind kind, ir_value x);
ir_value ir_binary(ir_builder *b, ir_kind kind, ir_value x, ir_value y);
ir_value ir_convert(ir_builder *b, ir_value x, ttpu_dtype to);         /* x itself when already so */
ir_value ir_bitcast_convert(ir_builder *b, ir_value x, ttpu_dtype to); /* same element size only */
ir_value ir_compare(ir_builder *b, ir_direction direction, ir_value x, ir_value y);
ir_value ir_select(ir_builder *b, ir_value pred, ir_value on_true, ir_value on_false);
ir_value ir_clamp(ir_builder *b, ir_value low, ir_value x, ir_value high);

/* Index maps. Each returns x itself when it would change nothing. */
ir_value ir_reshape(ir_builder *b, ir_value x, uint32_t rank, const int64_t *dims);
ir_value ir_transpose(ir_builder *b, ir_value x, const int64_t *permutation);
ir_value ir_broadcast_in_dim(ir_builder *b, ir_value x, uint32_t rank, const int64_t *dims, const int64_t *map);
/* NumPy broadcasting: aligns trailing dimensions, expands those of size 1. */
ir_value ir_broadcast_to(ir_builder *b, ir_value x, uint32_t rank, const int64_t *dims);
ir_value ir_slice(ir_builder *b, ir_value x, const int64_t *start, const int64_t *limit,
                  const int64_t *strides); /* strides NULL: 1 */
ir_value ir_slice_dim(ir_builder *b, ir_value x, uint32_t dim, int64_t start, int64_t limit, int64_t stride);
ir_value ir_reverse(ir_builder *b, ir_value x, uint32_t count, const int64_t *dims);
ir_value ir_concatenate(ir_builder *b, uint32_t count, const ir_value *xs, uint32_t dim);
/* low, high, interior NULL: 0. */
ir_value ir_pad(ir_builder *b, ir_value x, ir_value fill, const int64_t *low, const int64_t *high,
                const int64_t *interior);
ir_value ir_as_strided(ir_builder *b, ir_value x, uint32_t rank, const int64_t *sizes, const int64_t *strides,
                       int64_t offset);
ir_value ir_as_strided_update(ir_builder *b, ir_value x, ir_value update, const int64_t *strides, int64_t offset);
ir_value ir_dynamic_slice(ir_builder *b, ir_value x, const ir_value *starts, const int64_t *sizes);
ir_value ir_dynamic_update_slice(ir_builder *b, ir_value x, ir_value update, const ir_value *starts);
ir_value ir_gather(ir_builder *b, ir_value x, ir_value indices, const ir_gather_attrs *attrs);
/* `combine` 0: the update replaces; else IR_ADD, IR_MULTIPLY, IR_MINIMUM, IR_MAXIMUM. */
ir_value ir_scatter(ir_builder *b, ir_value x, ir_value indices, ir_value updates, const ir_scatter_attrs *attrs,
                    ir_kind combine);
/* Row `index[...]` of x along `dim`, as torch.take_along_dim reads one element: x and index have one rank
 * and agree outside dim (gather with batching dims). */
ir_value ir_take_along(ir_builder *b, ir_value x, ir_value index, uint32_t dim);
/* x[.., index[..], ..] : the dims of index replace dim `dim` (torch.index_select for 1-d index). */
ir_value ir_take(ir_builder *b, ir_value x, ir_value index, uint32_t dim);
/* Fails the execution where an element lies outside [low, high). */
ir_value ir_check_index(ir_builder *b, ir_value index, int64_t low, int64_t high, ir_check_error error,
                        const char *what);
/* Fails the execution with `what` where an element of `wrong` (bool) is true. */
void ir_check_not(ir_builder *b, ir_value wrong, ir_check_error error, const char *what);
/* That failure: of a condition `what` alone, of an index with what was found. */
ttpu_status ir_check_fail(const ir_check_index_attrs *check, bool is_condition, int64_t found);

/* Sources. */
ir_value ir_constant(ir_builder *b, ir_type type, ir_data data);
ir_value ir_scalar_f64(ir_builder *b, ttpu_dtype dtype, double value); /* rank 0, converted to dtype */
ir_value ir_scalar_i64(ir_builder *b, ttpu_dtype dtype, int64_t value);
ir_value ir_fill_f64(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, double value);
ir_value ir_fill_i64(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, int64_t value);
ir_value ir_like_f64(ir_builder *b, ir_value x, double value); /* type of x, filled */
ir_value ir_zeros_like(ir_builder *b, ir_value x);
ir_value ir_iota(ir_builder *b, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, uint32_t dim);
/* The smallest (-inf, or the integer's) and largest value of a dtype, rank 0. */
ir_value ir_lowest(ir_builder *b, ttpu_dtype dtype);
ir_value ir_highest(ir_builder *b, ttpu_dtype dtype);
/* Where a reduction of this kind begins; 0 (and no failure): it is none. */
ir_value ir_neutral(ir_builder *b, ir_kind kind, ttpu_dtype dtype);
/* Random bits, dtype u32 or u64, from Philox 4x32-10. state: tensor<2xui64> = {seed, offset}. Element i of the
 * result comes from counter offset + i/4 (u32) or i/2 (u64), so that the numbers depend on nothing else. */
ir_value ir_philox(ir_builder *b, ir_value state, ttpu_dtype dtype, uint32_t rank, const int64_t *dims);

/* Reductions over `dims`, which vanish. kind: IR_ADD MULTIPLY MAXIMUM MINIMUM AND OR, with its neutral element. */
ir_value ir_reduce(ir_builder *b, ir_kind kind, ir_value x, uint32_t count, const int64_t *dims);
/* Index (i64) of the extreme along one dim, first occurrence, NaN wins; *value gets the extreme too. */
ir_value ir_reduce_arg(ir_builder *b, bool largest, ir_value x, uint32_t dim, ir_value *value);
ir_value ir_reduce_window(ir_builder *b, ir_kind kind, ir_value x, const ir_window_attrs *attrs);
ir_value ir_dot_general(ir_builder *b, ir_value x, ir_value y, const ir_dot_general_attrs *attrs, ttpu_dtype result);
/* [.., M, K] x [.., K, N] with equal leading dims. */
ir_value ir_matmul(ir_builder *b, ir_value x, ir_value y, ir_precision precision, ttpu_dtype result);
ir_value ir_convolution(ir_builder *b, ir_value x, ir_value w, const ir_convolution_attrs *attrs, ttpu_dtype result);
/* Sorts `count` tensors together by the first along dim; NaN last (ascending), stable. */
ir_value ir_sort(ir_builder *b, uint32_t count, const ir_value *xs, uint32_t dim, bool descending);

/* ---- the rest ------------------------------------------------------------------------------- */

ttpu_status ir_func_verify(const ir_func *f);
/* Generic MLIR text of a module with @main (and one private function per composite's decomposition). */
ttpu_status ir_func_print(const ir_func *f, base_text *out);
/* Reads that form (ours and other tools' generic form), and StableHLO's portable artifacts (MLIR bytecode with VHLO of
 * version 0.9 or newer), which begin with "ML\xefR". The error names line and column, or the byte, and the operation. */
ttpu_status ir_parse(base_arena *arena, const char *text, size_t length, ir_func **out);
/* The function as a portable artifact, appended to *out: MLIR bytecode with VHLO of `version` (major * 100 + minor), which
 * every reader of that version or a newer one takes; 0: the oldest from 1.0 on that can hold it. Composites carry their
 * decompositions. Equal functions give equal bytes. UNIMPLEMENTED: the version lacks something. */
ttpu_status ir_func_write(const ir_func *f, unsigned version, base_text *out);
/* The same as text with attributes, as MLIR text without braces ("mhlo.num_partitions = 4 : i32"): of the module, and of each
 * argument and result of @main. NULL, an entry's too: none. */
typedef struct ir_annotations {
  const char *module;
  const char *const *arguments, *const *results;
} ir_annotations;
ttpu_status ir_func_print_annotated(const ir_func *f, const ir_annotations *annotations, base_text *out);

/* A statement of a test about two values: check.expect_eq and its like. */
typedef enum { IR_CHECK_EQ, IR_CHECK_ALMOST_EQ, IR_CHECK_CLOSE } ir_check_kind;
typedef struct ir_check {
  ir_check_kind kind;
  uint32_t actual, expected; /* which results of the function */
  uint32_t line;
  double tolerance;          /* ALMOST_EQ: of the difference */
  uint64_t min_ulp, max_ulp; /* CLOSE */
  /* Of what a loop probes: the expected value is what the program sends on `channel` the letter-th time; 0: a result. */
  int64_t channel;
  uint32_t letter;
} ir_check;
/* interpreter.run_parallel of a test: functions of the module that run together, one on each chip of a grid. */
typedef struct ir_parallel {
  uint32_t replicas, partitions;
  const char **programs; /* by chip, replica by replica: names */
  uint32_t infeed_count;
  const char **infeed;                   /* functions of one result each, what the chips are fed with in this order */
  uint32_t first_operand, operand_count; /* among the results of the function: the arguments of all chips */
  uint32_t result_count;                 /* of all chips */
  ir_type *types;                        /* of the results */
  void **results;                        /* their elements; NULL: not known yet, and zeros stand for them */
} ir_parallel;
enum { IR_PARSE_ANY = -1 };
typedef struct ir_parse_options {
  const char *entry; /* which function; NULL: @main, else the first public one */
  /* The sizes of parameters written with `?`, and the values of integers that sizes depend on (NULL: not known). */
  uint32_t argument_count; /* 0: nothing is known */
  const ir_type *arguments;
  const int64_t *const *known;
  /* Takes check.* operations instead of refusing them: the values that they compare become further results of the
   * function. base_free frees the list. */
  bool take_checks;
  ir_precision precision; /* of products that ask for no finer one */
  ir_check *checks;
  uint32_t check_count, check_capacity;
  /* With take_checks: how far the function's parallel runs are known. A reading adds the first one that is not, whose
   * operands become further results; to be read again with its results set. In `kept`, the list by base_free. */
  base_arena *kept;
  ir_parallel *parallels;
  uint32_t parallel_count, parallel_capacity;
} ir_parse_options;
/* The same with options; a program with `?` becomes the static one for the given sizes. */
ttpu_status ir_parse_with(base_arena *arena, const char *text, size_t length, ir_parse_options *options, ir_func **out);

/* What ir_parse_list tells of a function. Types are valid during the call. */
typedef struct ir_listed {
  const char *name; /* NUL-terminated */
  bool is_private;
  uint32_t argument_count;
  const ir_type *arguments; /* `?` is IR_PARSE_ANY; a tuple's type has no dtype */
} ir_listed;
/* Calls each(context, function) for the functions of a module, in order, without reading their bodies. */
ttpu_status ir_parse_list(const char *text, size_t length, void (*each)(void *context, const ir_listed *function),
                          void *context);
/* Replaces composites for which keep(kind) is false (keep NULL: all) by their decompositions, into a new function. */
ttpu_status ir_decompose(const ir_func *f, base_arena *arena, bool (*keep)(ir_kind), ir_func **out);
base_hash128 ir_func_hash(const ir_func *f);
/* The hash of what compiled code depends on: kinds, dtypes, ranks, connections, structural attributes, and of
 * each size only whether it is 0, 1 or more. */
base_hash128 ir_func_structure(const ir_func *f);
/* If a reducer region is `kind(arg0, arg1)` alone, that kind, else IR_NO_OP. */
ir_kind ir_region_reducer(const ir_func *f, const ir_region *r);
/* Attributes of two operations of one kind; `type` is the first result's (a constant's length). */
bool ir_attrs_equal(ir_kind kind, const void *a, const void *b, ir_type type);
/* Prints to stderr when TTPU_DUMP names the stage. */
void ir_dump(const ir_func *f, const char *stage);

/* ir_<helper>(b, x[, y]) for the rows UNARY and BINARY of ops.def: ir_abs, ir_add, ir_and_bits, ... */
#define OP(ENUM, name, operands, results, regions, infer, attrs, flags)
#define UNARY(ENUM, name, helper, infer, flags) \
  static inline ir_value ir_##helper(ir_builder *b, ir_value x) { return ir_unary(b, IR_##ENUM, x); }
#define BINARY(ENUM, name, helper, infer, flags) \
  static inline ir_value ir_##helper(ir_builder *b, ir_value x, ir_value y) { return ir_binary(b, IR_##ENUM, x, y); }
#include "ir/ops.def"
#undef OP

#ifdef __cplusplus
}
#endif
#endif
