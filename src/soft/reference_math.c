/* Functions that libm lacks, to nearly full double accuracy. */
#include <math.h>

#include "soft/reference_int.h"

/* Reflection below 0, recurrence up to 10, then the asymptotic series (Abramowitz & Stegun 6.3.18). At 0 the
 * pole keeps PyTorch's sign; at the other poles there is no limit: NaN. */
double ref_digamma(double x) {
  if (x == 0) return copysign(INFINITY, -x);
  if (isinf(x)) return x > 0 ? x : NAN;
  if (x < 0) {
    double fraction = x - rint(x); /* exact, so that a pole near by is seen from its true distance */
    if (fraction == 0) return NAN;
    return ref_digamma(1 - x) - M_PI / tan(M_PI * fraction);
  }
  double shift = 0;
  for (; x < 10; x += 1) shift += 1 / x;
  static const double c[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12};
  double z = 1 / (x * x), series = 0;
  for (int i = 6; i >= 0; --i) series = (series + c[i]) * z;
  return log(x) - 0.5 / x - series - shift;
}

/* Winitzki's approximation (2e-3), then Halley's iteration, which triples the digits each time. Near 1 the
 * residual is taken from erfc, where 1 - |x| is exact. */
double ref_erf_inv(double x) {
  double a = fabs(x);
  if (!(a < 1)) return a == 1 ? copysign(INFINITY, x) : NAN;
  if (a < 1e-150) return x * 0.88622692545275801365; /* sqrt(pi)/2 */
  double l = log1p(-a * a), t = 2 / (M_PI * 0.147) + 0.5 * l;
  double y = sqrt(sqrt(t * t - l / 0.147) - t);
  for (int i = 0; i < 4; ++i) {
    double residual = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
    double step = residual / (M_2_SQRTPI * exp(-y * y));
    y -= step / (1 + y * step);
  }
  return copysign(y, x);
}
