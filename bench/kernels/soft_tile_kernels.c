/* Nanoseconds an element of each f32 tile kernel over one tile in the first cache: finds loops that gcc did not vectorise. */
#include <stdio.h>

#include "soft/tile/prog.h"

static double now(void) { return 1e-9 * (double)base_now_ns(); }
static float a[1024], b[1024], d[1024 * 4];
static double acc[1024];

static double time_map(tile_fn fn, unsigned scalar) {
  double best = 1;
  for (int r = 0; r < 30; ++r) {
    double s = now();
    for (int i = 0; i < 20; ++i) fn(1024, d, a, b, a, scalar);
    double t = (now() - s) / 20 / 1024;
    best = t < best ? t : best;
  }
  return best * 1e9;
}

int main(void) {
  const tile_kernels *k = tile_kernels_get();
  for (int i = 0; i < 1024; ++i) a[i] = (float)i / 500.0f + 0.01f, b[i] = (float)(i % 7) + 0.5f;
  for (int kind = 1; kind < IR_KIND_COUNT; ++kind)
    if (k->map[kind][TTPU_F32])
      printf("%-24s %7.3f  f64 %7.3f  i32 %7.3f\n", ir_ops[kind].name, time_map(k->map[kind][TTPU_F32], 0),
             k->map[kind][TTPU_F64] ? time_map(k->map[kind][TTPU_F64], 0) / 2 * 2 : 0, k->map[kind][TTPU_I32] ? time_map(k->map[kind][TTPU_I32], 0) : 0);
  for (int t = 1; t < TTPU_DTYPE_COUNT; ++t)
    if (k->convert[TTPU_F32][t]) printf("f32 -> %-17s %7.3f  back %7.3f\n", base_dtypes[t].hlo_name, time_map(k->convert[TTPU_F32][t], 0), time_map(k->convert[t][TTPU_F32], 0));
  for (int t = 1; t < TTPU_DTYPE_COUNT; ++t)
    if (k->pack[t]) printf("pack %-19s %7.3f  unpack %7.3f  round %7.3f\n", base_dtypes[t].hlo_name, time_map(k->pack[t], 0), time_map(k->unpack[t], 0), time_map(k->round[t], 0));
  printf("compare %.3f select %.3f\n", time_map(k->compare[IR_LT][TTPU_F32], 0), time_map(k->select[2], 0));
  for (int f = 0; f < 4; ++f) {
    double best = 1, column = 1;
    for (int r = 0; r < 30; ++r) {
      double s = now();
      for (int i = 0; i < 20; ++i) k->fold_rows[f][TTPU_F32](1, 1024, acc, a);
      double t = (now() - s) / 20 / 1024;
      best = t < best ? t : best;
      s = now();
      for (int i = 0; i < 20; ++i) k->fold_columns[f][TTPU_F32](8, 128, acc, a);
      t = (now() - s) / 20 / 1024;
      column = t < column ? t : column;
    }
    printf("fold %d rows %.3f columns %.3f\n", f, best * 1e9, column * 1e9);
  }
  return 0;
}
