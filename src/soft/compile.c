/* soft_compile: from a function to an executable. The passes, in their order:
 *
 *   structure  opt/structure.c  from the cache, or: groups (opt/group.c), tile programs (opt/program.c), order of steps
 *   bind       opt/bind.c       sizes and strides: the steps with their loops
 *   memory     opt/memory.c     what is written in place, offsets of temporaries
 *
 * The first depends on the structure of the function alone and is done once for it; the others cost about a microsecond
 * an operation. opt/opt.h has the essay. */
#include <string.h>

#include "soft/opt/opt.h"

static atomic_ullong executables_bound, executions;

/* Kernels and tile programs know PyTorch's dtypes; the rest of StableHLO's run in the reference. Tokens are handed on. */
static bool has_rare_dtype(const ir_func *f) {
  for (ir_value v = 1; v < f->value_count; ++v)
    if (base_dtype_is_rare((ttpu_dtype)f->values[v].type.dtype) && f->values[v].type.dtype != TTPU_TOKEN) return true;
  return false;
}

ttpu_status soft_compile(base_arena *arena, const ir_func *f, const soft_compile_options *options,
                         soft_executable **out) {
  if (f->body.count == 0 || f->body.ops[f->body.count - 1]->kind != IR_RETURN)
    return base_fail(TTPU_INVALID_ARGUMENT, "compile: function %s does not end with a return",
                     f->name ? f->name : "main");
  soft_executable *e = base_calloc(1, sizeof *e);
  if (!e) return base_no_memory(sizeof *e);
  e->f = f;
  e->arena = arena;
  e->reference = (options && options->reference) || has_rare_dtype(f);
  e->param_count = f->body.arg_count;
  e->result_count = f->body.ops[f->body.count - 1]->operand_count;
  ttpu_status status = opt_structure_get(f, &e->structure, &e->stats.structure_hit);
  if (status == TTPU_OK) status = opt_bind(e);
  if (status != TTPU_OK) {
    e->arena = NULL; /* the caller's still */
    soft_executable_free(e);
    return status;
  }
  atomic_fetch_add(&executables_bound, 1);
  if (base_dump_enabled("steps")) opt_dump_steps(e);
  *out = e;
  return TTPU_OK;
}

void soft_executable_free(soft_executable *e) {
  if (!e) return;
  for (uint32_t i = 0; i < e->step_count; ++i) opt_free_regions(e->steps[i].regions);
  opt_structure_release(e->structure);
  base_free(e->buffers);
  base_free(e->steps);
  if (e->arena) base_arena_delete(e->arena);
  base_free(e);
}

const ir_func *soft_executable_func(const soft_executable *e) { return e->f; }
soft_executable_stats soft_executable_get_stats(const soft_executable *e) { return e->stats; }

void opt_count_execution(void) { atomic_fetch_add(&executions, 1); }

soft_counters soft_get_counters(void) {
  return (soft_counters){opt_structures_compiled(), atomic_load(&executables_bound), atomic_load(&executions)};
}
