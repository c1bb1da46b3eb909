/* Decompositions of the elementwise composites into StableHLO's own functions.
 *
 * Floats narrower than f32 are computed in f32. Formulas and errors are those of CHLO, whose names these operations
 * have; where a better conditioned identity is as cheap it is used instead. The largest errors seen on StableHLO's
 * reference interpreter, against SciPy and long double, in units in the last place: erf 6 (f32), erf_inv 13 (f32);
 * trigonometric and hyperbolic functions and their inverses 2; lgamma and digamma lose as many digits as the result has
 * zeros near by. tests/c/test_ir_composite.c holds the bounds. */
#include <math.h>

#include "ir/ir_int.h"

typedef ir_value V;

/* ---- vocabulary ----------------------------------------------------------------------------- */

static V k(ir_builder *b, V like, double value) { return ir_like_f64(b, like, value); }
static V add(ir_builder *b, V x, V y) { return ir_add(b, x, y); }
static V sub(ir_builder *b, V x, V y) { return ir_subtract(b, x, y); }
static V mul(ir_builder *b, V x, V y) { return ir_multiply(b, x, y); }
static V quotient(ir_builder *b, V x, V y) { return ir_divide(b, x, y); }
static V lt(ir_builder *b, V x, V y) { return ir_compare(b, IR_LT, x, y); }
static V square(ir_builder *b, V x) { return ir_multiply(b, x, x); }
static V add_k(ir_builder *b, V x, double c) { return ir_add(b, x, k(b, x, c)); }
static V mul_k(ir_builder *b, V x, double c) { return ir_multiply(b, x, k(b, x, c)); }
static V lt_k(ir_builder *b, V x, double c) { return ir_compare(b, IR_LT, x, k(b, x, c)); }

/* c[0] x^(n-1) + ... + c[n-1], by Horner's rule. */
static V polynomial(ir_builder *b, V x, int n, const double *c) {
  V p = k(b, x, c[0]);
  for (int i = 1; i < n; ++i) p = add_k(b, mul(b, p, x), c[i]);
  return p;
}
#define POLYNOMIAL(b, x, c) polynomial(b, x, (int)(sizeof(c) / sizeof *(c)), c)

static bool is_f64(ir_builder *b, V x) { return ir_type_of(b->func, x).dtype == TTPU_F64; }

/* ---- erf, erfc, erf_inv --------------------------------------------------------------------- */

/* erf on |x| <= 1 as x T(x^2) / U(x^2). Cephes, ndtr.c (f64) and ndtrf.c (f32, where U is 1). */
static V erf_small(ir_builder *b, V x) {
  static const double t64[] = {9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3,
                               7.00332514112805075473e3, 5.55923013010394962768e4};
  static const double u64[] = {1.0,
                               3.35617141647503099647e1,
                               5.21357949780152679795e2,
                               4.59432382970980127987e3,
                               2.26290000613890934246e4,
                               4.92673942608635921086e4};
  static const double t32[] = {7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2,
                               1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710e0};
  V s = square(b, x);
  if (!is_f64(b, x)) return mul(b, x, POLYNOMIAL(b, s, t32));
  return quotient(b, mul(b, x, POLYNOMIAL(b, s, t64)), POLYNOMIAL(b, s, u64));
}

/* erfc on a = |x| >= 1, before the sign. f64: exp(-a^2) P(a)/Q(a) to 8, R(a)/S(a) beyond; f32: exp(-a^2) / a times
 * a polynomial of 1/a^2, one to 2 and another beyond (Cephes). Where exp(-a^2) would be subnormal the result is 0. */
static V erfc_large(ir_builder *b, V a) {
  static const double p64[] = {2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
                               4.86371970985681366614e1,   1.96520832956077098242e2,  5.26445194995477358631e2,
                               9.34528527171957607540e2,   1.02755188689515710272e3,  5.57535335369399327526e2};
  static const double q64[] = {1.0,
                               1.32281951154744992508e1,
                               8.67072140885989742329e1,
                               3.54937778887819891062e2,
                               9.75708501743205489753e2,
                               1.82390916687909736289e3,
                               2.24633760818710981792e3,
                               1.65666309194161350182e3,
                               5.57535340817727675546e2};
  static const double r64[] = {5.64189583547755073984e-1, 1.27536670759978104416e0, 5.01905042251180477414e0,
                               6.16021097993053585195e0,  7.40974269950448939160e0, 2.97886665372100240670e0};
  static const double s64[] = {1.0,
                               2.26052863220117276590e0,
                               9.39603524938001434673e0,
                               1.20489539808096656605e1,
                               1.70814450747565897222e1,
                               9.60896809063285878198e0,
                               3.36907645100081516050e0};
  static const double p32[] = {2.326819970068386e-2,  -1.387039388740657e-1, 3.687424674597105e-1,
                               -5.824733027278666e-1, 6.210004621745983e-1,  -4.944515323274145e-1,
                               3.404879937665872e-1,  -2.741127028184656e-1, 5.638259427386472e-1};
  static const double r32[] = {-1.047766399936249e1, 1.297719955372516e1,  -7.495518717768503e0,  2.921019019210786e0,
                               -1.015265279202700e0, 4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1};
  bool wide = is_f64(b, a);
  V s = square(b, a), z = ir_negate(b, s), e = ir_exponential(b, z), y;
  if (wide) {
    V to_8 = quotient(b, mul(b, e, POLYNOMIAL(b, a, p64)), POLYNOMIAL(b, a, q64));
    V beyond = quotient(b, mul(b, e, POLYNOMIAL(b, a, r64)), POLYNOMIAL(b, a, s64));
    y = ir_select(b, lt_k(b, a, 8), to_8, beyond);
  } else {
    V one = k(b, a, 1), inverse = quotient(b, one, s);
    V fit = ir_select(b, lt_k(b, a, 2), POLYNOMIAL(b, inverse, p32), POLYNOMIAL(b, inverse, r32));
    y = mul(b, mul(b, e, quotient(b, one, a)), fit);
  }
  return ir_select(b, lt_k(b, z, wide ? -7.09782712893383996843e2 : -88.72283905206835), k(b, a, 0), y);
}

/* erfc for any x from the two: 1 - erf(x) inside, and 2 - erfc(-x) on the left. */
static V erfc_of(ir_builder *b, V x) {
  V a = ir_abs(b, x), large = erfc_large(b, a);
  large = ir_select(b, lt_k(b, x, 0), sub(b, k(b, x, 2), large), large);
  return ir_select(b, lt_k(b, a, 1), sub(b, k(b, x, 1), erf_small(b, x)), large);
}

/* f32: x Alpha(x^2) / Beta(x^2) on [-4, 4], beyond which erf is 1 to f32 (the rational fit of Eigen and XLA). */
static V erf_of(ir_builder *b, V x) {
  static const double alpha[] = {-2.72614225801306e-10, 2.77068142495902e-08,  -2.10102402082508e-06,
                                 -5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03,
                                 -1.60960333262415e-02};
  static const double beta[] = {-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03,
                                -7.37332916720468e-03, -1.42647390514189e-02};
  V one = k(b, x, 1);
  if (is_f64(b, x)) {
    V a = ir_abs(b, x), outside = sub(b, one, erfc_large(b, a));
    outside = ir_select(b, lt_k(b, x, 0), ir_negate(b, outside), outside);
    return ir_select(b, ir_compare(b, IR_GE, a, one), outside, erf_small(b, x)); /* NaN goes the second way */
  }
  V in = ir_clamp(b, k(b, x, -4), x, k(b, x, 4)), s = square(b, in);
  V y = quotient(b, mul(b, in, POLYNOMIAL(b, s, alpha)), POLYNOMIAL(b, s, beta));
  return ir_clamp(b, k(b, x, -1), y, one);
}

/* Giles, "Approximating the erfinv function" (2010): polynomials of w = -log(1 - x^2), or of its root, by range. */
static V erf_inv_32(ir_builder *b, V x, V w) {
  static const double centre[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                  -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
  static const double tail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
  V near = POLYNOMIAL(b, add_k(b, w, -2.5), centre), far = POLYNOMIAL(b, add_k(b, ir_sqrt(b, w), -3), tail);
  return mul(b, ir_select(b, lt_k(b, w, 5), near, far), x);
}

static V erf_inv_64(ir_builder *b, V x, V w) {
  static const double centre[] = {
      -3.6444120640178196996e-21, -1.685059138182016589e-19,  1.2858480715256400167e-18,  1.115787767802518096e-17,
      -1.333171662854620906e-16,  2.0972767875968561637e-17,  6.6376381343583238325e-15,  -4.0545662729752068639e-14,
      -8.1519341976054721522e-14, 2.6335093153082322977e-12,  -1.2975133253453532498e-11, -5.4154120542946279317e-11,
      1.051212273321532285e-09,   -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
      -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352,   -0.00074070253416626697512,
      -0.0060336708714301490533,  0.24015818242558961693,     1.6536545626831027356};
  static const double middle[] = {
      2.2137376921775787049e-09,  9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
      1.5027403968909827627e-06,  -4.013867526981545969e-06, 2.9234449089955446044e-06,  1.2475304481671778723e-05,
      -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05,  -0.0003550375203628474796,
      0.00095328937973738049703,  -0.0016882755560235047313, 0.0024914420961078508066,   -0.0037512085075692412107,
      0.005370914553590063617,    1.0052589676941592334,     3.0838856104922207635};
  static const double tail[] = {-2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
                                -3.7894654401267369937e-09, 7.6157012080783393804e-09,  -1.4960026627149240478e-08,
                                2.9147953450901080826e-08,  -6.7711997758452339498e-08, 2.2900482228026654717e-07,
                                -9.9298272942317002539e-07, 4.5260625972231537039e-06,  -1.9681778105531670567e-05,
                                7.5995277030017761139e-05,  -0.00021503011930044477347, -0.00013871931833623122026,
                                1.0103004648645343977,      4.8499064014085844221};
  V root = ir_sqrt(b, w);
  V near = POLYNOMIAL(b, add_k(b, w, -3.125), centre), between = POLYNOMIAL(b, add_k(b, root, -3.25), middle);
  V far = POLYNOMIAL(b, add_k(b, root, -5), tail);
  return mul(b, ir_select(b, lt_k(b, w, 6.25), near, ir_select(b, lt_k(b, w, 16), between, far)), x);
}

static V erf_inv(ir_builder *b, V x) {
  V w = ir_negate(b, ir_log_plus_one(b, mul(b, x, ir_negate(b, x))));
  V y = is_f64(b, x) ? erf_inv_64(b, x, w) : erf_inv_32(b, x, w);
  V end = ir_compare(b, IR_EQ, ir_abs(b, x), k(b, x, 1)); /* where the fit gives inf - inf */
  return ir_select(b, end, mul_k(b, x, INFINITY), y);
}

/* ---- lgamma, digamma ------------------------------------------------------------------------ */

/* Lanczos' approximation with g = 7 and nine terms (Godfrey's coefficients): with t = z + g + 1/2,
 *   gamma(z + 1) = sqrt(2 pi) t^(z + 1/2) exp(-t) A(z),   A(z) = c0 + sum ci / (z + i). */
static const double lanczos_g = 7, lanczos_c0 = 0.99999999999980993227684700473478;
static const double lanczos[8] = {676.520368121885098567009190444019, -1259.13921672240287047156078755283,
                                  771.3234287776530788486528258894,   -176.61502916214059906584551354,
                                  12.507343278686904814458936853,     -0.13857109526572011689554707,
                                  9.984369578019570859563e-6,         1.50563273514931155834e-7};

typedef struct gamma_terms {
  V reflect, z, t, log_t, a, a_prime;
} gamma_terms;

/* Below 1/2 the reflection formula is used: z = -x there, and x - 1 elsewhere. */
static gamma_terms gamma_terms_of(ir_builder *b, V x, bool derivative) {
  gamma_terms g;
  g.reflect = lt_k(b, x, 0.5);
  g.z = ir_select(b, g.reflect, ir_negate(b, x), add_k(b, x, -1));
  g.a = k(b, x, lanczos_c0);
  g.a_prime = k(b, x, 0);
  for (int i = 0; i < 8; ++i) {
    V c = k(b, x, lanczos[i]), denominator = add_k(b, g.z, i + 1);
    g.a = add(b, g.a, quotient(b, c, denominator));
    if (derivative) g.a_prime = sub(b, g.a_prime, quotient(b, c, square(b, denominator)));
  }
  g.t = add_k(b, g.z, lanczos_g + 0.5);
  g.log_t = add_k(b, ir_log_plus_one(b, mul_k(b, g.z, 1 / (lanczos_g + 0.5))), log(lanczos_g + 0.5));
  return g;
}

static V lgamma_of(ir_builder *b, V x) {
  gamma_terms g = gamma_terms_of(b, x, false);
  V half = k(b, x, 0.5), inf = k(b, x, INFINITY);
  /* (z + 1/2) log t - t, without an overflow between */
  V r = mul(b, sub(b, add(b, g.z, half), quotient(b, g.t, g.log_t)), g.log_t);
  V y = add(b, add_k(b, r, 0.5 * log(2 * M_PI)), ir_log(b, g.a));
  /* log|sin(pi x)|, from the distance to the nearest integer: exact, and 0 at the poles */
  V a = ir_abs(b, x), fraction = sub(b, a, ir_floor(b, a));
  fraction = ir_select(b, lt(b, half, fraction), sub(b, k(b, x, 1), fraction), fraction);
  V log_sine = ir_log(b, ir_sine(b, mul_k(b, fraction, M_PI)));
  V reflected = sub(b, sub(b, k(b, x, log(M_PI)), log_sine), y);
  reflected = ir_select(b, ir_is_finite(b, log_sine), reflected, ir_negate(b, log_sine)); /* not inf - inf */
  y = ir_select(b, g.reflect, reflected, y);
  return ir_select(b, ir_compare(b, IR_EQ, a, inf), inf, y);
}

/* log t + A'/A - g/t; below 1/2 minus pi cot(pi x). NaN at 0 and the negative integers, as CHLO has it. */
static V digamma_of(ir_builder *b, V x) {
  gamma_terms g = gamma_terms_of(b, x, true);
  V y = sub(b, add(b, g.log_t, quotient(b, g.a_prime, g.a)), quotient(b, k(b, x, lanczos_g), g.t));
  /* the argument of cot is moved into [-1/2, 1/2], where pi x keeps its bits */
  V nearest = ir_floor(b, add_k(b, x, 0.5)), angle = mul_k(b, sub(b, x, nearest), M_PI);
  V cotangent = quotient(b, mul_k(b, ir_cosine(b, angle), M_PI), ir_sine(b, angle));
  y = ir_select(b, g.reflect, sub(b, y, cotangent), y);
  V pole = ir_and_bits(b, ir_compare(b, IR_LE, x, k(b, x, 0)), ir_compare(b, IR_EQ, x, ir_floor(b, x)));
  return ir_select(b, pole, k(b, x, NAN), y);
}

/* ---- hyperbolic and inverse functions, real ------------------------------------------------- */

/* exp(|x|) / 2 for |x| so large that exp(-|x|) is lost, without overflow before the result does. */
static V half_exp(ir_builder *b, V a) {
  V root = ir_exponential(b, mul_k(b, a, 0.5));
  return mul(b, mul_k(b, root, 0.5), root);
}

static V sinh_of(ir_builder *b, V x) {
  V a = ir_abs(b, x), e = ir_exponential_minus_one(b, a);
  V small = mul_k(b, add(b, e, quotient(b, e, add_k(b, e, 1))), 0.5);
  V y = ir_select(b, lt_k(b, a, 20), small, half_exp(b, a));
  return mul(b, ir_sign(b, x), y);
}

static V cosh_of(ir_builder *b, V x) {
  V a = ir_abs(b, x), e = ir_exponential(b, a);
  V small = mul_k(b, add(b, e, quotient(b, k(b, x, 1), e)), 0.5);
  return ir_select(b, lt_k(b, a, 20), small, half_exp(b, a));
}

/* Beyond this x^2 + 1 rounds to x^2, and x^2 does not yet overflow. */
static double huge_of(ir_builder *b, V x) { return is_f64(b, x) ? 0x1p500 : 0x1p60; }

static V asinh_of(ir_builder *b, V x) {
  V a = ir_abs(b, x), s = square(b, a);
  V y = ir_log_plus_one(b, add(b, a, quotient(b, s, add_k(b, ir_sqrt(b, add_k(b, s, 1)), 1))));
  y = ir_select(b, lt_k(b, a, huge_of(b, x)), y, add_k(b, ir_log(b, a), M_LN2));
  return mul(b, ir_sign(b, x), y);
}

static V acosh_of(ir_builder *b, V x) {
  V t = add_k(b, x, -1);
  V y = ir_log_plus_one(b, add(b, t, ir_sqrt(b, mul(b, t, add_k(b, t, 2)))));
  y = ir_select(b, lt_k(b, x, huge_of(b, x)), y, add_k(b, ir_log(b, x), M_LN2));
  return ir_select(b, lt_k(b, x, 1), k(b, x, NAN), y);
}

static V atanh_of(ir_builder *b, V x) {
  return mul_k(b, sub(b, ir_log_plus_one(b, x), ir_log_plus_one(b, ir_negate(b, x))), 0.5);
}

/* sqrt(1 - x^2), accurate near both ends. */
static V cosine_of_asin(ir_builder *b, V x) {
  V one = k(b, x, 1);
  return ir_sqrt(b, mul(b, sub(b, one, x), add(b, one, x)));
}

/* ---- the same, complex: W. Kahan, "Branch cuts for complex elementary functions" (1987) ------ */

/* sqrt(c + s z) for real c and s = 1 or -1: by parts, so that a zero imaginary part keeps the sign that says which
 * side of a branch cut z is on. */
static V root_of(ir_builder *b, V z, double c, bool minus) {
  V x = ir_real(b, z), y = ir_imag(b, z);
  if (minus) return ir_sqrt(b, ir_complex(b, sub(b, k(b, x, c), x), ir_negate(b, y)));
  return ir_sqrt(b, ir_complex(b, add_k(b, x, c), y));
}

static V asin_complex(ir_builder *b, V z) {
  V minus = root_of(b, z, 1, true), plus = root_of(b, z, 1, false);
  V a = ir_real(b, minus), c = ir_imag(b, minus), d = ir_real(b, plus), e = ir_imag(b, plus);
  V re = ir_atan2(b, ir_real(b, z), sub(b, mul(b, a, d), mul(b, c, e)));
  return ir_complex(b, re, asinh_of(b, sub(b, mul(b, a, e), mul(b, c, d))));
}

static V acos_complex(ir_builder *b, V z) {
  V minus = root_of(b, z, 1, true), plus = root_of(b, z, 1, false);
  V a = ir_real(b, minus), c = ir_imag(b, minus), d = ir_real(b, plus), e = ir_imag(b, plus);
  V re = mul_k(b, ir_atan2(b, a, d), 2);
  return ir_complex(b, re, asinh_of(b, sub(b, mul(b, d, c), mul(b, e, a))));
}

static V acosh_complex(ir_builder *b, V z) {
  V minus = root_of(b, z, -1, false), plus = root_of(b, z, 1, false);
  V a = ir_real(b, minus), c = ir_imag(b, minus), d = ir_real(b, plus), e = ir_imag(b, plus);
  V re = asinh_of(b, add(b, mul(b, a, d), mul(b, c, e)));
  return ir_complex(b, re, mul_k(b, ir_atan2(b, c, d), 2));
}

static V atanh_complex(ir_builder *b, V z) {
  V x = ir_real(b, z), y = ir_imag(b, z), one = k(b, x, 1), y2 = square(b, y);
  V distance = add(b, square(b, sub(b, one, x)), y2);
  V re = mul_k(b, ir_log_plus_one(b, quotient(b, mul_k(b, x, 4), distance)), 0.25);
  V im = ir_atan2(b, mul_k(b, y, 2), sub(b, mul(b, sub(b, one, x), add(b, one, x)), y2));
  return ir_complex(b, re, mul_k(b, im, 0.5));
}

/* i z and -i z, exactly: a product with i would make NaN of infinities. */
static V times_i(ir_builder *b, V z) { return ir_complex(b, ir_negate(b, ir_imag(b, z)), ir_real(b, z)); }
static V over_i(ir_builder *b, V z) { return ir_complex(b, ir_imag(b, z), ir_negate(b, ir_real(b, z))); }

static V expand_complex(ir_builder *b, ir_kind kind, V z) {
  if (kind == IR_SINH || kind == IR_COSH) {
    V x = ir_real(b, z), y = ir_imag(b, z), c = ir_cosine(b, y), s = ir_sine(b, y);
    V sh = sinh_of(b, x), ch = cosh_of(b, x);
    return kind == IR_SINH ? ir_complex(b, mul(b, sh, c), mul(b, ch, s)) : ir_complex(b, mul(b, ch, c), mul(b, sh, s));
  }
  switch (kind) {
    case IR_ASIN: return asin_complex(b, z);
    case IR_ACOS: return acos_complex(b, z);
    case IR_ATAN: return over_i(b, atanh_complex(b, times_i(b, z)));
    case IR_ASINH: return over_i(b, asin_complex(b, times_i(b, z)));
    case IR_ACOSH: return acosh_complex(b, z);
    case IR_ATANH: return atanh_complex(b, z);
    default: return ir_fail(b, TTPU_INTERNAL, "%s has no complex decomposition", ir_ops[kind].name);
  }
}

/* ---- next_after ----------------------------------------------------------------------------- */

/* The bits of floats count upward with the magnitude, subnormals and infinity included. */
static V next_after(ir_builder *b, V x, V y) {
  if (b->status) return 0;
  ir_type type = ir_type_of(b->func, x);
  static const ttpu_dtype integers[] = {[1] = TTPU_I8, [2] = TTPU_I16, [4] = TTPU_I32, [8] = TTPU_I64};
  size_t bytes = base_dtype_bytes((ttpu_dtype)type.dtype);
  ttpu_dtype integer = integers[bytes];
  V bits = ir_bitcast_convert(b, x, integer), zero = k(b, x, 0);
  V one = ir_fill_i64(b, integer, type.rank, type.dims, 1),
    minus_one = ir_fill_i64(b, integer, type.rank, type.dims, -1);
  V sign = ir_fill_i64(b, integer, type.rank, type.dims, -(int64_t)(UINT64_MAX >> (65 - 8 * bytes)) - 1);
  V grows = ir_compare(b, IR_EQ, lt(b, x, y), lt(b, zero, x)); /* away from 0 */
  V next = ir_bitcast_convert(b, ir_add(b, bits, ir_select(b, grows, one, minus_one)), (ttpu_dtype)type.dtype);
  V smallest = ir_or_bits(b, ir_and_bits(b, ir_bitcast_convert(b, y, integer), sign), one); /* from 0: of y's sign */
  next = ir_select(b, ir_compare(b, IR_EQ, x, zero), ir_bitcast_convert(b, smallest, (ttpu_dtype)type.dtype), next);
  next = ir_select(b, ir_compare(b, IR_EQ, x, y), y, next);
  V nan = ir_or_bits(b, ir_compare(b, IR_NE, x, x), ir_compare(b, IR_NE, y, y));
  return ir_select(b, nan, k(b, x, NAN), next);
}

/* ---- the table ------------------------------------------------------------------------------ */

static V expand_real(ir_builder *b, ir_kind kind, V x) {
  switch (kind) {
    case IR_ERF: return erf_of(b, x);
    case IR_ERFC: return erfc_of(b, x);
    case IR_ERF_INV: return erf_inv(b, x);
    case IR_LGAMMA: return lgamma_of(b, x);
    case IR_DIGAMMA: return digamma_of(b, x);
    case IR_ASIN: return ir_atan2(b, x, cosine_of_asin(b, x));
    case IR_ACOS: return ir_atan2(b, cosine_of_asin(b, x), x);
    case IR_ATAN: return ir_atan2(b, x, k(b, x, 1));
    case IR_SINH: return sinh_of(b, x);
    case IR_COSH: return cosh_of(b, x);
    case IR_ASINH: return asinh_of(b, x);
    case IR_ACOSH: return acosh_of(b, x);
    case IR_ATANH: return atanh_of(b, x);
    default: return ir_fail(b, TTPU_INTERNAL, "%s has no decomposition", ir_ops[kind].name);
  }
}

ir_value ir_math_expand(ir_builder *b, ir_kind kind, ir_value x, ir_value y) {
  if (b->status) return 0;
  ttpu_dtype dtype = (ttpu_dtype)ir_type_of(b->func, x).dtype;
  if (kind == IR_NEXT_AFTER) return next_after(b, x, y);
  if (base_dtype_is_complex(dtype)) return expand_complex(b, kind, x);
  if (base_dtype_bytes(dtype) >= 4) return expand_real(b, kind, x);
  return ir_convert(b, expand_real(b, kind, ir_convert(b, x, TTPU_F32)), dtype);
}
