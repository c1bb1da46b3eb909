/* Functions of float of which AVX-512 has vector loops of its own, <KIND>_lanes; within vm_kernels.inc.c, behind math_template.h. */

/* erf on 32 intervals of [0, 4): of interval i the coefficients of t^0 .. t^4, x = (i + 1/2 + t) / 8; near 0
 * erf(x) = x + x*p(x^2). Chebyshev fits made with mpmath; the largest error is 1.05 ulp. Beyond 4 it is 1 in float. */
const float tile_erf_32[5][32] = {
    {0.0704319775f, 0.209117681f, 0.341468632f, 0.463898122f, 0.57367444f,  0.669084668f, 0.749464035f, 0.815102398f,
     0.867058277f,  0.906921744f, 0.936568558f, 0.957940578f, 0.972874641f, 0.982989728f, 0.98963064f,  0.993856788f,
     0.996463776f,  0.998022497f, 0.998925924f, 0.999433458f, 0.999709845f, 0.999855697f, 0.999930322f, 0.999967337f,
     0.999985158f,  0.999993443f, 0.999997199f, 0.999998808f, 0.999999523f, 0.999999821f, 0.99999994f,  1.0f},
    {0.140497431f,    0.136174798f,    0.127924398f,    0.116476506f,    0.102790177f,    0.0879211128f,
     0.072889179f,    0.0585681163f,   0.0456129014f,   0.0344304256f,   0.0251898374f,   0.0178622659f,
     0.0122765396f,   0.00817793421f,  0.00528006628f,  0.0033041772f,   0.00200408162f,  0.00117813633f,
     0.000671280141f, 0.00037071493f,  0.000198428665f, 0.00010294297f,  5.17626977e-05f, 2.52269674e-05f,
     1.19162905e-05f, 5.45563034e-06f, 2.42089845e-06f, 1.04120431e-06f, 4.34033325e-07f, 1.75362942e-07f,
     6.86720796e-08f, 2.60645443e-08f},
    {-0.00109763583f,  -0.00319159566f,  -0.0049970448f,   -0.00636980589f,  -0.00722743012f,  -0.00755571621f,
     -0.00740280235f,  -0.00686344597f,  -0.00605795905f,  -0.00511076301f,  -0.00413270574f,  -0.00320962514f,
     -0.00239776215f,  -0.00172503409f,  -0.00119626673f,  -0.000800232345f, -0.000516679196f, -0.000322148378f,
     -0.000194043329f, -0.000112953298f, -6.35599645e-05f, -3.45829467e-05f, -1.81981795e-05f, -9.26324992e-06f,
     -4.56183761e-06f, -2.17380352e-06f, -1.00244495e-06f, -4.47414436e-07f, -1.93291569e-07f, -8.08367631e-08f,
     -3.27290692e-08f, -1.28297835e-08f},
    {-0.000724986778f, -0.000658481498f, -0.000535534869f, -0.000374164199f, -0.000196682755f, -2.54396164e-05f,
     0.000121012039f,  0.000230501464f,  0.000298183091f,  0.000325905188f,  0.000320445921f,  0.000291239208f,
     0.000248191296f,  0.000200015464f,  0.00015327608f,   0.000112115042f,  7.84902222e-05f,  5.27001539e-05f,
     3.39883736e-05f,  2.10816015e-05f,  1.25880524e-05f,  7.24174879e-06f,  4.01648731e-06f,  2.1488629e-06f,
     1.10951919e-06f,  5.53094537e-07f,  2.66288993e-07f,  1.23858925e-07f,  5.56719222e-08f,  2.41869422e-08f,
     1.01589981e-08f,  4.1259649e-09f},
    {8.53908477e-06f,  2.43113027e-05f,  3.64424304e-05f,  4.33529603e-05f,  4.4498338e-05f,   4.03875201e-05f,
     3.23590284e-05f,  2.21993159e-05f,  1.17214122e-05f,  2.41422322e-06f,  -4.76602236e-06f, -9.44334715e-06f,
     -1.1736307e-05f,  -1.20941659e-05f, -1.11148665e-05f, -9.39147776e-06f, -7.41186841e-06f, -5.51499033e-06f,
     -3.89229581e-06f, -2.61645391e-06f, -1.68022007e-06f, -1.03308878e-06f, -6.09224514e-07f, -3.45046431e-07f,
     -1.87895083e-07f, -9.84650796e-08f, -4.96939343e-08f, -2.41686724e-08f, -1.13334933e-08f, -5.12668796e-09f,
     -2.23792651e-09f, -9.43066736e-10f},
};

static inline __m512 with_sign_of(__m512 size, __m512 x) {
  const __m512 sign = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(sign, size), _mm512_and_ps(sign, x));
}

static inline __m512 erf_16(__m512 x) {
  const __m512 size = _mm512_abs_ps(x);
  const __m512 scaled =
      _mm512_mul_ps(_mm512_min_ps(_mm512_set1_ps(0x1.fffffep1f), size), _mm512_set1_ps(8)); /* a NaN remains */
  const __m512i interval = _mm512_cvttps_epi32(scaled);
  const __m512 t = _mm512_sub_ps(_mm512_sub_ps(scaled, _mm512_cvtepi32_ps(interval)), _mm512_set1_ps(0.5f));
  __m512 y = _mm512_setzero_ps();
#pragma GCC unroll 5
  for (int i = 4; i >= 0; --i) {
    const __m512 low = _mm512_loadu_ps(tile_erf_32[i]), high = _mm512_loadu_ps(tile_erf_32[i] + 16);
    const __m512 coefficient = _mm512_permutex2var_ps(low, interval, high);
    y = i == 4 ? coefficient : _mm512_fmadd_ps(y, t, coefficient);
  }
  y = with_sign_of(y, x);
  const __m512 square = _mm512_mul_ps(x, x);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(-0.02622226f), square, _mm512_set1_ps(0.11281288f));
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(-0.37612608f));
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(0.12837917f));
  const __mmask16 small = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0.25f), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(y, small, _mm512_fmadd_ps(p, x, x));
}

/* exp, tanh and logistic of math_template.h, to the bit: one instruction scales by a power of two there. */
static inline __m512 exp_16(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(exp_least_f32), _mm512_min_ps(_mm512_set1_ps(exp_most_f32), x)); /* a NaN remains */
  const __m512 round = _mm512_set1_ps(round_f32);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(log2_e_f32), round), round);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-ln2_high_f32), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-ln2_low_f32), r);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(exp_terms_f32[0]), r, _mm512_set1_ps(exp_terms_f32[1]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(exp_terms_f32[2]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(exp_terms_f32[3]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(exp_terms_f32[4]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(exp_terms_f32[5]));
  p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
  return _mm512_scalef_ps(_mm512_add_ps(_mm512_set1_ps(1), p), n);
}

static inline __m512 tanh_16(__m512 x) {
  const __m512 size = _mm512_abs_ps(x), z = _mm512_mul_ps(x, x), one = _mm512_set1_ps(1), two = _mm512_set1_ps(2);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(tanh_terms_f32[0]), z, _mm512_set1_ps(tanh_terms_f32[1]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(tanh_terms_f32[2]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(tanh_terms_f32[3]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(tanh_terms_f32[4]));
  const __m512 low = _mm512_fmadd_ps(_mm512_mul_ps(p, z), x, x);
  const __m512 high = _mm512_sub_ps(one, _mm512_div_ps(two, _mm512_add_ps(exp_16(_mm512_mul_ps(two, size)), one)));
  const __mmask16 is_low = _mm512_cmp_ps_mask(size, _mm512_set1_ps(tanh_low_f32), _CMP_LT_OQ);
  const __mmask16 is_itself = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_UQ); /* zeros and NaNs */
  return _mm512_mask_mov_ps(_mm512_mask_mov_ps(with_sign_of(high, x), is_low, low), is_itself, x);
}

static inline __m512 logistic_16(__m512 x) {
  const __m512 one = _mm512_set1_ps(1), e = exp_16(_mm512_or_ps(x, _mm512_set1_ps(-0.0f)));
  const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ);
  const __m512 r = _mm512_div_ps(_mm512_mask_mov_ps(e, positive, one), _mm512_add_ps(one, e));
  return _mm512_mask_mov_ps(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

/* r[i] = function(x[i]); r may be x. */
#define LANES(name, function)                                                                        \
  static void name##_lanes(int64_t n, float *r, const float *x) {                                    \
    for (int64_t i = 0; i < n; i += 16) {                                                            \
      const __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)_bzhi_u32(0xffff, (unsigned)(n - i)); \
      _mm512_mask_storeu_ps(r + i, mask, function(_mm512_maskz_loadu_ps(mask, x + i)));              \
    }                                                                                                \
  }
LANES(EXPONENTIAL, exp_16)
LANES(TANH, tanh_16)
LANES(LOGISTIC, logistic_16)
LANES(ERF, erf_16)
