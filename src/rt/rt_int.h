/* The runtime's inside.
 *
 * A *value* is what a storage holds at one moment: immutable, counted, dense row-major of some dims and some dtype, as
 * programs have them (base_dtype_stored of a tensor's). It is pending (a result in the device's trace), ready (has a
 * PJRT buffer, which may still be computing) or failed.
 * A *storage* points at its current value; a write makes a new value and moves the storage to it.
 *
 * A *trace* is a device's list of records since its last cut. Each value that a record touches gets a *local* number
 * in the trace, in order of first touch; a record names its operands by local numbers, so two pieces that do the
 * same on different buffers are the same piece. The trace's hash is updated by each record over: the variant,
 * static arguments, operands' locals, dtypes, sizes, strides, and for inputs the value's type. Together with which
 * results are still wanted and which inputs may be donated it is the program's key.
 *
 * Who holds what: a storage holds its value; the trace holds every local value once; an event and the device's
 * tail hold values. At a cut a value is wanted if anybody but the trace holds it.
 *
 * Dynamic numbers of a piece travel in two vectors, one of f64 and one of i64, uploaded once a run.
 */
#ifndef TTPU_RT_INT_H
#define TTPU_RT_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "rt/rt.h"

typedef enum { RT_PENDING, RT_READY, RT_FAILED } rt_state;

typedef struct rt_value {
  atomic_uint refs;
  uint8_t state;
  uint8_t dtype, rank;
  uint32_t device;
  uint32_t epoch, local;    /* number in the trace of that epoch */
  pjrt_buffer *buffer;      /* ready */
  struct rt_layout *layout; /* how it lies in the buffer, which is longer (bucket.c); NULL: as its dims say */
  pjrt_buffer *cut;         /* with a layout: as its dims say, once somebody asked; guarded by rt_lock */
  void *host;               /* its elements, where a bucket may want them (rt_bucket_host_copy); NULL: none are kept */
  struct rt_error *error;   /* failed */
  int64_t numel;
  int64_t dims[]; /* rank of them */
} rt_value;

typedef struct rt_error {
  atomic_uint refs;
  ttpu_status code;
  char message[];
} rt_error;

rt_value *rt_value_new(uint32_t device, ttpu_dtype dtype, uint32_t rank, const int64_t *dims);
rt_value *rt_value_share(rt_value *v);
void rt_value_free(rt_value *v);
void rt_value_fail(rt_value *v, rt_error *e); /* takes a reference of e for v */
rt_error *rt_error_new(ttpu_status code, const char *message);
void rt_error_free(rt_error *e);

struct rt_storage {
  uint32_t device;
  size_t bytes;
  void *address;
  size_t address_bytes;
  rt_value *value;             /* NULL: never written, reads as zero. Guarded by rt_lock */
  rt_value *before;            /* while its device captures: the value at the beginning */
  bool is_older;               /* than the capture: `before` is to be restored */
  bool is_absent;              /* made without data: its bytes are not accounted for */
  uint32_t number;             /* of rt_graph_key: its first place among the arguments */
  rt_storage *previous, *next; /* among all live ones, for rt_storage_find; guarded by rt_lock */
};

enum { RT_NO_LOCAL = 0xffffffffu };

/* A number's place in the piece's vectors. */
typedef struct rt_slot {
  uint8_t dtype;
  uint32_t index;
} rt_slot;

typedef struct rt_out {
  uint32_t local;     /* of the value it makes */
  uint32_t base;      /* local of the value it is written into, RT_NO_LOCAL when it covers the storage */
  int64_t base_numel; /* of the storage in elements of the result's dtype; for a base never written */
  aten_tensor meta;
} rt_out;

typedef struct rt_record_entry {
  const rt_op *op;
  aten_call call;          /* arrays in the trace's arena */
  uint32_t *operands;      /* per tensor: local, RT_NO_LOCAL for numbers, undefined and never written */
  rt_slot *tensor_slots;   /* per tensor, for numbers */
  int64_t *storage_numels; /* per tensor: elements of its storage, for never written ones */
  rt_slot *number_slots;   /* per number */
  rt_out *outs;
  uint32_t out_count;
  const char *location; /* in the user's program; NULL: not known */
  uint32_t random_slot;
  uint8_t precision;
} rt_record_entry;

typedef struct rt_local {
  rt_value *value;
  bool is_input;
} rt_local;

/* The vectors of a piece's numbers. */
typedef struct rt_numbers {
  double *f64s;
  int64_t *i64s;
  uint32_t f64_count, i64_count;
} rt_numbers;

typedef struct rt_trace {
  base_arena arena;
  rt_record_entry **records;
  uint32_t count, capacity;
  rt_local *locals;
  uint32_t local_count, local_capacity;
  double *f64s;
  uint32_t f64_count, f64_capacity;
  int64_t *i64s;
  uint32_t i64_count, i64_capacity;
  base_hash128 hash;
  uint64_t window[4]; /* size-free hashes of the last operators: they decide cuts */
  uint64_t bytes;     /* of results, an upper bound */
  uint32_t epoch;
} rt_trace;

typedef struct rt_program {
  base_hash128 key;
  pjrt_executable *executable;
  uint32_t users;      /* the cache and each graph */
  uint32_t operators;  /* calls that it was made of; 0: it came from the disk */
  uint64_t runs, text; /* text: the hash in its file's name in TTPU_PROGRAM_DIR, 0: it has none */
  const char *row;     /* of the first call; NULL: it came from the disk */
  pjrt_cost cost;
  struct rt_bucket *bucket;         /* NULL: of exact sizes. Else the executable is the bucket's */
  struct rt_program *next;          /* in its bucket */
  struct rt_program *newer, *older; /* by last use */
} rt_program;

/* What a trace becomes when it runs; the arrays are in its arena. */
typedef struct rt_piece {
  uint32_t *outputs; /* locals */
  uint32_t output_count, input_count;
  bool *donate; /* by input */
  rt_program *program;
} rt_piece;

/* A start of a program: values in and out, and room. */
typedef struct rt_run {
  uint32_t input_count, output_count;
  rt_value **inputs, **outputs;
  bool *donate; /* by input, and three more */
  pjrt_buffer **buffers,
      **entered;      /* the same: the arguments, and those of them that are the run's own, NULL at first */
  pjrt_buffer **made; /* by output */
} rt_run;

typedef struct rt_device {
  uint32_t index;
  pjrt_device *pjrt;
  rt_trace trace;
  bool whole;     /* a graph is recorded: the trace is not cut but by need, and then it */
  bool was_cut;   /* is not one piece */
  bool capturing; /* the trace is not cut until the capture ends (capture.c) */
  rt_value *tail; /* a result of the last program enqueued: ready when everything is */
  uint64_t allocated, peak, limit;
  uint64_t allocated_total, freed_total, allocations, frees, active, active_peak, oom_count;
  uint64_t allocated_base, freed_base; /* for reset_accumulated */
  pthread_mutex_t error_lock;
  rt_error *error;  /* the first since the last synchronisation */
  uint32_t running; /* pieces whose outcome has not been noted; guarded by error_lock like error */
  pthread_cond_t noted;
} rt_device;

/* A lock for sections of nanoseconds: one word, taken inline, a futex behind it when it is contended.
 * 0 free, 1 held, 2 held and waited for. */
typedef struct rt_mutex {
  atomic_int state;
} rt_mutex;
void rt_mutex_wait(rt_mutex *m); /* takes it after waiting */
void rt_mutex_wake(rt_mutex *m);
static inline void rt_mutex_lock(rt_mutex *m) {
  int free = 0;
  if (!atomic_compare_exchange_strong_explicit(&m->state, &free, 1, memory_order_acquire, memory_order_relaxed))
    rt_mutex_wait(m);
}
static inline void rt_mutex_unlock(rt_mutex *m) {
  if (atomic_exchange_explicit(&m->state, 0, memory_order_release) == 2) rt_mutex_wake(m);
}

typedef struct rt_runtime {
  rt_mutex lock;
  pjrt_client *client;
  rt_device *devices;
  uint32_t device_count;
  rt_mode mode;
  rt_counters counters;
  int forbid_compile;
} rt_runtime;
extern rt_runtime rt_global;

static inline void rt_lock(void) { rt_mutex_lock(&rt_global.lock); }
static inline void rt_unlock(void) { rt_mutex_unlock(&rt_global.lock); }

/* With the lock held: */
ttpu_status rt_trace_cut(rt_device *d); /* run what is recorded */
/* Waits, without the lock, while another thread records a whole function: before anything is recorded, cut or written. */
ttpu_status rt_wait_turn(rt_device *d);
static inline ttpu_status rt_take_turn(rt_device *d) { return d->whole || d->capturing ? rt_wait_turn(d) : TTPU_OK; }
void rt_end_turn(void);     /* after a recording has ended */
bool rt_records_here(void); /* is this thread one of those whose recording is under way? */
/* Its parts: running without forgetting what was recorded, which is more than nothing; and forgetting it. */
ttpu_status rt_trace_run(rt_device *d, rt_piece *piece);
void rt_trace_reset(rt_trace *t);
void rt_trace_free(rt_trace *t);                    /* of one that was reset: its memory */
uint32_t rt_trace_local(rt_device *d, rt_value *v); /* its number in the trace; RT_NO_LOCAL: out of memory */
/* Starts a program; its outputs are ready, as values, when this returns. */
ttpu_status rt_launch(rt_device *d, const rt_program *p, const rt_numbers *numbers, rt_run *run);
void rt_device_note_error(rt_device *d, ttpu_status code, const char *message);
/* Waits until the outcome of every piece is noted, then takes the error out (NULL: none); without the lock held. */
rt_error *rt_device_take_error(rt_device *d);
ttpu_status rt_program_get(rt_device *d, base_hash128 key, const uint32_t *outputs, uint32_t output_count,
                           const bool *donate, rt_program **out);
void rt_program_leave(rt_program *p); /* one user less */
/* The trace as a function whose results are the locals `outputs`; its messages name the operator. */
ttpu_status rt_trace_build(rt_device *d, base_arena *arena, const uint32_t *outputs, uint32_t output_count,
                           const bool *donate, ir_func **out);
extern rt_storage *rt_storage_newest; /* the list of live ones, by `next` */
ttpu_status rt_storage_make(uint32_t device, size_t bytes, bool is_absent, rt_storage **out);
void rt_program_clear(void);
void rt_graph_free_locked(rt_graph *g);
void rt_meta_clear(void);

/* Compiles f, which takes the arena whatever the outcome; and the same through the disk. program.c */
ttpu_status rt_compile(rt_device *d, base_arena *arena, ir_func *f, pjrt_executable **out);
bool rt_executable_load(rt_device *d, base_hash128 key, pjrt_executable **out);
void rt_executable_store(base_hash128 key, pjrt_executable *e);

/* bucket.c */
typedef struct rt_bucket rt_bucket;
bool rt_bucket_enabled(void);
/* A function of exact sizes, looked at: what is known of others of its structure. */
typedef struct rt_form {
  base_arena arena;
  ir_func *plain;
  base_hash128 key;
  uint32_t count;
  const int64_t *numbers;
  struct rt_skeleton *known; /* NULL: it is the first one */
} rt_form;
ttpu_status rt_form_open(const ir_func *f, rt_form *out); /* close it whatever the outcome */
void rt_form_close(rt_form *form);
void rt_form_note(const rt_form *form, uint64_t nanoseconds); /* how long compiling it took */
/* The program of padded sizes that serves it; *out NULL: it is to be compiled as it is. */
ttpu_status rt_bucket_find(rt_device *d, const rt_form *form, rt_bucket **out);
/* Has it run so often in its bucket that it is worth a program of its own? */
bool rt_bucket_is_outgrown(const rt_program *p);
void rt_bucket_free(rt_bucket *b);
pjrt_executable *rt_bucket_executable(const rt_bucket *b);
void rt_bucket_clear(void); /* forgets what is known of structures, and the programs that cut */
/* The argument number i of the bucket's program: the value's own buffer, or a new one in *entered. */
ttpu_status rt_bucket_enter(rt_device *d, const rt_bucket *b, uint32_t i, rt_value *v, pjrt_buffer **out,
                            pjrt_buffer **entered);
/* A vector of numbers as argument number i. */
ttpu_status rt_bucket_upload(rt_device *d, const rt_bucket *b, uint32_t i, ttpu_dtype dtype, uint32_t count,
                             const void *data, pjrt_buffer **out);
/* A copy of a small value that comes from the host, to be padded there; freed with base_free. NULL: none is wanted. */
void *rt_bucket_host_copy(const void *data, size_t bytes);
pjrt_buffer *rt_bucket_numbers(const rt_bucket *b); /* its last argument; NULL: it has none */
struct rt_layout *rt_bucket_layout(const rt_bucket *b,
                                   uint32_t output); /* of that result, shared; NULL: as its dims say */
/* The buffer of a ready value as its dims say. */
ttpu_status rt_value_exact(rt_device *d, rt_value *v, pjrt_buffer **out);
/* Waits for a value that has a layout, and reads `count` bytes of it from `offset` on. Without the lock. */
ttpu_status rt_layout_read(const rt_value *v, size_t offset, void *to, size_t count);
void rt_layout_free(struct rt_layout *l); /* one user less; NULL is fine */

/* diskcache.c */
bool rt_disk_enabled(void);
void *rt_disk_read(base_hash128 key, size_t *length);                     /* NULL: not there; freed with base_free */
void rt_disk_write(base_hash128 key, const void *payload, size_t length); /* failing is no error */
void rt_disk_remove(base_hash128 key);

/* views.c. `base` is dense row-major of base_type; the result has the tensor's sizes, and the dtype in which programs
 * compute with the tensor's. */
ir_value rt_view_read(ir_builder *b, ir_value base, const aten_tensor *t);
/* A value of the dtype that programs compute in as the elements in which storages hold a tensor of `dtype`. */
ir_value rt_view_pack(ir_builder *b, ttpu_dtype dtype, ir_value v);
/* The storage's next value when `update` (the tensor's sizes, packed) is written through t. */
ir_value rt_view_write(ir_builder *b, ir_value base, const aten_tensor *t, ir_value update);
/* Is t dense (row-major up to a permutation), from offset 0? Then order[i] is the dim that is i-th in memory. */
bool rt_view_is_dense(const aten_tensor *t, uint32_t order[TTPU_MAX_RANK]);
/* The permutation that reads a tensor in memory order, and back. */
ir_value rt_view_to_memory(ir_builder *b, const aten_tensor *t, const uint32_t *order, ir_value v);

#endif
