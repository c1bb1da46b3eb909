/* Tile programs as text, for TTPU_DUMP=steps. */
#include "soft/tile/prog.h"

static const char *const op_names[] = {
#define INSTRUCTION(ENUM, name) name,
#include "soft/tile/prog.def"
#undef INSTRUCTION
};
static const char *const table_names[] = {[TILE_MAP_COMPARE] = "compare", [TILE_MAP_CONVERT] = "convert",
                                          [TILE_MAP_SELECT] = "select",   [TILE_MAP_COPY] = "copy",
                                          [TILE_MAP_ROUND] = "round",     [TILE_MAP_PACK] = "pack",
                                          [TILE_MAP_UNPACK] = "unpack"};

static void print_slot(const tile_prog *p, uint16_t slot, base_text *out) {
  base_text_printf(out, " %c%u", "urf"[p->slots[slot].level], p->slots[slot].reg);
}

void tile_prog_print(const tile_prog *p, const ir_func *f, base_text *out) {
  (void)f;
  for (uint32_t i = 0; i < p->instr_count; ++i) {
    const tile_instr *in = &p->instrs[i];
    const char *name = in->op != TILE_MAP           ? op_names[in->op]
                       : in->table == TILE_MAP_KIND ? ir_ops[in->kind].name
                                                    : table_names[in->table];
    base_text_printf(out, "      %-8s %-14s", base_dtypes[in->type].hlo_name, name);
    if (in->op == TILE_GENERIC || in->op == TILE_REDUCE) base_text_printf(out, " (%s)", ir_ops[in->kind].name);
    if (in->op == TILE_STORE) base_text_printf(out, " out%u", in->dst);
    else print_slot(p, in->dst, out);
    if (in->op == TILE_LOAD) base_text_printf(out, " leaf%u", in->a);
    const uint16_t operands[3] = {in->a, in->b, in->c};
    for (uint32_t k = 0; k < in->operands; ++k) print_slot(p, operands[k], out);
    if (p->passes > 1) base_text_printf(out, "   %s %x", in->level == TILE_FULL ? "passes" : "after", in->passes);
    base_text_printf(out, "\n");
  }
}
