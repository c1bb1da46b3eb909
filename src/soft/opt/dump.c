/* TTPU_DUMP=steps: what an executable does, step by step. */
#include <inttypes.h>
#include <stdio.h>

#include "soft/opt/opt.h"

static const char *const kind_names[] = {
    [BUFFER_PARAM] = "param", [BUFFER_CONSTANT] = "constant", [BUFFER_TEMP] = "temp", [BUFFER_RESULT] = "result"};

static void print_place(const soft_executable *e, base_text *t, const opt_place *p, ir_type type) {
  uint32_t root = p->buffer;
  while (e->buffers[root].same != root) root = e->buffers[root].same;
  const opt_buffer *b = &e->buffers[root];
  base_text_printf(t, "%s", kind_names[b->kind]);
  if (b->kind == BUFFER_TEMP) base_text_printf(t, "@%" PRId64, b->offset);
  else if (b->kind != BUFFER_CONSTANT) base_text_printf(t, "%u", b->number);
  if (b->donor != OPT_NO_BUFFER) base_text_printf(t, " over param%u", e->buffers[b->donor].number);
  base_text_printf(t, " %s[", base_dtypes[type.dtype].hlo_name);
  for (uint32_t d = 0; d < type.rank; ++d)
    base_text_printf(t, "%s%" PRId64 ":%" PRId64, d ? " " : "", type.dims[d], p->strides[d]);
  base_text_printf(t, "]");
  if (p->offset) base_text_printf(t, "+%" PRId64, p->offset);
}

void opt_dump_steps(const soft_executable *e) {
  static const char *const names[] = {
      [RUN_OP] = "op", [RUN_COPY] = "copy", [RUN_UPDATE] = "update", [RUN_RAMP] = "ramp"};
  base_text t = {0};
  base_text_printf(&t, "executable of %s: %u steps, %zu bytes of temporaries, structure %016" PRIx64 "\n",
                   e->f->name ? e->f->name : "main", e->step_count, e->slab_bytes, e->structure->key.a);
  for (uint32_t i = 0; i < e->step_count; ++i) {
    const soft_step *s = &e->steps[i];
    if (s->kind == RUN_TILE) {
      base_text_printf(&t, "%3u tile", i);
      for (uint32_t k = 0; k < s->prog->leaf_count; ++k) {
        base_text_printf(&t, k ? ", " : " ");
        print_place(e, &t, &s->leaves[k], ir_type_of(e->f, s->prog->leaves[k].value));
      }
      for (uint32_t k = 0; k < s->prog->out_count; ++k) {
        base_text_printf(&t, k ? ", " : " -> ");
        print_place(e, &t, &s->outs[k], ir_type_of(e->f, s->prog->outs[k].value));
      }
      base_text_printf(&t, "\n");
      tile_prog_print(s->prog, e->f, &t);
      continue;
    }
    base_text_printf(&t, "%3u %s %s", i, names[s->kind], s->op ? ir_ops[s->op->kind].name : "");
    for (uint32_t k = 0; k < s->operand_count; ++k) {
      base_text_printf(&t, k ? ", " : " ");
      print_place(e, &t, &s->operands[k].place, s->operands[k].type);
    }
    for (uint32_t k = 0; k < s->result_count; ++k) {
      base_text_printf(&t, k ? ", " : " -> ");
      print_place(e, &t, &s->results[k].place, s->results[k].type);
    }
    base_text_printf(&t, "\n");
  }
  if (t.data) fputs(t.data, stderr);
  base_text_free(&t);
}
