/* The function of float of which AVX2 has a vector loop of its own, ERF_lanes; within vm_kernels.inc.c, behind math_template.h. */

/* erf on 8 intervals of [0, 4): of interval i the coefficients of t^0 .. t^7, x = (i + 1/2 + t) / 2; below 1/2 it is erf_f32's
 * polynomial. Chebyshev fits made with mpmath; the largest error is 1.06 ulp. Beyond 4 it is 1 in float. (Without exp the chain of
 * instructions that wait for each other is a third as long.) */
const float tile_erf_8[8][8] = {
    {0.276326388f, 0.711155653f, 0.92290014f, 0.986671686f, 0.998537302f, 0.999899387f, 0.999995708f, 0.999999881f},
    {0.530007064f, 0.321465522f, 0.118260562f, 0.0263874978f, 0.00357115944f, 0.000293138641f, 1.45945114e-05f,
     4.40715723e-07f},
    {-0.0662507415f, -0.120549537f, -0.0739129335f, -0.0230890512f, -0.00401753932f, -0.000403066864f, -2.37173335e-05f,
     -8.26517407e-07f},
    {-0.0386463292f, 0.00334856962f, 0.0209419802f, 0.0112696672f, 0.00271556643f, 0.000345048029f, 2.44764087e-05f,
     9.96249355e-07f},
    {0.00793340802f, 0.00941722747f, -0.000383251056f, -0.00300659589f, -0.00119301607f, -0.000203606818f,
     -1.78855917e-05f, -8.61591786e-07f},
    {0.00250126934f, -0.00166324037f, -0.00147453579f, 0.000206874975f, 0.000333107717f, 8.61301523e-05f,
     9.80225923e-06f, 5.73147588e-07f},
    {-0.000614693039f, -0.000415357354f, 0.000321836647f, 0.0001414f, -4.34306457e-05f, -2.60603738e-05f,
     -4.27746818e-06f, -3.23309138e-07f},
    {-0.000123774676f, 0.000140201926f, 2.9158211e-05f, -4.64613368e-05f, -5.59320279e-06f, 4.976328e-06f,
     1.35312064e-06f, 1.33181217e-07f},
};

static inline __m256 erf_8(__m256 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f), size = _mm256_andnot_ps(sign, x);
  const __m256 scaled =
      _mm256_mul_ps(_mm256_min_ps(_mm256_set1_ps(0x1.fffffep1f), size), _mm256_set1_ps(2)); /* a NaN remains */
  const __m256i interval = _mm256_cvttps_epi32(scaled);
  const __m256 t = _mm256_sub_ps(_mm256_sub_ps(scaled, _mm256_cvtepi32_ps(interval)), _mm256_set1_ps(0.5f));
  __m256 y = _mm256_permutevar8x32_ps(_mm256_loadu_ps(tile_erf_8[7]), interval);
  for (int i = 6; i >= 0; --i)
    y = _mm256_fmadd_ps(y, t, _mm256_permutevar8x32_ps(_mm256_loadu_ps(tile_erf_8[i]), interval));
  y = _mm256_or_ps(_mm256_andnot_ps(sign, y), _mm256_and_ps(sign, x));
  const __m256 square = _mm256_mul_ps(x, x);
  __m256 p = _mm256_set1_ps(erf_near_f32[0]);
  for (int i = 1; i < 6; ++i) p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(erf_near_f32[i]));
  const __m256 small = _mm256_cmp_ps(size, _mm256_set1_ps(0.5f), _CMP_LT_OQ);
  return _mm256_blendv_ps(y, _mm256_fmadd_ps(p, x, x), small);
}

/* r[i] = erf(x[i]); r may be x. */
static void ERF_lanes(int64_t n, float *r, const float *x) {
  static const int32_t first[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(r + i, erf_8(_mm256_loadu_ps(x + i)));
  if (i == n) return;
  const __m256i mask = _mm256_loadu_si256((const __m256i *)(first + 8 - (n - i)));
  _mm256_maskstore_ps(r + i, mask, erf_8(_mm256_maskload_ps(x + i, mask)));
}
